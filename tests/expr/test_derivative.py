"""Symbolic derivatives against central differences in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import UnsupportedOpError
from abele.expr import evaluate
from abele.expr.derivative import ONE, ZERO, arg, operands, partial, substitute
from abele.expr.nodes import Const, Expr
from abele.expr.simplify import product, simplified, total
from abele.kernels.nest import ir
from abele.kernels.nest.ir import apply, select
from abele.numerics import f16, f32

X, Y = arg(0), arg(1)

UNARY = ("neg", "abs", "exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "sqrt", "rsqrt", "inv", "square", "relu")
EXPRESSIONS = {name: apply(name, X) for name in UNARY} | {
    "add": X + Y,
    "sub": X - Y,
    "mul": X * Y,
    "div": X / Y,
    "pow": apply("pow", X, Y),
    "cube": apply("pow", X, 3.0),
    "max": apply("max", X, Y),
    "min": apply("min", X, Y),
    "select": select(X > Y, X * 2.0, apply("square", Y)),
    "silu": X * apply("sigmoid", X),
    "nested": apply("log", 1.0 + apply("exp", -(X * Y))) / apply("sqrt", X + Y),
    "cast": ir.Cast(f32, X) * Y,
    "parts": apply("swish", X * Y),
}

positive = st.floats(0.2, 3.0)


@pytest.mark.parametrize("name", EXPRESSIONS)
@given(x=positive, y=positive)
def test_partial__any_expression__equals_central_difference(name: str, x: float, y: float) -> None:
    expression, step = EXPRESSIONS[name], 1e-6
    if abs(x - y) < 1e-3:
        return
    for number in operands(expression):
        low, high = [np.array([x]), np.array([y])], [np.array([x]), np.array([y])]
        low[number], high[number] = low[number] - step, high[number] + step
        expected = (evaluate(expression, high) - evaluate(expression, low)) / (2 * step)
        got = evaluate(partial(expression, number), [np.array([x]), np.array([y])])
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-8)


def test_partial__equal_arguments_of_max__share_the_gradient() -> None:
    by_x = evaluate(partial(apply("max", X, Y), 0), [np.array([1.0]), np.array([1.0])])
    assert by_x[0] == 0.5


def test_partial__operand_that_is_not_read__is_zero() -> None:
    assert partial(apply("exp", X), 1) == ZERO


def test_partial__operation_without_derivative__is_refused() -> None:
    with pytest.raises(UnsupportedOpError, match="'xor' has no derivative"):
        partial(apply("xor", X, Y), 0)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (X * 1.0, X),
        (X - 0.0, X),
        (apply("pow", X, 2.0), apply("square", X)),
        (apply("pow", X, 0.5), apply("sqrt", X)),
        (Const(2.0) * Const(3.0), Const(6.0)),
        (X * -1.0, apply("neg", X)),
        (X / 1.0, X),
        (apply("pow", X, 0.0), ONE),
    ],
)
def test_simplify__trivial_operations__disappear(expression: ir.Expr, expected: ir.Expr) -> None:
    assert simplified(expression) == expected


def test_substitute__constants__fold() -> None:
    assert substitute(X * Y + X, lambda i: (arg(0), Const(1.0))[i]) == X + X


def test_simplify__product_of_values_with_zero__stays_for_infinity() -> None:
    assert substitute(X * Y + Y, lambda i: (arg(0), Const(0.0))[i]) == X * 0.0 + 0.0
    assert partial(X * Y, 0) == Y
    assert product(ZERO, X) == ZERO
    assert total(ZERO, X) == X


@pytest.mark.parametrize(
    ("expression", "simpler"),
    [
        (X - 0.0, X),
        (X - (-0.0), X - (-0.0)),  # For X = -0.0 the difference is 0.0.
        (X - 3.0, X - 3.0),
        (X * 1.0, X),
        (X * -1.0, -X),
        (X / 1.0, X),
        (Const(3.0) - Const(5.0), Const(-2.0)),
        (Const(5.0) + Const(3.0), Const(8.0)),
        (Const(5.0) * Const(3.0), Const(15.0)),
        (-Const(5.0), Const(-5.0)),
        (Const(5.0, f32) + Const(3.0, f16), Const(5.0, f32) + Const(3.0, f16)),
        (apply("pow", X, -1.0), apply("inv", X)),
        (apply("pow", X, 0.5), apply("sqrt", X)),
        (apply("pow", X, 0.0), ONE),
        (apply("pow", X, 1.0), X),
        (apply("pow", X, 2.5), apply("pow", X, 2.5)),
        (select(X > Y, 2.0, 2.0), Const(2.0)),
        (select(X > Y, 2.0, 3.0), select(X > Y, 2.0, 3.0)),
    ],
    ids=str,
)
def test_simplified__expression__is_the_cheaper_one_of_the_same_value(expression: Expr, simpler: Expr) -> None:
    assert simplified(expression) == simpler
