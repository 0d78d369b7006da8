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
    # 4 groups of 16 channels, every tile with 30 rows of each: one vertex with 4 rows, then one for the 24 results.
    bench = Bench(16)
    x = bench.graph.variable("f16", (4, 480, 16), name="x")
    begin = np.arange(4 * 16, dtype=np.int64) * 30 * 16
    bench.graph.map(x, TileMapping(x.size, begin, np.tile(np.arange(16, dtype=np.int32), 4)))
    bench.data[x] = np.random.default_rng(0).uniform(-1, 1, x.shape).astype(np.float16)
    both = TwoSums.of(bench.graph, x, None, (0, 2), "sums")
    assert both is not None
    first = _emitted(bench, both)[0].groups
    assert [np.bincount(g.tile).tolist() for g in first] == [[1] * 16]
    (group,) = first
    # A list of four rows, a pointer and five 16-bit counts.
    assert vertex_state_bytes([group], bench.graph.system.ipu, 16)[0] == 8 + 4 * DELTA_BYTES["DELTANELEMENTS"] + 4 + 12
    total, squares = bench.run(*bench.sums)  # type: ignore[attr-defined]
    assert_close(total, bench.values(x).sum(1), f32, 4)
    assert_close(squares, (bench.values(x) ** 2).sum(1), f32, 4)


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
