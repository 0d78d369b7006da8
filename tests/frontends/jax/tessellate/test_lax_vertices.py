"""Primitives of ``jax.lax`` on tiles: each agrees with JAX, and is the library's vertex where there is one."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import lax

from abele.errors import UnsupportedOpError
from abele.jax.tessellate import (
    get_ipu_tile_primitive_translation,
    ipu_cycle_count,
    primitive_clone,
    scaled_add,
    scaled_sub,
    tile_map,
    tile_put_replicated,
    tile_put_sharded,
)
from abele.jax.tessellate import lax as tlax
from abele.jax.tessellate.core import IpuTileMapEquation
from frontends.jaxpr.jaxpr_kit import run

TILES = (3, 4, 9)
RNG = np.random.default_rng(0)


def f32(*shape):
    return RNG.normal(size=(3, *shape)).astype(np.float32)


def above(*shape, dtype=np.float32):
    return RNG.uniform(0.2, 0.9, size=(3, *shape)).astype(dtype)


def whole(*shape, low=-20, high=20):
    return RNG.integers(low, high, size=(3, *shape)).astype(np.int32)


def flags(*shape):
    return RNG.integers(0, 2, size=(3, *shape)).astype(bool)


HALF = np.float16
UNARY = "abs asin cbrt ceil cos erf exp exp2 expm1 floor is_finite log log1p logistic neg round rsqrt sign sin sqrt"
UNARY += " square tan tanh"
BINARY = "add atan2 div eq ge gt le lt max min mul ne pow rem sub"
BITS = "and or xor shift_left shift_right_arithmetic shift_right_logical"
ROWS = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
WIDE_ROWS = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
INTO_ROWS = lax.ScatterDimensionNumbers(
    update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)
SOME, DISTINCT = whole(5, 1, low=0, high=8), np.stack([RNG.permutation(8)[:5, None] for _ in range(3)]).astype(np.int32)


def calls():
    """Primitive, operands and parameters of every call."""
    for name in UNARY.split():
        yield getattr(lax, f"{name}_p"), [above(4, 5)], {}
        yield getattr(lax, f"{name}_p"), [above(4, 5, dtype=HALF)], {}
    for name in ["abs", "clz", "neg", "not", "population_count", "sign"]:
        yield getattr(lax, f"{name}_p"), [whole(7)], {}
    yield lax.not_p, [flags(5)], {}
    yield lax.round_p, [3 * f32(9)], {"rounding_method": lax.RoundingMethod.TO_NEAREST_EVEN}
    for name in BINARY.split():
        yield getattr(lax, f"{name}_p"), [above(4, 5), above(4, 5)], {}
        yield getattr(lax, f"{name}_p"), [above(4, 5, dtype=HALF), above(4, 5, dtype=HALF)], {}
    for name in f"add mul sub max min eq lt div rem {BITS}".split():
        yield getattr(lax, f"{name}_p"), [whole(7), whole(7, low=1, high=6)], {}
    for name in ["and", "or", "xor"]:
        yield getattr(lax, f"{name}_p"), [flags(7), flags(7)], {}
    for name in (n for n in dir(tlax) if n.endswith("_inplace_p")):
        base = name.removesuffix("_inplace_p")
        make = (lambda n: whole(n, low=1, high=6)) if base in f"clz not population_count {BITS}".split() else above
        count = 1 if base in f"{UNARY} clz not population_count".split() else 2
        yield getattr(tlax, name), [make(7) for _ in range(count)], {}
    yield from choices()
    yield from sums()
    yield from products_and_orders()
    yield from windows()


def choices():
    yield lax.select_n_p, [flags(4, 5), f32(4, 5), f32(4, 5)], {}
    yield lax.select_n_p, [flags(), f32(4, 5), f32(4, 5)], {}
    yield lax.clamp_p, [np.full(3, -0.5, "f4"), f32(4, 5), np.full(3, 0.5, "f4")], {}
    yield lax.clamp_p, [np.full((3, 4), -0.5, "f4"), f32(4), np.full((3, 4), 0.5, "f4")], {}
    for pair in ["f4 f2", "f2 f4", "f4 i4", "i4 f4", "i4 f2", "? f4", "f4 ?", "i4 u4", "i4 i1", "u1 f4", "f4 f4"]:
        source, target = pair.split()
        yield lax.convert_element_type_p, [np.abs(3 * f32(6)).astype(source)], {"new_dtype": np.dtype(target)}
    yield lax.bitcast_convert_type_p, [f32(6)], {"new_dtype": np.dtype("i4")}
    yield lax.reshape_p, [f32(4, 6)], {"new_sizes": (8, 3)}
    yield lax.squeeze_p, [f32(4, 1)], {"dimensions": (1,)}
    for y in (1, 2, 3, 5, 0, -1, -3):
        yield lax.integer_pow_p, [above(6)], {"y": y}
    for vertex in (tlax.scaled_add_p, tlax.scaled_sub_p):
        yield vertex, [f32(6), f32(6), f32()], {}
        yield vertex, [above(6, dtype=HALF), above(6, dtype=HALF), above(1, dtype=HALF)], {}
    yield tlax.rotation2d_p, [f32(2), f32(6), f32(6)], {}


def sums():
    for axes in [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2), ()]:
        for name in ["sum", "max", "min", "prod"]:
            yield getattr(lax, f"reduce_{name}_p"), [above(4, 5, 3)], {"axes": axes}
        yield lax.reduce_sum_p, [whole(4, 5, 3)], {"axes": axes}
        yield lax.reduce_max_p, [above(4, 5, 3, dtype=HALF)], {"axes": axes}
        yield lax.reduce_or_p, [flags(4, 5, 3)], {"axes": axes}
        yield lax.reduce_and_p, [flags(4, 5, 3)], {"axes": axes}
    for name in ["cumsum", "cumprod", "cummax", "cummin"]:
        yield getattr(lax, f"{name}_p"), [above(9)], {"axis": 0, "reverse": False}
        yield getattr(lax, f"{name}_p"), [above(4, 5)], {"axis": 1, "reverse": True}
        yield getattr(lax, f"{name}_p"), [above(9, dtype=HALF)], {}
    yield lax.argmax_p, [f32(4, 5)], {"axes": (1,), "index_dtype": np.dtype("i4")}
    yield lax.argmin_p, [f32(4, 5)], {"axes": (0,)}


def products_and_orders():
    single = {"preferred_element_type": np.dtype("f4")}
    for kind in (np.float32, HALF):
        for left, right, numbers in [
            ((4, 6), (6, 5), (((1,), (0,)), ((), ()))),
            ((4, 6), (5, 6), (((1,), (1,)), ((), ()))),
            ((6,), (6,), (((0,), (0,)), ((), ()))),
            ((2, 4, 6), (2, 6, 5), (((2,), (1,)), ((0,), (0,)))),
            ((4, 2, 6), (6, 5, 2), (((2,), (0,)), ((1,), (2,)))),
            ((4, 6, 3), (6, 3, 2), (((1, 2), (0, 1)), ((), ()))),
            ((4, 6, 3), (3, 6), (((1, 2), (1, 0)), ((), ()))),
        ]:
            yield (
                lax.dot_general_p,
                [above(*left, dtype=kind), above(*right, dtype=kind)],
                {"dimension_numbers": numbers},
            )
        for rows in (1, 4, 13):
            units = {"dimension_numbers": (((1,), (1,)), ((), ()))}
            yield lax.dot_general_p, [above(rows, 16, dtype=kind), above(16, 16, dtype=kind)], units
            yield lax.dot_general_p, [above(rows, 16, dtype=kind), above(16, 16, dtype=kind)], units | single
    wide = {"dimension_numbers": (((1,), (0,)), ((), ())), "preferred_element_type": np.dtype("f4")}
    yield lax.dot_general_p, [above(4, 6, dtype=HALF), above(6, 5, dtype=HALF)], wide
    for order in [(1, 0, 2), (2, 0, 1), (2, 1, 0), (0, 1, 2), (0, 2, 1), (1, 2, 0)]:
        yield lax.transpose_p, [f32(4, 5, 6)], {"permutation": order}
    yield lax.transpose_p, [above(4, 5, dtype=HALF)], {"permutation": (1, 0)}
    yield lax.transpose_p, [f32(2, 3, 2, 3, 2)], {"permutation": (4, 3, 2, 1, 0)}
    yield lax.gather_p, [f32(8), SOME], {"dimension_numbers": ROWS, "slice_sizes": (1,)}
    yield lax.gather_p, [f32(8, 4), SOME.astype("u4")], {"dimension_numbers": WIDE_ROWS, "slice_sizes": (1, 4)}
    yield lax.scatter_add_p, [f32(8), SOME, f32(5)], {"dimension_numbers": INTO_ROWS}
    for name in ("scatter", "scatter_mul", "scatter_max"):
        yield getattr(lax, f"{name}_p"), [f32(8), DISTINCT, f32(5)], {"dimension_numbers": INTO_ROWS}


def windows():
    """Gathers and scatters that are not of whole rows, in bounds and outside of them."""
    for numbers, sizes in [
        (lax.GatherDimensionNumbers((0,), (1,), (1,)), (6, 1)),
        (lax.GatherDimensionNumbers((1, 2), (), (0,)), (2, 5)),
        (lax.GatherDimensionNumbers((0, 2), (), (1,)), (6, 2)),
    ]:
        for mode in ("clip", "fill"):
            params = {"dimension_numbers": numbers, "slice_sizes": sizes, "mode": lax.GatherScatterMode.from_any(mode)}
            yield lax.gather_p, [f32(6, 5), whole(7, 1, low=-1, high=7)], params
    pairs = {"dimension_numbers": lax.GatherDimensionNumbers((), (0, 1), (0, 1)), "slice_sizes": (1, 1)}
    yield lax.gather_p, [whole(4, 5), whole(6, 2, low=0, high=4)], pairs
    columns = lax.ScatterDimensionNumbers((0,), (1,), (1,))
    for name in ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_max", "scatter_min"):
        for mode in ("clip", "fill") if name != "scatter" else ("fill",):
            params = {"dimension_numbers": columns, "mode": lax.GatherScatterMode.from_any(mode)}
            yield getattr(lax, f"{name}_p"), [above(6, 8), DISTINCT + 2, above(6, 5)], params
    batched = lax.GatherDimensionNumbers((), (1,), (1,), operand_batching_dims=(0,), start_indices_batching_dims=(0,))
    yield (
        lax.gather_p,
        [f32(4, 6), whole(4, 3, 1, low=0, high=6)],
        {"dimension_numbers": batched, "slice_sizes": (1, 1)},
    )


def results_of(primitive, operands, params):
    return jax.tree.leaves(tile_map(primitive, *(tile_put_sharded(x, TILES) for x in operands), **params))


def close(ours, theirs, what):
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), what
    tolerance = 5e-3 if theirs.dtype == HALF else 2e-5
    np.testing.assert_allclose(
        ours.astype(np.float64), theirs.astype(np.float64), rtol=tolerance, atol=tolerance, err_msg=what
    )


def compare(every):
    """All calls in one program, each beside the same on the host."""
    operands = [ops for _, ops, _ in every]
    want = [results_of(*call) for call in every]

    def all_of_them(*given):
        return [results_of(p, ops, params) for (p, _, params), ops in zip(every, given, strict=True)]

    got = iter(run(all_of_them, *operands))
    for (p, ops, params), results in zip(every, want, strict=True):
        for theirs in results:
            close(next(got), np.asarray(theirs), f"{p.name} of {ops[0].dtype}{ops[0].shape} {params}")


def test_some_primitives_agree_with_jax():
    compare([*list(calls())[::140], *list(windows())[::6]])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_all_primitives_agree_with_jax(part):
    compare(list(calls())[part::4])


def test_calls_that_need_no_array():
    def f():
        return [tile_map(lax.iota_p, tiles=TILES, dtype=np.dtype("i4"), shape=(4, 3), dimension=d) for d in (0, 1)] + [
            tile_map(lax.iota_p, tiles=TILES, dtype=np.dtype("f2"), shape=(5,))
        ]

    for ours, theirs in zip(run(f), f(), strict=True):
        close(ours, np.asarray(theirs.array), "iota")
    with pytest.raises(ValueError, match="without arrays"):
        tile_map(lax.iota_p, dtype=np.dtype("i4"), shape=(4,))


CAST = {"new_dtype": np.dtype("f2"), "weak_type": False, "sharding": None}


ROWS_OF_ROWS = {"dimension_numbers": (((1,), (1,)), ((), ())), "out_sharding": None, "precision": None}
ROWS_OF_ROWS["preferred_element_type"] = np.dtype("f4")


@pytest.mark.parametrize(
    ("call", "vertex"),
    [
        ((lax.exp_p, [above(4)], {}), "UnaryOp1D<popops::expr::UnaryOpType::EXPONENT,float>"),
        ((lax.add_p, [above(4, dtype=HALF)] * 2, {}), "BinaryOp1D<popops::expr::BinaryOpType::ADD,half>"),
        ((lax.reduce_max_p, [above(4, 5)], {"axes": (1,)}), "ContinuousReduce<popops::ReduceMax,float,float,false>"),
        ((lax.reduce_max_p, [above(4, 5)], {"axes": (0,)}), "StridedReduce<popops::ReduceMax,float,float,false>"),
        ((lax.convert_element_type_p, [above(4)], CAST), "Cast1D<float,half>"),
        (
            (lax.dot_general_p, [above(8, 16, dtype=HALF), above(16, 16, dtype=HALF)], ROWS_OF_ROWS),
            "ConvPartial1x1Out<half,float,true,true,16,4,false>",
        ),
        ((tlax.scaled_add_p, [f32(4), f32(4), f32()], {}), "ScaledAddSupervisor<float,float,float,false,false>"),
    ],
)
def test_vertices_of_the_libraries_by_name(call, vertex):
    p, operands, params = call
    _, translate = get_ipu_tile_primitive_translation(p)
    rows = [jax.core.ShapedArray(x.shape[1:], x.dtype) for x in operands]
    said = translate(p, TILES, rows, params)
    assert isinstance(said, IpuTileMapEquation)
    assert said.vname.partition("::")[2] == vertex or said.vname == f"popops::{vertex}"


def test_wrong_calls():
    x = tile_put_sharded(f32(4, 5), TILES)
    with pytest.raises(KeyError, match="sort") as caught:
        tile_map(lax.sort_p, x)
    assert isinstance(caught.value, UnsupportedOpError)
    assert "create_ipu_tile_primitive" in str(caught.value)
    with pytest.raises(KeyError, match="mine"):
        tile_map(primitive_clone(lax.add_p, "mine"), x, x)
    with pytest.raises(TypeError, match="argument 1 is ndarray"):
        tile_map(lax.add_p, x, np.asarray(x))
    with pytest.raises(ValueError, match=r"array 1 lies on tiles \[3, 9, 4\]") as caught:
        tile_map(lax.add_p, x, tile_put_sharded(f32(4, 5), (3, 9, 4)))
    assert __file__ in str(caught.value)
    with pytest.raises(ValueError, match="the call is on"):
        tile_map(lax.neg_p, x, tiles=(1, 2, 3))
    with pytest.raises(UnsupportedOpError, match="over no elements"):
        run(lambda y: tile_map(lax.reduce_max_p, tile_put_sharded(y, TILES), axes=(0, 2)), f32(2, 3, 0))


def test_lists_are_parameters_too():
    x = tile_put_sharded(f32(4, 3), TILES)
    numbers = (([1], [1]), ([], []))
    made = tile_map(lax.dot_general_p, x, x, dimension_numbers=numbers, preferred_element_type=np.float32)
    assert made.shape == (3, 4, 4)
    assert tile_map(lax.reshape_p, x, new_sizes=[12]).shape == (3, 12)


def test_scaled_sums_are_functions_too():
    x, y, s = (tile_put_sharded(v, TILES) for v in (f32(4), f32(4), f32()))
    np.testing.assert_allclose(scaled_add(x, y, s).array, x.array + s.array[:, None] * y.array, rtol=1e-6)
    np.testing.assert_allclose(scaled_sub(x, y, s).array, x.array - s.array[:, None] * y.array, rtol=1e-6)


def test_what_is_not_of_float32_or_half():
    x = above(4).astype(jax.numpy.bfloat16)
    with pytest.raises(TypeError, match="bf16"):
        run(lambda x: tile_map(lax.neg_p, tile_put_sharded(x, TILES)), x)


def test_the_page_lists_every_primitive():
    page = (Path(__file__).parents[4] / "docs" / "tessellate.md").read_text(encoding="utf-8")
    listed = {name for line in page.splitlines() if line.startswith("|") for name in re.findall(r"`([\w-]+)`", line)}
    known = {
        n.removesuffix("_p").replace("scatter_", "scatter-")
        for n in dir(lax)
        if n.endswith("_p") and is_registered(getattr(lax, n))
    }
    assert known - listed == set()
    assert len(known) > 70


def is_registered(primitive):
    try:
        get_ipu_tile_primitive_translation(primitive)
    except KeyError:
        return False
    return True


BESIDE = {"dimension_numbers": (((1,), (1,)), ((), ()))}


@pytest.mark.parametrize(
    ("primitive", "shapes", "params", "measured", "tolerance"),
    [
        pytest.param(lax.add_p, [(10,), (10,)], {}, 330, 0, marks=pytest.mark.slow),
        (lax.add_p, [(1024,), (1024,)], {}, 1860, 0),
        pytest.param(tlax.scaled_sub_p, [(64,), (64,), ()], {}, 375, 4, marks=pytest.mark.slow),
        (tlax.scaled_sub_p, [(512,), (512,), ()], {}, 1043, 4),
        (lax.dot_general_p, [(256, 16), (16, 16)], BESIDE, 1352, 60),
        (tlax.rotation2d_p, [(2,), (512,), (512,)], {}, 1436, 1),
    ],
)
def test_cycles_beside_those_measured_on_a_bow(primitive, shapes, params, measured, tolerance):
    """Raw readings of TessellateIPU's tests and notebooks."""
    kind = np.float16 if primitive is lax.dot_general_p else np.float32

    def f(*given):
        arrays = ipu_cycle_count(*(tile_put_replicated(x, TILES) for x in given))
        *arrays, start = arrays
        made = tile_map(primitive, *arrays, **params)
        *_, end = ipu_cycle_count(*(made if isinstance(made, list) else [made]))
        return start, end

    start, end = run(f, *(np.ones(shape, kind) for shape in shapes))
    assert abs(int(end[0, 0]) - int(start[0, 0]) - measured) <= tolerance
