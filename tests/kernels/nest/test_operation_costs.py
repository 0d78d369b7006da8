"""Cost of element-wise operations, counted from their code."""

from __future__ import annotations

import pytest

from abele.expr.nodes import apply
from abele.expr.operation import TABLE
from abele.kernels.nest.ir import load
from abele.kernels.nest.operation_costs import VectorCost, expressions_cost, operation_cost
from abele.llvm import ir as ll
from abele.llvm.cpus import cpu_named
from abele.llvm.emit import F32, POINTER, VOID
from abele.llvm.host import code_for
from abele.llvm.jit import assembly


@pytest.mark.parametrize("op", ["add", "mul", "fma", "lt", "select", "and"])
def test_operation_cost__one_instruction__is_one(op: str) -> None:
    assert operation_cost(op) == VectorCost(1)


def test_operation_cost__functions__cost_what_their_polynomials_have() -> None:
    costs = [operation_cost(op).instructions for op in ("relu", "exp", "erf", "lgamma")]
    assert costs == sorted(costs)
    assert costs[1] > 10


@pytest.mark.parametrize(("op", "time"), [("div", 5), ("inv", 5), ("sqrt", 9), ("rsqrt", 14), ("sigmoid", 5)])
def test_operation_cost__divisions_and_roots__take_the_divider_s_time(op: str, time: int) -> None:
    assert operation_cost(op).dividing == time


@pytest.mark.parametrize("op", ["max", "min"])
def test_operation_cost__the_larger_of_two__is_one_instruction_and_a_test_for_nan(op: str) -> None:
    assert operation_cost(op) == VectorCost(3)


@pytest.mark.parametrize("op", ["add", "div", "max", "min", "exp", "expm1", "log", "tanh", "sigmoid", "erf", "rsqrt"])
def test_operation_cost__functions_of_training__is_about_what_code_for_avx2_has(op: str) -> None:
    code = TABLE[op].code
    assert code is not None
    assert code.f32 is not None
    cpu = cpu_named("haswell")
    assert cpu is not None
    with code_for(cpu):
        lanes = ll.VectorType(F32, 8)
        module = ll.Module("counted")
        pointers = [POINTER] * (TABLE[op].arity + 1)
        function = ll.Function(module, ll.FunctionType(VOID, pointers), "counted")
        builder = ll.IRBuilder(function.append_basic_block("entry"))
        args = [builder.load(pointer, typ=lanes, align=4) for pointer in function.args[:-1]]
        builder.store(code.f32(builder, *args), function.args[-1], align=4)
        builder.ret_void()
        made = [line.split()[0] for line in assembly(module, speed=1).splitlines() if line.startswith("\tv")]
        counted = operation_cost(op).instructions
    # Values are loaded, spread, cleared and stored beside arithmetic.
    made = [word for word in made if not word.startswith(("vmov", "vbroadcast", "vpbroadcast", "vzero", "vxor"))]
    assert 0.7 * counted <= len(made) <= 1.4 * counted


def test_operation_cost__code_for_another_cpu__is_counted_anew() -> None:
    avx512, avx2 = cpu_named("skylake-avx512"), cpu_named("haswell")
    assert avx512 is not None
    assert avx2 is not None
    costs = []
    for cpu in (avx512, avx2, avx512):
        with code_for(cpu):
            costs.append(operation_cost("exp").instructions)
    assert costs[0] == costs[2] < costs[1]


def test_operation_cost__every_primitive__is_positive() -> None:
    assert all(operation_cost(name).instructions >= 1 for name, op in TABLE.items() if op.is_primitive)


def test_expressions_cost__equal_parts__count_once() -> None:
    x = load(0, "i")
    power = apply("exp", x)
    assert expressions_cost([power * power, power]) == operation_cost("exp") + VectorCost(1)
