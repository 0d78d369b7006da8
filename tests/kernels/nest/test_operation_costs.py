"""Cost of element-wise operations, counted from their code."""

from __future__ import annotations

import pytest

from abele.expr.nodes import apply
from abele.expr.operation import TABLE
from abele.kernels.nest.ir import load
from abele.kernels.nest.operation_costs import DIVISION_COST, expressions_cost, operation_cost


@pytest.mark.parametrize("op", ["add", "mul", "fma", "lt", "select", "and"])
def test_operation_cost__one_instruction__is_one(op: str) -> None:
    assert operation_cost(op) == 1


def test_operation_cost__functions__cost_what_their_polynomials_have() -> None:
    assert 10 < operation_cost("exp") < operation_cost("erf") < operation_cost("lgamma")


@pytest.mark.parametrize(("op", "times"), [("div", 1), ("inv", 1), ("sqrt", 1), ("rsqrt", 2)])
def test_operation_cost__divisions__cost_a_divider_s_time(op: str, times: int) -> None:
    assert operation_cost(op) == times * DIVISION_COST


def test_operation_cost__every_primitive__is_positive() -> None:
    assert all(operation_cost(name) >= 1 for name, op in TABLE.items() if op.is_primitive)


def test_expressions_cost__equal_parts__count_once() -> None:
    x = load(0, "i")
    power = apply("exp", x)
    assert expressions_cost([power * power, power]) == operation_cost("exp") + 1
