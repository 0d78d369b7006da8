"""Cumulative sums against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from poplibs_kit import Bench

from abele import Graph
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Sequence
from abele.poplibs import popops

RNG = np.random.default_rng(3)


def summed(data: Any, dim: int, *, exclusive: bool, reverse: bool) -> Any:
    """NumPy's sums."""
    wide = np.flip(data, dim) if reverse else data
    sums = np.cumsum(wide.astype(np.float64), axis=dim)
    sums = sums - wide if exclusive else sums
    return np.flip(sums, dim) if reverse else sums


@pytest.mark.parametrize("way", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("shape", "dim"), [((1000,), 0), ((3, 257), 1), ((257, 3), 0), ((200, 5), 1), ((4, 6, 5), -2)])
def test_cum_sum__any_shape_and_way__equals_numpy(shape: tuple[int, ...], dim: int, way: tuple[bool, bool]) -> None:
    data = RNG.integers(-5, 6, shape).astype(np.float32)
    bench = Bench()
    x = bench.tensor(data)
    out = popops.cum_sum(bench.graph, x, dim, bench.prog, exclusive=way[0], reverse=way[1])
    np.testing.assert_array_equal(bench.run_both(out)[0], summed(data, dim, exclusive=way[0], reverse=way[1]))


@pytest.mark.parametrize("dtype", ["f16", "i32", "u16"])
def test_cum_sum__other_types__are_summed_in_theirs(dtype: str) -> None:
    data = RNG.integers(0, 3, (2, 300))
    bench = Bench()
    out = popops.cumSum(bench.graph, bench.tensor(data, dtype), 1, bench.prog, "sums")
    assert out.dtype.name == dtype
    np.testing.assert_array_equal(bench.run_both(out)[0], np.cumsum(data, axis=1))


def test_cum_sum__long_row__is_shared_by_the_tiles() -> None:
    bench = Bench()
    out = popops.cum_sum(bench.graph, bench.tensor(np.ones(4096, np.float32)), 0, bench.prog)
    assert len(set(bench.graph.mapping_of(out).tile.tolist())) == 64


def test_cum_sum__nothing__gives_nothing() -> None:
    graph = Graph("bow")
    assert popops.cum_sum(graph, graph.variable("f32", (0,)), 0, Sequence()).shape == (0,)


def test_cum_sum__wrong_operand__is_refused() -> None:
    graph = Graph("bow")
    x = graph.variable("f32", (4,), map=0)
    with pytest.raises(TensorError, match=r"cum_sum: .* has no dimension 1"):
        popops.cum_sum(graph, x, 1, Sequence())
    with pytest.raises(TypeMismatchError, match="cannot be summed"):
        popops.cum_sum(graph, graph.variable("bool", (4,), map=0), 0, Sequence())
