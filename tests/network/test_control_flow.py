"""Functions, loops and branches: on the machine against NumPy, and their gradients against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from abele.distribution import inference_program, training_program
from abele.errors import UnsupportedOpError
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.graph import Graph, If, Program, Repeat, RepeatWhile, Switch, WriteUndef, walk
from abele.network import Group, NetworkBuilder, Schedule, Sgd, Value, differentiate, evaluate, parse, verify
from abele.network.ir import BlockBuilder, Network, NetworkFunction, RegionBuilder
from abele.network.ops import build
from abele.network.ops.rows import writes_every_row
from abele.numerics import bool_, f32, i32
from abele.runtime import Engine

A, B, C = arg(0), arg(1), arg(2)
X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], np.float32)
W = np.linspace(-0.6, 0.7, 9, dtype=np.float32).reshape(3, 3)


def run(net: Network, feeds: dict[str, Any], weights: dict[str, Any]) -> tuple[list[np.ndarray], Program]:
    """Outputs of a network on the modelled machine, and its program."""
    made = inference_program(net, Graph("bow-2000"), Schedule())
    engine = Engine(made.graph, made.program, keep=[*made.weights.values()])
    for stream, value in zip(made.inputs, net.inputs, strict=True):
        engine.connect(stream, np.asarray(feeds[value.name], value.dtype.np)[None])
    for name, contents in weights.items():
        engine.write(made.weights[name], np.asarray(contents, np.float32))
    results = [np.empty((1, *s.shape), s.dtype.np) for s in made.outputs]
    for stream, result in zip(made.outputs, results, strict=True):
        engine.connect(stream, result)
    engine.run()
    return [r[0] for r in results], made.program


def check_on_machine(net: Network, feeds: dict[str, Any], weights: dict[str, Any] | None = None) -> Program:
    """Hold what the machine computes against the meaning of the network in NumPy."""
    verify(net)
    weights = weights or {}
    assert parse(str(net)) == net
    got, program = run(net, feeds, weights)
    named = {v: {**feeds, **weights}[v.name] for v in net.entries if v.name != "random_state"}
    values = evaluate(net, named)
    for value, result in zip(net.outputs, got, strict=True):
        np.testing.assert_allclose(result, values[value], rtol=2e-5, atol=1e-6)
    return program


def of_inputs(body: Callable[[NetworkBuilder, Value, Value], Sequence[Value]]) -> Network:
    net = NetworkBuilder()
    x, w = net.input((2, 3), "f32", "x"), net.parameter((3, 3), "f32", "w")
    for value in body(net, x, w):
        net.output(value)
    return net.finish()


FEEDS: tuple[dict[str, Any], dict[str, Any]] = ({"x": X}, {"w": W})


def kinds(program: Program) -> set[type]:
    return {type(step) for step in walk(program)}


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 5])
def test_loop__any_count__repeats_its_body(count: int) -> None:
    def step(net: BlockBuilder, trip: Value, v: Value, w: Value) -> list[Value]:
        return [build.nonlinearity(net, "tanh", build.matmul(net, v, w))]

    net = of_inputs(lambda n, x, w: build.loop(n, count, [x], lambda b, t, v: step(b, t, v, w)))
    assert Repeat in kinds(check_on_machine(net, *FEEDS))


def test_loop__values_that_swap__are_copied_together() -> None:
    net = of_inputs(lambda n, x, w: build.loop(n, 3, [x, build.map_(n, A * 2.0, [x])], lambda b, t, p, q: [q, p]))
    check_on_machine(net, *FEEDS)


def test_loop__trip_number__counts_from_zero() -> None:
    def step(net: BlockBuilder, trip: Value, v: Value) -> list[Value]:
        return [build.map_(net, A + B, [v, build.cast(net, trip, f32)])]

    net = of_inputs(lambda n, x, w: build.loop(n, 4, [x], step))
    got, _ = run(net, *FEEDS)
    np.testing.assert_array_equal(got[0], X + 6)


def test_loop__in_a_loop__multiplies() -> None:
    def inner(net: BlockBuilder, w: Value, v: Value) -> list[Value]:
        return list(build.loop(net, 3, [v], lambda b, t, u: [build.map_(b, A + B, [u, build.reduce(b, w, [0])])]))

    net = of_inputs(lambda n, x, w: build.loop(n, 2, [x], lambda b, t, v: inner(b, w, v)))
    check_on_machine(net, *FEEDS)


def test_while__condition_on_data__ends_where_numpy_ends() -> None:
    def body(net: NetworkBuilder, x: Value, w: Value) -> Sequence[Value]:
        def is_small(b: BlockBuilder, v: Value) -> Value:
            return build.map_(b, A < 50.0, [build.reduce(b, build.map_(b, apply("square", A), [v]), [0, 1])], bool_)

        return build.while_(net, [x], is_small, lambda b, t, v: [build.map_(b, A * 1.5, [v])])

    net = of_inputs(body)
    assert RepeatWhile in kinds(check_on_machine(net, *FEEDS))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond__either_side__is_taken_by_the_data(sign: float) -> None:
    def body(net: NetworkBuilder, x: Value, w: Value) -> Sequence[Value]:
        positive = build.map_(net, A > 0.0, [build.reduce(net, x, [0, 1])], bool_)
        return build.cond(
            net,
            positive,
            lambda b: [build.matmul(b, x, w), x],
            lambda b: [build.map_(b, -A, [x]), build.full(b, 7, (2, 3), f32)],
        )

    assert If in kinds(check_on_machine(of_inputs(body), {"x": sign * X}, {"w": W}))


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 9])
def test_switch__any_number__takes_its_case_or_the_last(index: int) -> None:
    net = NetworkBuilder()
    x, i = net.input((2, 3), "f32", "x"), net.input((), "i32", "i")
    cases = [lambda b, k=k: [build.map_(b, A * float(k + 1), [x])] for k in range(3)]
    net.output(build.switch(net, i, cases)[0])
    assert Switch in kinds(check_on_machine(net.finish(), {"x": X, "i": index}))


def test_cond__known_predicate__is_no_branch() -> None:
    net = NetworkBuilder()
    x = net.input((2,), "f32", "x")
    (y,) = build.cond(net, net.constant(True, bool_), lambda b: [build.map_(b, A * 2.0, [x])], lambda b: [x])
    assert [op.kind for op in net.ops if y in op.outputs] == ["map"]


def test_rows__written_and_read__are_those_of_numpy() -> None:
    def step(net: BlockBuilder, trip: Value, table: Value, w: Value) -> list[Value]:
        row = build.map_(net, A + B, [build.read_row(net, w, trip), build.read_row(net, table, trip)])
        return [build.write_row(net, table, row, trip)]

    net = of_inputs(
        lambda n, x, w: [*build.loop(n, 3, [build.map_(n, A * 3.0, [w])], lambda b, t, v: step(b, t, v, w)), w]
    )
    check_on_machine(net, *FEEDS)


def test_write_row__of_a_weight__leaves_the_weight_as_it_is() -> None:
    def body(net: NetworkBuilder, x: Value, w: Value) -> Sequence[Value]:
        zero = net.constant(1, i32)
        return [build.write_row(net, w, build.reduce(net, x, [0]), zero), build.map_(net, A * 1.0 + B, [w, w])]

    check_on_machine(of_inputs(body), *FEEDS)


def test_loop__dropout_in_its_body__draws_afresh_for_each_trip() -> None:
    net = NetworkBuilder()
    x = net.input((400,), "f32", "x")
    table = net.constant(np.zeros((3, 400)), f32)
    body = lambda b, t, v: [build.write_row(b, v, build.dropout(b, x, 0.5), t)]  # noqa: E731
    net.output(build.loop(net, 3, [table], body)[0])
    got, _ = run(net.finish(), {"x": np.ones(400)}, {})
    rows = got[0] != 0
    assert all(0.3 < row.mean() < 0.7 for row in rows)
    assert all((rows[i] != rows[j]).mean() > 0.3 for i, j in ((0, 1), (1, 2), (0, 2)))


def layer() -> NetworkFunction:
    """tanh(x · w + x), as a function of its own."""
    net = NetworkBuilder()
    x, w = net.input((2, 3), "f32", "x"), net.parameter((3, 3), "f32", "w")
    region = RegionBuilder(net)
    inside = region.parameter(x), region.parameter(w)
    y = build.map_(region, A + B, [build.matmul(region, *inside), inside[0]])
    return NetworkFunction("layer", region.finish([build.nonlinearity(region, "tanh", y)]))


def test_call__called_twice__is_one_function_in_the_text() -> None:
    function = layer()
    net = of_inputs(lambda n, x, w: build.call(n, function, [*build.call(n, function, [x, w]), w]))
    assert str(net).count("function @layer(") == 1
    assert str(net).count("call(") == 2
    check_on_machine(net, *FEEDS)


# --- gradients --------------------------------------------------------------------------------------------------------

torch = pytest.importorskip("torch")


def check_gradient(
    body: Callable[[Any, Value, Value], Value], oracle: Callable[[Any, Any], Any], rtol: float = 1e-9
) -> Network:
    """Hold the gradient of Σ body² by w, in 64 bits and on the machine, against PyTorch."""
    net = NetworkBuilder()
    x, w = net.input((2, 3), "f32", "x"), net.parameter((3, 3), "f32", "w")
    y = body(net, x, w)
    net.loss = build.reduce(net, build.map_(net, apply("square", A), [y]), range(y.ndim))
    net.output(y)
    made = differentiate(net.finish(), [w])
    verify(made)
    assert parse(str(made)) == made
    values = evaluate(made, {x: X, w: W})
    weight = torch.tensor(W, dtype=torch.float64, requires_grad=True)
    result = oracle(torch.tensor(X, dtype=torch.float64), weight)
    (result**2).sum().backward()
    np.testing.assert_allclose(values[y], result.detach().numpy(), rtol=1e-9)
    np.testing.assert_allclose(values[made.gradients[w]], weight.grad.numpy(), rtol=1e-9, atol=1e-12)
    _check_step(net.finish(), weight.grad.numpy())
    return made


def _check_step(net: Network, gradient: Any) -> None:
    made = training_program(net, Graph("bow-2000"), Schedule(), [Group(Sgd(lr=0.125), net.parameters)])
    engine = Engine(made.graph, made.program, keep=list(made.weights.values()))
    engine.connect(made.inputs[0], X[None])
    engine.connect(made.outputs[0], np.empty((1, *made.outputs[0].shape), np.float32))
    engine.write(made.weights["w"], W)
    engine.run()
    after = engine.read(made.weights["w"])
    np.testing.assert_allclose((W - after) / 0.125, gradient, rtol=2e-4, atol=2e-4)


def test_gradient__of_a_loop__equals_the_unrolled_one() -> None:
    def body(net: BlockBuilder, x: Value, w: Value) -> Value:
        return build.loop(net, 4, [x], lambda b, t, v: [build.nonlinearity(b, "tanh", build.matmul(b, v, w))])[0]

    def oracle(x: Any, w: Any) -> Any:
        for _ in range(4):
            x = torch.tanh(x @ w)
        return x

    made = check_gradient(body, oracle)
    assert [op.kind for op in made.ops].count("loop") == 2


def test_gradient__of_a_loop_with_several_values__follows_each() -> None:
    def step(b: BlockBuilder, trip: Value, p: Value, q: Value, w: Value) -> list[Value]:
        moved = build.matmul(b, q, w)
        return [build.map_(b, A * B + apply("sin", A), [p, moved]), build.map_(b, A + 0.5 * B, [moved, p])]

    def body(net: BlockBuilder, x: Value, w: Value) -> Value:
        return build.loop(net, 3, [x, x], lambda b, t, p, q: step(b, t, p, q, w))[0]

    def oracle(x: Any, w: Any) -> Any:
        p = q = x
        for _ in range(3):
            moved = q @ w
            p, q = p * moved + torch.sin(p), moved + 0.5 * p
        return p

    check_gradient(body, oracle)


def test_gradient__of_a_carried_weight__starts_outside_the_loop() -> None:
    def body(net: BlockBuilder, x: Value, w: Value) -> Value:
        squared = build.loop(net, 2, [w], lambda b, t, v: [build.matmul(b, v, v)])[0]
        return build.matmul(net, x, squared)

    check_gradient(body, lambda x, w: x @ ((w @ w) @ (w @ w)))


def test_gradient__of_nested_loops__equals_the_unrolled_one() -> None:
    def inner(b: BlockBuilder, v: Value, w: Value) -> list[Value]:
        return list(build.loop(b, 2, [v], lambda c, t, u: [build.nonlinearity(c, "tanh", build.matmul(c, u, w))]))

    def oracle(x: Any, w: Any) -> Any:
        for _ in range(4):
            x = torch.tanh(x @ w)
        return x

    check_gradient(lambda n, x, w: build.loop(n, 2, [x], lambda b, t, v: inner(b, v, w))[0], oracle)


@pytest.mark.parametrize("limit", [-100.0, 100.0])
def test_gradient__of_a_branch__is_that_of_the_side_taken(limit: float) -> None:
    def body(net: BlockBuilder, x: Value, w: Value) -> Value:
        large = build.map_(net, limit < A, [build.reduce(net, x, [0, 1])], bool_)
        return build.cond(
            net,
            large,
            lambda b: [build.matmul(b, x, w)],
            lambda b: [build.map_(b, A * B, [x, build.reduce(b, w, [0])])],
        )[0]

    check_gradient(body, lambda x, w: torch.where(x.sum() > limit, x @ w, x * w.sum(0)))


def test_gradient__of_a_switch_in_a_loop__follows_the_trips() -> None:
    def step(b: BlockBuilder, trip: Value, v: Value, w: Value) -> list[Value]:
        cases = [lambda c: [build.matmul(c, v, w)], lambda c: [build.nonlinearity(c, "sigmoid", v)]]
        return list(build.switch(b, trip, cases))

    def oracle(x: Any, w: Any) -> Any:
        return torch.sigmoid(torch.sigmoid(x @ w))

    check_gradient(lambda n, x, w: build.loop(n, 3, [x], lambda b, t, v: step(b, t, v, w))[0], oracle)


def test_gradient__of_calls__is_one_backward_function() -> None:
    function = layer()

    def body(net: BlockBuilder, x: Value, w: Value) -> Value:
        for _ in range(3):
            (x,) = build.call(net, function, [x, w])
        return x

    def oracle(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = torch.tanh(x @ w + x)
        return x

    made = check_gradient(body, oracle)
    names = [f.name for f in made.functions]
    assert sorted(n for n in names if "backward" in n) == ["layer.backward", "layer.backward2"]
    assert [op.kind for op in made.ops].count("call") == 6


def attention() -> NetworkFunction:
    """Attention of two heads with a mask: shares [2, 3, 3] are an operand of the product in another shape."""
    region = RegionBuilder(NetworkBuilder())
    x, mask = region.parameter(Value((1, 2, 3, 3), f32)), region.parameter(Value((3, 3), bool_))
    scores = build.map_(region, select(B, A, -9.0), [build.map_(region, A * A, [x]), mask])
    shares = build.softmax(region, scores, 3)
    flat = build.reshape(region, shares, (2, 3, 3))
    mixed = build.matmul(region, flat, flat)
    return NetworkFunction("attention", region.finish([build.reshape(region, mixed, (1, 2, 3, 3))]))


def test_gradient__of_a_call_that_reshapes_what_it_keeps__keeps_it_once_and_nothing_that_is_not_read() -> None:
    net = NetworkBuilder()
    x = net.parameter((1, 2, 3, 3), "f32", "x")
    mask = net.input((3, 3), bool_, "mask")
    (y,) = build.call(net, attention(), [x, mask])
    net.loss = build.reduce(net, build.map_(net, A * A, [y]), [0, 1, 2, 3])
    made = differentiate(net.finish(), [x])
    (forward,) = (f for f in made.functions if "forward" in f.name)
    # Its result and the shares, neither in two shapes; no scores, of whose gradient the mask alone decides.
    assert [v.size for v in forward.body.results] == [18, 18]
    verify(made)
    given, seen = np.random.default_rng(3).normal(size=(1, 2, 3, 3)), np.tri(3, dtype=bool)
    wide = torch.tensor(given, requires_grad=True)
    shares = torch.softmax(torch.where(torch.tensor(seen), wide * wide, -9.0), 3)
    ((shares @ shares) ** 2).sum().backward()
    found = evaluate(made, {x: given, mask: seen})
    np.testing.assert_allclose(found[made.gradients[x]], wide.grad.numpy(), rtol=1e-9)


def test_gradient__of_a_while_loop__is_refused_with_a_remedy() -> None:
    net = NetworkBuilder()
    w = net.parameter((3,), "f32", "w")
    small = lambda b, v: build.map_(b, A < 9.0, [build.reduce(b, v, [0])], bool_)  # noqa: E731
    (y,) = build.while_(net, [w], small, lambda b, t, v: [build.map_(b, A * 2.0, [v])])
    net.loss = build.reduce(net, y, [0])
    with pytest.raises(UnsupportedOpError, match="a loop of unknown length has no derivative") as caught:
        differentiate(net.finish(), [w])
    assert caught.value.remedy == "use a loop with a fixed number of trips"


def test_gradient__accumulated_over_micro_batches_of_a_loop__is_their_mean() -> None:
    net = NetworkBuilder()
    x, w = net.input((3,), "f32", "x"), net.parameter((3,), "f32", "w")
    (y,) = build.loop(net, 2, [x], lambda b, t, v: [build.map_(b, A * B, [v, w])])
    net.loss = build.reduce(net, y, [0])
    schedule = Schedule(1, 3)
    made = training_program(net.finish(), Graph("bow-2000"), schedule, [Group(Sgd(lr=1.0), (w,))])
    batches = np.arange(9, dtype=np.float32).reshape(3, 3)
    engine = Engine(made.graph, made.program, keep=list(made.weights.values()))
    engine.connect(made.inputs[0], batches)
    engine.write(made.weights["w"], np.full(3, 0.5, np.float32))
    engine.run()
    np.testing.assert_allclose(engine.read(made.weights["w"]), 0.5 - batches.mean(0), rtol=1e-6)


@pytest.mark.parametrize(
    ("count", "expression", "written"),
    [(5, 4 - A, True), (5, A, True), (4, A, False), (5, apply("min", A, 3), False)],
)
def test_table__of_which_trips_write_every_row__begins_undefined(count: int, expression: Any, written: bool) -> None:
    net = NetworkBuilder()
    x, y = net.input((5, 3), f32, "x"), net.input((3,), f32, "y")

    def body(region: BlockBuilder, trip: Value, table: Value) -> list[Value]:
        index = trip if expression is A else build.map_(region, expression, [trip], i32)
        row = build.map_(region, A + B, [region.read(y), build.cast(region, index, f32)])
        return [build.write_row(region, table, row, index)]

    net.outputs = list(build.loop(net, count, [x], body))
    found = net.finish()
    (loop,) = [op for op in found.ops if op.kind == "loop"]
    assert writes_every_row(loop.regions[0], 0, count) == written
    program = check_on_machine(found, {"x": W.reshape(-1)[:1] + np.ones((5, 3), np.float32), "y": X[0]})
    assert any(isinstance(step, WriteUndef) for step in walk(program)) == written
