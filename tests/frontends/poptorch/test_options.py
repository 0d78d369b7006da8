"""Options: chaining, checking, freezing, and the machine that they choose."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch

from abele import poptorch
from abele.errors import InvalidOptionError, MachineError


def test_options__setters__chain_and_read_as_attributes() -> None:
    opts = poptorch.Options().deviceIterations(8).outputMode(poptorch.OutputMode.EveryN, 4).modelName("net")
    opts.Training.gradientAccumulation(3)
    assert (opts.device_iterations, opts.output_return_period, opts.model_name) == (8, 4, "net")
    assert opts.Training.gradient_accumulation == 3
    assert opts.toDict()["gradient_accumulation"] == 3
    assert opts.exists("model_name")
    assert not opts.deleteIfExists("model_name").exists("model_name")


def test_options__unknown_setter__names_the_nearest() -> None:
    with pytest.raises(AttributeError) as caught:
        poptorch.Options().deviceIteration(4)
    assert "Options has no option 'deviceIteration'" in str(caught.value)
    assert "did you mean 'deviceIterations'?" in str(caught.value)
    assert isinstance(caught.value, InvalidOptionError)


def test_options__unknown_setter_of_a_group__names_the_nearest() -> None:
    with pytest.raises(InvalidOptionError, match="did you mean 'gradientAccumulation'"):
        poptorch.Options().Training.gradientAcumulation(4)


def test_options__unknown_key__is_refused() -> None:
    with pytest.raises(AttributeError, match="did you mean 'device_iterations'"):
        poptorch.Options().set(device_iteration=4)


def test_options__value_of_another_type__is_refused() -> None:
    with pytest.raises(AssertionError, match="option 'device_iterations' takes a whole number from 1 on, got '4'"):
        poptorch.Options().set(device_iterations="4")


def test_options__frozen__do_not_change() -> None:
    opts = poptorch.Options()
    poptorch.DataLoader(opts, [1, 2, 3])
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.deviceIterations(2)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.Training.gradientAccumulation(2)


@pytest.mark.parametrize("duplicate", [lambda o: o.clone(), copy.deepcopy])
def test_options__copy_of_frozen_ones__can_be_changed(
    duplicate: Callable[[poptorch.Options], poptorch.Options],
) -> None:
    opts = poptorch.Options().deviceIterations(2)
    poptorch.DataLoader(opts, [1, 2])
    other = duplicate(opts)
    other.deviceIterations(4).Training.gradientAccumulation(2)
    assert (opts.device_iterations, other.device_iterations) == (2, 4)


def test_options__pickled__come_back() -> None:
    opts = poptorch.Options().deviceIterations(5)
    assert pickle.loads(pickle.dumps(opts)).device_iterations == 5


def test_options__repr__shows_what_is_set() -> None:
    assert "device_iterations=6" in repr(poptorch.Options().deviceIterations(6))


REFUSED: dict[str, tuple[Callable[[poptorch.Options], object], str]] = {
    "iterations": (lambda o: o.deviceIterations(0), "option 'device_iterations' takes a whole number from 1 on, got 0"),
    "accumulation": (
        lambda o: o.Training.gradientAccumulation(-1),
        "takes a whole number from 1 on, got -1",
    ),
    "replicas": (lambda o: o.replicationFactor(0), "'replication_factor' takes a whole number from 1 on, got 0"),
    "reduction": (
        lambda o: o.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.NoReduction),
        "must be set to poptorch.ReductionType.Mean or poptorch.ReductionType.Sum",
    ),
    "period": (lambda o: o.outputMode(poptorch.OutputMode.EveryN), "requires a positive output_return_period"),
    "stochastic": (
        lambda o: o.Precision.enableStochasticRounding(1),
        "'stochastic_rounding' takes true or false, got 1",
    ),
    "partials": (lambda o: o.Precision.setPartialsType(torch.bfloat16), "partial sums are .* not torch.bfloat16"),
    "memory_key": (lambda o: o.setAvailableMemoryProportion({"ipu": 0.5}), "Invalid key: ipu"),
    "memory_share": (lambda o: o.setAvailableMemoryProportion({"IPU0": 1.5}), "each a number above 0, at most 1, got"),
    "mode": (lambda o: o.Abele.mode("fast"), "'engine_mode' takes one of native, tiles, got 'fast'"),
    "threads": (lambda o: o.Abele.threads(-1), "'num_threads' takes a whole number from 0 on"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options__value_without_meaning__is_refused(name: str) -> None:
    setter, text = REFUSED[name]
    with pytest.raises((InvalidOptionError, AssertionError), match=text):
        setter(poptorch.Options())


def test_options__harmless_ones__are_stored() -> None:
    opts = (
        poptorch.Options()
        .useIpuModel(True)
        .autoRoundNumIPUs()
        .syncPattern(poptorch.SyncPattern.Full)
        .enableExecutableCaching("cache")
        .logDir("logs")
        .showCompilationProgressBar(False)
        .broadcastBuffers(False)
        .appendToLocationExcludes("site-packages")
    )
    assert opts.source_location_excludes == ["site-packages"]


def test_system__by_default__is_one_ipu_of_a_bow_2000(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABELE_SYSTEM", raising=False)
    target = poptorch.Options().Abele.target()
    assert (target.num_ipus, target.num_tiles) == (1, 1472)
    assert "Bow" in target.ipu.name


def test_system__environment__decides_unless_an_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABELE_SYSTEM", "m2000")
    opts = poptorch.Options()
    assert "GC200" in opts.Abele.target().ipu.name
    assert "Bow" in opts.system("bow-2000").Abele.target().ipu.name


def test_system__unknown_name__is_refused() -> None:
    with pytest.raises(MachineError):
        poptorch.Options().system("bow-3000")


def test_random_seed__seeds_pytorch_too() -> None:
    poptorch.Options().randomSeed(11)
    first = torch.rand(3)
    poptorch.Options().randomSeed(11)
    assert torch.equal(first, torch.rand(3))
