"""The shared order of sharded tensors, and tiles set apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import TensorError, TileMappingError
from abele.graph import Copy, Graph, Sequence
from abele.machine import systems
from abele.numerics import f32
from abele.poplibs import gcl
from abele.runtime import Engine
from support.examples import examples


def _reference(tiles):
    graph = Graph(systems.get("bow"))
    x = graph.variable("f32", (len(tiles),), "x")
    for n, tile in enumerate(tiles):
        x[n].map(tile)
    return graph, x


@examples(5)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 5))
def test_rearrangement__any_mapping__goes_both_ways_and_is_balanced(tiles, replicas):
    graph, x = _reference(tiles)
    order = gcl.CollectiveBalancedReorder(graph, x, replicas)
    host = order.host_rearrangement
    values = np.arange(1.0, len(tiles) + 1)
    shared = host.rearrange_for_collective(values)
    np.testing.assert_array_equal(host.undo_rearrange_for_collective(shared), values)
    assert sorted(host.source[host.source >= 0]) == list(range(len(tiles)))
    counts = np.bincount(tiles)
    assert order.num_elements_per_replica == (-(-counts // replicas)).sum()
    part = graph.mapping_of(order.create_replica_slice(f32))
    held = np.repeat(part.tile, part.length)
    for share in host.source.reshape(replicas, -1):
        used = share >= 0
        np.testing.assert_array_equal(np.array(tiles)[share[used]], held[used])


def test_rearrangement__of_tensors__is_that_of_the_host():
    graph, x = _reference([0, 0, 1, 1, 1, 0, 2])
    order = gcl.CollectiveBalancedReorder(graph, x, 2)
    shared, back = order.create_collectives_tensor(f32, "shared"), graph.variable("f32", (7,), "back").map(0)
    prog = Sequence(Copy(order.rearrange(x), shared), Copy(order.undo_rearrangement(shared), back))
    values = np.arange(1, 8, dtype=np.float32)
    with Engine(graph, prog, mode="tiles", keep=[x, shared, back]) as engine:
        engine[x] = values
        engine.run()
        expected = order.host_rearrangement.rearrange_for_collective(values)
        np.testing.assert_array_equal(engine[shared], expected)
        np.testing.assert_array_equal(engine[back], values)


def test_rearrangement__wrong_sizes_and_no_tiles__are_refused():
    graph, x = _reference([0, 1])
    order = gcl.CollectiveBalancedReorder(graph, x, 2)
    with pytest.raises(TensorError, match="takes 2 elements, got 3"):
        order.host_rearrangement.rearrange_for_collective(np.zeros(3))
    with pytest.raises(TensorError, match="takes 4 elements"):
        order.undo_rearrangement(x)
    with pytest.raises(TensorError, match="takes 2 elements"):
        order.rearrange(x[:1])
    with pytest.raises(TensorError, match="not mapped"):
        gcl.CollectiveBalancedReorder(graph, graph.variable("f32", (3,), "y"), 2)
    with pytest.raises(TensorError, match="0 replicas"):
        gcl.CollectiveBalancedReorder(graph, x, 0)


def test_per_ipu_tiles__of_two_ipus__in_both_orders():
    graph = Graph(systems.get("bow-2000:2"))
    assert gcl.per_ipu_tiles(graph, 4, 2) == [4, 5, 1476, 1477]
    assert gcl.per_ipu_tiles(graph, 4, 2, sorted=False) == [4, 1476, 5, 1477]
    with pytest.raises(TileMappingError, match="2 tiles from 1471 on, but an IPU has 1472"):
        gcl.per_ipu_tiles(graph, 1471, 2)
