"""Collectives between the IPUs of one replica, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from abele.compiler import compile_program
from abele.errors import InvalidOptionError, TensorError
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.poplibs import gcl
from abele.runtime import Engine


def _setup(ipus, width, dtype, tiles=4):
    whole = systems.get("bow-pod16").with_ipus(ipus)
    graph = Graph(replace(whole, ipu=replace(whole.ipu, num_tiles=tiles)))
    x = graph.variable(dtype, (ipus, width), "x").map_rows([i * tiles for i in range(ipus)])
    values = (
        np.random.default_rng(0).integers(1, 5, (ipus, width)).astype({"f32": "f4", "f16": "f2", "i32": "i4"}[dtype])
    )
    return graph, x, values, Sequence()


def _run(graph, x, values, prog, out, **way):
    with Engine(graph, prog, keep=[x, out], **(way or {"mode": "tiles"})) as engine:
        engine[x] = values
        engine.run()
        return np.asarray(engine[out])


@pytest.mark.parametrize("way", [{"mode": "native"}, {"debug": True}], ids=str)
@pytest.mark.parametrize("method", ["auto", "anticlockwise_ring"])
@pytest.mark.parametrize(("ipus", "width", "dtype"), [(1, 5, "f32"), (2, 1, "f16"), (4, 67, "i32"), (16, 35, "f32")])
def test_all_reduce_within__any_size__every_ipu_has_the_sum(ipus, width, dtype, method, way):
    graph, x, values, prog = _setup(ipus, width, dtype)
    out = gcl.all_reduce_within_replica(graph, x, "add", prog, options={"method": method})
    np.testing.assert_array_equal(
        _run(graph, x, values, prog, out, **way), np.broadcast_to(values.sum(0), values.shape)
    )


def test_reduce_scatter_and_all_gather_within__parts__lie_on_their_ipus():
    graph, x, values, prog = _setup(4, 40, "f32")
    part = gcl.reduce_scatter_within_replica(graph, x, "mean", prog)
    whole = gcl.all_gather_within_replica(graph, part, prog)
    np.testing.assert_allclose(_run(graph, x, values, prog, part).ravel(), values.mean(0))
    np.testing.assert_allclose(_run(graph, x, values, prog, whole), np.broadcast_to(values.mean(0), (4, 40)))
    for tensor in (part, whole):
        for ipu in range(4):
            assert set((graph.mapping_of(tensor[ipu]).tile // 4).tolist()) == {ipu}


@pytest.mark.parametrize("ipus", [2, 4])
def test_all_reduce_within__large__respects_the_links(ipus):
    graph = Graph(systems.get("bow-pod16").with_ipus(ipus))
    size = 1 << 22
    x = graph.variable("f32", (ipus, size), "x").map_linear()
    prog = Sequence()
    gcl.all_reduce_within_replica(graph, x, "add", prog)
    links = graph.system.ipu_links
    bundle = links.bundle_bytes_per_second(links.pair_links if ipus == 2 else links.rail_links)
    # A pair has links one way each; on a ring half goes each way round.
    ways = 1 if ipus == 2 else 2
    bound = 2 * (ipus - 1) / ipus * 4 * size / bundle / ways * graph.system.ipu.clock_hz
    cycles = compile_program(graph, prog, allow_out_of_memory=True).report.cycles().total
    assert bound <= cycles <= 1.25 * bound


def test_errors__name_what_is_wrong():
    graph, x, _, prog = _setup(2, 6, "i32")
    with pytest.raises(TensorError, match="one row for each of the 2 IPUs"):
        gcl.all_gather_within_replica(graph, x[0], prog)
    with pytest.raises(TensorError, match="local combines nothing"):
        gcl.all_reduce_within_replica(graph, x, "local", prog)
    with pytest.raises(InvalidOptionError, match="methd"):
        gcl.all_reduce_within_replica(graph, x, "add", prog, options={"methd": 1})
