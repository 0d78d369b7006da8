"""LSTM layers: one op for all steps of one layer in one direction, and its gradient.

Gates are in the order input, forget, cell, output; the weights of all gates are one matrix, [4 · units, inputs].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Copy, Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Shape, Value
from abele.network.ops.constant import full
from abele.network.registry import Gradients, OpRule, Types, require, rule
from abele.numerics import ElementType
from abele.poplibs.popnn import lstm as layers
from abele.poplibs.popnn.recurrent.calls import units_of
from abele.poplibs.popnn.recurrent.cell import Weights
from abele.poplibs.poputil.order import storage_order

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

GATES = ("input", "forget", "cell", "output")
_KEPT = 7
"""Number of tensors that a step keeps for the backward pass: forget, input, cell and output gates, the non-linearity of
the cell state, the cell state and the output before the step.
"""


@dataclass(frozen=True)
class LstmValues:
    """Operands of a layer.

    Attributes:
        x: [steps, batch, inputs].
        output: The output before the first step, [batch, units].
        cell: The cell state before the first step, [batch, units].
        of_input: Weights of the input, [4 · units, inputs].
        of_output: Weights of the output before, [4 · units, units].
        bias: [4 · units].
    """

    x: Value
    output: Value
    cell: Value
    of_input: Value
    of_output: Value
    bias: Value


def lstm(net: BlockBuilder, layer: LstmValues, *, trains: bool) -> tuple[Value, Value]:
    """The outputs of all steps, [steps, batch, units], and the cell state after the last, [batch, units].

    Args:
        net: Network or block to extend.
        layer: The operands.
        trains: True if values are kept for a backward pass, which would otherwise run the layer again.
    """
    operands = [layer.x, layer.output, layer.cell, layer.of_input, layer.of_output, layer.bias]
    outputs, cell, *_ = net.emit_many("lstm", operands, _types(operands, keeps=trains), keeps=trains)
    return outputs, cell


def _types(operands: Sequence[Value], *, keeps: bool) -> list[tuple[Shape, ElementType]]:
    x, output = operands[:2]
    steps, state = x.shape[0], output.shape
    made = [((steps, *state), x.dtype), (state, x.dtype)]
    return made + ([((steps, _KEPT, *state), x.dtype)] if keeps else [])


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(−x))."""
    return np.asarray(1 / (1 + np.exp(-x)))


def _params(op: NetworkOp, *, input_gradient: bool = True) -> layers.LstmParams:
    x, output = op.inputs[:2]
    (steps, batch, inputs), units = x.shape, output.shape[1]
    return layers.LstmParams(
        x.dtype, batch, steps, (inputs, units), calc_input_gradients=input_gradient, cell_order=GATES
    )


def _weights(tensors: Sequence[Tensor]) -> Weights:
    """popnn's weights, [4, inputs, units], as views of an op's."""
    of_input, of_output = (t.reshape((4, t.shape[0] // 4, t.shape[1])).transpose((0, 2, 1)) for t in tensors[:2])
    return Weights(of_input, of_output, tensors[2].reshape((4, tensors[2].size // 4)))


def laid_out(to: Lowering, value: Tensor, make: Callable[[], Tensor]) -> Tensor:
    """``value`` [steps, …] as ``make`` would make it, so that each step is a slice of near elements; copied if not.

    A loop over steps slices its operands at every step: one copy before it costs less than rearranging each slice.
    """
    made = make()
    if storage_order(value) == storage_order(made) and len(value.intervals()[0]) <= len(made.intervals()[0]):
        return value
    to.prog.add(Copy(value, made, name="lay_out_steps"))
    return made


def as_matrix(gates: Tensor) -> Tensor:
    """Weights [gates, inputs, units] as [gates · units, inputs]."""
    return gates.transpose((0, 2, 1)).reshape((gates.shape[0] * gates.shape[2], gates.shape[1]))


@rule("lstm")
class Lstm(OpRule):
    """All steps of a layer: outputs, the last cell state, and with ``keeps`` what the backward pass takes."""

    operands = 6
    attributes: ClassVar = {"keeps": bool}
    planned = True
    laid_together = (3, 4)

    def types(self, op: NetworkOp) -> Types:
        """Types of the outputs, by input and state."""
        x, output, cell, of_input, of_output, bias = op.inputs
        require(x.ndim == 3 and output.ndim == 2, f"{x} is not [steps, batch, inputs], or {output} not [batch, units]")
        units = output.shape[1]
        require(output.shape[0] == x.shape[1] and cell.type == output.type, f"{output}, {cell} do not fit {x}")
        shapes = [(4 * units, x.shape[2]), (4 * units, units), (4 * units,)]
        fitting = all(v.type == (s, x.dtype) for v, s in zip((of_input, of_output, bias), shapes, strict=True))
        require(fitting, f"the weights {of_input}, {of_output}, {bias} do not fit {units} units of {x}")
        return _types(op.inputs, keeps=op.attrs["keeps"])

    def evaluate(
        self, op: NetworkOp, x: Array, output: Array, cell: Array, of_input: Array, of_output: Array, bias: Array
    ) -> tuple[Array, ...]:
        """The textbook's equations, step by step."""
        outputs, kept = [], []
        for row in x:
            i, f, g, o = np.split(row @ of_input.T + output @ of_output.T + bias, 4, axis=1)
            i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
            before = cell, output
            cell = f * cell + i * g
            output = o * np.tanh(cell)
            outputs.append(output)
            kept.append(np.stack([f, i, g, o, np.tanh(cell), *before]))
        return (np.stack(outputs), cell, np.stack(kept))[: len(op.outputs)]

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Input and states as popnn makes them, and the bias with its units."""
        params, name = _params(op), op.inputs[operand].name
        if operand == 0:
            return layers.create_input(to.graph, params, name or "input")
        if operand in (1, 2):
            return layers.create_initial_output(to.graph, params, name or "state")
        if operand == 5:
            return layers.create_weights_biases(to.graph, params, name or "biases").reshape((4 * params.hidden,))
        return None

    def layout_together(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """The weights of input and output as popnn makes them: the rows of one matrix, as a step multiplies them."""
        params, name = _params(op), op.inputs[3].name or "weights"
        of_input, of_output = layers.create_weights_kernel(to.graph, params, name, to.planned(op, params.dtype))
        assert of_input is not None
        return as_matrix(of_input), as_matrix(of_output)

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """One popnn layer."""
        x, output, cell, *weights = (to[v] for v in op.inputs)
        params = _params(op)
        x = laid_out(to, x, lambda: layers.create_input(to.graph, params, "input"))
        made = layers.lstm_fwd(
            to.graph,
            params,
            layers.LstmState(output, cell),
            x,
            _weights(weights),
            to.prog,
            options={"inferenceOnly": not op.attrs["keeps"], **to.planned(op, x.dtype)},
        )
        kept = () if made.intermediates is None else (made.intermediates,)
        return (made.output, made.cell_state, *kept)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """One gradient op on the kept tensors; without them, the layer is run again."""
        outputs = op.outputs
        if not op.attrs["keeps"]:
            outputs = net.emit_many("lstm", op.inputs, _types(op.inputs, keeps=True), keeps=True)
        by_output, by_cell = (
            full(net, 0.0, made.shape, made.dtype) if grad is None else grad
            for made, grad in zip(outputs[:2], grads, strict=False)
        )
        operands = [*op.inputs, outputs[2], by_output, by_cell]
        types = [v.type for v in op.inputs[0 if wanted[0] else 1 :]]
        made = net.emit_many("lstm_grad", operands, types, input=bool(wanted[0]))
        return made if wanted[0] else [None, *made]


@rule("lstm_grad")
class LstmGrad(OpRule):
    """Gradients of a layer's six operands, from its kept tensors and the gradients of its outputs and last cell
    state.
    """

    operands = 9
    attributes: ClassVar = {"input": bool}
    planned = True

    def types(self, op: NetworkOp) -> Types:
        """Those of the operands of the layer; the input's only where ``input`` asks for it."""
        x, output, *_, kept, by_output, by_cell = op.inputs
        require(x.ndim == 3 and output.ndim == 2, f"{x} is not [steps, batch, inputs], or {output} not [batch, units]")
        wanted = ((x.shape[0], _KEPT, *output.shape), (x.shape[0], *output.shape), output.shape)
        fitting = all(v.shape == s for v, s in zip((kept, by_output, by_cell), wanted, strict=True))
        require(fitting, f"{kept}, {by_output}, {by_cell} do not fit {x} and {output}")
        return [v.type for v in op.inputs[0 if op.attrs["input"] else 1 : 6]]

    def evaluate(self, op: NetworkOp, *operands: Array) -> tuple[Array, ...]:
        """The equations' gradients, from the last step back."""
        x, _, _, of_input, of_output, bias, kept, by_output, by_cell = operands
        by_x, by_of_input, by_of_output, by_bias = (np.zeros_like(a) for a in (x, of_input, of_output, bias))
        by_state, by_cell = np.zeros_like(by_output[0]), np.array(by_cell)
        for step in reversed(range(len(x))):
            f, i, g, o, tanh, cell_before, output_before = kept[step]
            by_state = by_state + by_output[step]
            by_cell = by_cell + by_state * o * (1 - tanh**2)
            gates = [
                by_cell * g * i * (1 - i),
                by_cell * cell_before * f * (1 - f),
                by_cell * i * (1 - g**2),
                by_state * tanh * o * (1 - o),
            ]
            by_gates = np.concatenate(gates, axis=1)
            by_of_input += by_gates.T @ x[step]
            by_of_output += by_gates.T @ output_before
            by_bias += by_gates.sum(0)
            by_x[step] = by_gates @ of_input
            by_state, by_cell = by_gates @ of_output, by_cell * f
        made = (by_x, by_state, by_cell, by_of_input, by_of_output, by_bias)
        return made if op.attrs["input"] else made[1:]

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """One popnn backward pass."""
        x, output, cell, *weights, kept, by_output, by_cell = (to[v] for v in op.inputs)
        params = _params(op, input_gradient=op.attrs["input"])
        x = laid_out(to, x, lambda: layers.create_input(to.graph, params, "input"))
        outputs = units_of(to.graph, params)
        by_output = laid_out(to, by_output, lambda: outputs.sequence(params.time_steps, "output_gradient"))
        found = layers.lstm_bwd_with_wu(
            to.graph,
            params,
            layers.LstmState(output, cell),
            kept,
            weights=_weights(weights),
            input=x,
            output_gradient=by_output,
            prog=to.prog,
            cell_state_gradient=by_cell,
            options=to.planned(op, x.dtype),
        )
        made, states = found.weights, found.state
        assert made is not None
        assert made.input is not None
        by_weights = (as_matrix(made.input), as_matrix(made.output), made.biases.reshape((made.biases.size,)))
        by_input = () if found.input is None else (found.input,)
        return (*by_input, states.output, states.cell_state, *by_weights)
