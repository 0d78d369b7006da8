"""Networks: building, listing and asking."""

from __future__ import annotations

import numpy as np
import pytest

from abele.errors import NetworkError, UnsupportedOpError
from abele.expr.derivative import arg
from abele.graph import DebugRecord
from abele.kernels.nest.ir import apply
from abele.network import NetworkBuilder, evaluate
from abele.network.ir import differentiable
from abele.network.ir.network import contents_of
from abele.network.ops import build
from abele.network.registry import rule_of


def small() -> NetworkBuilder:
    net = NetworkBuilder()
    x = net.input((2, 3), "f32", "x")
    w = net.parameter((4, 3), "f32", "fc.weight")
    b = net.parameter((4,), "f32", "fc.bias")
    with net.at(DebugRecord("linear", "fc", "model.py", 7)):
        y = build.linear(net, x, w, b)
    with net.at(DebugRecord("tanh", "", "model.py", 8)):
        net.output(build.nonlinearity(net, "tanh", y))
    return net


def test_network__listing__names_values_ops_and_source_lines() -> None:
    assert str(small().finish()) == (
        "network {\n"
        "  input %x: f32[2, 3]\n"
        "  parameter %fc.weight: f32[4, 3]\n"
        "  parameter %fc.bias: f32[4]\n"
        "  %0: f32[2, 4] = linear(%x, %fc.weight, %fc.bias)  # fc/linear (model.py:7)\n"
        "  %1: f32[2, 4] = nonlinearity(%0) function=tanh  # tanh (model.py:8)\n"
        "  output %1\n"
        "}"
    )


def test_needed__op_that_nothing_reads__is_left_out() -> None:
    net = small()
    build.nonlinearity(net, "relu", net.inputs[0])
    assert [op.kind for op in net.finish().needed(net.outputs)] == ["linear", "nonlinearity"]


def test_differentiable__values_after_a_parameter__are_reached_unless_detached() -> None:
    net = small()
    unrelated = build.nonlinearity(net, "relu", net.inputs[0])
    cut = build.detach(net, net.outputs[0])
    reached = differentiable(net.ops, net.parameters)
    assert net.outputs[0] in reached
    assert not reached & {unrelated, cut}


def kinds(net: NetworkBuilder) -> list[str]:
    return [op.kind for op in net.ops if op.kind != "constant"]


def test_scalar__constant_of_one_number__is_that_number() -> None:
    net = NetworkBuilder()
    assert net.scalar(build.full(net, 2.5, (3, 4), "f32")) == 2.5
    assert net.scalar(net.constant([1.0, 2.0], "f32")) is None
    assert net.scalar(net.input((1,), "f32", "x")) is None


def test_map__constants_among_operands__become_part_of_the_expression() -> None:
    net = NetworkBuilder()
    x = net.input((3,), "f32", "x")
    y = build.map_(net, arg(0) * arg(1) + arg(1), [x, build.full(net, 2.0, (3,), "f32")])
    (op,) = (op for op in net.ops if op.kind == "map")
    assert op.inputs == (x,)
    np.testing.assert_array_equal(evaluate(net.finish(), {x: [1.0, 2.0, 3.0]})[y], [4.0, 6.0, 8.0])


def test_map__only_constants__is_computed_at_once() -> None:
    net = NetworkBuilder()
    y = build.map_(net, apply("exp", arg(0)), [build.full(net, 0.0, (2,), "f32")])
    assert not kinds(net)
    assert net.scalar(y) == 1.0


def test_map__identity__makes_no_op() -> None:
    net = NetworkBuilder()
    x = net.input((3,), "f32", "x")
    assert build.map_(net, arg(0) * arg(1), [x, build.full(net, 1.0, (), "f32")]) is x


def test_views__of_constants__stay_constants() -> None:
    net = NetworkBuilder()
    c = net.constant(np.arange(6.0).reshape(2, 3), "f32")
    turned = build.slice_(net, build.permute(net, c, (1, 0)), 0, 1, 3)
    assert not kinds(net)
    np.testing.assert_array_equal(net.constants[turned], [[1, 4], [2, 5]])


def test_rule_of__unknown_kind__names_the_nearest() -> None:
    net = NetworkBuilder()
    net.emit("matmull", [], (), "f32")
    with pytest.raises(UnsupportedOpError) as caught:
        rule_of(net.ops[0])
    assert "no rule for an op of kind 'matmull'" in str(caught.value)
    assert "'matmul' exists" in str(caught.value)


def test_contents__of_an_op_that_is_no_constant__names_its_kind() -> None:
    with pytest.raises(NetworkError, match="a 'nonlinearity' op has no elements of its own"):
        contents_of(small().finish().ops[1])
