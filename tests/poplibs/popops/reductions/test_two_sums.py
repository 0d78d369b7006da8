"""Two sums made as one reduction, and vertices that all workers of a tile share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench, assert_close

from abele.codelet.layouts import DELTA_BYTES
from abele.compiler.footprint import vertex_state_bytes
from abele.graph import Execute
from abele.graph.compute_set import ComputeSet
from abele.graph.mapping import TileMapping
from abele.numerics import f32
from abele.poplibs import popops
from abele.poplibs.popops.reductions.reduce import reduce_two
from abele.poplibs.popops.reductions.two_sums import TwoSums
from support.examples import examples


def _emitted(bench: Bench, both: TwoSums) -> list[ComputeSet]:
    sets: list[ComputeSet] = []
    bench.sums = both.add(sets)  # type: ignore[attr-defined]
    for step in sets:
        bench.prog.add(Execute(step))
    return sets


@given(
    channels=st.sampled_from([1, 3, 16, 24, 64]),
    groups=st.integers(1, 4),
    rows=st.integers(1, 40),
    tiles=st.sampled_from([1, 4, 16]),
    squares=st.booleans(),
    dtype=st.sampled_from(["f16", "f32"]),
)
@examples(6)
def test_two_sums__of_any_channels__are_numpy(
    channels: int, groups: int, rows: int, tiles: int, squares: bool, dtype: str
) -> None:
    bench = Bench(tiles)
    rng = np.random.default_rng(rows)
    x, y = (bench.tensor(rng.uniform(-1, 1, (groups, rows, channels)), dtype) for _ in range(2))
    both = TwoSums.of(bench.graph, x, None if squares else y, (0, 2), "sums")
    if both is None:  # tiles with rectangles of several shapes: each sum has steps of its own
        return
    _emitted(bench, both)
    first, second = bench.run(*bench.sums)  # type: ignore[attr-defined]
    assert_close(first, bench.values(x).sum(1), f32, 4)
    assert_close(second, (bench.values(x) ** 2 if squares else bench.values(y)).sum(1), f32, 4)


def test_two_sums__of_channel_groups_on_a_tile__take_a_vertex_of_all_workers_a_step() -> None:
    # 4 groups of 16 channels, every tile with 30 rows of each: one vertex with 4 rows, which adds up what its workers
    # leave, then one for the results of all tiles.
    bench = Bench(16)
    x = bench.graph.variable("f16", (4, 480, 16), name="x")
    begin = np.arange(4 * 16, dtype=np.int64) * 30 * 16
    bench.graph.map(x, TileMapping(x.size, begin, np.tile(np.arange(16, dtype=np.int32), 4)))
    bench.data[x] = np.random.default_rng(0).uniform(-1, 1, x.shape).astype(np.float16)
    both = TwoSums.of(bench.graph, x, None, (0, 2), "sums")
    assert both is not None
    sets = _emitted(bench, both)
    first = sets[0].groups
    assert len(sets) == 2
    assert [np.bincount(g.tile).tolist() for g in first] == [[1] * 16]
    (group,) = first
    # A list of four rows, two pointers and five 16-bit counts.
    assert vertex_state_bytes([group], bench.graph.system.ipu, 16)[0] == 8 + 4 * DELTA_BYTES["DELTANELEMENTS"] + 8 + 12
    total, squares = bench.run(*bench.sums)  # type: ignore[attr-defined]
    assert_close(total, bench.values(x).sum(1), f32, 4)
    assert_close(squares, (bench.values(x) ** 2).sum(1), f32, 4)


def test_two_sums__shares_of_outputs_alone__lie_in_turns_of_whole_cells() -> None:
    # 2 rows of 64 columns on a tile: workers share columns, and leave one stretch of 64 results of each sum.
    bench = Bench(4)
    x = bench.tensor(np.random.default_rng(0).uniform(-1, 1, (8, 64)), "f32")
    both = TwoSums.of(bench.graph, x, None, (1,), "sums")
    assert both is not None
    assert both.turn == 64
    _emitted(bench, both)
    total, squares = bench.run(*bench.sums)  # type: ignore[attr-defined]
    assert_close(total, bench.values(x).sum(0), f32, 4)
    assert_close(squares, (bench.values(x) ** 2).sum(0), f32, 4)


def test_two_sums__of_tensors_that_lie_otherwise__are_left_to_two_reductions() -> None:
    bench = Bench(16)
    x = bench.tensor(np.zeros((64, 16)), "f32")
    y = bench.tensor(np.zeros((64, 16)), "f32", 3)
    assert TwoSums.of(bench.graph, x, y, (1,), "sums") is None
    assert TwoSums.of(bench.graph, x, x, (1,), "sums") is not None


@pytest.mark.parametrize("dims", [[0], [1], [0, 1]])
@pytest.mark.parametrize("op", ["ADD", "SQUARE_ADD", "MAX", "LOG_ADD"])
def test_reduce__shared_by_workers__is_numpy(op: str, dims: list[int]) -> None:
    bench = Bench(4)
    x = bench.tensor(np.random.default_rng(1).uniform(-1, 1, (96, 80)), "f32")
    out = popops.reduce(bench.graph, x, dims, op, bench.prog)
    at, value = tuple(dims), bench.values(x)
    wanted = {
        "ADD": lambda: value.sum(at),
        "SQUARE_ADD": lambda: (value**2).sum(at),
        "MAX": lambda: value.max(at),
        "LOG_ADD": lambda: np.log(np.exp(value).sum(at)),
    }[op]()
    assert_close(bench.run(out)[0], wanted, f32, 4)


def test_reduce_two__tiles_with_runs_of_several_lengths__take_a_vertex_each() -> None:
    # Every tile has two runs, of 100 and of 230 elements; 16 tiles have all 330 · 16 elements of either tensor.
    bench = Bench(16)
    tensors = tuple(bench.graph.variable("f16", (330 * 16,), name=n) for n in "xy")
    begin = np.cumsum(np.repeat([100, 230], 16)) - np.repeat([100, 230], 16)
    for n, t in enumerate(tensors):
        bench.graph.map(t, TileMapping(t.size, begin, np.tile(np.arange(16, dtype=np.int32), 2)))
        bench.data[t] = np.random.default_rng(n).uniform(-1, 1, t.shape).astype(np.float16)
    sums = reduce_two(bench.graph, tensors, "SQUARE_ADD", bench.prog, "norms")
    sets = bench.graph.compute_sets
    assert [np.bincount(g.tile).tolist() for g in sets[0].groups] == [[1] * 16]
    assert len(sets) == 2
    for got, host, t in zip(bench.run(*sums), bench.kernels(*sums), tensors, strict=True):
        assert_close(got, (bench.values(t) ** 2).sum(), f32, 4)
        assert_close(host, (bench.values(t) ** 2).sum(), f32, 4)


def test_reduce_two__tensors_of_two_shapes__are_two_reductions() -> None:
    bench = Bench(16)
    tensors = bench.tensor(np.ones((40, 16)), "f32"), bench.tensor(np.full((30, 16), 2), "f32")
    sums = reduce_two(bench.graph, tensors, "SQUARE_ADD", bench.prog, "norms")
    assert [float(v) for v in bench.run(*sums)] == [640, 1920]
