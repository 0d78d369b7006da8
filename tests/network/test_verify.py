"""Illegal networks: the checker's errors, and the op and line that they name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abele.errors import NetworkError
from abele.graph import DebugRecord
from abele.network import Network, NetworkBuilder, Place, Stage, parse, verify
from abele.network.ir import Value
from abele.network.ops import build
from abele.network.passes import AssignPlaces, Pass, Pipeline, checked_passes

HEAD = "network { input %x: f32[2, 3] input %i: i32[] parameter %w: f32[4, 3] "

ILLEGAL = {
    "kind": ("%0: f32[2] = matmull(%x, %w)", "matmull: there is no such kind of op"),
    "operands": ("%0: f32[2] = matmul(%x)", "matmul: it takes 2 operands, not 1"),
    "shape": ("%0: f32[2, 5] = linear(%x, %w)", "linear: result 0 is f32[2, 5], its rule says f32[2, 4]"),
    "type": ("%0: f16[2, 4] = linear(%x, %w)", "linear: result 0 is f16[2, 4], its rule says f32[2, 4]"),
    "fit": ("%0: f32[2, 4] = matmul(%x, %w)", "do not fit each other"),
    "missing attribute": ("%0: f32[2] = reduce(%x) operation=add scale=1.0", "reduce: the attribute 'dims' is missing"),
    "no attribute": ("%0: f32[6] = reshape(%x) shape=[6]", "reshape: it has no attribute 'shape'"),
    "attribute type": ("%0: f32[2, 3] = nonlinearity(%x) function=3", "the attribute 'function' is 3"),
    "bool for int": ("%0: f32[2, 6] = concat(%x, %x) dim=true", "the attribute 'dim' is True"),
    "value of attribute": ("%0: f32[2, 3] = nonlinearity(%x) function=tanhh", "there is no non-linearity 'tanhh'"),
    "reduction": ("%0: f32[2] = reduce(%x) dims=[1] operation=sum scale=1.0", "there is no reduction 'sum'"),
    "dims": ("%0: f32[2] = reduce(%x) dims=[2] operation=add scale=1.0", "dims=[2] are not dimensions of [2, 3]"),
    "order": ("%0: f32[3, 2] = permute(%x) order=[1, 1]", "is no order of [2, 3]"),
    "elements": ("%0: f32[5] = reshape(%x)", "[2, 3] has 6 elements, not 5"),
    "broadcast": ("%0: f32[2, 3] = map(%x, %w) expr={$0 + $1}", "the shapes [2, 3], [4, 3] do not broadcast"),
    "expand": ("%0: f32[2, 2] = expand(%x)", "do not broadcast"),
    "operand of expression": ("%0: f32[2, 3] = map(%x) expr={$0 + $7}", "the expression reads $7"),
    "slice": ("%0: f32[2, 3] = slice(%x) begin=0 dim=1 end=9 step=1", "the indices 0:9:1 are not in a dimension of 3"),
    "results": ("%0: f32[2, 3], %1: f32[2, 3] = nonlinearity(%x) function=tanh", "it makes 1 result, not 2"),
    "probability": (
        "%0: f32[2, 3] = dropout(%x, %w) keep=2.0 modifier=0",
        "it has to be u32[2]",
    ),
    "loop body": (
        "%0: f32[2, 3] = loop(%x) carried=1 count=2 do body(%t: i32[], %a: f32[2, 3]) { %0: f32[6] = reshape(%a) "
        "return %0 }",
        "the body makes value: f32[6] of x: f32[2, 3]",
    ),
    "trip": ("%0: f32[2, 3] = loop(%x) carried=1 count=2 do body(%a: f32[2, 3]) { return %a }", "i32[]"),
    "negative trips": (
        "%0: f32[2, 3] = loop(%x) carried=1 count=-2 do body(%t: i32[], %a: f32[2, 3]) { return %a }",
        "it cannot run -2 times",
    ),
    "condition": (
        "%0: i32[] = while(%i) carried=1 do condition(%a: i32[]) { return %a } do body(%t: i32[], %a: i32[]) "
        "{ return %a }",
        "the condition gives one bool[]",
    ),
    "branches": (
        "%0: bool[] = map(%i) expr={$0 > 1} %1: f32[2, 3] = cond(%0, %x) do then(%a: f32[2, 3]) { return %a } "
        "do otherwise(%a: f32[2, 3]) { return }",
        "its regions give values of different types",
    ),
    "predicate": ("cond(%i) do then() { return } do otherwise() { return }", "it has to be bool[]"),
    "row": ("%0: f32[4] = read_row(%w, %i)", "is no row of w: f32[4, 3]"),
    "loss": ("loss %i", "the loss i: i32[] has to be a floating-point value"),
    "update": ("update %w = %x", "another type"),
    "update of an input": ("update %x = %x", "none of the values that may have one"),
    "state named twice": ("", "two values of the network's state are named 'w'"),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_verify__illegal_network__is_refused(name: str) -> None:
    text, expected = ILLEGAL[name]
    head = HEAD + 'buffer %b "w": f32[] ' if name == "state named twice" else HEAD
    with pytest.raises(NetworkError) as caught:
        parse(f"{head}{text} }}")
    assert expected in str(caught.value)


def test_verify__illegal_op__is_named_with_its_line() -> None:
    net = NetworkBuilder()
    x = net.input((2, 3), "f32", "x")
    with net.at(DebugRecord("linear", "fc", "model.py", 7)):
        net.emit("linear", [x, x], (2, 3), "f32")
    with pytest.raises(NetworkError) as caught:
        verify(net.finish())
    assert caught.value.at == "model.py:7"
    assert caught.value.because == "%0: f32[2, 3] = linear(%x, %x)  # fc/linear (model.py:7)"


def small() -> Network:
    net = NetworkBuilder()
    net.output(build.nonlinearity(net, "tanh", net.input((2,), "f32", "x")))
    return net.finish()


def test_verify__value_read_before_it_is_made__is_refused() -> None:
    net = small()
    (op,) = net.ops
    with pytest.raises(NetworkError, match=r"operand 0 .* is not made before it is read"):
        verify(replace(net, ops=(replace(op, inputs=(Value((2,), net.inputs[0].dtype),)),)))


def test_verify__value_made_twice__is_refused() -> None:
    net = small()
    with pytest.raises(NetworkError, match="was made before"):
        verify(replace(net, ops=net.ops * 2))


def test_verify__output_of_another_network__is_refused() -> None:
    with pytest.raises(NetworkError, match="the output value: f32"):
        verify(replace(small(), outputs=small().outputs))


def test_verify__region_that_reads_around__is_refused() -> None:
    net = NetworkBuilder()
    x = net.input((2,), "f32", "x")
    net.output(build.loop(net, 2, [x], lambda r, t, v: [build.nonlinearity(r, "tanh", v)])[0])
    made = net.finish()
    (loop,) = made.ops
    (body,) = loop.regions
    leaking = replace(body, ops=(replace(body.ops[0], inputs=(x,)),))
    with pytest.raises(NetworkError, match=r"operand 0 \(x: f32\[2\]\) is not made"):
        verify(replace(made, ops=(replace(loop, regions=(leaking,)),)))


class Breaking(Pass):
    name = "breaking"

    def run(self, net: Network) -> Network:
        """Forget the ops."""
        return replace(net, ops=())


def test_pipeline__pass_that_breaks_the_network__is_named_where_checked() -> None:
    with checked_passes(), pytest.raises(NetworkError, match="after the pass 'breaking': the output"):
        Pipeline((Breaking(),)).run(small())
    with checked_passes(False):
        assert Pipeline((Breaking(),)).run(small()).ops == ()


def test_place__inputs_and_constants__go_to_their_first_reader() -> None:
    net = NetworkBuilder()
    x, w = net.input((2,), "f32", "x"), net.parameter((2, 2), "f32", "w")
    mask = net.constant([[1.0, 2.0]], "f32")
    with net.at(place=Place(1, 1)):
        y = build.linear(net, build.reshape(net, x, (1, 2)), w)
        net.output(build.matmul(net, y, build.transpose(net, mask)))
    placed = AssignPlaces().run(net.finish())
    verify(placed)
    assert {v.place for v in placed.entries} == {Place(1, 1)}
    assert {op.place for op in placed.ops if op.kind != "constant"} == {Place(1, 1)}
    assert placed.inputs[0].stage == Stage.FORWARD
