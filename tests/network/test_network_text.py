"""The text of networks: what it looks like, that it reads back, and what is said of text that does not."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_networks import networks

from abele.errors import NetworkError, NetworkTextError
from abele.expr import Const
from abele.expr.derivative import arg
from abele.graph import DebugRecord
from abele.network import Network, NetworkBuilder, Place, Stage, parse, verify
from abele.network.ir import Dense, network_text
from abele.network.ops import build
from abele.numerics import bool_, f32
from support.examples import examples


def everything() -> Network:
    """A network with something of everything that text has a form for."""
    net = NetworkBuilder()
    x, w = net.input((2, 3), "f32", "x"), net.parameter((3, 3), "f32", "fc.weight")
    count, labels = net.buffer((), "f32", "the count"), net.input((2,), "i32", "labels")
    net.wide.add(labels)
    with net.at(DebugRecord("linear", "fc", "model.py", 7, "fc (Linear)")):
        y = build.linear(net, x, w)
    y = build.dropout(net, y, 0.5)
    with net.at(place=Place(1, 2)):
        (y,) = build.loop(net, 4, [y], lambda r, trip, v: [build.map_(r, arg(0) * 2.0 + arg(1), [v, x])])
    positive = build.map_(net, arg(0) > 0.0, [build.reduce(net, y, [0, 1])], bool_)
    (z,) = build.cond(net, positive, lambda r: [build.map_(r, -arg(0), [y])], lambda r: [y])
    mask = net.constant(np.arange(27).reshape(3, 9) % 5, f32)
    with net.at(stage=Stage.BACKWARD):
        net.output(build.matmul(net, z, mask))
    net.updates[count] = build.map_(net, arg(0) + 1.0, [count])
    net.bound(labels, 10, "label", -100)
    return net.finish()


def test_text__network_with_everything__is_this(snapshot: object) -> None:
    net = everything()
    verify(net)
    assert str(net) == snapshot


def test_parse__network_with_everything__is_equal_with_its_source_lines() -> None:
    net = everything()
    read = parse(str(net))
    assert read == net
    assert hash(read) == hash(net)
    assert [op.debug for op in read.ops] == [op.debug for op in net.ops]


@examples(30)
@given(net=networks())
def test_parse__any_network__reads_back_equal(net: Network) -> None:
    verify(net)
    text = str(net)
    read = parse(text)
    assert read == net
    assert hash(read) == hash(net)
    assert str(read) == text
    assert parse(network_text(net, origins=False)) == net


@given(net=networks(depth=0, most=3), data=st.data())
def test_parse__damaged_text__is_refused_or_read_and_never_breaks(net: Network, data: st.DataObject) -> None:
    text = str(net)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 9)))
    patch = data.draw(
        st.one_of(
            st.just(""),
            st.text(max_size=6),
            st.sampled_from(["{", "}", "%0", "-1", "99999999999", "@", "do", "dense(", "f16"]),
        )
    )
    with contextlib.suppress(NetworkError):
        verify(parse(text[:start] + patch + text[end:]))


def test_equality__another_number_in_one_attribute__differs() -> None:
    assert parse(str(everything()).replace("keep=0.5", "keep=0.25")) != everything()


@pytest.mark.parametrize(
    ("changed", "to"),
    [
        ("f32[2, 3]", "f16[2, 3]"),
        ("@ipu1:stage2", "@ipu1"),
        ("backward:", "update:"),
        ("count=4", "count=5"),
        ("< 10", "< 11"),
    ],
)
def test_equality__any_change_of_structure__differs(changed: str, to: str) -> None:
    text = str(everything())
    assert changed in text
    try:
        assert parse(text.replace(changed, to)) != everything()
    except NetworkError:
        assert to == "f16[2, 3]"


def test_equality__source_lines__do_not_count() -> None:
    assert parse(network_text(everything(), origins=False)) == everything()


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"), 0.1])
def test_contents__any_float__keep_their_bits(value: float) -> None:
    net = NetworkBuilder()
    net.output(net.constant([value, 1.0], f32))
    net.output(net.constant(value, f32))
    read = parse(str(net.finish()))
    for before, after in zip(net.finish().constants.values(), read.constants.values(), strict=True):
        assert before.tobytes() == after.tobytes()


def test_contents__nan_with_a_payload__keeps_its_bits() -> None:
    net = NetworkBuilder()
    odd = np.array([0x7FC01234, 0x3F800000], np.uint32).view(np.float32)
    net.output(net.constant(odd, f32))
    (contents,) = parse(str(net.finish())).constants.values()
    assert contents.tobytes() == odd.tobytes()


def test_expressions__nested_signs__keep_their_parentheses() -> None:
    net = NetworkBuilder()
    x = net.input((2,), "f32", "x")
    expression = (arg(0) - (arg(0) - 1.0)) / (arg(0) * Const(2, f32))
    net.output(net.emit("map", [x], (2,), "f32", expr=expression))
    assert "expr={($0 - ($0 - 1.0)) / ($0 * 2:f32)}" in str(net.finish())
    assert parse(str(net.finish())) == net.finish()


X = "network { input %x: f32[2] "
HOSTILE = {
    "unknown character": (X + "~ }", "'~' begins nothing"),
    "type": ("network { input %x: f33[2] }", "f33"),
    "negative dimension": ("network { input %x: f32[-2] }", "a dimension of -2"),
    "huge dimension": ("network { input %x: f32[99999999999999999] }", "a dimension of 99999999999999999"),
    "unknown value": ("network { output %x }", "%x is read before it is made"),
    "made twice": (X + "input %x: f32[2] }", "%x is made twice"),
    "unknown function": ("network { call function=@f path=a random=0 }", "no function @f comes before"),
    "recursion": ("function @f() { call function=@f return } network { }", "no function @f comes before"),
    "depth": ("network { %0: f32[] = constant value=" + "[" * 5000, "nested too deeply"),
    "deep expression": ("network { %0: f32[] = map expr={" + "(" * 5000, "nested too deeply"),
    "digits": ("network { %0: i32[] = constant value=dense(" + "9" * 5000 + ") }", "too many digits"),
    "contents": ('network { %0: f32[9] = constant value=dense(@d) } data { @d = "eJxjYGBgAAAABAAB" }', "another size"),
    "no base64": ('network { } data { @d = "?" }', "contents that do not read"),
    "huge": ('network { %0: f32[99999999, 99] = constant value=dense(@d) } data { @d = "eA==" }', "are too many"),
    "record": (X + "%0: f32[2] = pool(%x) pooling=Popen(kind=max) }", "no attribute of kind 'Popen'"),
    "record field": (X + "%0: f32[2] = pool(%x) pooling=PoolParams(no=max) }", "no"),
    "end": (X, "expected what leaves the network"),
    "rest": ("network { } network { }", "expected the end of the text"),
    "huge integer": ("network { %0: i32[] = constant value=dense(99999999999) output %0 }", "out of bounds"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_parse__hostile_text__is_refused_with_its_place(name: str) -> None:
    text, expected = HOSTILE[name]
    with pytest.raises(NetworkTextError) as caught:
        parse(text)
    assert expected in str(caught.value)
    assert caught.value.at is not None
    assert caught.value.at.startswith("line 1, column ")


def test_network__frozen__refuses_changes() -> None:
    net = everything()
    with pytest.raises(dataclasses.FrozenInstanceError):
        net.loss = None  # type: ignore[misc]
    with pytest.raises(TypeError):
        net.updates[net.buffers[0]] = net.buffers[0]  # type: ignore[index]
    (contents, *_) = net.constants.values()
    with pytest.raises(ValueError, match="read-only"):
        contents[...] = 1


def test_dense__one_number__is_stored_once() -> None:
    dense = Dense.splat(2.5, (1000, 1000, 1000), f32)
    assert dense.number == 2.5
    assert dense == Dense.splat(2.5, (1000, 1000, 1000), f32)
    assert dense != Dense.splat(2.5, (1000, 1000), f32)
    assert Dense(np.zeros(3, np.float32)) != Dense(-np.zeros(3, np.float32))
