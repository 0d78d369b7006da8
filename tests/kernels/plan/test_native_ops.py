from __future__ import annotations

import numpy as np
import pytest
from kernels_kit import run_kernel

from abele.expr.operation import COMBINES, TABLE
from abele.kernels.nest.ir import Cast, Const, HostKernel, Index, Random, affine, apply, load, nest, select, store
from abele.kernels.nest.reference import evaluate
from abele.numerics import bf16, bool_, f16, f32, i8, i16, i32, i64, u8, u16, u32, u64

OPS = {name: op for name, op in TABLE.items() if op.is_primitive}
DOMAIN = {"log": (0.1, 5), "sqrt": (0.1, 5), "rsqrt": (0.1, 5), "inv": (0.5, 4), "pow": (0.2, 3), "div": (0.5, 4)}
FLOAT_OPS = [name for name, op in OPS.items() if "float" in op.kinds and name != "select"]
INT_OPS = [name for name, op in OPS.items() if "int" in op.kinds and name != "select"]


def elementwise(op: str, type_, out, size: int) -> HostKernel:
    arity = OPS[op].arity
    value = apply(op, *(load(n, "i") for n in range(arity)))
    shapes = ((size,),) * (arity + 1)
    return HostKernel(shapes, (type_,) * arity + (out,), arity, 1, (nest({"i": size}, store(arity, ("i",), value)),))


@pytest.mark.parametrize("op", FLOAT_OPS)
@pytest.mark.parametrize("size", [1, 77])
def test_float_op__any_size__matches_float64(op, size):
    rng = np.random.default_rng(3)
    low, high = DOMAIN.get(op, (-3, 3))
    out = bool_ if OPS[op].gives_bool else f32
    inputs = [rng.uniform(low, high, size).astype(np.float32) for _ in range(OPS[op].arity)]
    if OPS[op].gives_bool:
        inputs[0][::3] = inputs[1][::3]
    kernel = elementwise(op, f32, out, size)
    expected = evaluate(kernel, inputs, precise=True)[0]
    np.testing.assert_allclose(run_kernel(kernel, inputs)[0], expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("width", range(4))
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("op", INT_OPS)
def test_int_op__every_integer_type__matches_numpy(op, signed, width):
    type_ = ((i8, i16, i32, i64) if signed else (u8, u16, u32, u64))[width]
    rng = np.random.default_rng(4)
    high = 7 if op in ("shl", "shr", "mul", "square") else 100
    inputs = [rng.integers(1 if type_.kind == "uint" else -high, high, 37) for _ in range(OPS[op].arity)]
    if op in ("div", "shl", "shr"):
        inputs[1] = np.abs(inputs[1]) % 5 + 1
    inputs = [a.astype(type_.np) for a in inputs]
    kernel = elementwise(op, type_, bool_ if OPS[op].gives_bool else type_, 37)
    np.testing.assert_array_equal(run_kernel(kernel, inputs)[0], evaluate(kernel, inputs)[0])


@pytest.mark.parametrize("op", ["and", "or", "xor", "not", "eq", "ne"])
def test_bool_op__all_pairs__matches_numpy(op):
    inputs = [np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)][: OPS[op].arity]
    kernel = elementwise(op, bool_, bool_, 4)
    np.testing.assert_array_equal(run_kernel(kernel, inputs)[0], evaluate(kernel, inputs)[0])


@pytest.mark.parametrize("op", ["max", "min", "relu"])
def test_extreme__nan_operand__gives_nan(op):
    inputs = [np.array([np.nan, 1, np.nan, -1], np.float32), np.array([1, np.nan, np.nan, 2], np.float32)]
    inputs = inputs[: OPS[op].arity]
    kernel = elementwise(op, f32, f32, 4)
    np.testing.assert_array_equal(run_kernel(kernel, inputs)[0], evaluate(kernel, inputs)[0])


@pytest.mark.parametrize("type_", [f32, i32, u32])
@pytest.mark.parametrize("combine", list(COMBINES))
@pytest.mark.parametrize("shape", [(5, 33), (33, 5), (1, 100), (3, 1), (64, 7)])
@pytest.mark.parametrize("accumulate", [False, True])
def test_combine__rows__matches_reference(combine, type_, shape, accumulate):
    rng = np.random.default_rng(5)
    x = (rng.uniform(0.8, 1.2, shape) if type_ == f32 else rng.integers(1, 4, shape)).astype(type_.np)
    start = (np.arange(shape[0]) + 1).astype(type_.np)
    body = store(1, ("i",), load(0, "i", "j"), combine, accumulate=accumulate)
    kernel = HostKernel((shape, shape[:1]), (type_, type_), 1, 1, (nest({"i": shape[0], "j": shape[1]}, body),))
    expected = evaluate(kernel, [x, start], precise=True)[0]
    np.testing.assert_allclose(run_kernel(kernel, [x, start])[0], expected, rtol=1e-5)


@pytest.mark.parametrize("combine", list(COMBINES))
def test_combine__everything_to_a_scalar__matches_reference(combine):
    x = np.random.default_rng(6).uniform(0.9, 1.1, (9, 50)).astype(np.float32)
    kernel = HostKernel(
        ((9, 50), ()), (f32, f32), 1, 1, (nest({"i": 9, "j": 50}, store(1, (), load(0, "i", "j"), combine)),)
    )
    np.testing.assert_allclose(run_kernel(kernel, [x])[0], evaluate(kernel, [x], precise=True)[0], rtol=1e-5)


@pytest.mark.parametrize("source", [f32, f16, bf16, i32, u8, i64, bool_])
@pytest.mark.parametrize("wanted", [f32, f16, bf16, i32, i64, u32, bool_])
def test_cast__between_types__matches_numpy(source, wanted):
    values = np.array([0, 1, 2.5, 3.99, 100, 7, 0.3, 60] * 3).astype(source.np)
    value = Cast(wanted, load(0, "i")) if wanted != source else load(0, "i")
    kernel = HostKernel(((24,), (24,)), (source, wanted), 1, 1, (nest({"i": 24}, store(1, ("i",), value)),))
    result = run_kernel(kernel, [values])[0]
    np.testing.assert_array_equal(result.astype(np.float64), evaluate(kernel, [values])[0].astype(np.float64))


@pytest.mark.parametrize("type_", [f16, bf16])
def test_16_bit_floats__sum__rounds_once(type_):
    x = np.random.default_rng(7).uniform(0, 1, (6, 300)).astype(type_.np)
    kernel = HostKernel(
        ((6, 300), (6,)), (type_, type_), 1, 1, (nest({"i": 6, "j": 300}, store(1, ("i",), load(0, "i", "j"), "add")),)
    )
    expected = x.astype(np.float64).sum(1).astype(np.float32).astype(type_.np)
    np.testing.assert_array_equal(run_kernel(kernel, [x])[0], expected)


def test_select__mixed_constants_and_index__matches_reference():
    value = select(load(0, "i", "j") > 0.0, Cast(f32, Index(affine(("i", 3), "j", const=-2))), -1.0)
    kernel = HostKernel(((7, 19), (7, 19)), (f32, f32), 1, 1, (nest({"i": 7, "j": 19}, store(1, ("i", "j"), value)),))
    x = np.random.default_rng(8).normal(size=(7, 19)).astype(np.float32)
    np.testing.assert_array_equal(run_kernel(kernel, [x])[0], evaluate(kernel, [x])[0])


def test_random__rows_and_columns__gives_the_reference_bits():
    value = Random(0, 11, affine(("i", 40), "j", const=5))
    kernel = HostKernel(((2,), (6, 40)), (u32, u32), 1, 1, (nest({"i": 6, "j": 40}, store(1, ("i", "j"), value)),))
    seed = np.array([12345, 678], np.uint32)
    np.testing.assert_array_equal(run_kernel(kernel, [seed])[0], evaluate(kernel, [seed])[0])


def test_constant__stored_to_every_type__is_converted():
    for type_ in (f32, f16, i32, u8, i64, bool_):
        kernel = HostKernel(((9,),), (type_,), 0, 1, (nest({"i": 9}, store(0, ("i",), Const(1, type_))),))
        assert (run_kernel(kernel, [])[0] == 1).all()


@pytest.mark.parametrize("type_", [f16, bf16])
@pytest.mark.parametrize("accumulate", [False, True])
def test_16_bit_floats__overlapping_scatter__rounds_once(type_, accumulate):
    x = np.random.default_rng(9).uniform(0, 1, (5, 40)).astype(type_.np)
    start = np.full((5, 44), 3, type_.np)
    body = store(1, ("b", affine("i", "k")), load(0, "b", "i"), "add", accumulate=accumulate)
    kernel = HostKernel(((5, 40), (5, 44)), (type_, type_), 1, 1, (nest({"b": 5, "i": 40, "k": 5}, body),))
    expected = np.full((5, 44), 3.0 if accumulate else 0.0)
    for shift in range(5):
        expected[:, shift : shift + 40] += x.astype(np.float64)
    np.testing.assert_array_equal(run_kernel(kernel, [x, start])[0], expected.astype(np.float32).astype(type_.np))


@pytest.mark.parametrize("rows", [5, 16, 37])
@pytest.mark.parametrize("combine", ["add", "mul"])
def test_reduction__of_a_value_that_is_the_same_at_every_point__counts_each_point(rows, combine):
    value = np.array([1.5, -0.5, 1.25, 2.0], np.float32)
    once = nest({"i": rows, "j": 4}, store(1, ("j",), load(0, "j"), combine))
    # Beside a reduction that does differ from point to point, too: both share one loop.
    both = nest(
        {"i": rows, "j": 4},
        store(2, ("j",), load(0, "j"), combine),
        store(3, ("j",), load(1, "i", "j"), "max"),
    )
    expected = value * rows if combine == "add" else value**rows
    np.testing.assert_allclose(
        run_kernel(HostKernel(((4,), (4,)), (f32,) * 2, 1, 1, (once,)), [value])[0], expected, rtol=1e-5
    )
    matrix = np.random.default_rng(1).standard_normal((rows, 4)).astype(np.float32)
    kernel = HostKernel(((4,), (rows, 4), (4,), (4,)), (f32,) * 4, 2, 2, (both,))
    same, most = run_kernel(kernel, [value, matrix])
    np.testing.assert_allclose(same, expected, rtol=1e-5)
    np.testing.assert_array_equal(most, matrix.max(0))
