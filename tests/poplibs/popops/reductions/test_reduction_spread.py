"""Reductions of views that show a few elements many times: what they give, and how they are spread."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench

from abele.compiler import compile_program
from abele.graph import Graph, Sequence, Tensor, concat
from abele.machine import systems
from abele.poplibs import popops
from support.examples import examples

RNG = np.random.default_rng(13)


def padded(graph: Graph, x: Tensor, extent: int, fill: float, dim: int) -> Tensor:
    """``x`` with a number behind it along a dimension, as far as ``extent``."""
    shape = list(x.shape)
    shape[dim] = extent - shape[dim]
    number = graph.constant(x.dtype, (), fill, name="fill").map(0)
    return concat([x, number.broadcast_to(shape)], dim)


@examples(4)
@given(
    rows=st.integers(1, 9),
    extent=st.integers(200, 900),
    columns=st.integers(1, 130),
    fill=st.sampled_from([0.0, 2.0]),
    keeps=st.sampled_from([(0,), (1,), ()]),
)
def test_reduce__one_element_shown_many_times__equals_numpy(
    rows: int, extent: int, columns: int, fill: float, keeps: tuple[int, ...]
) -> None:
    data = RNG.integers(-4, 5, (rows, columns)).astype(np.float32)
    bench = Bench()
    view = padded(bench.graph, bench.tensor(data), extent, fill, 0)
    gone = [d for d in range(2) if d not in keeps]
    out = popops.reduce(bench.graph, view, gone, "ADD", bench.prog)
    whole = np.concatenate([data, np.full((extent - rows, columns), fill, np.float32)])
    np.testing.assert_array_equal(bench.run_both(out)[0], whole.sum(tuple(gone)))


@pytest.mark.parametrize(("shape", "dim", "keeps"), [((8, 1, 256), 1, 2), ((8, 1, 256), 1, 1), ((1, 64, 300), 0, 1)])
def test_reduce__slice_among_zeros__leaves_no_tile_with_twice_the_mean(
    shape: tuple[int, ...], dim: int, keeps: int
) -> None:
    graph, prog = Graph(systems.get("bow-2000:1")), Sequence()
    x = graph.variable("f32", shape, name="x").map_linear()
    view = padded(graph, x, 128, 0.0, dim)
    popops.reduce(graph, view, [d for d in range(3) if d != keeps], "ADD", prog)
    report = compile_program(graph, prog).report
    held = np.repeat(report.memory.run_bytes[1], report.memory.run_tiles)
    assert report.memory.categories[1] == "temporaries"
    # In all they are about as large as the view; on one tile they were it.
    assert held.max() < 4096 + 2 * view.size * 4 / graph.num_tiles


def test_reduce__elements_that_lie_on_one_tile_each_once__stay_there() -> None:
    graph, prog = Graph(systems.get("bow-2000:1")), Sequence()
    x = graph.variable("f32", (128, 64), name="x", map=3)
    popops.reduce(graph, x, [0], "ADD", prog)
    tiles = {int(t) for s in graph.compute_sets for g in s.groups for t in np.unique(g.tile)}
    assert tiles == {3}
