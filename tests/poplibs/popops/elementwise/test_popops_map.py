"""Element-wise maps against NumPy in 64 bits: shapes, layouts, types, in place, several outputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import TILES, Bench, assert_close

from abele.errors import InvalidOptionError, TensorError, TileMappingError, TypeMismatchError
from abele.numerics import bool_, f16, f32, i32
from abele.poplibs import popops
from abele.poplibs.popops import Cast, Op, _1, _2, _3
from abele.poplibs.popops.expr import element_index, exp, select
from support.examples import examples

RNG = np.random.default_rng(1)


def _normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


@pytest.mark.parametrize("num_tiles", TILES)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(
    ("shapes", "layouts"),
    [
        (((40,), (40,)), ("linear", "linear")),
        (((3, 32, 5, 4), (3, 32, 5, 4)), ("activations", "activations")),
        (((3, 32, 5, 4), (3, 32, 5, 4)), ("activations", "linear")),
        (((3, 32, 5, 4), (1, 32, 1, 1)), ("activations", "linear")),
        (((7, 10), (10,)), ("activations", "linear")),
        (((7, 10), (7, 1)), ("linear", 3)),
        (((7, 10), ()), ("linear", 2)),
        (((4, 1, 3), (1, 5, 3)), ("linear", "linear")),
        (((2, 3, 4, 5), (3, 1, 5)), ("linear", "linear")),
        (((), ()), (0, 1)),
    ],
)
def test_map__two_operands__is_numpy(
    num_tiles: int, dtype: str, shapes: tuple[tuple[int, ...], ...], layouts: tuple[str, str]
) -> None:
    bench = Bench(num_tiles)
    a, b = (bench.tensor(_normal(*s), dtype, layout) for s, layout in zip(shapes, layouts, strict=True))
    out = popops.map(bench.graph, lambda x, y: x * 2 + exp(y * 0.5), [a, b], bench.prog)
    wanted = bench.values(a) * 2 + np.exp(bench.values(b) * 0.5)
    (got,) = bench.run_both(out)
    assert_close(got, wanted, out.dtype)
    assert_close(bench.kernels(out)[0], wanted, f32)


def test_map__operands_repeated_along_rows_and_columns__is_numpy() -> None:
    bench = Bench(4)
    x = bench.tensor(_normal(6, 9), "f32", "activations")
    row, column, one = (bench.tensor(_normal(*s), "f32") for s in ((9,), (6, 1), (1,)))
    out = popops.map(bench.graph, lambda x, r, c, o: (x - c) * r + o, [x, row, column, one], bench.prog)
    (got,) = bench.run_both(out)
    assert_close(got, (bench.values(x) - bench.values(column)) * bench.values(row) + bench.values(one), f32)


@pytest.mark.parametrize("per_block", [False, True])
def test_map__rows_of_several_blocks_on_a_tile__take_one_vertex(per_block: bool) -> None:
    # 3 blocks of 50 rows of 16 columns on 5 tiles: the fourth has rows 40 to 49 of a block and 0 to 19 of the next.
    bench = Bench(5)
    x = bench.tensor(_normal(3, 50, 16), "f32")
    column, block = bench.tensor(_normal(3, 1, 16), "f32"), bench.tensor(_normal(3, 1, 1), "f32")
    operands = [x, column, block] if per_block else [x, column]
    out = popops.map(bench.graph, (_1 - _2) * _3 if per_block else _1 - _2, operands, bench.prog)
    (group,) = bench.graph.compute_sets[-1].groups
    assert np.bincount(group.tile).tolist() == [1] * 5
    assert group.state["skip"].values.tolist() == [0, 0, 0, 10, 0]
    wanted = bench.values(x) - bench.values(column)
    (got,) = bench.run_both(out)
    assert_close(got, wanted * bench.values(block) if per_block else wanted, f32)


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    mask=st.lists(st.booleans(), min_size=8, max_size=8),
    axes=st.randoms(use_true_random=False),
)
@examples(4)
def test_map__any_broadcast_of_any_view__kernel_and_placement_agree(
    shape: list[int], mask: list[bool], axes: object
) -> None:
    bench = Bench(4)
    order = list(range(len(shape)))
    axes.shuffle(order)  # type: ignore[attr-defined]
    full = bench.tensor(_normal(*[shape[d] for d in order]), "f32")
    inverse = [order.index(d) for d in range(len(shape))]
    small = bench.tensor(_normal(*[1 if m else n for m, n in zip(mask, shape, strict=False)]), "f32")
    out = popops.map(bench.graph, _1 - _2, [full.transpose(inverse), small], bench.prog)
    wanted = bench.values(full).transpose(inverse) - bench.values(small)
    assert_close(bench.run(out)[0], wanted, f32)
    assert_close(bench.kernels(out)[0], wanted, f32)


def test_map__other_number_of_tiles__same_bits() -> None:
    results = []
    data = _normal(5, 33)
    for num_tiles in (1, 7, 64, 1472):
        bench = Bench(num_tiles)
        x, y = bench.tensor(data, "f16"), bench.tensor(data[:1], "f16")
        results.append(bench.run(popops.map(bench.graph, _1 / (_2 + 3.0), [x, y], bench.prog))[0])
    assert all((r == results[0]).all() for r in results)


def test_map__debug_mode__is_the_compiled_codelet() -> None:
    bench = Bench(4)
    x, y = bench.tensor(_normal(3, 8), "f32"), bench.tensor(_normal(8), "f32")
    out = popops.map(bench.graph, lambda a, b: Op("sigmoid", a) * b + a, [x, y], bench.prog)
    (plain,), (compiled,) = bench.run(out, debug=True), bench.run(out)
    assert_close(plain, compiled, f32)


def test_map_in_place__first_operand__is_overwritten() -> None:
    bench = Bench()
    x, y = bench.tensor(_normal(4, 6), "f32"), bench.tensor(_normal(6), "f32")
    popops.map_in_place(bench.graph, lambda a, b: a * a + b, [x, y], bench.prog)
    (got,) = bench.run_both(x)
    assert_close(got, bench.values(x) ** 2 + bench.values(y), f32)


def test_map_in_place__operand_given_twice__reads_the_old_elements() -> None:
    bench = Bench()
    x = bench.tensor(_normal(50), "f32")
    popops.add_in_place(bench.graph, x, x, bench.prog)
    assert_close(bench.run_both(x)[0], 2 * bench.values(x), f32)


def test_map_with_outputs__swap__every_expression_sees_the_old_elements() -> None:
    bench = Bench()
    x, y = bench.tensor(_normal(70), "f32"), bench.tensor(_normal(70), "f32")
    popops.map_with_outputs(bench.graph, [_2 + 0.0, _1 + 0.0], [x, y], [x, y], bench.prog)
    got_x, got_y = bench.run_both(x, y)
    assert_close(got_x, bench.values(y), f32)
    assert_close(got_y, bench.values(x), f32)


def test_map__comparison__gives_bools() -> None:
    bench = Bench()
    x = bench.tensor(_normal(40), "f32")
    out = popops.map(bench.graph, (_1 > 0) & (_1 < 1), [x], bench.prog)
    assert out.dtype == bool_
    values = bench.values(x)
    np.testing.assert_array_equal(bench.run_both(out)[0], (values > 0) & (values < 1))


def test_map__f16_and_f32__gives_f32() -> None:
    bench = Bench()
    a, b = bench.tensor(_normal(40), "f16"), bench.tensor(_normal(40), "f32")
    out = popops.mul(bench.graph, a, b, bench.prog)
    assert out.dtype == f32
    assert_close(bench.run_both(out)[0], bench.values(a) * bench.values(b), f32)


def test_map__f16__rounds_once() -> None:
    bench = Bench()
    x = bench.tensor(np.float16([1.0, 1000.0, 0.3]), "f16")
    out = popops.map(bench.graph, (_1 + 0.0001) * 4096.0 - _1 * 4096.0, [x], bench.prog)
    exact = (bench.data[x].astype(np.float32) + np.float32(0.0001)) * 4096 - bench.data[x].astype(np.float32) * 4096
    np.testing.assert_array_equal(bench.run_both(out)[0], exact.astype(np.float16))


def test_cast__floats_to_integers__truncates() -> None:
    bench = Bench()
    x = bench.tensor([-1.7, -0.2, 0.9, 2.5], "f32")
    down = popops.cast(bench.graph, x, i32, bench.prog)
    back = popops.cast(bench.graph, down, f16, bench.prog)
    np.testing.assert_array_equal(bench.run_both(down)[0], [-1, 0, 0, 2])
    assert back.dtype == f16


def test_fill_zero_iota__views__hold_what_they_say() -> None:
    bench = Bench()
    x = bench.tensor(_normal(4, 8), "f32", "activations")
    y, z = bench.tensor(np.zeros((3, 5)), "i32"), bench.tensor(_normal(9), "f16")
    popops.fill(bench.graph, x[:, 2:4], bench.prog, 3.5)
    popops.iota(bench.graph, y.T, 10, bench.prog)
    popops.zero(bench.graph, z, bench.prog)
    got_x, got_y, got_z = bench.run_both(x, y, z)
    wanted = bench.data[x].copy()
    wanted[:, 2:4] = 3.5
    np.testing.assert_array_equal(got_x, wanted)
    np.testing.assert_array_equal(got_y, np.arange(10, 25).reshape(5, 3).T)
    assert not got_z.any()


def test_map__element_index__is_row_major_in_any_layout() -> None:
    bench = Bench()
    x = bench.tensor(np.zeros((3, 32, 2, 2)), "i32", "activations")
    popops.map_with_output(bench.graph, _1 + element_index(), [x], x, bench.prog)
    np.testing.assert_array_equal(bench.run_both(x)[0].reshape(-1), np.arange(384))


@pytest.mark.parametrize("subtract", [False, True])
def test_scaled_add__scales_of_either_kind__is_numpy(subtract: bool) -> None:
    bench = Bench()
    a, b, s = bench.tensor(_normal(6, 7), "f32"), bench.tensor(_normal(6, 7), "f32"), bench.tensor([0.3], "f32", 1)
    function = popops.scaled_subtract_from if subtract else popops.scaled_add_to
    function(bench.graph, a, b, 0.5, bench.prog)
    function(bench.graph, a, b, s, bench.prog, scale_a=2.0)
    sign = -1 if subtract else 1
    wanted = 2 * (bench.values(a) + sign * 0.5 * bench.values(b)) + sign * 0.3 * bench.values(b)
    assert_close(bench.run_both(a)[0], wanted, f32, factor=2)


def test_map__linear_output__no_tile_holds_more_than_needed() -> None:
    bench = Bench(1472)
    x = bench.tensor(np.zeros((64, 300)), "f32", 5)
    out = popops.exp(bench.graph, x, bench.prog)
    counts = np.bincount(out.mapping.tile, weights=out.mapping.length)
    assert counts.max() <= 34
    assert (counts > 0).sum() == 600


def test_map__camel_case_names__are_the_same_functions() -> None:
    assert popops.addInPlace is popops.add_in_place  # type: ignore[attr-defined]
    assert popops.mapInPlace is popops.map_in_place  # type: ignore[attr-defined]
    assert popops.scaledAddTo is popops.scaled_add_to  # type: ignore[attr-defined]


# --- errors ----------------------------------------------------------------------------------------------------------


def test_map__shapes_that_do_not_broadcast__names_both() -> None:
    bench = Bench()
    a, b = bench.tensor(_normal(2, 3), "f32"), bench.tensor(_normal(4), "f32")
    with pytest.raises(TensorError, match=r"add: operands of shapes \[2, 3\] and \[4\] do not broadcast"):
        popops.add(bench.graph, a, b, bench.prog)


def test_map__placeholder_without_tensor__is_named() -> None:
    bench = Bench()
    a = bench.tensor(_normal(3), "f32")
    with pytest.raises(TensorError, match="the expression uses _2, and was given 1 tensor"):
        popops.map(bench.graph, _1 + _2, [a], bench.prog)


def test_map__float_and_integer_operands__are_not_mixed() -> None:
    bench = Bench()
    a, b = bench.tensor(_normal(3), "f32"), bench.tensor([1, 2, 3], "i32")
    with pytest.raises(TypeMismatchError, match="f32 and i32 meet in one operation"):
        popops.add(bench.graph, a, b, bench.prog)


def test_map_in_place__integer_expression_into_float__asks_for_a_cast() -> None:
    bench = Bench()
    a = bench.tensor(_normal(3), "f32")
    with pytest.raises(TypeMismatchError, match="the expression gives bool, the output holds f32"):
        popops.map_in_place(bench.graph, _1 > 0, [a], bench.prog)


def test_map_with_output__operands_larger_than_the_output__are_refused() -> None:
    bench = Bench()
    a, b = bench.tensor(_normal(3), "f32"), bench.tensor(_normal(2, 3), "f32")
    with pytest.raises(TensorError, match=r"operands broadcast to \[2, 3\], but the output"):
        popops.add_in_place(bench.graph, a, b, bench.prog)


def test_map_with_output__unmapped_output__is_named() -> None:
    bench = Bench()
    a = bench.tensor(_normal(3), "f32")
    out = bench.graph.variable(f32, (3,), name="lost")
    with pytest.raises(TileMappingError, match="lost"):
        popops.exp_with_output(bench.graph, a, out, bench.prog)


def test_op__unknown_name__suggests_the_nearest() -> None:
    bench = Bench()
    with pytest.raises(InvalidOptionError, match="no element-wise operation 'sqroot'"):
        popops.map(bench.graph, Op("sqroot", _1), [bench.tensor(_normal(3), "f32")], bench.prog)


def test_op__numbers_alone__need_a_tensor() -> None:
    bench = Bench()
    with pytest.raises(InvalidOptionError, match="add of numbers alone"):
        popops.add(bench.graph, 1.0, 2.0, bench.prog)


def test_expression__used_as_truth_value__points_to_select() -> None:
    with pytest.raises(InvalidOptionError, match="has no truth value"):
        bool(_1 > 0)


def test_scaled_add__scale_of_two_elements__is_refused() -> None:
    bench = Bench()
    a, s = bench.tensor(_normal(3), "f32"), bench.tensor([1, 2], "f32")
    with pytest.raises(TensorError, match=r"scaled_add_to: the scale .* has 2 elements"):
        popops.scaled_add_to(bench.graph, a, a, s, bench.prog)


def test_expression__text__is_readable() -> None:
    text = str(select(_1, Cast(_2, "f16"), _1 > 0.0).lower((f32, f32)))
    assert text == "select(%0[] > 0.0, %0[], f16(%1[]))"


def test_map__expressions_whose_numbers_are_equal_but_not_the_same__are_vertices_of_their_own() -> None:
    bench = Bench(2)
    x = bench.tensor(np.array([-1.0, 2.0]), "f32")
    zeros = [popops.map(bench.graph, select(zero, _1, _1 < 0.0), [x], bench.prog) for zero in (0.0, -0.0)]
    above, below = bench.run_both(*zeros)
    assert np.signbit(above).tolist() == [False, False]
    assert np.signbit(below).tolist() == [True, False]
