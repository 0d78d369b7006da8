"""Recurrent layers: LSTM, GRU and plain networks, in one direction or both.

Gates come in ONNX's order, which is not that of the network's layers. Layers with activations of their own, peepholes,
clipping or sequences of several lengths are loops over steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from abele.expr import Expr, apply, select
from abele.expr.derivative import arg
from abele.frontends.onnx.ops.indexing import reversed_places
from abele.frontends.onnx.registry import Item, NodeCall, op
from abele.frontends.onnx.types import device_type
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.along import take_along
from abele.network.ops.recurrent import LstmValues
from abele.numerics import i32

x, y, z = arg(0), arg(1), arg(2)
Floats = Sequence[float]

_ACTIVATIONS: dict[str, Callable[[float, float], Expr]] = {
    "relu": lambda a, b: apply("max", x, 0.0),
    "tanh": lambda a, b: apply("tanh", x),
    "sigmoid": lambda a, b: apply("sigmoid", x),
    "affine": lambda a, b: x * a + b,
    "leakyrelu": lambda a, b: select(x < 0.0, x * a, x),
    "thresholdedrelu": lambda a, b: select(x > a, x, 0.0),
    "scaledtanh": lambda a, b: apply("tanh", x * b) * a,
    "hardsigmoid": lambda a, b: apply("max", apply("min", x * a + b, 1.0), 0.0),
    "elu": lambda a, b: select(x < 0.0, apply("expm1", x) * a, x),
    "softsign": lambda a, b: x / (1.0 + apply("abs", x)),
    "softplus": lambda a, b: apply("softplus", x),
}
_DEFAULTS = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, 0.0),
    "thresholdedrelu": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, 0.0),
}


@dataclass(frozen=True)
class _Settings:
    """Attributes that all three kinds have."""

    activations: list[str]
    alpha: list[float]
    beta: list[float]
    clip: float
    direction: str
    layout: int
    hidden: int

    def is_usual(self, activations: Sequence[str], directions: int) -> bool:
        """True where nothing is clipped, and each direction has ``activations``."""
        usual = [a.lower() for a in activations] * directions
        return not self.clip and [a.lower() for a in self.activations] == usual

    def gates(self, direction: int, count: int) -> list[Expr]:
        """Activations of the gates in one direction."""
        made = []
        for number in range(count):
            place = direction * count + number
            name = self.activations[place].lower()
            a, b = _DEFAULTS.get(name, (1.0, 0.0))
            a = self.alpha[place] if place < len(self.alpha) else a
            b = self.beta[place] if place < len(self.beta) else b
            made.append(_ACTIVATIONS[name](float(a), float(b)))
        return made


def _settings(
    call: NodeCall,
    usual: Sequence[str],
    activations: Sequence[str] | None,
    *,
    alpha: Floats | None,
    beta: Floats | None,
    clip: float | None,
    direction: str,
    layout: int,
    hidden: int,
) -> _Settings:
    if direction not in ("forward", "reverse", "bidirectional"):
        raise call.wrong(f"has the direction {direction!r}, which is none of forward, reverse and bidirectional")
    both = 2 if direction == "bidirectional" else 1
    chosen = list(activations) if activations else list(usual) * both
    unknown = [a for a in chosen if a.lower() not in _ACTIVATIONS]
    if unknown:
        raise call.wrong(f"has the activation {unknown[0]!r}, which ONNX does not have")
    if len(chosen) != len(usual) * both:
        raise call.wrong(f"has {len(chosen)} activations for {len(usual) * both} gates")
    return _Settings(
        activations=chosen,
        alpha=list(alpha or []),
        beta=list(beta or []),
        clip=float(clip or 0.0),
        direction=direction,
        layout=layout,
        hidden=hidden,
    )


@dataclass(frozen=True)
class _LayerOperands:
    """Operands of one direction: weights [gates · units, inputs] and [gates · units, units], a bias for each."""

    weight: Value
    recurrent: Value
    biases: tuple[Value, Value]
    states: list[Value]
    peepholes: Value | None = None


Pass = Callable[[Value, _LayerOperands, int], tuple[Value, list[Value]]]
"""Outputs of all steps [steps, batch, units] and the states after the last, of inputs [steps, batch, inputs]."""


def _layer(
    call: NodeCall,
    value: Value,
    lengths: Value | None,
    operands: tuple[Item, Item, Item | None],
    order: Sequence[int],
    states: Sequence[Value | None],
    peepholes: Value | None,
    settings: _Settings,
    run: Pass,
) -> tuple[Value, ...]:
    """Outputs of all steps, and each state after the last, in ONNX's layout.

    Args:
        call: The node.
        value: Inputs of all steps.
        lengths: Steps of each sequence; None where all have all.
        operands: Weights of inputs and of outputs, and biases, for each direction.
        order: ONNX's gates in the order that ``run`` has them in.
        states: States before the first step.
        peepholes: Weights of cell states, for each direction.
        settings: Attributes that all kinds have.
        run: The layer in one direction.
    """
    net = call.net
    steps_first = build.permute(net, value, (1, 0, 2)) if settings.layout else value
    _, batch, _ = steps_first.shape
    directions = operands[0].shape[0]
    outputs, lasts = [], []
    for number in range(directions):
        backwards = settings.direction == "reverse" or number == 1
        before = [_state(call, s, number, batch, settings) for s in states]
        own = _LayerOperands(
            _gates(call, operands[0], number, order),
            _gates(call, operands[1], number, order),
            _biases(call, operands, number, order),
            before,
            None if peepholes is None else _row(net, peepholes, number),
        )
        ordered = _turned(call, steps_first, lengths) if backwards else steps_first
        made, after = run(ordered, own, number)
        outputs.append(_turned(call, made, lengths) if backwards else made)
        lasts.append(after)
    stacked = [build.reshape(net, o, (o.shape[0], 1, *o.shape[1:])) for o in outputs]
    every = build.concat(net, stacked, 1)
    finals = []
    for part in zip(*lasts, strict=True):
        rows = [build.reshape(net, v, (1, *v.shape)) for v in part]
        finals.append(build.concat(net, rows, 0))
    if settings.layout:
        every = build.permute(net, every, (2, 0, 1, 3))
        finals = [build.permute(net, v, (1, 0, 2)) for v in finals]
    return every, *finals


def _row(net: BlockBuilder, value: Value, number: int) -> Value:
    return build.reshape(net, build.slice_(net, value, 0, number, number + 1), value.shape[1:])


def _state(call: NodeCall, state: Value | None, number: int, batch: int, settings: _Settings) -> Value:
    if state is None:
        assert call.items[1] is not None
        return build.full(call.net, 0.0, (batch, settings.hidden), device_type(call.items[1].dtype))
    given = build.permute(call.net, state, (1, 0, 2)) if settings.layout else state
    return _row(call.net, given, number)


def _turned(call: NodeCall, value: Value, lengths: Value | None) -> Value:
    """Steps in the opposite order, of each sequence up to its length."""
    if lengths is None:
        return build.reverse(call.net, value, [0])
    places = reversed_places(call, value.shape, lengths, 0, 1, value.shape[0])
    return take_along(call.net, value, places, 0)


def _gates(call: NodeCall, item: Item, number: int, order: Sequence[int], part: int = 0, parts: int = 1) -> Value:
    """Weights of one direction with gates in another order; of biases one of two parts.

    Weights that do not change come so from the host.
    """
    size = item.shape[1] // parts
    units = size // len(order)
    begins = [part * size + n * units for n in order]
    chosen = np.concatenate([np.arange(begin, begin + units) for begin in begins])
    made = call.prepared(item, lambda array: array[number, chosen], f"gates.{number}.{part}")
    if made is not None:
        return made
    net = call.net
    row = _row(net, call.reader.value(item), number)
    return build.concat(net, [build.slice_(net, row, 0, begin, begin + units) for begin in begins], 0)


def _biases(
    call: NodeCall, operands: tuple[Item, Item, Item | None], number: int, order: Sequence[int]
) -> tuple[Value, Value]:
    """Biases of the input and of the output before."""
    weight, _, bias = operands
    if bias is None:
        zeros = build.full(call.net, 0.0, (weight.shape[1],), device_type(weight.dtype))
        return zeros, zeros
    first, second = (_gates(call, bias, number, order, part, 2) for part in range(2))
    return first, second


def _last(net: BlockBuilder, outputs: Value) -> Value:
    return _row(net, outputs, outputs.shape[0] - 1)


Cell = Callable[[BlockBuilder, Value, list[Value]], list[Value]]
"""The states after a step, from those before and what its input contributes to the gates; the first is the output."""


def _stepped(
    call: NodeCall, of_input: Value, states: list[Value], lengths: Value | None, cell: Cell
) -> tuple[Value, list[Value]]:
    """A layer as a loop over steps; sequences keep their states after their ends, and give zeros there."""
    net, steps = call.net, of_input.shape[0]
    table = build.full(net, 0.0, (steps, *states[0].shape), states[0].dtype)
    ends = None
    if lengths is not None:
        ends = build.reshape(net, build.cast(net, lengths, i32), (states[0].shape[0], 1))

    def body(region: BlockBuilder, number: Value, *values: Value) -> list[Value]:
        before = list(values[:-1])
        row = build.read_row(region, region.read(of_input), number)
        after = cell(region, row, before)
        given = after[0]
        if ends is not None:
            operands = [build.reshape(region, number, (1, 1)), region.read(ends)]
            given = build.map_(region, select(x < y, z, 0.0), [*operands, given], given.dtype)
            after = [
                build.map_(region, select(x < y, z, arg(3)), [*operands, new, old], new.dtype)
                for new, old in zip(after, before, strict=True)
            ]
        return [*after, build.write_row(region, values[-1], given, number)]

    made = build.loop(net, steps, [*states, table], body)
    return made[-1], list(made[:-1])


def _gate(net: BlockBuilder, sums: Value, number: int, units: int) -> Value:
    return build.slice_(net, sums, 1, number * units, (number + 1) * units)


def _clipped(expression: Expr, bound: float) -> Expr:
    return apply("max", apply("min", expression, bound), -bound) if bound else expression


def _activated(net: BlockBuilder, activation: Expr, value: Value, clip: float) -> Value:
    held = build.map_(net, _clipped(x, clip), [value]) if clip else value
    return build.map_(net, activation, [held])


def _sum(net: BlockBuilder, *values: Value) -> Value:
    made = values[0]
    for value in values[1:]:
        made = build.map_(net, x + y, [made, value])
    return made


@op("LSTM")
def lstm(
    call: NodeCall,
    value: Value,
    weight: Item,
    recurrent: Item,
    bias: Item | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    peepholes: Value | None = None,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Value, ...]:
    """Outputs of all steps, and the output and cell state after the last."""
    net, units = call.net, hidden_size or recurrent.shape[2]
    usual = ["Sigmoid", "Tanh", "Tanh"]
    settings = _settings(
        call,
        usual,
        activations,
        alpha=activation_alpha,
        beta=activation_beta,
        clip=clip,
        direction=direction,
        layout=layout,
        hidden=units,
    )
    # ONNX has input, output, forget, cell; a layer here input, forget, cell, output.
    plain = (
        settings.is_usual(usual, weight.shape[0]) and not input_forget and peepholes is None and sequence_lens is None
    )

    def run(steps: Value, own: _LayerOperands, number: int) -> tuple[Value, list[Value]]:
        if plain:
            bias_sum = _sum(net, *own.biases)
            operands = LstmValues(steps, own.states[0], own.states[1], own.weight, own.recurrent, bias_sum)
            outputs, cell = build.lstm(net, operands, trains=call.reader.parts.training)
            return outputs, [_last(net, outputs), cell]
        f, g, h = settings.gates(number, 3)
        of_input = build.linear(net, steps, own.weight, _sum(net, *own.biases))

        def step(region: BlockBuilder, row: Value, states: list[Value]) -> list[Value]:
            output, cell = states
            sums = _sum(region, row, build.linear(region, output, region.read(own.recurrent), None))
            parts = [_gate(region, sums, n, units) for n in range(4)]
            if own.peepholes is not None:
                held = region.read(own.peepholes)
                peep = [build.slice_(region, held, 0, n * units, (n + 1) * units) for n in range(3)]
                parts[0] = build.map_(region, x + y * z, [parts[0], peep[0], cell])
                parts[2] = build.map_(region, x + y * z, [parts[2], peep[2], cell])
            entering = _activated(region, f, parts[0], settings.clip)
            forget = (
                build.map_(region, 1.0 - x, [entering])
                if input_forget
                else _activated(region, f, parts[2], settings.clip)
            )
            candidate = _activated(region, g, parts[3], settings.clip)
            new = build.map_(region, x * y + z * arg(3), [forget, cell, entering, candidate])
            leaving = parts[1]
            if own.peepholes is not None:
                leaving = build.map_(region, x + y * z, [leaving, peep[1], new])
            shown = _activated(region, h, new, 0.0)
            made = build.map_(region, x * y, [_activated(region, f, leaving, settings.clip), shown])
            return [made, new]

        return _stepped(call, of_input, own.states, sequence_lens, step)

    states = (initial_h, initial_c)
    order = (0, 2, 3, 1) if plain else range(4)
    return _layer(
        call,
        value,
        sequence_lens,
        (weight, recurrent, bias),
        order,
        states,
        peepholes=peepholes,
        settings=settings,
        run=run,
    )


@op("GRU")
def gru(
    call: NodeCall,
    value: Value,
    weight: Item,
    recurrent: Item,
    bias: Item | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Value, ...]:
    """Outputs of all steps, and the last output."""
    net, units = call.net, hidden_size or recurrent.shape[2]
    usual = ["Sigmoid", "Tanh"]
    settings = _settings(
        call,
        usual,
        activations,
        alpha=activation_alpha,
        beta=activation_beta,
        clip=clip,
        direction=direction,
        layout=layout,
        hidden=units,
    )
    # ONNX has update, reset, candidate; a layer here, as PyTorch's, reset, update, candidate.
    plain = settings.is_usual(usual, weight.shape[0]) and linear_before_reset and sequence_lens is None

    def run(steps: Value, own: _LayerOperands, number: int) -> tuple[Value, list[Value]]:
        if plain:
            weights = [own.weight, own.recurrent]
            outputs = build.gru(net, steps, own.states[0], weights, own.biases, trains=call.reader.parts.training)
            return outputs, [_last(net, outputs)]
        f, g = settings.gates(number, 2)
        first, second = own.biases
        of_input = build.linear(net, steps, own.weight, first)
        split = [build.slice_(net, own.recurrent, 0, n * units, (n + 1) * units) for n in range(3)]
        beside = [build.slice_(net, second, 0, n * units, (n + 1) * units) for n in range(3)]

        def step(region: BlockBuilder, row: Value, states: list[Value]) -> list[Value]:
            output = states[0]
            parts = [_gate(region, row, n, units) for n in range(3)]
            gates = [
                _sum(region, parts[n], build.linear(region, output, region.read(split[n]), region.read(beside[n])))
                for n in range(2)
            ]
            update, reset = (_activated(region, f, gate, settings.clip) for gate in gates)
            own_weight, own_bias = region.read(split[2]), region.read(beside[2])
            if linear_before_reset:
                inner = build.map_(region, x * y, [reset, build.linear(region, output, own_weight, own_bias)])
            else:
                inner = build.linear(region, build.map_(region, x * y, [reset, output]), own_weight, own_bias)
            candidate = _activated(region, g, _sum(region, parts[2], inner), settings.clip)
            return [build.map_(region, (1.0 - x) * y + x * z, [update, candidate, output])]

        return _stepped(call, of_input, own.states, sequence_lens, step)

    order = (1, 0, 2) if plain else range(3)
    return _layer(
        call,
        value,
        sequence_lens,
        (weight, recurrent, bias),
        order,
        (initial_h,),
        peepholes=None,
        settings=settings,
        run=run,
    )


@op("RNN")
def rnn(
    call: NodeCall,
    value: Value,
    weight: Item,
    recurrent: Item,
    bias: Item | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Value, ...]:
    """Outputs of all steps, and the last output."""
    net, units = call.net, hidden_size or recurrent.shape[2]
    settings = _settings(
        call,
        ["Tanh"],
        activations,
        alpha=activation_alpha,
        beta=activation_beta,
        clip=clip,
        direction=direction,
        layout=layout,
        hidden=units,
    )

    def run(steps: Value, own: _LayerOperands, number: int) -> tuple[Value, list[Value]]:
        bias_sum = _sum(net, *own.biases)
        name = settings.activations[number].lower()
        if name in ("tanh", "relu") and not settings.clip and sequence_lens is None:
            weights = [own.weight, own.recurrent]
            outputs = build.plain_rnn(
                net, steps, own.states[0], weights, bias_sum, activation=name, trains=call.reader.parts.training
            )
            return outputs, [_last(net, outputs)]
        (f,) = settings.gates(number, 1)
        of_input = build.linear(net, steps, own.weight, bias_sum)

        def step(region: BlockBuilder, row: Value, states: list[Value]) -> list[Value]:
            sums = _sum(region, row, build.linear(region, states[0], region.read(own.recurrent), None))
            return [_activated(region, f, sums, settings.clip)]

        return _stepped(call, of_input, own.states, sequence_lens, step)

    return _layer(
        call,
        value,
        sequence_lens,
        (weight, recurrent, bias),
        (0,),
        (initial_h,),
        peepholes=None,
        settings=settings,
        run=run,
    )
