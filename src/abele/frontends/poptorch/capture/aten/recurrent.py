"""Recurrent layers of any depth, in one direction or both: LSTM, GRU and plain networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.recurrent import LstmValues
from abele.numerics import f16, f32


class LayerPass(Protocol):
    """A kind of layer in one direction."""

    def __call__(
        self, net: BlockBuilder, x: Value, states: Sequence[Value], weights: Sequence[Value], *, trains: bool
    ) -> tuple[Value, list[Value]]:
        """Outputs of all steps, and the states after the last, from [steps, batch, inputs] and [batch, units]."""


@dataclass(frozen=True)
class Stack:
    """Layers on top of each other, as PyTorch's calls describe them.

    Attributes:
        weights: Weights of each layer and direction, one after the other.
        layers: Number of layers.
        directions: 1, or 2 where each layer also runs backwards in time.
        dropout: Probability that is applied between layers when training.
        train: True when training.
    """

    weights: Sequence[Value]
    layers: int
    directions: int
    dropout: float
    train: bool

    def of(self, number: int) -> Sequence[Value]:
        """The weights of a layer and direction."""
        each = len(self.weights) // (self.layers * self.directions)
        return self.weights[each * number : each * (number + 1)]


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
) -> tuple[Value, ...]:
    """Outputs of the last layer, and the last output and cell state of each layer and direction."""
    stack = Stack(params, num_layers, 1 + bidirectional, dropout, train)
    has_projections = len(params) == (5 if has_biases else 3) * num_layers * stack.directions
    cell = _projected_lstm if has_projections else _lstm
    return _layers(call, stack, cell, value, states, batch_first=batch_first)


def _register(name: str, cell: LayerPass) -> None:
    """Lower the layers, and the cell, of a kind whose state is its output."""

    @aten(f"aten.{name}.input")
    def layers(
        call: OperatorCall,
        value: Value,
        state: Value,
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Value, ...]:
        """Outputs of the last layer, and the last output of each layer and direction."""
        stack = Stack(params, num_layers, 1 + bidirectional, dropout, train)
        return _layers(call, stack, cell, value, [state], batch_first=batch_first)

    @aten(f"aten.{name}_cell")
    def one_step(call: OperatorCall, x: Value, state: Value, *weights: Value | None) -> Value:
        """One step of a layer."""
        return _one_step(call, cell, x, [state], weights)[0]


@aten("aten.lstm_cell")
def lstm_cell(call: OperatorCall, x: Value, states: Sequence[Value], *weights: Value | None) -> tuple[Value, ...]:
    """One step of an LSTM."""
    return tuple(_one_step(call, _lstm, x, states, weights))


@aten("abele.linear_recurrence")
def linear_recurrence(call: OperatorCall, factor: Value, addend: Value) -> Value:
    """h[t] = factor[t] · h[t − 1] + addend[t] over the first dimension, from zero."""
    return build.recurrence(call.net, factor, addend, 0)


def _lstm(
    net: BlockBuilder, x: Value, states: Sequence[Value], weights: Sequence[Value], *, trains: bool
) -> tuple[Value, list[Value]]:
    operands = LstmValues(x, states[0], states[1], weights[0], weights[1], _sum(net, weights))
    outputs, cell = build.lstm(net, operands, trains=trains)
    return outputs, [_row(net, outputs, outputs.shape[0] - 1), cell]


def _projected_lstm(
    net: BlockBuilder, x: Value, states: Sequence[Value], weights: Sequence[Value], *, trains: bool
) -> tuple[Value, list[Value]]:
    """An LSTM whose outputs are multiplied by a matrix before they are fed back: step by step."""
    *gates, projection = weights
    output, cell = states
    bias = _sum(net, gates)
    of_input = build.linear(net, x, gates[0], bias)
    outputs = []
    for step in range(x.shape[0]):
        of_state = build.linear(net, output, gates[1])
        sums = build.map_(net, arg(0) + arg(1), [_row(net, of_input, step), of_state])
        made, cell = lstm_gates(net, sums, cell)
        output = build.linear(net, made, projection)
        outputs.append(build.reshape(net, output, (1, *output.shape)))
    return build.concat(net, outputs, 0), [output, cell]


def _gru(
    net: BlockBuilder, x: Value, states: Sequence[Value], weights: Sequence[Value], *, trains: bool
) -> tuple[Value, list[Value]]:
    outputs = build.gru(net, x, states[0], weights[:2], _biases(net, weights), trains=trains)
    return outputs, [_row(net, outputs, outputs.shape[0] - 1)]


def _plain_cell(activation: str) -> LayerPass:
    def plain(
        net: BlockBuilder, x: Value, states: Sequence[Value], weights: Sequence[Value], *, trains: bool
    ) -> tuple[Value, list[Value]]:
        bias = _sum(net, weights)
        outputs = build.plain_rnn(net, x, states[0], weights[:2], bias, activation=activation, trains=trains)
        return outputs, [_row(net, outputs, outputs.shape[0] - 1)]

    return plain


_register("gru", _gru)
for _name in ("tanh", "relu"):
    _register(f"rnn_{_name}", _plain_cell(_name))


def lstm_gates(net: BlockBuilder, sums: Value, cell: Value) -> tuple[Value, Value]:
    """The new output and cell state of an LSTM, from the sums of all gates, [batch, 4 · units]."""
    units = cell.shape[1]
    parts = [build.slice_(net, sums, 1, n * units, (n + 1) * units) for n in range(4)]
    entering, forget, candidate, leaving = (
        build.nonlinearity(net, kind, part)
        for kind, part in zip(("sigmoid", "sigmoid", "tanh", "sigmoid"), parts, strict=True)
    )
    new = build.map_(net, arg(0) * arg(1) + arg(2) * arg(3), [forget, cell, entering, candidate])
    return build.map_(net, arg(0) * arg(1), [leaving, build.nonlinearity(net, "tanh", new)]), new


def _layers(
    call: OperatorCall, stack: Stack, cell: LayerPass, value: Value, states: Sequence[Value], *, batch_first: bool
) -> tuple[Value, ...]:
    """Outputs of the last layer, and for each kind of state those of all layers and directions."""
    net = call.net
    if value.dtype not in (f16, f32):
        raise call.refuse(f"of {value.dtype} has no lowering", "use float16 or float32")
    is_single = value.ndim == 2
    x = build.reshape(net, value, (value.shape[0], 1, value.shape[1])) if is_single else value
    turns = batch_first and not is_single
    x = build.transpose(net, x, 0, 1) if turns else x
    lasts: list[list[Value]] = []
    for layer in range(stack.layers):
        outputs = []
        for direction in range(stack.directions):
            number = layer * stack.directions + direction
            # Backwards in time is forwards over the steps in reverse.
            ordered = build.reverse(net, x, [0]) if direction else x
            before = [_state(net, s, number) for s in states]
            made, after = cell(net, ordered, before, stack.of(number), trains=stack.train)
            lasts.append(after)
            outputs.append(build.reverse(net, made, [0]) if direction else made)
        x = build.concat(net, outputs, 2)
        if stack.dropout and stack.train and layer < stack.layers - 1:
            x = build.dropout(net, x, stack.dropout)
    x = build.transpose(net, x, 0, 1) if turns else x
    found = [_stacked(net, list(part)) for part in zip(*lasts, strict=True)]
    if is_single:
        x, *found = (build.reshape(net, v, v.shape[:1] + v.shape[2:]) for v in (x, *found))
    return x, *found


def _one_step(
    call: OperatorCall, cell: LayerPass, x: Value, states: Sequence[Value], weights: Sequence[Value | None]
) -> list[Value]:
    """The states after one step of a layer, from x [batch, inputs]."""
    given = [w for w in weights if w is not None]
    return cell(call.net, build.reshape(call.net, x, (1, *x.shape)), states, given, trains=True)[1]


def _row(net: BlockBuilder, value: Value, number: int) -> Value:
    return build.reshape(net, build.slice_(net, value, 0, number, number + 1), value.shape[1:])


def _state(net: BlockBuilder, states: Value, number: int) -> Value:
    row = _row(net, states, number)
    return build.reshape(net, row, (1, row.size)) if row.ndim == 1 else row


def _stacked(net: BlockBuilder, values: list[Value]) -> Value:
    rows = [build.reshape(net, v, (1, *v.shape)) for v in values]
    return build.concat(net, rows, 0)


def _biases(net: BlockBuilder, weights: Sequence[Value]) -> Sequence[Value]:
    """PyTorch has a bias for the input and one for the output before; zeros where it has none."""
    of_output = weights[1]
    return weights[2:4] if len(weights) > 3 else [build.full(net, 0.0, of_output.shape[:1], of_output.dtype)] * 2


def _sum(net: BlockBuilder, weights: Sequence[Value]) -> Value:
    """Sum of both biases."""
    return build.map_(net, arg(0) + arg(1), _biases(net, weights))
