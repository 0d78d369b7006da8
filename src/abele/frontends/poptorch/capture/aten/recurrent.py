"""LSTM layers of any depth, in one direction or both."""

from __future__ import annotations

from collections.abc import Sequence

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.numerics import f16, f32
from abele.parallel import Value
from abele.parallel.ops import build
from abele.parallel.ops.recurrent import LstmValues


@aten("aten.lstm.input")
def lstm(
    call: OperatorCall,
    value: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, Value, Value]:
    """Outputs of the last layer, and the last output and cell state of each layer and direction."""
    net, directions = call.net, 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(params) != each * num_layers * directions:
        raise call.refuse("with projections (proj_size) has no lowering", "multiply the outputs by a matrix afterwards")
    if value.dtype not in (f16, f32):
        raise call.refuse(f"of {value.dtype} has no lowering", "use float16 or float32")
    is_single = value.ndim == 2
    x = build.reshape(net, value, (value.shape[0], 1, value.shape[1])) if is_single else value
    x = build.transpose(net, x, 0, 1) if batch_first and not is_single else x
    lasts: list[tuple[Value, Value]] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            weights = params[each * number : each * (number + 1)]
            output, cell = (_state(call, s, number) for s in states)
            # Backwards in time is forwards over the steps in reverse.
            ordered = build.reverse(net, x, [0]) if direction else x
            operands = LstmValues(ordered, output, cell, weights[0], weights[1], _bias(call, weights))
            made, cell = build.lstm(net, operands, trains=train)
            lasts.append((_row(call, made, made.shape[0] - 1), cell))
            outputs.append(build.reverse(net, made, [0]) if direction else made)
        x = build.concat(net, outputs, 2)
        if dropout and train and layer < num_layers - 1:
            x = build.dropout(net, x, dropout)
    x = build.transpose(net, x, 0, 1) if batch_first and not is_single else x
    found = [_stack(call, list(part)) for part in zip(*lasts, strict=True)]
    if is_single:
        x, *found = (build.reshape(net, v, v.shape[:1] + v.shape[2:]) for v in (x, *found))
    return x, found[0], found[1]


def _row(call: OperatorCall, value: Value, number: int) -> Value:
    return build.reshape(call.net, build.slice_(call.net, value, 0, number, number + 1), value.shape[1:])


def _state(call: OperatorCall, states: Value, number: int) -> Value:
    row = _row(call, states, number)
    return build.reshape(call.net, row, (1, row.size)) if row.ndim == 1 else row


def _stack(call: OperatorCall, values: list[Value]) -> Value:
    rows = [build.reshape(call.net, v, (1, *v.shape)) for v in values]
    return build.concat(call.net, rows, 0)


def _bias(call: OperatorCall, weights: Sequence[Value]) -> Value:
    """PyTorch has a bias for the input and one for the output before, which add up."""
    of_output = weights[1]
    if len(weights) == 2:
        return build.full(call.net, 0.0, of_output.shape[:1], of_output.dtype)
    return build.map_(call.net, arg(0) + arg(1), list(weights[2:]))
