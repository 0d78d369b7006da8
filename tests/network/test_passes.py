"""Passes one by one, and pipelines: order, printing, stopping, dumping."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from random_networks import networks

from abele.errors import FileFormatError, InvalidOptionError, NetworkError
from abele.expr import select
from abele.expr.derivative import arg
from abele.graph import DebugRecord
from abele.network import (
    Group,
    Network,
    NetworkBuilder,
    PassDump,
    Place,
    Schedule,
    Sgd,
    Stage,
    Value,
    evaluate,
    inference_pipeline,
    parse,
    training_pipeline,
    verify,
)
from abele.network.ops import build
from abele.network.passes import (
    Canonicalise,
    CommonSubexpressions,
    DeadCode,
    FoldConstants,
    Outline,
    Pass,
    Recompute,
)
from abele.numerics import f32, i32
from support.examples import examples

HEAD = "network { input %x: f32[2, 3] input %y: f32[2, 3] "


def kinds(net: Network) -> list[str]:
    return [op.kind for op in net.ops]


def after(step: Pass, text: str) -> Network:
    made = step.run(parse(f"{HEAD}{text} }}"))
    verify(made)
    return made


# --- one by one -------------------------------------------------------------------------------------------------------


def test_canonicalise__operand_read_twice__is_there_once() -> None:
    net = after(Canonicalise(), "%0: f32[2, 3] = map(%x, %x, %y) expr={$0 * $1} output %0")
    assert [(op.kind, len(op.inputs)) for op in net.ops] == [("map", 1)]


def test_canonicalise__known_branch__is_inlined() -> None:
    text = """%0: bool[] = constant value=dense(true) %1: f32[2, 3] = cond(%0, %x)
        do then(%a: f32[2, 3]) { %0: f32[2, 3] = nonlinearity(%a) function=tanh return %0 }
        do otherwise(%a: f32[2, 3]) { return %a } output %1"""
    assert kinds(after(Canonicalise(), text)) == ["constant", "nonlinearity"]


def test_canonicalise__in_bodies__works_as_outside() -> None:
    text = """%0: f32[2, 3] = loop(%x) carried=1 count=2
        do body(%t: i32[], %a: f32[2, 3]) { %0: f32[2, 3] = reshape(%a) return %0 } output %0"""
    (loop,) = after(Canonicalise(), text).ops
    assert loop.regions[0].ops == ()


def test_fold_constants__product_of_constants__is_a_constant() -> None:
    text = """%0: f32[1, 2] = constant value=dense([[1.0, 2.0]]) %1: f32[2, 1] = constant value=dense([[3.0], [4.0]])
        %2: f32[1, 1] = matmul(%0, %1) output %2"""
    net = DeadCode().run(after(FoldConstants(), text))
    assert kinds(net) == ["constant"]
    assert net.constants[net.outputs[0]] == 11.0


def test_fold_constants__result_that_is_much_larger__stays() -> None:
    text = """%0: f32[100, 1] = constant value=dense(1.5) %1: f32[1, 100] = constant value=dense(2.5)
        %2: f32[100, 100] = matmul(%0, %1) output %2"""
    assert "matmul" in kinds(after(FoldConstants(), text))
    assert "matmul" not in kinds(after(FoldConstants(10_000), text))


def test_common_subexpressions__same_op_twice__is_there_once() -> None:
    text = """%0: f32[2, 3] = map(%x, %y) expr={$0 + $1} %1: f32[2, 3] = map(%x, %y) expr={$0 + $1}
        %2: f32[2, 3] = map(%y, %x) expr={$0 + $1} %3: f32[2, 3] = map(%0, %1) expr={$0 * $1} output %3 output %2"""
    net = after(CommonSubexpressions(), text)
    assert len(net.ops) == 3
    assert len(set(net.ops[-1].inputs)) == 1


def test_common_subexpressions__random_ops__are_one_only_with_one_modifier() -> None:
    drop = "f32[2, 3] = dropout(%x, %s) keep=0.5 modifier"
    text = f"seed %s: u32[2] %0: {drop}=0 %1: {drop}=0 %2: {drop}=1 output %0 output %1 output %2"
    net = after(CommonSubexpressions(), text)
    assert [op.attrs["modifier"] for op in net.ops] == [0, 1]
    assert net.outputs[0] is net.outputs[1]


def test_dead_code__in_a_body__goes_too() -> None:
    text = """%9: f32[2, 3] = map(%y) expr={$0 * 3.0} %0: f32[2, 3] = loop(%x) carried=1 count=2
        do body(%t: i32[], %a: f32[2, 3]) { %0: f32[2, 3] = map(%a) expr={exp($0)} return %a } output %0"""
    (loop,) = after(DeadCode(), text).ops
    assert loop.regions[0].ops == ()


def test_recompute__cheap_activation__is_made_again_where_the_backward_pass_reads_it() -> None:
    net = training_network(2)
    once = training_pipeline(Schedule(), groups(net)).run(net)
    again = training_pipeline(Schedule(), groups(net), recompute=True).run(net)
    copies = [op for op in again.ops if op.debug.name.endswith("/again")]
    assert copies
    assert all(op.stage == Stage.BACKWARD for op in copies)
    assert Recompute().run(once) is once
    feeds = random_feeds(net)
    values, expected = evaluate(again, feeds), evaluate(once, feeds)
    for (_, got), (_, want) in zip(again.gradients.items(), once.gradients.items(), strict=True):
        np.testing.assert_allclose(values[got], expected[want], rtol=1e-12)


# --- outlining --------------------------------------------------------------------------------------------------------


def layer(net: NetworkBuilder, x: Value, number: int, drop: float) -> Value:
    """One of many equal layers, with weights of its own."""
    with net.at(DebugRecord("linear", f"layers/{number}/fc", "model.py", 4, f"layers.{number}.fc (Linear)")):
        w, b = (net.parameter(s, "f32", f"layers.{number}.fc.{n}") for s, n in (((6, 6), "weight"), ((6,), "bias")))
        y = build.linear(net, x, w, b)
    with net.at(DebugRecord("layer", f"layers/{number}", "model.py", 5, f"layers.{number} (Layer)")):
        y = build.nonlinearity(net, "gelu", y)
        y = build.dropout(net, y, drop) if drop else y
        y = build.map_(net, arg(0) + arg(1), [x, y])
        centre = build.mean(net, y, [1], keep=True)
        y = build.map_(net, arg(0) - arg(1), [y, centre])
        return build.softmax(net, y, 1)


def training_network(layers: int, drop: float = 0.0, *, checkpoints: bool = False) -> Network:
    net = NetworkBuilder()
    x = net.input((4, 6), "f32", "x")
    for number in range(layers):
        x = layer(net, x, number, drop)
        x = build.keep(net, x) if checkpoints else x
    net.output(x)
    net.loss = build.reduce(net, x, [0, 1])
    return net.finish()


def groups(net: Network) -> list[Group]:
    return [Group(Sgd(lr=0.1), net.parameters)]


def random_feeds(net: Network) -> dict[Value, np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {v: rng.standard_normal(v.shape) for v in (*net.inputs, *net.parameters)}
    return feeds | ({} if net.seed is None else {net.seed: np.array([7, 3], np.uint32)})


@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_outline__equal_layers__are_calls_of_one_function(drop: float) -> None:
    net = training_network(5, drop)
    outlined = Outline(min_ops=5).run(net)
    verify(outlined)
    (function,) = outlined.functions
    calls = [op for op in outlined.ops if op.kind == "call"]
    assert function.name == "layers"
    assert [op.attrs["path"] for op in calls] == [f"layers/{i}" for i in range(5)]
    assert [op.attrs["random"] for op in calls] == [i if drop else 0 for i in range(5)]
    feeds = random_feeds(net)
    expected, got = evaluate(net, feeds), evaluate(outlined, feeds)
    np.testing.assert_array_equal(got[outlined.outputs[0]], expected[net.outputs[0]])


def test_outline__checkpoints__stay_between_calls() -> None:
    outlined = Outline(min_ops=5).run(training_network(5, checkpoints=True))
    kinds = [op.kind for op in outlined.ops if op.kind in ("call", "keep")]
    assert kinds == ["call", "keep"] * 5
    assert not any(op.kind == "keep" for f in outlined.functions for op in f.body.ops)


def test_outline__calls__keep_the_names_and_labels_of_their_layers() -> None:
    from abele.network.ops.control import body_of

    net = training_network(3)
    outlined = Outline(min_ops=5).run(net)
    named = [inner.debug for op in outlined.ops if op.kind == "call" for inner in body_of(op).ops]
    expected = [op.debug for op in net.ops if op.kind != "constant"]
    assert [d for d in named if d.name][: len(expected)] == expected[: len(named)]


def test_outline__gradients_through_calls__equal_those_of_the_flat_network() -> None:
    net = training_network(4, 0.25)
    flat = training_pipeline(Schedule(), groups(net)).without("outline").run(net)
    called = training_pipeline(Schedule(), groups(net)).run(net)
    assert any(f.name.endswith(".backward") for f in called.functions)
    feeds = random_feeds(net)
    values, expected = evaluate(called, feeds), evaluate(flat, feeds)
    by_name = {p.name: g for p, g in called.gradients.items()}
    for parameter, gradient in flat.gradients.items():
        np.testing.assert_allclose(values[by_name[parameter.name]], expected[gradient], rtol=1e-12, atol=1e-15)


def test_outline__layers_that_differ_in_one_number__stay() -> None:
    net = NetworkBuilder()
    x = net.input((4, 6), "f32", "x")
    for number in range(3):
        for power in range(9):
            x = build.map_(net, arg(0) * (1.5 + number * 10 + power), [x])
    net.output(x)
    made = net.finish()
    assert Outline().run(made) is made


def masked_layers(*, labels: bool = False, constant: bool = False) -> Network:
    """Layers that hide by a mask, made where the first of them asks for it, perhaps with a constant."""
    net = NetworkBuilder()
    x, numbers = net.input((4, 6), "f32", "x"), net.input((6,), "i32", "numbers")
    mask: Value | None = None
    for number in range(3):
        scores = build.matmul(net, x, net.parameter((6, 6), "f32", f"w{number}"))
        if mask is None:
            mask = build.map_(net, select(arg(0).ne(0), 0.0, -100.0), [build.reshape(net, numbers, (1, 6))], f32)
            if constant:
                mask = build.map_(net, arg(0) * arg(1), [mask, net.constant(np.arange(6.0), f32)])
        seen = build.softmax(net, build.map_(net, arg(0) + arg(1), [scores, mask]), 1)
        x = build.nonlinearity(net, "tanh", build.map_(net, arg(0) * arg(1), [seen, x]))
    if labels:
        counted = build.map_(net, select(arg(0).ne(1), 1.0, 0.0), [build.reshape(net, numbers, (1, 6))], f32)
        x = build.map_(net, arg(0) * arg(1), [x, counted])
    net.output(x)
    net.loss = build.reduce(net, x, [0, 1])
    return net.finish()


def test_outline__several_ipus__each_has_the_stretches_that_save_most_there() -> None:
    net = NetworkBuilder()
    x = net.input((4, 6), "f32", "x")
    # On the first three IPUs the longer half occurs twice and a whole layer once, on the fourth a layer three times.
    for ipu, stage in enumerate(("aba", "aba", "aba", "bababab")):
        with net.at(place=Place(ipu, ipu)):
            for half in stage:
                for number in range(9 if half == "a" else 4):
                    x = build.map_(net, arg(0) * (2.0 + number) + (1.0 if half == "a" else 3.0), [x])
    net.output(x)
    outlined = Outline().run(net.finish())
    verify(outlined)
    sizes: list[list[int]] = [[] for _ in range(4)]
    for op in outlined.ops:
        if op.kind == "call":
            assert op.place is not None
            assert op.function is not None
            sizes[op.place.ipu].append(len(op.function.body.ops))
    assert sizes == [[9, 9], [9, 9], [9, 9], [13, 13, 13]]
    assert len(outlined.functions) == 2


def test_outline__mask_that_the_first_layer_asks_for__is_made_before_all_of_them() -> None:
    net = masked_layers()
    outlined = Outline(min_ops=4).run(net)
    verify(outlined)
    (function,) = outlined.functions
    kinds = [op.kind for op in outlined.ops if op.kind != "constant"]
    assert kinds == ["reshape", "map", "call", "call", "call", "reduce"]
    assert not any(v.dtype == i32 for v in function.body.parameters)
    feeds = random_feeds(net) | {net.inputs[1]: np.array([0, 1, 2, 0, 1, 0])}
    expected, got = evaluate(net, feeds), evaluate(outlined, feeds)
    np.testing.assert_array_equal(got[outlined.outputs[0]], expected[net.outputs[0]])
    trained = training_pipeline(Schedule(), groups(net)).run(net)
    assert not any(v.shape == (1, 6) for op in trained.ops if op.kind == "call" for v in op.outputs), "no gradient"


def test_outline__mask_with_a_constant_of_its_own__is_made_behind_that() -> None:
    net = masked_layers(constant=True)
    outlined = Outline(min_ops=4).run(net)
    verify(outlined)
    assert [op.kind for op in outlined.ops] == ["reshape", "map", "constant", "map", "call", "call", "call", "reduce"]
    feeds = random_feeds(net) | {net.inputs[1]: np.array([0, 1, 2, 0, 1, 0])}
    expected, got = evaluate(net, feeds), evaluate(outlined, feeds)
    np.testing.assert_array_equal(got[outlined.outputs[0]], expected[net.outputs[0]])


def test_outline__what_one_op_reads_of_an_input__stays_where_it_is() -> None:
    outlined = Outline(min_ops=4).run(masked_layers(labels=True))
    kinds = [op.kind for op in outlined.ops if op.kind != "constant"]
    assert kinds == ["reshape", "map", "call", "call", "call", "reshape", "map", "map", "reduce"]


@examples(10)
@given(net=networks())
def test_inference_pipeline__any_network__computes_the_same(net: Network) -> None:
    made = inference_pipeline().without("place").run(net)
    verify(made)
    assert parse(str(made)) == made
    rng = np.random.default_rng(1)
    feeds = {v: rng.standard_normal(v.shape) if v.dtype.is_float else np.zeros(v.shape) for v in net.entries}
    with np.errstate(all="ignore"):
        expected, got = evaluate(net, feeds, precise=False), evaluate(made, feeds, precise=False)
    for before, now in zip(net.outputs, made.outputs, strict=True):
        np.testing.assert_allclose(got[now], expected[before], rtol=1e-5)


# --- pipelines --------------------------------------------------------------------------------------------------------


def test_pipeline__printed__lists_passes_with_their_options(snapshot: object) -> None:
    net = training_network(2)
    assert str(training_pipeline(Schedule(2, 4, mean=False), groups(net), recompute=True)) == snapshot


def test_pipeline__until_a_pass__stops_after_the_last_of_that_name() -> None:
    pipeline = training_pipeline(Schedule(), groups(training_network(1)))
    assert pipeline.until("differentiate").passes[-1].name == "differentiate"
    assert pipeline.until("dead-code").names[-1] != "accumulate"
    assert pipeline.until("captured").passes == ()
    with pytest.raises(InvalidOptionError) as caught:
        pipeline.until("diferentiate")
    assert "'differentiate'" in str(caught.value)


def test_pipeline__without_a_pass__leaves_the_others() -> None:
    assert "outline" not in inference_pipeline().without("outline").names


def test_dump__of_a_pipeline__has_a_file_for_each_pass_that_changed_something(tmp_path: Path) -> None:
    net = training_network(3)
    final = training_pipeline(Schedule(1, 2), groups(net)).run(net, watch=PassDump(tmp_path / "dump"))
    files = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert files[0] == "00-captured.net"
    names = [name[3:] for name in files]
    assert "differentiate.net" in names
    assert "recompute.net" not in names
    assert parse((tmp_path / "dump" / "00-captured.net").read_text()) == net
    assert parse((tmp_path / "dump" / files[-1]).read_text()) == final


def test_pipeline__run__leaves_the_network_as_it_was() -> None:
    net = training_network(2)
    text = str(net)
    training_pipeline(Schedule(), groups(net)).run(net)
    assert str(net) == text
    with pytest.raises(NetworkError):
        parse(text.replace("softmax", "softmin"))


def test_map__constants_that_overflow__are_infinite_without_a_warning() -> None:
    net = NetworkBuilder()
    huge = build.full(net, 1e30, (2,), "f32")
    assert net.scalar(build.map_(net, arg(0) * arg(0), [huge])) == np.inf


def test_dump__folder_that_cannot_be_made__is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    dump = PassDump(tmp_path / "file" / "dump")
    with pytest.raises(FileFormatError, match=r"file/dump: cannot be written: Not a directory"):
        inference_pipeline().run(training_network(1), watch=dump)
