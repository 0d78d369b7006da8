"""Random expressions mean the same in NumPy, as vertices, as host kernels and as plain Python."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import compile_program
from abele.expr import FUNCTIONS, POPOPS, TABLE, Cast, Const, Expr, InVertex, apply, as_expr, element_type, evaluate
from abele.expr.derivative import arg, partial
from abele.expr.operation import FLOAT
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.numerics import bool_, f16, f32, i32, u32
from abele.poplibs import popops
from abele.poplibs.popops.expressions.names import BinaryOpType, TernaryOpType, UnaryOpType
from abele.runtime import Engine
from support.examples import examples

SMOOTH = ("tanh", "sigmoid", "erf", "sin", "cos", "neg", "square", "gelu_erf", "swish", "asin", "cbrt", "expm1")
INTEGER = ("add", "sub", "mul", "and", "or", "xor", "max", "min", "div", "floordiv", "rem", "bitwise_xnor")
INTEGER_UNARY = ("neg", "abs", "not", "square", "signum", "relu", "popcount", "count_leading_zeros", "hash")
SIZE = 24


def _floats(depth: int) -> st.SearchStrategy[Expr]:
    """Expressions whose values stay within [-1, 1], where every operation of them is smooth."""
    leaf = st.one_of(st.sampled_from([arg(0), arg(1)]), st.floats(-1, 1, width=16).map(as_expr))
    if depth == 0:
        return leaf
    inner = _floats(depth - 1)
    unary = st.builds(lambda op, x: apply(op, x * 0.25 + 0.5) * 0.5, st.sampled_from(SMOOTH), inner)
    binary = st.builds(lambda op, x, y: apply(op, x, y) * 0.5, st.sampled_from(["add", "sub", "mul"]), inner, inner)
    extreme = st.builds(lambda op, x, y: apply(op, x, y), st.sampled_from(["max", "min", "atan2"]), inner, inner)
    chosen = st.builds(lambda x, y: apply("select", arg(0) < arg(1), x, y), inner, inner)
    return st.one_of(leaf, unary, binary, extreme.map(lambda e: e * 0.25), chosen)


def _integers(depth: int) -> st.SearchStrategy[Expr]:
    leaf = st.one_of(st.sampled_from([arg(0), arg(1)]), st.integers(0, 100).map(as_expr))
    if depth == 0:
        return leaf
    inner = _integers(depth - 1)
    operand = st.sampled_from([arg(0), arg(1)])  # an operation of constants alone has no type to count in
    unary = st.builds(apply, st.sampled_from(INTEGER_UNARY), operand | st.builds(lambda x: x + arg(0), inner))
    binary = st.builds(lambda op, x, y: apply(op, x + arg(1), y), st.sampled_from(INTEGER), inner, inner)
    shift = st.builds(lambda op, x: apply(op, x + arg(0), 3), st.sampled_from(["shl", "shr", "shift_right"]), inner)
    return st.one_of(leaf, unary, binary, shift)


def _results(exprs: list[Expr], inputs: list[Any], dtype: Any) -> dict[str, list[Any]]:
    """Every expression by every way of running it."""
    whole = systems.get("bow")
    system = replace(whole, ipu=replace(whole.ipu, num_tiles=2), num_ipus=1)
    graph, prog = Graph(system), Sequence()
    tensors = [graph.variable(dtype, (SIZE,), name=f"v{n}").map_linear() for n in range(len(inputs))]
    wanted = [popops.expr.Cast(popops.expr.Expr(e), dtype) for e in exprs]
    outs = [popops.map(graph, e, tensors, prog) for e in wanted]
    executable = compile_program(graph, prog)
    found = {}
    for name, mode, debug in (("vertex", "tiles", False), ("kernel", "native", False), ("python", "tiles", True)):
        with Engine(executable, mode=mode, debug=debug, threads=1, keep=[*tensors, *outs]) as engine:
            for tensor, array in zip(tensors, inputs, strict=True):
                engine[tensor] = array
            engine.run()
            found[name] = [np.array(engine[o]) for o in outs]
    return found


@examples(3)
@given(st.lists(_floats(3), min_size=5, max_size=5), st.sampled_from([f32, f16]), st.integers(0, 2**20))
def test_float_expressions__every_way_of_running_them__agrees_with_numpy(exprs, dtype, seed) -> None:
    rng = np.random.default_rng(seed)
    inputs = [rng.uniform(-1, 1, SIZE).astype(dtype.np) for _ in range(2)]
    results = _results(exprs, inputs, dtype)
    for number, expression in enumerate(exprs):
        exact = np.broadcast_to(evaluate(expression, [x.astype(np.float64) for x in inputs]), SIZE)
        for way, values in results.items():
            error = np.abs(values[number].astype(np.float64) - exact)
            assert error.max() < (2e-3 if dtype == f16 else 2e-5), (way, str(expression))
        np.testing.assert_array_equal(results["vertex"][number], results["python"][number])


@examples(3)
@given(st.lists(_integers(2), min_size=5, max_size=5), st.sampled_from([i32, u32]), st.integers(0, 2**20))
def test_integer_expressions__every_way_of_running_them__is_numpy_to_the_bit(exprs, dtype, seed) -> None:
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(0 if dtype == u32 else -100, 100, SIZE).astype(dtype.np) for _ in range(2)]
    exprs = [e + arg(0) for e in exprs]
    results = _results(exprs, inputs, dtype)
    for number, expression in enumerate(exprs):
        with np.errstate(all="ignore"):
            exact = np.broadcast_to(_typed(expression, inputs, dtype), SIZE)
        for way, values in results.items():
            np.testing.assert_array_equal(values[number], exact, err_msg=f"{way}: {expression}")


def _typed(expression: Expr, inputs: list[Any], dtype: Any) -> Any:
    """NumPy's meaning with every constant in the type of the operands."""
    if isinstance(expression, Const):
        return np.asarray(expression.value).astype(dtype.np)
    if expression.args:
        return TABLE[expression.op].meaning(*(_typed(a, inputs, dtype) for a in expression.args))  # type: ignore[attr-defined]
    return evaluate(expression, inputs)


@examples(12)
@given(_floats(3), st.integers(0, 2**20))
def test_derivative__random_expression__is_the_slope_of_finite_differences(expression: Expr, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-1, 1, (2, 40))
    apart = np.abs(x - y) > 1e-3
    x, y, h = x[apart], y[apart], 1e-6
    slope = np.broadcast_to(np.asarray(evaluate(partial(expression, 0), [x, y]), np.float64), x.shape)
    up, down = (np.broadcast_to(evaluate(expression, [x + d, y]), x.shape) for d in (h, -h))
    measured = (up - down) / (2 * h)
    # Where two sides of an extreme meet, the slope is that of either side, or between them.
    # At the origin atan2 has no slope; nothing else may give what is no number.
    close = (np.abs(slope - measured) < 1e-4) | (np.isnan(slope) & ("atan2" in str(expression)))
    assert close.mean() > 0.9, str(expression)


@pytest.mark.parametrize("name", [n for n, op in TABLE.items() if op.kinds == FLOAT and op.arity == 1])
def test_composite__expansion__agrees_with_its_meaning(name: str) -> None:
    x = np.linspace(0.05, 0.95, 50)
    op = TABLE[name]
    if op.expansion is not None:
        made = op.expansion((f32,), arg(0))
        np.testing.assert_allclose(np.broadcast_to(evaluate(made, [x]), 50), op.meaning(x), rtol=2e-7)


def test_enumerators__of_poplar__are_those_of_the_table() -> None:
    kinds = {1: UnaryOpType, 2: BinaryOpType, 3: TernaryOpType}
    table = {(op.arity, op.spelling.enumerator): op.spelling.function for op in POPOPS.values() if op.spelling}
    declared = {(arity, m.name): m.value for arity, kind in kinds.items() for m in kind}
    assert {key: name for key, name in table.items() if key[1]} == declared


def test_functions__of_the_vertex_language__have_code_and_slots() -> None:
    for name, op in FUNCTIONS.items():
        assert op.code is not None
        assert op.code.f32 is not None
        assert op.slots is not None, name
        assert isinstance(op.in_vertex, InVertex)


def test_element_type__mixed_operands__is_what_popops_gives() -> None:
    types = (f16, f32, i32)
    assert element_type(arg(0) + 1.0, types) == f16
    assert element_type(arg(0) + arg(1), types) == f32
    assert element_type(Cast(f16, arg(1)), types) == f16
    assert element_type(arg(2) < 3, types) == bool_
    assert element_type(as_expr(1.0), types) is None
