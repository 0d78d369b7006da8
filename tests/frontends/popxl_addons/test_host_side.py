"""Host side of ``popxl_addons``, and ``popdist``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from abele import popdist, popxl
from abele.errors import InvalidOptionError
from abele.frontends.popxl import ops
from abele.frontends.popxl_addons.layers import Embedding, Linear
from abele.frontends.popxl_addons.testing_utils import run_module
from abele.frontends.popxl_addons.utils import WeightsDict, seed_variable, suffix_graph_name, timer, to_numpy

F32 = np.float32


def test_weights_dict__of_tensors_of_pytorch__has_the_variables_types() -> None:
    ir = popxl.Ir(4)
    with ir.main_graph:
        plain = popxl.variable(np.zeros((2, 3)), popxl.float16)
        groups = ir.replica_grouping(group_size=2)
        parts = popxl.variable(np.zeros((2, 4)), popxl.float32, replica_grouping=groups)
    weights = WeightsDict({plain: torch.ones(2, 3, dtype=torch.float64)})
    weights.update({parts: np.arange(8).reshape(2, 4)})
    assert {t.id: a.dtype.name for t, a in weights.items()} == {plain.id: "float16", parts.id: "float32"}
    with pytest.raises(ValueError, match="has a weight already"):
        weights.update({plain: np.zeros((2, 3))})
    with pytest.raises(ValueError, match=r"is \[3, 2\], the variable \[2, 3\](.|\n)*transpose"):
        WeightsDict({plain: np.zeros((3, 2))})
    with pytest.raises(ValueError, match=r"is \[4\], the variable \[2, 4\]"):
        WeightsDict({parts: np.zeros(4)})
    with pytest.raises(TypeError, match="by tensor"):
        WeightsDict([("a", np.zeros(3))])
    # An array of a single group may have the group's axis.
    assert WeightsDict({plain: np.ones((1, 2, 3))})[plain].shape == (2, 3)


def test_seed_variable__in_each_run__gives_another_seed() -> None:
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        state, seed = seed_variable(42)
        stream = popxl.d2h_stream((64,), popxl.float32)
        ops.host_store(stream, ops.random_uniform(seed, (64,)))
    draws = []
    with popxl.Session(ir) as session:
        for _ in range(3):
            draws.append(session.run()[stream])
        session.write_variable_data(state, popxl.create_seeds(42))
        again = session.run()[stream]
    assert len({d.tobytes() for d in draws}) == 3
    np.testing.assert_array_equal(again, draws[0])


def test_timer_and_names__of_a_program__say_what_they_are() -> None:
    said: list[str] = []
    with pytest.raises(KeyError), timer("Loading", said.append):
        raise KeyError
    assert said[0].startswith("Loading took 0.0")
    assert suffix_graph_name("Linear_3", "grad") == "Linear_grad"
    assert suffix_graph_name("head", "grad") == "head_grad"
    data = np.ones(3, F32)
    assert to_numpy(data, copy=False) is data
    assert to_numpy(np.ones(3)).dtype == F32


def test_offset_input__of_numbers__counts_from_each_shard() -> None:
    shifted = Embedding.offset_input(np.array([[0, 4], [9, 3]]), 10, 3)
    np.testing.assert_array_equal(shifted, [[[0, 4], [9, 3]], [[-4, 0], [5, -1]], [[-8, -4], [1, -5]]])
    assert (Embedding.get_vocab_shard_size(10, 3), Embedding.get_offsets(10, 3).tolist()) == (4, [0, 4, 8])


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "axis": (lambda: Embedding(popxl.float32, 4, 4, axis=2), ValueError, "0 for rows"),
    "floats": (lambda: Embedding.offset_input(np.zeros(3), 4, 2), ValueError, "whole numbers"),
    "weight name": (
        lambda: run_module(Linear(2), np.zeros((1, 3), F32), weights={"wieght": np.zeros((3, 2))}),
        ValueError,
        "no variable is named 'wieght'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_host_side__what_does_not_fit__is_refused(case: str) -> None:
    made, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        made()


def test_popdist__in_a_job_of_ranks__tells_instances_and_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PMI_SIZE", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "ABELE_RANK_REPLICAS"):
        monkeypatch.delenv(name, raising=False)
    assert not popdist.isPopdistEnvSet()
    alone = (popdist.getNumInstances(), popdist.getInstanceIndex(), popdist.getNumTotalReplicas())
    assert alone == (1, 0, 1)
    popdist.init()
    popdist.synchronize()
    for name, value in {"PMI_SIZE": "3", "PMI_RANK": "2", "ABELE_RANK_REPLICAS": "4"}.items():
        monkeypatch.setenv(name, value)
    assert popdist.isPopdistEnvSet()
    facts = (popdist.getInstanceIndex(), popdist.getNumLocalReplicas(), popdist.getNumTotalReplicas())
    assert facts == (2, 4, 12)
    assert popdist.getReplicaIndexOffset() == 8
    assert popdist.getDevice().numIpus == 4
    ran: list[int] = []
    popdist.execute_on_instances([0, 1])(ran.append)(1)
    popdist.execute_on_instances({2})(ran.append)(2)
    assert ran == [2]
    with pytest.raises(InvalidOptionError, match="instance 3 is none of the 3"):
        popdist.execute_on_instances([3])
    popart = importlib.import_module("abele.popart")
    options = popdist.popart.configureSessionOptions(popart.SessionOptions())
    assert (options.enableReplicatedGraphs, options.replicatedGraphCount) == (True, 4)
    # Programs of Keras are one process each, and share what does not depend on it.
    keras = importlib.import_module("abele.frontends.keras.popdist")
    assert (keras.getNumInstances(), keras.getDeviceId) == (1, popdist.getDeviceId)
