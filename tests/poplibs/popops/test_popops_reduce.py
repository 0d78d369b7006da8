"""Reductions against NumPy in 64 bits, their plans, their cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from poplibs_kit import Bench, assert_close

from abele.compiler.cost import vertex_costs
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Execute, walk
from abele.numerics import f16, f32, i32
from abele.poplibs import popops

RNG = np.random.default_rng(2)
NUMPY = {
    "ADD": lambda x, d: x.sum(axis=d),
    "SQUARE_ADD": lambda x, d: (x * x).sum(axis=d),
    "MUL": lambda x, d: x.prod(axis=d),
    "MAX": lambda x, d: x.max(axis=d),
    "MIN": lambda x, d: x.min(axis=d),
}


def _compute_sets(bench: Bench) -> list[object]:
    return [s.compute_set for s in walk(bench.prog) if isinstance(s, Execute)]


@pytest.mark.parametrize("op", NUMPY)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_reduce__every_operation__is_numpy(op: str, dtype: str) -> None:
    bench = Bench(64)
    x = bench.tensor(RNG.uniform(0.5, 1.5, (3, 16, 4, 5)), dtype, "activations")
    out = popops.reduce(bench.graph, x, [0, 2, 3], op, bench.prog)
    wanted = NUMPY[op](bench.values(x), (0, 2, 3))
    (got,) = bench.run_both(out)
    np.testing.assert_allclose(got, wanted, rtol=2e-5 if dtype == "f32" else 2e-3)
    np.testing.assert_allclose(bench.kernels(out)[0], wanted, rtol=1e-12)


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    dims=st.lists(st.booleans(), min_size=4, max_size=4),
    num_tiles=st.sampled_from([1, 4, 37]),
    activations=st.booleans(),
)
@settings(max_examples=25)
def test_reduce__any_dimensions__is_numpy(
    shape: list[int], dims: list[bool], num_tiles: int, activations: bool
) -> None:
    bench = Bench(num_tiles)
    layout = "activations" if activations and len(shape) > 1 else "linear"
    x = bench.tensor(RNG.standard_normal(shape), "f32", layout)
    gone = tuple(d for d, chosen in enumerate(dims[: len(shape)]) if chosen)
    out = popops.reduce(bench.graph, x, gone, "ADD", bench.prog)
    wanted = bench.values(x).sum(axis=gone)
    assert_close(bench.run(out)[0], wanted, f32)
    assert_close(bench.kernels(out)[0], wanted, f32)


def test_reduce__two_million_elements_to_one__spreads_every_step() -> None:
    bench = Bench(1472)
    x = bench.tensor(np.zeros((1472, 1000)), "f32")
    popops.reduce(bench.graph, x, [0, 1], "ADD", bench.prog)
    busiest = []
    for compute_set in _compute_sets(bench):
        (group,) = compute_set.groups
        rows = group.edges["x"]
        busiest.append(int(np.bincount(group.tile[rows.vertex_of_row], weights=rows.row_sizes).max()))
        assert np.bincount(group.tile).max() <= 6
    assert busiest == [1000, 6, 39, 38]


@pytest.mark.parametrize("rows", [2, 5, 40, 700, 1472])
def test_reduce__deeper_operands__take_more_steps_but_not_many(rows: int) -> None:
    bench = Bench(1472)
    x = bench.graph.variable(f32, (rows, 8), name="x").map_rows(range(rows))
    popops.reduce(bench.graph, x, [0], "ADD", bench.prog)
    assert len(_compute_sets(bench)) == {2: 2, 5: 2, 40: 3, 700: 4, 1472: 4}[rows]


def test_reduce__rows_that_lie_on_one_tile__need_no_exchange_at_all() -> None:
    bench = Bench(64)
    x = bench.graph.variable(f32, (64, 60), name="x").map_rows(range(64))
    out = popops.reduce(bench.graph, x, [1], "ADD", bench.prog)
    assert len(_compute_sets(bench)) == 1
    np.testing.assert_array_equal(out.mapping.tile, np.arange(64))


def test_reduce__bias_gradient__is_reduced_in_three_steps() -> None:
    bench = Bench(1472)
    x = bench.tensor(np.zeros((64, 64, 9, 9)), "f32", "activations")
    out = popops.reduce(bench.graph, x, [0, 2, 3], "ADD", bench.prog)
    assert np.bincount(out.mapping.tile, weights=out.mapping.length).max() == 8
    assert len(_compute_sets(bench)) == 4
    first = _compute_sets(bench)[0].groups[0]
    work = np.bincount(first.tile, weights=first.edges["x"].row_sizes, minlength=1472)
    assert work.max() - work.min() <= 64


def test_reduce__columns_shared_by_workers__are_read_in_place() -> None:
    bench = Bench(64)
    x = bench.graph.variable(f32, (64, 256), name="x")
    for tile in range(16):
        bench.graph.map(x[tile * 4 : tile * 4 + 4], tile)
    bench.data[x] = RNG.standard_normal((64, 256)).astype(np.float32)
    out = popops.reduce(bench.graph, x, [0], "ADD", bench.prog)
    first = _compute_sets(bench)[0].groups[0]
    assert first.num == 6 * 16
    assert len(first.edges["x"].regions.begin) == first.edges["x"].regions.num
    assert_close(bench.run(out)[0], bench.values(x).sum(axis=0), f32)


def test_reduce_with_output__a_row_of_the_operand__holds_the_sums() -> None:
    bench = Bench(1)
    x = bench.tensor(RNG.standard_normal((40, 16)), "f32")
    wanted = bench.values(x).sum(axis=0)
    popops.reduce_with_output(bench.graph, x[1:], x[0], [0], "ADD", bench.prog, update=True)
    assert_close(bench.run(x)[0][0], wanted, f32)


def test_reduce__rows_split_over_tiles__six_vertices_a_tile() -> None:
    bench = Bench(4)
    x = bench.graph.variable(f32, (60, 81), name="x")
    for tile, (row, column, end) in enumerate([(0, 0, 48), (0, 48, 81), (30, 0, 48), (30, 48, 81)]):
        bench.graph.map(x[row : row + 30, column:end], tile)
    popops.reduce(bench.graph, x, [1], "ADD", bench.prog)
    first = _compute_sets(bench)[0].groups[0]
    np.testing.assert_array_equal(np.bincount(first.tile), [6, 6, 6, 6])


def test_reduce_with_output__update_and_scale__combine_with_what_is_there() -> None:
    bench = Bench(16)
    x, scale = bench.tensor(RNG.standard_normal((40, 6)), "f16"), bench.tensor(0.25, "f32", 2)
    out = bench.tensor(RNG.standard_normal(6), "f16")
    popops.reduce_with_output(bench.graph, x, out, [0], "ADD", bench.prog, scale=scale, update=True)
    wanted = bench.values(out) + 0.25 * bench.values(x).sum(0)
    (got,) = bench.run_both(out)
    assert_close(got, wanted, f16)


def test_reduce__f16__accumulates_in_f32() -> None:
    bench = Bench(4)
    x = bench.tensor(np.full(4096, 0.25), "f16")
    out = popops.reduce(bench.graph, x, [0], "ADD", bench.prog)
    assert bench.run_both(out)[0] == 1024.0


def test_reduce__integers_and_bools() -> None:
    bench = Bench(16)
    x = bench.tensor(RNG.integers(-50, 50, (7, 9)), "i32")
    flags = bench.tensor(RNG.random((7, 9)) > 0.2)
    total = popops.reduce(bench.graph, x, [0], "ADD", bench.prog)
    every = popops.reduce(bench.graph, flags, [1], "LOGICAL_AND", bench.prog)
    some = popops.reduce(bench.graph, flags, [0], "LOGICAL_OR", bench.prog)
    all_of_it = popops.all_true(bench.graph, flags, bench.prog)
    got = bench.run_both(total, every, some, all_of_it)
    np.testing.assert_array_equal(got[0], bench.data[x].sum(0))
    np.testing.assert_array_equal(got[1], bench.data[flags].all(1))
    np.testing.assert_array_equal(got[2], bench.data[flags].any(0))
    assert bool(got[3]) == bool(bench.data[flags].all())


def test_reduce__other_type__is_converted() -> None:
    bench = Bench(16)
    x = bench.tensor(RNG.standard_normal((8, 8)), "f16")
    out = popops.reduce(bench.graph, x, [1], "ADD", bench.prog, out_type=f32, scale=2.0)
    assert out.dtype == f32
    assert_close(bench.run_both(out)[0], 2 * bench.values(x).sum(1), f32)


def test_reduce__single_row_of_f32__costs_the_published_slots() -> None:
    """Source: machine reference §4.7 (single input, scalar out): 3 + 6 + n/2 + 5 + n mod 2 + 3 slots."""
    bench = Bench(1)
    x = bench.tensor(np.zeros(31), "f32", 0)
    popops.reduce(bench.graph, x, [0], "ADD", bench.prog)
    (compute_set,) = _compute_sets(bench)
    (group,) = compute_set.groups
    assert vertex_costs(group, bench.graph.system.ipu).amount.tolist() == [3 + 6 + 15 + 5 + 1 + 3]


def test_reduce__unknown_operation__suggests_the_nearest() -> None:
    bench = Bench(4)
    x = bench.tensor(np.zeros(4), "f32")
    with pytest.raises(InvalidOptionError, match="no reduction 'SQUAREADD'"):
        popops.reduce(bench.graph, x, [0], "SQUAREADD", bench.prog)


def test_reduce__dimension_that_is_not_there__is_named() -> None:
    bench = Bench(4)
    x = bench.tensor(np.zeros((4, 4)), "f32")
    with pytest.raises(TensorError, match="has no dimension 2"):
        popops.reduce(bench.graph, x, [2], "ADD", bench.prog)
    with pytest.raises(TensorError, match="name one twice"):
        popops.reduce(bench.graph, x, [1, -1], "ADD", bench.prog)


def test_reduce__logical_operation_on_numbers__wants_bools() -> None:
    bench = Bench(4)
    with pytest.raises(TypeMismatchError, match="reduce LOGICAL_AND takes bool, got f32"):
        popops.reduce(bench.graph, bench.tensor(np.zeros(4), "f32"), [0], "LOGICAL_AND", bench.prog)


def test_reduce_with_output__wrong_shape__names_both() -> None:
    bench = Bench(4)
    x, out = bench.tensor(np.zeros((4, 3)), "f32"), bench.tensor(np.zeros(4), "f32")
    with pytest.raises(TensorError, match=r"has shape \[4\], the result has \[3\]"):
        popops.reduce_with_output(bench.graph, x, out, [0], "ADD", bench.prog)


def test_reduce__i32_out_of_f32__needs_a_cast() -> None:
    bench = Bench(4)
    out = popops.reduce(bench.graph, bench.tensor([1.5, 2.5], "f32"), [0], "ADD", bench.prog, out_type=i32)
    assert bench.run_both(out)[0] == 4
