"""Reductions against NumPy in 64 bits, their plans, their cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench, assert_close

from abele.compiler import compile_program
from abele.compiler.cost import vertex_costs
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError, UnsupportedOpError
from abele.graph import Execute, Graph, Sequence, walk
from abele.graph.compute_set import ComputeSet
from abele.graph.mapping import TileMapping
from abele.machine import systems
from abele.numerics import as_element_type, f16, f32, i32
from abele.poplibs import popops
from abele.poplibs.popops.reductions.ops import find_reduce_op
from abele.poplibs.popops.reductions.plan import Planner
from abele.poplibs.poputil.mapping import set_mapping
from support.examples import examples

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
@examples(5)
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
    assert len(_compute_sets(bench)) == {2: 1, 5: 1, 40: 2, 700: 3, 1472: 3}[rows]


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
    assert first.num == 16
    assert len(first.edges["x"].regions.begin) == first.edges["x"].regions.num
    assert_close(bench.run(out)[0], bench.values(x).sum(axis=0), f32)


def test_reduce_with_output__a_row_of_the_operand__holds_the_sums() -> None:
    bench = Bench(1)
    x = bench.tensor(RNG.standard_normal((40, 16)), "f32")
    wanted = bench.values(x).sum(axis=0)
    popops.reduce_with_output(bench.graph, x[1:], x[0], [0], "ADD", bench.prog, update=True)
    assert_close(bench.run(x)[0][0], wanted, f32)


def test_reduce__rows_split_over_tiles__six_workers_of_a_tile_share_a_vertex() -> None:
    bench = Bench(4)
    x = bench.graph.variable(f32, (60, 81), name="x")
    for tile, (row, column, end) in enumerate([(0, 0, 48), (0, 48, 81), (30, 0, 48), (30, 48, 81)]):
        bench.graph.map(x[row : row + 30, column:end], tile)
    popops.reduce(bench.graph, x, [1], "ADD", bench.prog)
    first = _compute_sets(bench)[0].groups[0]
    np.testing.assert_array_equal(np.bincount(first.tile), [1, 1, 1, 1])
    np.testing.assert_array_equal(first.state["kept"].values * first.state["reduced"].values, 6)


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


@pytest.mark.parametrize("num_tiles", [4, 64])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_reduce__log_add__is_the_logarithm_of_the_sum_of_powers(dtype: str, num_tiles: int) -> None:
    bench = Bench(num_tiles)
    x = bench.tensor(RNG.uniform(-8, 8, (9, 40, 3)), dtype)
    out = popops.reduce(bench.graph, x, [0, 1], "LOG_ADD", bench.prog)
    (got,) = bench.run_both(out)
    assert_close(got, np.logaddexp.reduce(bench.values(x), axis=(0, 1)), as_element_type(dtype))


def test_reduce__log_add_of_nothing_likely__stays_minus_infinity() -> None:
    bench = Bench(4)
    x = bench.tensor(np.array([[-np.inf, -np.inf], [-np.inf, 0.0]]), "f32")
    out = popops.reduce(bench.graph, x, [1], "LOG_ADD", bench.prog)
    np.testing.assert_array_equal(bench.run_both(out)[0], [-np.inf, 0.0])


def test_reduce__log_add_updates__adds_powers() -> None:
    bench = Bench(4)
    x, out = bench.tensor(RNG.standard_normal((50, 4)), "f32"), bench.tensor(RNG.standard_normal(4), "f32")
    popops.reduce_with_output(bench.graph, x, out, [0], "LOG_ADD", bench.prog, update=True)
    wanted = np.logaddexp(bench.values(out), np.logaddexp.reduce(bench.values(x), axis=0))
    assert_close(bench.run_both(out)[0], wanted, f32)


def test_reduce__log_add__takes_neither_scale_nor_integers() -> None:
    bench = Bench(4)
    with pytest.raises(UnsupportedOpError, match="LOG_ADD takes no scale"):
        popops.reduce(bench.graph, bench.tensor(np.zeros(4), "f32"), [0], "LOG_ADD", bench.prog, scale=2.0)
    with pytest.raises(TypeMismatchError, match="LOG_ADD takes floating-point numbers, got i32"):
        popops.reduce(bench.graph, bench.tensor(np.zeros(4), "i32"), [0], "LOG_ADD", bench.prog)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "u32", "i64"])
@pytest.mark.parametrize("op", ["ADD", "MAX", "MIN"])
def test_reduce__integers__are_numpy(dtype: str, op: str) -> None:
    bench = Bench(16)
    element = as_element_type(dtype)
    low = 0 if element.kind == "uint" else -3
    x = bench.tensor(RNG.integers(low, 4, (12, 9)).astype(element.np), dtype)
    out = popops.reduce(bench.graph, x, [0], op, bench.prog)
    wanted = {"ADD": np.sum, "MAX": np.max, "MIN": np.min}[op](bench.data[x].astype(np.int64), axis=0)
    np.testing.assert_array_equal(bench.run(out)[0], wanted.astype(element.np))


def test_reduce__sum_of_bools__counts_them() -> None:
    bench = Bench(16)
    x = bench.tensor(RNG.random((300, 5)) > 0.5)
    out = popops.reduce(bench.graph, x, [0], "ADD", bench.prog)
    assert out.dtype == i32
    np.testing.assert_array_equal(bench.run_both(out)[0], bench.data[x].sum(0))


@pytest.mark.parametrize("op", ["ADD", "SQUARE_ADD", "MAX"])
def test_reduce__no_dimensions__is_a_copy_or_a_square(op: str) -> None:
    bench = Bench(16)
    x = bench.tensor(RNG.standard_normal((6, 50)), "f16")
    out = popops.reduce(bench.graph, x, [], op, bench.prog, out_type=f32, scale=0.5)
    wanted = 0.5 * bench.values(x) ** (2 if op == "SQUARE_ADD" else 1)
    assert len(_compute_sets(bench)) == 1
    assert_close(bench.run_both(out)[0], wanted, f32)


def test_reduce__partials_in_half__are_kept_in_half_between_tiles() -> None:
    for key in ("accumType.interTile", "accumType.inVertex"):
        bench = Bench(64)
        x = bench.tensor(RNG.uniform(0, 1, 6400), "f16")
        out = popops.reduce(bench.graph, x, [0], "ADD", bench.prog, options={key: "half"})
        between = [v for v in bench.graph.variables if "partials" in v.name]
        assert {v.dtype for v in between} == {f16}
        np.testing.assert_allclose(bench.run_both(out)[0], bench.values(x).sum(), rtol=1e-2)


def test_reduce__option_that_is_no_float__is_refused() -> None:
    bench = Bench(4)
    x = bench.tensor(np.zeros(4), "f16")
    with pytest.raises(InvalidOptionError, match=r"option 'accumType\.interTile' takes half or float, got i32"):
        popops.reduce(bench.graph, x, [0], "ADD", bench.prog, options={"accumType.interTile": "int"})
    with pytest.raises(InvalidOptionError, match="reduce has no option 'accumtype'"):
        popops.reduce(bench.graph, x, [0], "ADD", bench.prog, options={"accumtype": "half"})


def _several(bench: Bench) -> tuple[list[popops.SingleReduceOp], list[np.ndarray]]:
    x, y = bench.tensor(RNG.standard_normal((30, 8)), "f32"), bench.tensor(RNG.standard_normal((4, 700)), "f16")
    params = popops.ReduceParams
    wanted = [
        popops.SingleReduceOp(x, [0], params("SQUARE_ADD", scale=0.5)),
        popops.SingleReduceOp(y, [1], params("MAX")),
        popops.SingleReduceOp(x, [0, 1], params("LOG_ADD")),
    ]
    a, b = bench.values(x), bench.values(y)
    return wanted, [0.5 * (a * a).sum(0), b.max(1), np.logaddexp.reduce(a.ravel())]


def test_reduce_many__several_operands__share_compute_sets() -> None:
    bench = Bench(64)
    reductions, wanted = _several(bench)
    outs = popops.reduce_many(bench.graph, reductions, bench.prog)
    apart = Bench(64)
    for r in _several(apart)[0]:
        popops.reduce(apart.graph, r.tensor, r.dims, r.params.op, apart.prog)
    assert len(_compute_sets(bench)) < len(_compute_sets(apart)) - 1
    for got, w, out in zip(bench.run_both(*outs), wanted, outs, strict=True):
        assert_close(got, w, out.dtype)


def test_reduce__list_of_compute_sets__is_filled_from_the_first() -> None:
    bench = Bench(64)
    reductions, wanted = _several(bench)
    sets: list[ComputeSet] = []
    first = popops.reduce(bench.graph, reductions[1].tensor, [1], "MAX", sets)
    steps = len(sets)
    second = popops.reduce_many(bench.graph, reductions[:1], sets)[0]
    assert len(sets) >= steps
    for compute_set in sets:
        bench.prog.add(Execute(compute_set))
    got = bench.run_both(first, second)
    assert_close(got[0], wanted[1], f16)
    assert_close(got[1], wanted[0], f32)


def test_reduce_many__outputs_that_do_not_match__are_counted() -> None:
    bench = Bench(4)
    one = popops.SingleReduceOp(bench.tensor(np.zeros(4), "f32"), [0], popops.ReduceParams("ADD", update=True))
    with pytest.raises(TensorError, match="2 outputs for 1 reductions"):
        popops.reduce_many(bench.graph, [one], bench.prog, [one.tensor, one.tensor])
    with pytest.raises(TensorError, match="an update needs an output"):
        popops.reduce_many(bench.graph, [one], bench.prog)
    assert popops.reduce_many(bench.graph, [], bench.prog) == []


def test_reduce__any_number_of_tiles_and_threads__gives_one_sum() -> None:
    data = RNG.standard_normal((200, 24))
    sums = []
    for tiles in (4, 64, 1472):
        bench = Bench(tiles)
        out = popops.reduce(bench.graph, bench.tensor(data, "f32"), [0], "ADD", bench.prog)
        one, two = bench.run(out)[0], bench.run(out, threads=2)[0]
        np.testing.assert_array_equal(one, two)
        sums.append(one)
    for other in sums:
        assert_close(other, data.sum(0), f32, 5)


@given(
    shape=st.lists(st.integers(1, 12), min_size=2, max_size=4),
    dims=st.lists(st.booleans(), min_size=4, max_size=4),
    seed=st.integers(0, 1000),
    op=st.sampled_from(["ADD", "MAX", "SQUARE_ADD"]),
    dtype=st.sampled_from(["f32", "f16"]),
)
@examples(8)
def test_reduce__any_mapping__is_numpy(shape: list[int], dims: list[bool], seed: int, op: str, dtype: str) -> None:
    bench = Bench(16)
    rng = np.random.default_rng(seed)
    x = bench.graph.variable(dtype, tuple(shape), name="x")
    cuts = np.unique(np.append(0, rng.integers(0, x.size, 12)))
    tiles = rng.integers(0, 16 if seed % 2 else 3, len(cuts)).astype(np.int32)
    bench.graph.map(x, TileMapping(x.size, cuts.astype(np.int64), tiles))
    bench.data[x] = rng.uniform(-1, 1, shape).astype(x.dtype.np)
    gone = tuple(d for d, chosen in enumerate(dims[: len(shape)]) if chosen)
    out = popops.reduce(bench.graph, x, gone, op, bench.prog, out_type=f32)
    there = bench.tensor(np.zeros(out.shape), "f32", 5)
    popops.reduce_with_output(bench.graph, x, there, gone, op, bench.prog, update=True)
    wanted = NUMPY[op](bench.values(x), gone) if gone else bench.values(x) ** (2 if op == "SQUARE_ADD" else 1)
    got = bench.run(out, there)
    assert_close(got[0], wanted, f32, 5)
    assert_close(got[1], np.maximum(wanted, 0) if op == "MAX" else wanted, f32, 5)


@pytest.mark.parametrize("deepest", [2, 3, 16, 64, 370, 1472])
def test_planner__any_depth__ends_with_one_partial_result(deepest: int) -> None:
    planner = Planner(Bench(1472).graph.system, find_reduce_op("ADD"), f32, f32, 8)
    sizes = planner.group_sizes(deepest, 8 * deepest, 8, None)
    left = deepest
    for size in sizes:
        left = -(-left // size)
    assert left == 1
    assert len(sizes) == (1 if deepest <= 16 else 2 if deepest <= 64 else len(sizes)) <= 3


def test_reduce__rows_of_one_column_group__are_gathered_on_tiles_that_hold_none() -> None:
    bench = Bench(64)
    x = bench.graph.variable(f32, (12, 8), name="x").map_rows(range(12))
    out = popops.reduce(bench.graph, x, [0], "ADD", bench.prog)
    assert set(out.mapping.tile.tolist()).isdisjoint(range(12))
    assert len(_compute_sets(bench)) == 1


def test_reduce__sums_of_several_shapes__are_made_on_tiles_of_their_own() -> None:
    bench = Bench(1472)
    shapes = [(size, 16) for size in range(1472, 1472 + 24)]
    hosts: list[set[int]] = []
    for shape in (*shapes, shapes[0]):
        x = bench.graph.variable(f32, shape, name="x").map_linear()
        popops.reduce(bench.graph, x, [0, 1], "ADD", bench.prog)
        stage = _compute_sets(bench)[-2]
        hosts.append({int(tile) for group in stage.groups for tile in group.tile})
    # Sums of one shape share their hosts, and so their exchange.
    assert hosts[0] == hosts[-1]
    busiest = np.bincount([tile for some in hosts[:-1] for tile in some]).max()
    assert len(hosts[0]) < 60
    assert busiest <= 6


def test_reduce__one_row_per_tile_into_the_first_row__writes_after_all_is_read() -> None:
    bench = Bench(64)
    x = bench.graph.variable(f32, (12, 8), name="x").map_rows(range(12))
    popops.reduce_with_output(bench.graph, x, x[0], [0], "ADD", bench.prog)
    assert len(_compute_sets(bench)) == 2


def test_reduce__parts_of_rows_on_neighbouring_tiles__leave_no_tile_with_several_shares() -> None:
    bench = Bench(1472)
    parts = bench.graph.variable(f32, (61, 4, 6 * 168, 16), name="x")
    tile = (np.arange(6)[None, None, :] * 4 + np.arange(4)[None, :, None]) * 61 + np.arange(61)[:, None, None]
    begin = np.arange(tile.size, dtype=np.int64) * 168 * 16
    set_mapping(bench.graph, parts, TileMapping(parts.size, begin, tile.reshape(-1).astype(np.int32)))
    popops.reduce(bench.graph, parts, [0], "ADD", bench.prog)
    (last,) = _compute_sets(bench)[-1].groups
    assert np.bincount(last.tile).max() <= 6


def test_reduce__several_ipus__keep_first_sums_on_their_own() -> None:
    system = systems.get("bow-2000:2")
    graph, prog = Graph(system), Sequence()
    x = graph.variable(f32, (2944, 16), name="x").map_rows(range(2944))
    popops.reduce(graph, x, [0], "ADD", prog)
    assert compile_program(graph, prog).report.cycles().total > 0
    second = [s.compute_set for s in walk(prog) if isinstance(s, Execute)][1].groups[0]
    assert {0, 1} == set((second.tile // 1472).tolist())
