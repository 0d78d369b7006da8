"""Programs of popxl: calls, loops, choices, streams, variables, training, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from abele import popxl
from abele.errors import AbeleError, ElementRangeError
from abele.frontends.popxl.errors import ElementTypesError
from abele.popxl import ops

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def stored(ir: popxl.Ir, *tensors: popxl.Tensor) -> Callable[[], list[Any]]:
    """A run that gives tensors of the current graph."""
    streams = [popxl.d2h_stream(t.shape, t.dtype) for t in tensors]
    for stream, tensor in zip(streams, tensors, strict=True):
        ops.host_store(stream, tensor)

    def run() -> list[Any]:
        with popxl.Session(ir) as session:
            made = session.run()
        return [made[s] for s in streams]

    return run


def test_streams_take_the_next_entry_wherever_they_are_loaded() -> None:
    ir = popxl.Ir()
    ir.num_host_transfers = 6
    with ir.main_graph:
        source, sink = popxl.h2d_stream((2,), popxl.float32), popxl.d2h_stream((2,), popxl.float32)
        factor = popxl.variable(np.float32(1))

        def step(by: popxl.TensorByRef) -> None:
            ops.host_store(sink, ops.host_load(source) * by)
            ops.add_(by, popxl.constant(1.0))

        graph = ir.create_graph(step, factor)
        ops.host_store(sink, ops.host_load(source))
        ops.repeat(graph, 3, factor)
        ops.call(graph, factor)
        ops.host_store(sink, ops.host_load(source))
    data = np.arange(12, dtype=np.float32).reshape(6, 2)
    with popxl.Session(ir) as session:
        made = session.run({source: data})[sink]
        again = session.run({source: data})[sink]
        assert session.get_tensor_data(factor) == 9
    np.testing.assert_array_equal(made, data * np.array([1, 1, 2, 3, 4, 1], np.float32)[:, None])
    np.testing.assert_array_equal(again, data * np.array([1, 5, 6, 7, 8, 1], np.float32)[:, None])


def test_inputs_are_by_value_unless_they_say_otherwise() -> None:
    def by_value(t: popxl.Tensor) -> None:
        ops.add_(t, popxl.constant(1.0))

    def by_ref(t: popxl.TensorByRef) -> popxl.Tensor:
        ops.add_(t, popxl.constant(10.0))
        return t

    ir = popxl.Ir()
    with ir.main_graph:
        kept, seen, marked, view = (popxl.variable(X) for _ in range(4))
        graph, ref = ir.create_graph(by_value, kept), ir.create_graph(by_ref, seen)
        row = ir.create_graph(by_ref, popxl.TensorSpec((3,), popxl.float32))
        ops.call(graph, kept)
        (out,) = ops.call(ref, seen)
        ops.call_with_info(graph, marked).set_parent_input_modified(marked)
        ops.call(row, view[0].reshape((3,)))
        ops.call(row, ops.slice_(view, 1, 2).reshape_((3,)))
        run = stored(ir, kept, seen, marked, out, view)
    expected = X.copy()
    expected[1] += 10
    for got, want in zip(run(), (X, X + 10, X + 1, X + 10, expected), strict=True):
        np.testing.assert_array_equal(got, want)


def test_repeat_carries_outputs_to_the_first_inputs() -> None:
    def step(a: popxl.Tensor, b: popxl.Tensor, c: popxl.Tensor) -> tuple[popxl.Tensor, popxl.Tensor]:
        return b, a + b * c

    ir = popxl.Ir()
    with ir.main_graph:
        graph = ir.create_graph(step, *[popxl.TensorSpec((), popxl.float32)] * 3)
        args = [popxl.constant(v) for v in (1.0, 2.0, 3.0)]
        run = stored(ir, *ops.repeat(graph, 4, *args), *ops.repeat(graph, 0, *args))
    a, b = 1.0, 2.0
    for _ in range(4):
        a, b = b, a + 3 * b
    assert [float(v) for v in run()] == [a, b, 1, 2]


def test_conditional_runs_one_branch() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        source, sink = popxl.h2d_stream((), popxl.float32), popxl.d2h_stream((), popxl.float32)
        t = ops.host_load(source)
        double = ir.create_graph(lambda x: x * 2, t)
        less = ir.create_graph(lambda x, y: x - y, t, t)
        (made,) = ops.conditional(t > 0, double, less, [t], [t, popxl.constant(5.0)])
        ops.host_store(sink, made)
    with popxl.Session(ir) as session:
        assert session.run({source: np.float32(3)})[sink] == 6
        assert session.run({source: np.float32(-3)})[sink] == -8


class Layer(popxl.Module):
    """A residual layer."""

    def build(self, x: popxl.Tensor, w: popxl.Tensor, b: popxl.Tensor) -> popxl.Tensor:
        """It."""
        return x + ops.gelu(x @ w + b)


@pytest.mark.parametrize("nested", [pytest.param(False, marks=pytest.mark.slow), True])
def test_training_of_shared_layers_follows_pytorch(nested: bool) -> None:
    draw = np.random.default_rng(1)
    data = draw.standard_normal((20, 16, 8)).astype(np.float32)
    labels = draw.integers(0, 8, (20, 16)).astype(np.int32)
    weights = [draw.standard_normal((8, 8)).astype(np.float32) / 3 for _ in range(2)]
    ir = popxl.Ir()
    ir.num_host_transfers = 20
    with ir.main_graph, popxl.in_sequence():
        xs, ys = popxl.h2d_stream((16, 8), popxl.float32), popxl.h2d_stream((16,), popxl.int32)
        losses = popxl.d2h_stream((), popxl.float32)
        variables = [popxl.variable(w) for w in weights]
        biases = [popxl.variable(np.zeros(8, np.float32)) for _ in weights]

        def model(x: Any, y: Any, ws: list[Any], bs: list[Any]) -> Any:
            layer = popxl.gcg().ir.create_graph(Layer(), x, ws[0], bs[0])
            for w, b in zip(ws, bs, strict=True):
                x = ops.call(layer, x, w, b)[0] if nested else Layer()(x, w, b)
            return ops.nll_loss(ops.softmax(x, -1), y)

        specs = popxl.TensorSpec((16, 8), popxl.float32), popxl.TensorSpec((16,), popxl.int32)
        forward = ir.create_graph(model, *specs, variables, biases)
        required = list(forward.inputs[2:])
        backward = popxl.transforms.autodiff(forward, grads_required=required)

        def step(*tensors: popxl.TensorByRef) -> None:
            call = ops.call_with_info(forward, ops.host_load(xs), ops.host_load(ys), list(tensors))
            ops.host_store(losses, call.outputs[0])
            grads = ops.call(backward.graph, popxl.constant(1.0), inputs_dict=backward.inputs_dict(call))
            for tensor, grad in zip(tensors, grads, strict=True):
                ops.scaled_add_(tensor, grad, b=-0.5)

        ops.repeat(ir.create_graph(step, *variables, *biases), 20, *variables, *biases)
    with popxl.Session(ir, "ipu_hw") as session:
        made = session.run({xs: data, ys: labels})[losses]
    leaves = [torch.tensor(w, requires_grad=True) for w in (*weights, *[np.zeros(8, np.float32)] * 2)]
    optimiser = torch.optim.SGD(leaves, lr=0.5)
    expected = []
    for x, y in zip(torch.tensor(data), torch.tensor(labels), strict=True):
        for w, b in zip(leaves[:2], leaves[2:], strict=True):
            x = x + F.gelu(x @ w + b, approximate="tanh")
        loss = F.cross_entropy(x, y.long())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        expected.append(loss.item())
    np.testing.assert_allclose(made, expected, rtol=2e-4)
    for variable, leaf in zip((*variables, *biases), leaves, strict=True):
        np.testing.assert_allclose(variable.data, leaf.detach().numpy(), rtol=2e-3, atol=2e-4)


def test_calls_stay_functions() -> None:
    ir, calls = popxl.Ir(), 6
    with ir.main_graph:
        x = popxl.variable(np.ones((4, 8), np.float32))
        weights = [popxl.variable(np.eye(8, dtype=np.float32)) for _ in range(calls)]
        graph = ir.create_graph(lambda x, w: ops.softmax(ops.gelu(x @ w), -1), x, weights[0])
        y: Any = x
        for w in weights:
            (y,) = ops.call(graph, y, w)
        ops.host_store(popxl.d2h_stream(y.shape, y.dtype), y)
    network = popxl.Session(ir).network
    kinds = [op.kind for op in network.ops]
    assert [f.name for f in network.functions] == [graph.name]
    assert kinds.count("call") == calls
    assert "linear" not in kinds


def test_variables_live_on_the_device_inside_the_context() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(np.zeros(3))
        ops.add_(v, popxl.constant(np.ones(3, np.float32)))
        c = popxl.constant([1, 2])
    assert v.dtype == popxl.float32
    assert c.dtype == popxl.int32
    assert v.id == "v"
    session = popxl.Session(ir)
    with session:
        session.run()
        with session:  # Nothing happens at the end of the inner one.
            session.run()
        np.testing.assert_array_equal(v.data, 0)
        np.testing.assert_array_equal(session.get_tensor_data(v), 2)
        session.write_variable_data(v, np.full(3, 5, np.float32))
        session.run()
    np.testing.assert_array_equal(session.get_tensors_data([v, c])[v], 6)
    session.write_variables_data({v: np.full(3, 9, np.float32)})
    with session:
        session.run()
    np.testing.assert_array_equal(v.data, 10)
    with pytest.raises(TypeError, match="float64, not float32"):
        session.write_variable_data(v, np.zeros(3))
    with pytest.raises(ValueError, match="has shape"):
        session.write_variable_data(v, np.zeros(4, np.float32))
    with pytest.raises(TypeError, match="not a Variable"):
        session.write_variable_data(c, np.zeros(2, np.int32))
    with pytest.raises(RuntimeError, match="can not change"), ir.main_graph:
        ops.add(v, v)


def test_names_of_graphs_and_tensors() -> None:
    def outer(x: popxl.Tensor, *rest: popxl.Tensor, key: popxl.Tensor) -> None: ...

    ir = popxl.Ir()
    with ir.main_graph:
        with popxl.name_scope("a"), popxl.name_scope("b"):
            t, u = popxl.variable(X, name="w"), popxl.variable(X, name="w")
        graph = ir.create_graph(outer, t, t, t, key=t)
        again = ir.create_graph(outer, t, key=t)
    assert (t.id, u.id, t.scope, t.name) == ("a/b/w", "a/b/w__t0", "a/b", "w")
    assert [i.name for i in graph.inputs] == ["x", "rest_0", "rest_1", "key"]
    assert graph.name.endswith("outer_0")
    assert again.name.endswith("outer_1")
    assert ".<locals>" not in graph.name
    assert t in ir.main_graph
    assert t not in graph
    assert ir.main_graph.get_tensor("a/b/w") is t
    assert t == t
    assert t != u
    assert len({t, u}) == 2
    assert t.strides() == [3, 1]
    assert len(t) == 2
    assert popxl.dtypes.as_dtype("half") is popxl.float16 is popxl.dtypes.as_dtype(torch.float16)


def _in_main(body: Callable[[popxl.Ir, popxl.Tensor], Any]) -> Callable[[], Any]:
    def program() -> Any:
        ir = popxl.Ir()
        with ir.main_graph:
            return body(ir, popxl.variable(X, name="t"))

    return program


def _run(inputs: Any, *, inside: bool = True, store: bool = True) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((2,), popxl.float32, "x")
        ops.host_store(popxl.d2h_stream((2,), popxl.float32), ops.host_load(stream))
        extra = popxl.h2d_stream((2,), popxl.float32, "extra")
    session = popxl.Session(ir)
    given = {stream if k == "x" else extra: v for k, v in inputs.items()}
    if not inside:
        session.run(given)
    with session:
        session.run(given)


def _session_of(data: Any, kind: Any) -> popxl.Session:
    ir = popxl.Ir()
    with ir.main_graph:
        ops.add_(v := popxl.variable(data, kind), v)
    return popxl.Session(ir)


GOOD = np.zeros(2, np.float32)
WRONG: list[tuple[str, type[Exception], str, Callable[[], Any]]] = [
    ("no graph", RuntimeError, "no graph selected", lambda: popxl.constant(1)),
    ("types", ElementTypesError, "one type", _in_main(lambda ir, t: t + popxl.constant([1, 2, 3]))),
    ("empty", ValueError, "empty", _in_main(lambda ir, t: t + np.zeros(0))),
    ("iteration", TypeError, "iterate", _in_main(lambda ir, t: list(t))),
    ("key", TypeError, "indexed by", _in_main(lambda ir, t: t["a"])),
    ("index", ValueError, "index 2", _in_main(lambda ir, t: t[2])),
    ("shape", ValueError, "does not fit", _in_main(lambda ir, t: t.reshape((4,)))),
    ("matmul", ValueError, "inner dimensions", _in_main(lambda ir, t: t @ t)),
    ("count", ValueError, "Not enough inputs", _in_main(lambda ir, t: ops.call(ir.create_graph(ops.relu, t)))),
    ("surplus", ValueError, "Too many", _in_main(lambda ir, t: ops.call(ir.create_graph(ops.relu, t), t, t))),
    ("trips", ValueError, "must be >= 0", _in_main(lambda ir, t: ops.repeat(ir.create_graph(ops.relu, t), -1, t))),
    ("result", ValueError, "outputs of", _in_main(lambda ir, t: ir.create_graph(lambda x: 3, t))),
    ("binding", ValueError, "bind", _in_main(lambda ir, t: ir.create_graph(ops.relu, t, t, t))),
    ("mixed", TypeError, "mixes", _in_main(lambda ir, t: ir.create_graph(lambda x: None, [t, 1]))),
    ("foreign", ValueError, "not in the current Graph", _in_main(lambda ir, t: ir.create_graph(lambda: t + t))),
    ("main input", ValueError, "main graph", _in_main(lambda ir, t: popxl.graph_input((2,), popxl.float32))),
    ("store", ValueError, "host_store", _in_main(
        lambda ir, t: ops.host_store(popxl.d2h_stream((2,), popxl.float32), t))),
    ("constant", ValueError, "is a constant", _in_main(lambda ir, t: ops.add_(popxl.constant(X), t))),
    ("inner variable", ValueError, "main graph", _in_main(lambda ir, t: ir.create_graph(lambda: popxl.variable(1)))),
    ("gradient of whole numbers", ValueError, "no floats", _in_main(
        lambda ir, t: popxl.transforms.autodiff(g := ir.create_graph(lambda x: x > 0, t), g.outputs))),
    ("two IPUs", ValueError, "one IPU", _in_main(lambda ir, t: ops.relu(t) + t.copy_to_ipu(1))),
    ("two Irs", RuntimeError, "another Ir", _in_main(lambda ir, t: popxl.Ir().main_graph.__enter__())),
    ("missing", ValueError, "Missing input", lambda: _run({})),
    ("unexpected", ValueError, "Unexpected input", lambda: _run({"x": GOOD, "extra": GOOD})),
    ("array", ValueError, r"is \(3,\)", lambda: _run({"x": np.zeros(3, np.float32)})),
    ("array type", TypeError, "int32", lambda: _run({"x": np.zeros(2, np.int32)})),
    ("wide", ElementRangeError, "does not fit", lambda: _session_of(np.array([2**40]), popxl.int64)),
    ("outside", ValueError, "Must be attached", lambda: _run({"x": GOOD}, inside=False)),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c[0])
def test_what_is_wrong_is_said(case: Any) -> None:
    _, kind, words, program = case
    with pytest.raises(kind, match=words) as caught:
        program()
    assert isinstance(caught.value, AbeleError)


def test_a_graph_that_is_called_runs_on_the_ipu_of_its_ops() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        w, total = popxl.variable(np.eye(3) * 2, popxl.float32), popxl.variable(np.zeros((2, 3)), popxl.float32)

        def first(x: popxl.Tensor, w: popxl.Tensor) -> popxl.Tensor:
            return ops.relu(x @ w)

        def second(h: popxl.Tensor, total: popxl.TensorByRef) -> popxl.Tensor:
            return ops.add_(total, h * h)

        spec = popxl.TensorSpec((2, 3), popxl.float32)
        with popxl.ipu(0):
            (h,) = ops.call(ir.create_graph(first, spec, w), popxl.constant(X), w)
            there = h.copy_to_ipu(1)
        with popxl.ipu(1):
            graph = ir.create_graph(second, spec, total)
            for _ in range(2):
                ops.call(graph, there, total)
        assert graph.ipus == {1}
    with popxl.Session(ir) as session:
        assert session.network.num_ipus == 2
        session.run()
    np.testing.assert_allclose(session.get_tensor_data(total), 2 * (2 * X) ** 2)
