"""Remote buffers of popxl: rows in streaming memory, with NumPy as the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from abele import popxl
from abele.errors import AbeleError, MachineError, RemoteBufferError
from abele.popxl import ops

RNG = np.random.default_rng(0)
W = RNG.normal(size=(4, 6, 6)).astype(np.float32)
X = RNG.normal(size=(3, 6)).astype(np.float32)


def phased(ir: popxl.Ir, entries: int, layers: int = 4) -> tuple[popxl.DeviceToHostStream, list[popxl.Variable]]:
    """Layers whose weights lie in rows of a buffer, one on the chip at a time; each is halved when it was used."""
    with ir.main_graph, popxl.in_sequence():
        buffer = popxl.remote_buffer((6, 6), popxl.float32, entries)
        weights: list[popxl.Variable] = [popxl.remote_variable(W[n], buffer, n, name=f"w{n}") for n in range(layers)]
        out = popxl.d2h_stream((3, 6), popxl.float32)
        x: popxl.Tensor = popxl.variable(X, name="x")
        index = popxl.constant(0, popxl.uint32)
        layer = ir.create_graph(lambda x, w: ops.tanh(x @ w), x, popxl.TensorSpec((6, 6), popxl.float32))

        def phase(x: popxl.Tensor, index: popxl.Tensor) -> tuple[popxl.Tensor, popxl.Tensor]:
            w = ops.remote_load(buffer, index)
            (x,) = ops.call(layer, x, w)
            ops.remote_store(buffer, index, w * 0.5)
            return x, index + 1

        x, _ = ops.repeat(ir.create_graph(phase, x, index), layers, x, index)
        ops.host_store(out, x)
    return out, weights


def through(weights: Any) -> Any:
    """X behind layers of weights."""
    y = X.astype(np.float64)
    for w in weights:
        y = np.tanh(y @ w)
    return y


def test_layers_in_phases_load_and_store_one_row_each() -> None:
    ir = popxl.Ir()
    out, weights = phased(ir, 5)
    with popxl.Session(ir) as session:
        np.testing.assert_allclose(session.run()[out], through(W), atol=1e-5)
        for n, w in enumerate(weights):
            np.testing.assert_array_equal(session.get_tensor_data(w), W[n] / 2)
        session.write_variable_data(weights[1], W[3])
        np.testing.assert_allclose(session.run()[out], through([W[0] / 2, W[3], W[2] / 2, W[3] / 2]), atol=1e-5)
    np.testing.assert_array_equal(session.get_tensor_data(weights[1]), W[3] / 2)
    with session:  # The host's weights, which it has from the device, go there again.
        np.testing.assert_array_equal(session.get_tensors_data(weights)[weights[0]], W[0] / 4)


def test_rows_take_no_room_on_the_chip_and_a_load_takes_the_time_of_one() -> None:
    found = []
    for entries in (4, 4000):
        ir = popxl.Ir()
        phased(ir, entries)
        found.append(popxl.Session(ir).report)
    small, large = found
    assert small.total_cycles == large.total_cycles
    assert small.memory.total_bytes == large.memory.total_bytes < 4000 * W[0].nbytes
    partners = [str(p) for p in large.steps["partner"]]
    assert partners.count("streaming memory") == 2  # A load and a store in the loop, of which there is one.


Program = Callable[[popxl.Ir, popxl.RemoteBuffer], tuple[popxl.Tensor, ...]]


def _old_row(ir: popxl.Ir, buffer: popxl.RemoteBuffer) -> tuple[popxl.Tensor, ...]:
    row = ops.remote_load(buffer, 0)
    ops.remote_store(buffer, 0, popxl.constant(np.full(6, 9, np.float32)))
    return row + 0.0, ops.remote_load(buffer, 0)


def _swapped_by_a_call(ir: popxl.Ir, buffer: popxl.RemoteBuffer) -> tuple[popxl.Tensor, ...]:
    def swap() -> None:
        first, second = ops.remote_load(buffer, 0), ops.remote_load(buffer, 1)
        ops.remote_store(buffer, 0, second)
        ops.remote_store(buffer, 1, first)

    graph, before = ir.create_graph(swap), ops.remote_load(buffer, 0)
    for _ in range(3):
        ops.call(graph)
    return before, ops.remote_load(buffer, 0)


def _shared_by_calls(ir: popxl.Ir, buffer: popxl.RemoteBuffer) -> tuple[popxl.Tensor, ...]:
    graph = ir.create_graph(lambda n: ops.remote_load(buffer, n) * 2.0, popxl.TensorSpec((), popxl.int32))
    return tuple(ops.call(graph, popxl.constant(n, popxl.int32))[0] for n in (1, 0, 2))


def _same_call_again(ir: popxl.Ir, buffer: popxl.RemoteBuffer) -> tuple[popxl.Tensor, ...]:
    def grow() -> popxl.Tensor:
        row = ops.remote_load(buffer, 0) + 1.0
        ops.remote_store(buffer, 0, row)
        return row

    graph = ir.create_graph(grow)
    return tuple(ops.call(graph)[0] for _ in range(3))


def _branches(ir: popxl.Ir, buffer: popxl.RemoteBuffer) -> tuple[popxl.Tensor, ...]:
    other = popxl.remote_buffer((6,), popxl.float32, 2)
    ones = popxl.constant(np.ones(6, np.float32))

    def then(t: popxl.Tensor) -> popxl.Tensor:
        ops.remote_store(other, 1, t)
        return t + 1.0

    def otherwise(t: popxl.Tensor) -> popxl.Tensor:
        return ops.remote_load(buffer, 1) + t

    graphs = ir.create_graph(then, ones), ir.create_graph(otherwise, ones)
    made = [ops.conditional(popxl.constant(choice, popxl.bool), *graphs, [ones], [ones])[0] for choice in (True, False)]
    return (*made, ops.remote_load(other, 1), ops.remote_load(other, 0))


def _in_place(ir: popxl.Ir, buffer: popxl.RemoteBuffer) -> tuple[popxl.Tensor, ...]:
    table = popxl.variable(np.zeros((2, 6), np.float32))
    ops.remote_load_(buffer, popxl.constant(2, popxl.uint32), ops.slice_(table, 1, 2, 1, 0).reshape_((6,)))
    return (table,)


def _nested(ir: popxl.Ir, buffer: popxl.RemoteBuffer) -> tuple[popxl.Tensor, ...]:
    total, number = popxl.constant(np.zeros(6, np.float32)), popxl.constant(0, popxl.int32)

    def inner(total: popxl.Tensor, n: popxl.Tensor) -> tuple[popxl.Tensor, popxl.Tensor]:
        return total + ops.remote_load(buffer, n), n + 1

    loop = ir.create_graph(inner, total, number)

    def outer(total: popxl.Tensor, n: popxl.Tensor) -> popxl.Tensor:
        total, _ = ops.repeat(loop, 3, total, n)
        ops.remote_store(buffer, 0, total)
        return total

    return ops.repeat(ir.create_graph(outer, total, number), 2, total, number)


ROWS = np.arange(18, dtype=np.float32).reshape(3, 6)
PROGRAMS: list[tuple[Program, list[Any]]] = [
    (_old_row, [ROWS[0], np.full(6, 9)]),
    (_swapped_by_a_call, [ROWS[0], ROWS[1]]),
    (_shared_by_calls, [ROWS[1] * 2, ROWS[0] * 2, ROWS[2] * 2]),
    (_same_call_again, [ROWS[0] + 1, ROWS[0] + 2, ROWS[0] + 3]),
    (_branches, [np.full(6, 2), ROWS[1] + 1, np.ones(6), np.zeros(6)]),
    (_in_place, [np.stack([np.zeros(6), ROWS[2]])]),
    (_nested, [2 * ROWS.sum(0) + ROWS[1] + ROWS[2]]),
]


@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_rows_are_what_the_program_order_says(program: Program, expected: list[Any]) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        buffer = popxl.remote_buffer((6,), popxl.float32, 3)
        for n in range(3):
            popxl.remote_variable(ROWS[n], buffer, n)
        made = program(ir, buffer)
        streams = [popxl.d2h_stream(t.shape, t.dtype) for t in made]
        for stream, tensor in zip(streams, made, strict=True):
            ops.host_store(stream, tensor)
    with popxl.Session(ir) as session:
        found = session.run()
    for stream, rows in zip(streams, expected, strict=True):
        np.testing.assert_array_equal(found[stream], rows)


def test_training_of_layers_in_a_buffer_is_that_of_numpy() -> None:
    ir = popxl.Ir()
    ir.num_host_transfers = 3
    w, target = RNG.normal(size=(2, 6)).astype(np.float32), RNG.normal(size=(3, 6)).astype(np.float32)
    with ir.main_graph, popxl.in_sequence():
        buffer = popxl.remote_buffer((6,), popxl.float32, 2)
        weights = [popxl.remote_variable(w[n], buffer, n) for n in range(2)]
        stream = popxl.h2d_stream((6,), popxl.float32)
        row = popxl.TensorSpec((6,), popxl.float32)
        loss = ir.create_graph(lambda w, t: ops.sum((w - t) * (w - t)), row, row)
        gradient = popxl.transforms.autodiff(loss, grads_required=loss.inputs[:1])

        def update(n: popxl.Tensor) -> popxl.Tensor:
            w = ops.remote_load(buffer, n)
            call = ops.call_with_info(loss, w, ops.host_load(stream))
            (g,) = ops.call(gradient.graph, popxl.constant(1.0), inputs_dict=gradient.inputs_dict(call))
            ops.remote_store(buffer, n, w - g * 0.125)
            return 1 - n

        ops.repeat(ir.create_graph(update, popxl.TensorSpec((), popxl.int32)), 3, popxl.constant(0, popxl.int32))
    with popxl.Session(ir) as session:
        session.run({stream: target})
    for k, t in zip((0, 1, 0), target, strict=True):
        w[k] -= (w[k] - t) / 4
    np.testing.assert_allclose([v.data for v in weights], w, rtol=1e-6)


@pytest.mark.parametrize("kind", ["float16", "int32", "uint8", "bool", "int64"])
def test_rows_of_any_type_come_back(kind: str) -> None:
    ir = popxl.Ir()
    data = (np.arange(4) % 2 + np.arange(4)).astype(kind)
    with ir.main_graph:
        buffer = popxl.remote_buffer((4,), getattr(popxl, kind), 2)
        given = popxl.remote_variable(data, buffer, 1, getattr(popxl, kind))
        empty = popxl.remote_variable(np.zeros(4, kind), buffer, 0, getattr(popxl, kind))
        ops.remote_store(buffer, 0, ops.remote_load(buffer, 1))
    with popxl.Session(ir) as session:
        session.run()
    for variable in (given, empty):
        assert variable.data.dtype == kind
        np.testing.assert_array_equal(variable.data, data)


def test_several_ipus_reach_one_buffer() -> None:
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        buffer = popxl.remote_buffer((6,), popxl.float32, 2)
        popxl.remote_variable(ROWS[0], buffer, 0)
        out = popxl.d2h_stream((6,), popxl.float32)
        with popxl.ipu(1):
            ops.remote_store(buffer, 1, ops.remote_load(buffer, 0) + 1.0)
        with popxl.ipu(0):
            ops.host_store(out, ops.remote_load(buffer, 1) * 2.0)
    with popxl.Session(ir, system="bow-2000:2") as session:
        np.testing.assert_array_equal(session.run()[out], (ROWS[0] + 1) * 2)


def test_a_row_that_is_none_is_refused_when_it_is_reached() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        number = popxl.h2d_stream((), popxl.int32)
        buffer = popxl.remote_buffer((6,), popxl.float32, 3)
        ops.host_store(popxl.d2h_stream((6,), popxl.float32), ops.remote_load(buffer, ops.host_load(number)))
    with popxl.Session(ir) as session:
        session.run({number: np.int32(2)})
        for wrong in (3, -1):
            with pytest.raises(RemoteBufferError, match=f"row {wrong} of remote buffer"):
                session.run({number: np.int32(wrong)})


def test_a_system_without_streaming_memory_has_no_buffers() -> None:
    ir = popxl.Ir()
    phased(ir, 4)
    with pytest.raises(MachineError, match="no streaming memory"):
        popxl.Session(ir, system="gc2")


def _row(of: str = "float32", shape: tuple[int, ...] = (6,)) -> popxl.Tensor:
    return popxl.constant(np.zeros(shape, of))


def _put(buffer: popxl.RemoteBuffer, name: str, value: Any) -> Any:
    setattr(buffer, name, value)


Wrong = Callable[[popxl.Ir, popxl.RemoteBuffer], Any]
WRONG: list[tuple[Wrong, type[Exception], str]] = [
    (lambda ir, b: popxl.remote_buffer((6,), popxl.float32, 0), ValueError, "Entries must be a non-zero, positive"),
    (
        lambda ir, b: popxl.remote_buffer((6,), popxl.float32, cast(Any, 2.5)),
        TypeError,
        "a whole number",
    ),
    (lambda ir, b: popxl.remote_buffer((6, 0), popxl.float32, 1), ValueError, "rows of a remote buffer have elements"),
    (lambda ir, b: popxl.remote_buffer((6,), popxl.float64, 1), AbeleError, "float64"),
    (lambda ir, b: ops.remote_store(b, 0, _row(shape=(5,))), ValueError, "Tensor .* does not match buffer."),
    (lambda ir, b: ops.remote_store(b, 0, _row("float16")), ValueError, "does not match buffer."),
    (lambda ir, b: ops.remote_load_(b, 0, popxl.variable(np.zeros(5))), ValueError, "does not match buffer."),
    (lambda ir, b: ops.remote_load_(b, 0, _row()), ValueError, "which is a constant"),
    (lambda ir, b: ops.remote_load(b, 3), ValueError, "offset 3 is outside .*: 0 to 2"),
    (lambda ir, b: ops.remote_load(b, -1), ValueError, "offset -1 is outside"),
    (lambda ir, b: ops.remote_load(b, 1.0), TypeError, "whole number or a tensor"),
    (lambda ir, b: ops.remote_load(b, popxl.constant([0, 1])), ValueError, "one int32 or uint32"),
    (lambda ir, b: ops.remote_load(b, popxl.constant(0.0)), ValueError, "one int32 or uint32"),
    (lambda ir, b: ops.remote_load(cast(Any, "b"), 0), TypeError, "takes a RemoteBuffer"),
    (lambda ir, b: popxl.remote_variable(np.zeros(5), b, 0), ValueError, "does not match buffer."),
    (lambda ir, b: popxl.remote_variable(ROWS[0], b, 3), ValueError, "offset 3 is outside"),
    (lambda ir, b: [popxl.remote_variable(ROWS[0], b, 1) for _ in "12"], ValueError, "row 1 of .* is that of"),
    (lambda ir, b: popxl.remote_variable(ROWS[0], b, 1) + 1.0, ValueError, "in streaming memory, where no op"),
    (
        lambda ir, b: ops.call(ir.create_graph(lambda t: t, _row()), popxl.remote_variable(ROWS[0], b, 1)),
        ValueError,
        "in streaming memory",
    ),
    (lambda ir, b: ir.create_graph(lambda: popxl.remote_variable(ROWS[0], b)), ValueError, "You can only initialise"),
    (lambda ir, b: (popxl.remote_variable(ROWS[0], b, 2), _put(b, "entries", 2)), ValueError, "no row 2"),
    (lambda ir, b: (ops.remote_load(b, 2), _put(b, "tensor_shape", (5,))), ValueError, "can not change"),
    (lambda ir, b: _put(b, "remote_buffer_id", 7), ValueError, "keeps its number"),
    (lambda ir, b: (popxl.Session(ir), _put(b, "entries", 9)), RuntimeError, "can not change"),
    (lambda ir, b: ops.remote_code_load(ir.create_graph(lambda: None), "tiles"), ValueError, "destination 'tiles'"),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), WRONG)
def test_what_does_not_fit_a_buffer_is_refused(wrong: Wrong, kind: type[Exception], text: str) -> None:
    ir = popxl.Ir()
    with ir.main_graph, pytest.raises(kind, match=text) as caught:
        wrong(ir, popxl.remote_buffer((6,), popxl.float32, 3))
    assert isinstance(caught.value, AbeleError)


def test_a_buffer_may_change_until_something_is_in_it() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        buffer = popxl.remote_buffer((6,), popxl.float32)
        buffer.tensor_shape, buffer.tensor_dtype, buffer.entries = (2, 3), popxl.float16, 4
        assert (buffer.tensor_shape, buffer.tensor_dtype, buffer.entries) == ((2, 3), popxl.float16, 4)
        assert (buffer.meta_shape, buffer.remote_buffer_id) == ((), 0)
        row = ops.remote_load(buffer, 3, name="row")
        assert (row.id, row.shape, row.dtype) == ("row", (2, 3), popxl.float16)
        assert popxl.remote_buffer((6,), popxl.float32).remote_buffer_id == 1


def test_mapped_files_are_kept_and_take_what_the_device_made(tmp_path: Path) -> None:
    path, fixed = tmp_path / "w", tmp_path / "fixed"
    ROWS.tofile(path)
    ROWS.tofile(fixed)
    mapped = np.memmap(path, np.float32, "r+", shape=(3, 6))
    read_only = np.memmap(fixed, np.float32, "r", shape=(3, 6))
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        buffer = popxl.remote_buffer((3, 6), popxl.float32)
        on_chip, frozen = popxl.variable(read_only), popxl.remote_variable(mapped, buffer)
        assert frozen.data is mapped
        row = ops.remote_load(buffer, 0)
        ops.add_(on_chip, row)
        ops.remote_store(buffer, 0, row * 2.0)
        for wrong in (np.memmap(path, np.float32, "r", shape=(6, 3), order="F"), mapped.T):
            with pytest.raises(ValueError, match="C-ordered"):
                popxl.variable(wrong)
        with pytest.raises(ValueError, match="it is float32, not float16"):
            popxl.variable(mapped, popxl.float16)
        with pytest.raises(ValueError, match="it is float64, not float32"):
            popxl.variable(np.memmap(path, np.float64, "r", shape=(9,)))
    with popxl.Session(ir) as session:
        session.run()
        np.testing.assert_array_equal(session.get_tensor_data(on_chip), ROWS * 2)
    np.testing.assert_array_equal(np.fromfile(fixed, np.float32), ROWS.ravel())
    np.testing.assert_array_equal(np.fromfile(path, np.float32), ROWS.ravel() * 2)
    with pytest.raises(ValueError, match="may only be read"):
        session.write_variable_data(on_chip, ROWS)


def test_each_further_call_of_a_layer_adds_the_same_to_a_program_and_no_code() -> None:
    rows = []
    for calls in (2, 3, 24):
        ir = popxl.Ir()
        with ir.main_graph, popxl.in_sequence():
            x: popxl.Tensor = popxl.variable(X)
            layer = ir.create_graph(lambda x, w: ops.tanh(x @ w), x, popxl.TensorSpec((6, 6), popxl.float32))
            for _ in range(calls):
                (x,) = ops.call(layer, x, popxl.variable(W[0]))
            ops.host_store(popxl.d2h_stream(x.shape, x.dtype), x)
        report = popxl.Session(ir).report
        rows.append((len(report.variables["name"]), len(report.codelets["name"]), len(report.groups["name"])))
    two, three, many = np.array(rows)
    np.testing.assert_array_equal(many - three, 21 * (three - two))
    assert many[2] == two[2]
