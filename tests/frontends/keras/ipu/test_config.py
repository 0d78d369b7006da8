"""``IPUConfig``: defaults, errors, data, and the settings that become of it."""

from __future__ import annotations

import copy
import warnings

import pytest

from abele.errors import AbeleError, InvalidOptionError
from abele.frontends.keras.ipu import config, utils
from abele.frontends.keras.ipu.config import IPUConfig, StochasticRoundingBehaviour
from abele.frontends.keras.ipu.environment import settings_of

DEFAULTS = {
    "auto_select_ipus": [],
    "allow_recompute": False,
    "matmuls.poplar_options": {},
    "floating_point_behaviour.esr": StochasticRoundingBehaviour.OFF,
    "device_connection.type": config.DeviceConnectionType.ALWAYS,
    "optimizations.minimum_remote_tensor_size": 128,
    "optimizations.prefetch_data_streams": True,
    "optimizations.math.dot_strength": True,
    "scheduling.algorithm": config.SchedulingAlgorithm.CHOOSE_BEST,
    "scheduling.maximum_scheduler_search_space_size": 64,
    "norms.experimental.distributed_batch_norm_replica_group_size": 1,
    "io_tiles.num_io_tiles": 0,
}


@pytest.mark.parametrize(("path", "default"), DEFAULTS.items(), ids=DEFAULTS)
def test_config__attribute__has_its_default(path: str, default: object) -> None:
    assert IPUConfig().get_attribute_metadata(path).default == default


def test_config__unknown_attribute__is_a_value_error_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="'auto_selct_ipus' is no attribute") as error:
        IPUConfig().auto_selct_ipus  # noqa: B018
    assert "did you mean 'auto_select_ipus'?" in str(error.value)
    with pytest.raises(ValueError, match="no attribute of IPUConfig"):
        IPUConfig().matmuls.poplar_optons = {}


def test_config__wrong_type__names_those_that_are_allowed() -> None:
    with pytest.raises(TypeError, match="cannot be 'two', a str") as error:
        IPUConfig().auto_select_ipus = "two"
    assert "int, list, tuple" in str(error.value)
    with pytest.raises(TypeError, match="cannot be 1, a int"):
        IPUConfig().allow_recompute = 1


def test_config__category__cannot_be_assigned_to() -> None:
    with pytest.raises(AbeleError, match="is a category"):
        IPUConfig().matmuls = {}


def test_config__as_data_and_back__is_equal() -> None:
    made = IPUConfig()
    made.auto_select_ipus = [2, 4]
    made.scheduling.algorithm = "CLUSTERING"
    made.floating_point_behaviour.esr = StochasticRoundingBehaviour.ON
    made.convolutions.poplar_options = {"partialsType": "half"}
    assert IPUConfig.from_dict(made.to_dict()) == made
    assert IPUConfig.from_json(made.to_json()) == made
    assert copy.deepcopy(made) == made != IPUConfig()
    assert made.num_ipus == 2
    assert "scheduling.algorithm" in repr(made)


def test_config__set_all__switches_traps_and_rounding_on() -> None:
    made = IPUConfig()
    made.floating_point_behaviour.set_all = True
    assert made.floating_point_behaviour.div0
    assert made.floating_point_behaviour.esr is StochasticRoundingBehaviour.ON


def test_configure__equal_again__nothing_another_one__warns() -> None:
    first, second = IPUConfig(), IPUConfig()
    second.auto_select_ipus = 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first.configure_ipu_system()
        utils.configure_ipu_system(IPUConfig())
    with pytest.warns(UserWarning, match="configured again"):
        second.configure_ipu_system()
    assert config.get_ipu_config().num_ipus == 2


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("device_connection.type", "NEVER", "version is empty"),
        ("io_tiles.place_ops_on_io_tiles", True, "num_io_tiles is 0"),
        ("device_connection.version", "ipu9", "one of ipu1"),
    ],
)
def test_configure__attributes_that_do_not_fit__are_refused(path: str, value: object, said: str) -> None:
    made = IPUConfig()
    category, name = path.split(".")
    setattr(getattr(made, category), name, value)
    with pytest.raises(InvalidOptionError, match=said):
        made.configure_ipu_system()


def test_settings__of_a_configuration__have_what_is_honoured(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    made = IPUConfig()
    made.auto_select_ipus = 8
    made.matmuls.poplar_options = {"availableMemoryProportion": "0.3", "partialsType": "half"}
    made.floating_point_behaviour.set_all = True
    made.norms.use_stable_statistics = made.allow_recompute = True
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--use_synthetic_data --executable_cache_path={tmp_path}")
    found = settings_of(made, "model")
    assert (found.memory_proportion, found.partials) == (0.3, "f16")
    assert found.exceptions
    assert found.stochastic_rounding
    assert found.stable_norms
    assert found.recompute
    assert found.synthetic_data
    assert found.cache == str(tmp_path)
    assert found.target(8).num_ipus == 8


def test_flags__unknown__is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_dat")
    with pytest.raises(InvalidOptionError, match="has no flag") as error:
        settings_of(IPUConfig(), "model")
    assert "--use_synthetic_data" in str(error.value)


def test_flags__fewer_tiles__are_modelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model --ipu_model_tiles=128")
    assert settings_of(IPUConfig(), "model").target(1).ipu.num_tiles == 128
