"""Recurrent layers whose state is their output: GRU and plain networks. One op for all steps in one direction.

A GRU's gates are in the order reset, update, candidate, and its reset gate multiplies the product of the state, which
has a bias of its own. Weights of all gates are one matrix, [gates · units, inputs].
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor, concat
from abele.network.ir import BlockBuilder, NetworkOp, Shape, Value
from abele.network.ops.constant import full
from abele.network.ops.recurrent import as_matrix, laid_out, sigmoid
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.numerics import ElementType
from abele.poplibs.popnn import gru as gru_layers
from abele.poplibs.popnn import rnn as rnn_layers
from abele.poplibs.popnn.recurrent.calls import new_input, units_of
from abele.poplibs.popnn.recurrent.cell import Weights
from abele.poplibs.popnn.recurrent.params import RecurrentParams

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def gru(
    net: BlockBuilder, x: Value, output: Value, weights: Sequence[Value], biases: Sequence[Value], *, trains: bool
) -> Value:
    """The outputs of all steps of a GRU, [steps, batch, units].

    Args:
        net: Network or block to extend.
        x: [steps, batch, inputs].
        output: The output before the first step, [batch, units].
        weights: Of the input, [3 · units, inputs], and of the output before, [3 · units, units].
        biases: Of the same two, [3 · units].
        trains: True if values are kept for a backward pass, which would otherwise run the layer again.
    """
    operands = [x, output, *weights, *biases]
    return net.emit_many("gru", operands, Gru.made(operands, keeps=trains), keeps=trains)[0]


def plain_rnn(
    net: BlockBuilder,
    x: Value,
    output: Value,
    weights: Sequence[Value],
    bias: Value,
    *,
    activation: str,
    trains: bool,
) -> Value:
    """The outputs of all steps of a plain network, [steps, batch, units]: f(x · Wiᵀ + h · Woᵀ + b); as of :func:`gru`.

    ``activation`` is ``tanh`` or ``relu``.
    """
    operands = [x, output, *weights, bias]
    types = PlainRnn.made(operands, keeps=trains)
    return net.emit_many("rnn", operands, types, keeps=trains, activation=activation)[0]


class _Layer(OpRule):
    """Base of both kinds of layers: operands are x, the output before, two weights and biases.

    Attributes:
        gates: Gates of a cell.
        slots: Tensors that a step keeps for the backward pass.
    """

    gates: ClassVar[int]
    slots: ClassVar[int]
    laid_together = (2, 3)
    planned = True

    @classmethod
    def made(cls, operands: Sequence[Value], *, keeps: bool) -> list[tuple[Shape, ElementType]]:
        """Types of the results."""
        x, output = operands[:2]
        steps, state = x.shape[0], output.shape
        return [((steps, *state), x.dtype)] + ([((steps, cls.slots, *state), x.dtype)] if keeps else [])

    def types(self, op: NetworkOp) -> Types:
        """Types of the outputs, by input and state."""
        x, output, of_input, of_output, *biases = op.inputs
        require(x.ndim == 3 and output.ndim == 2, f"{x} is not [steps, batch, inputs], or {output} not [batch, units]")
        require(output.shape[0] == x.shape[1], f"{output} does not fit {x}")
        units = output.shape[1]
        rows = self.gates * units
        fits = of_input.shape == (rows, x.shape[2]) and of_output.shape == (rows, units)
        fits = fits and all(b.shape == (rows,) for b in biases)
        fits = fits and all(v.dtype == x.dtype for v in op.inputs)
        require(fits, f"the weights {of_input}, {of_output}, {biases} do not fit {units} units of {x}")
        return self.made(op.inputs, keeps=op.attrs["keeps"])

    def evaluate(self, op: NetworkOp, *operands: Array) -> tuple[Array, ...]:
        """The textbook's equations, step by step."""
        x, output, *weights = operands
        outputs, kept = [], []
        for row in x:
            output, slots = self.step(op, row, output, weights)
            outputs.append(output)
            kept.append(np.stack(slots))
        return (np.stack(outputs), np.stack(kept))[: len(op.outputs)]

    @abstractmethod
    def step(self, op: NetworkOp, x: Array, output: Array, weights: Sequence[Array]) -> tuple[Array, list[Array]]:
        """The new output, and the tensors kept of a step."""

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """One popnn layer."""
        x, output, *weights = (to[v] for v in op.inputs)
        params = self.params(op)
        x = laid_out(to, x, lambda: new_input(to.graph, params, "input"))
        options = {"inferenceOnly": not op.attrs["keeps"], **to.planned(op, x.dtype)}
        made, kept = self.forward(to, op, x, output, weights=self.weights(weights), options=options)
        return (made,) if kept is None else (made, kept)

    @abstractmethod
    def forward(
        self, to: Lowering, op: NetworkOp, x: Tensor, output: Tensor, *, weights: Weights, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor | None]:
        """Append popnn's layer: the outputs, and the tensors kept of the steps."""

    @abstractmethod
    def params(self, op: NetworkOp, *, input_gradient: bool = True) -> RecurrentParams:
        """popnn's parameters of the layer."""

    def biases(self, tensors: Sequence[Tensor]) -> Tensor:
        """popnn's biases as a view of an op's."""
        raise NotImplementedError

    def sizes(self, op: NetworkOp) -> dict[str, Any]:
        """Sizes of the layer, as popnn's parameters call them."""
        x, output = op.inputs[:2]
        (steps, batch, inputs), units = x.shape, output.shape[1]
        return {"dtype": x.dtype, "batch": batch, "time_steps": steps, "layer_sizes": (inputs, units)}

    def weights(self, tensors: Sequence[Tensor]) -> Weights:
        """popnn's weights, [gates, inputs, units], as views of an op's."""
        of_input, of_output = (
            t.reshape((self.gates, t.shape[0] // self.gates, t.shape[1])).transpose((0, 2, 1)) for t in tensors[:2]
        )
        return Weights(of_input, of_output, self.biases(tensors[2:]))

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Input and state as popnn makes them, and biases with their units."""
        params, name = self.params(op), op.inputs[operand].name
        units = units_of(to.graph, params)
        if operand == 0:
            return new_input(to.graph, params, name or "input")
        if operand == 1:
            return units.state(name or "state")
        if operand > 3:
            made = units.biases((self.gates,), params.dtype, name or "biases")
            return made.reshape((self.gates * params.hidden,))
        return None

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """One gradient op on the kept tensors; without them, the layer is run again."""
        outputs = op.outputs
        if not op.attrs["keeps"]:
            again = {**op.attrs, "keeps": True}
            outputs = net.emit_many(op.kind, op.inputs, self.made(op.inputs, keeps=True), **again)
        grad = only(grads[:1]) if grads[0] is not None else full(net, 0.0, outputs[0].shape, outputs[0].dtype)
        types = [v.type for v in op.inputs[0 if wanted[0] else 1 :]]
        attributes = {name: value for name, value in op.attrs.items() if name != "keeps"}
        operands = [*op.inputs, outputs[1], grad]
        made = net.emit_many(f"{op.kind}_grad", operands, types, **attributes, input=bool(wanted[0]))
        return made if wanted[0] else [None, *made]


class _LayerGrad(OpRule):
    """Gradients of a layer's operands, from its kept tensors and the gradient of its outputs; the input's only where
    asked for.
    """

    layer: ClassVar[_Layer]

    def types(self, op: NetworkOp) -> Types:
        """Those of the operands of the layer; the input's only where ``input`` asks for it."""
        x, output, *_, kept, grad = op.inputs
        require(x.ndim == 3 and output.ndim == 2, f"{x} is not [steps, batch, inputs], or {output} not [batch, units]")
        wanted = ((x.shape[0], self.layer.slots, *output.shape), (x.shape[0], *output.shape))
        fits = (kept.shape, grad.shape) == wanted
        require(fits, f"{kept}, {grad} do not fit {x} and {output}")
        return [v.type for v in op.inputs[0 if op.attrs["input"] else 1 : -2]]

    def evaluate(self, op: NetworkOp, *operands: Array) -> tuple[Array, ...]:
        """The equations' gradients, from the last step back."""
        x, output, *weights, kept, grad = operands
        by_weights = [np.zeros_like(w) for w in weights]
        by_x, by_state = np.zeros_like(x), np.zeros_like(output)
        for step in reversed(range(len(x))):
            by_state = by_state + grad[step]
            by_x[step], by_state, found = self.step(op, x[step], by_state, kept=kept[step], weights=weights)
            for total, part in zip(by_weights, found, strict=True):
                total += part
        made = (by_x, by_state, *by_weights)
        return made if op.attrs["input"] else made[1:]

    @abstractmethod
    def step(
        self, op: NetworkOp, x: Array, grad: Array, *, kept: Array, weights: Sequence[Array]
    ) -> tuple[Array, Array, Sequence[Array]]:
        """Gradients of the input, of the state before and of the weights, from that of the state after."""

    @abstractmethod
    def found(self, to: Lowering, op: NetworkOp, x: Tensor, grad: Tensor) -> tuple[Tensor | None, Tensor, Weights]:
        """popnn's gradients of input, state and weights."""

    @abstractmethod
    def by_biases(self, biases: Tensor) -> tuple[Tensor, ...]:
        """Gradients of the op's biases as views of popnn's."""

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """One popnn backward pass."""
        params = self.layer.params(op)
        units = units_of(to.graph, params)
        x = laid_out(to, to[op.inputs[0]], lambda: new_input(to.graph, params, "input"))
        grad = laid_out(to, to[op.inputs[-1]], lambda: units.sequence(params.time_steps, "output_gradient"))
        by_input, by_state, made = self.found(to, op, x, grad)
        assert made.input is not None
        by_weights = (as_matrix(made.input), as_matrix(made.output), *self.by_biases(made.biases))
        return (*(() if by_input is None else (by_input,)), by_state, *by_weights)


@rule("gru")
class Gru(_Layer):
    """All steps of a GRU: outputs, and with ``keeps`` what the backward pass takes."""

    operands = 6
    attributes: ClassVar = {"keeps": bool}
    gates, slots = 3, 5

    def step(self, op: NetworkOp, x: Array, output: Array, weights: Sequence[Array]) -> tuple[Array, list[Array]]:
        """r, z of both products; the candidate of the input's and the reset state's; a share z stays."""
        of_input, of_output, input_bias, output_bias = weights
        of_x = np.split(x @ of_input.T + input_bias, 3, axis=1)
        of_state = np.split(output @ of_output.T + output_bias, 3, axis=1)
        reset, update = (sigmoid(a + b) for a, b in zip(of_x[:2], of_state[:2], strict=True))
        candidate = np.tanh(of_x[2] + reset * of_state[2])
        return candidate + update * (output - candidate), [reset, update, candidate, output, of_state[2]]

    def params(self, op: NetworkOp, *, input_gradient: bool = True) -> gru_layers.GruParams:
        """A layer whose reset gate comes after the product."""
        return gru_layers.GruParams(**self.sizes(op), reset_after=True, calc_input_gradients=input_gradient)

    def biases(self, tensors: Sequence[Tensor]) -> Tensor:
        """Those of the input's products, and those of the state's."""
        return concat([t.reshape((3, 1, t.size // 3)) for t in tensors], 1)

    def layout_together(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """The weights of input and output as popnn makes them."""
        params, name = self.params(op), op.inputs[2].name or "weights"
        of_input, of_output = gru_layers.create_weights_kernel(to.graph, params, name, to.planned(op, params.dtype))
        assert of_input is not None
        return as_matrix(of_input), as_matrix(of_output)

    def forward(
        self, to: Lowering, op: NetworkOp, x: Tensor, output: Tensor, *, weights: Weights, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor | None]:
        """popnn's GRU."""
        made = gru_layers.gru_fwd(to.graph, self.params(op), output, x, weights=weights, prog=to.prog, options=options)
        return made.output, made.intermediates


@rule("gru_grad")
class GruGrad(_LayerGrad):
    """Gradients of a GRU's six operands."""

    operands = 8
    attributes: ClassVar = {"input": bool}
    layer = Gru()

    def step(
        self, op: NetworkOp, x: Array, grad: Array, *, kept: Array, weights: Sequence[Array]
    ) -> tuple[Array, Array, Sequence[Array]]:
        """The chain rule through one step."""
        of_input, of_output = weights[:2]
        reset, update, candidate, before, of_state = kept
        by_candidate = grad * (1 - update) * (1 - candidate**2)
        by_update = grad * (before - candidate) * update * (1 - update)
        by_reset = by_candidate * of_state * reset * (1 - reset)
        by_x = np.concatenate([by_reset, by_update, by_candidate], 1)
        by_h = np.concatenate([by_reset, by_update, by_candidate * reset], 1)
        found = (by_x.T @ x, by_h.T @ before, by_x.sum(0), by_h.sum(0))
        return by_x @ of_input, grad * update + by_h @ of_output, found

    def found(self, to: Lowering, op: NetworkOp, x: Tensor, grad: Tensor) -> tuple[Tensor | None, Tensor, Weights]:
        """One popnn backward pass."""
        _, output, *weights, kept, _ = (to[v] for v in op.inputs)
        made = gru_layers.gru_bwd_with_wu(
            to.graph,
            self.layer.params(op, input_gradient=op.attrs["input"]),
            output,
            kept,
            weights=self.layer.weights(weights),
            input=x,
            output_gradient=grad,
            prog=to.prog,
            options=to.planned(op, x.dtype),
        )
        assert made.weights is not None
        return made.input, made.state, made.weights

    def by_biases(self, biases: Tensor) -> tuple[Tensor, ...]:
        """Those of the input's products, and those of the state's."""
        return tuple(biases[:, n].reshape((biases.size // 2,)) for n in range(2))


@rule("rnn")
class PlainRnn(_Layer):
    """All steps of a plain network: outputs, and with ``keeps`` what the backward pass takes."""

    operands = 5
    attributes: ClassVar = {"keeps": bool, "activation": str}
    gates, slots = 1, 2

    def types(self, op: NetworkOp) -> Types:
        """Types of the outputs, by input and state."""
        require(op.attrs["activation"] in ("tanh", "relu"), f"activation={op.attrs['activation']!r}: tanh or relu")
        return super().types(op)

    def step(self, op: NetworkOp, x: Array, output: Array, weights: Sequence[Array]) -> tuple[Array, list[Array]]:
        """The function of both products and the bias."""
        of_input, of_output, bias = weights
        total = x @ of_input.T + output @ of_output.T + bias
        made = np.tanh(total) if op.attrs["activation"] == "tanh" else np.maximum(total, 0)
        return made, [made, output]

    def params(self, op: NetworkOp, *, input_gradient: bool = True) -> rnn_layers.RnnParams:
        """A layer with the op's function."""
        sizes = self.sizes(op)
        return rnn_layers.RnnParams(**sizes, activation=op.attrs["activation"], calc_input_gradients=input_gradient)

    def biases(self, tensors: Sequence[Tensor]) -> Tensor:
        """The bias of the one gate."""
        return tensors[0].expand_dims(0)

    def layout_together(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """The weights of input and output as popnn makes them."""
        params, name = self.params(op), op.inputs[2].name or "weights"
        made = rnn_layers.create_weights(to.graph, params, name, to.planned(op, params.dtype))
        assert made.input is not None
        return as_matrix(made.input), as_matrix(made.output)

    def forward(
        self, to: Lowering, op: NetworkOp, x: Tensor, output: Tensor, *, weights: Weights, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor | None]:
        """popnn's plain network."""
        made = rnn_layers.rnn_fwd_sequence(
            to.graph, self.params(op), output, x, weights=weights, prog=to.prog, options=options
        )
        return made.output, made.kept


@rule("rnn_grad")
class PlainRnnGrad(_LayerGrad):
    """Gradients of a plain network's five operands."""

    operands = 7
    attributes: ClassVar = {"input": bool, "activation": str}
    layer = PlainRnn()

    def step(
        self, op: NetworkOp, x: Array, grad: Array, *, kept: Array, weights: Sequence[Array]
    ) -> tuple[Array, Array, Sequence[Array]]:
        """The chain rule through one step."""
        made, before = kept
        by_sum = grad * (1 - made**2 if op.attrs["activation"] == "tanh" else made > 0)
        return by_sum @ weights[0], by_sum @ weights[1], (by_sum.T @ x, by_sum.T @ before, by_sum.sum(0))

    def found(self, to: Lowering, op: NetworkOp, x: Tensor, grad: Tensor) -> tuple[Tensor | None, Tensor, Weights]:
        """One popnn backward pass."""
        _, output, *weights, kept, _ = (to[v] for v in op.inputs)
        made = rnn_layers.rnn_bwd_sequence(
            to.graph,
            self.layer.params(op, input_gradient=op.attrs["input"]),
            output,
            kept,
            weights=self.layer.weights(weights),
            input=x,
            output_gradient=grad,
            prog=to.prog,
            options=to.planned(op, x.dtype),
        )
        assert made.weights is not None
        return made.input, made.states[0], made.weights

    def by_biases(self, biases: Tensor) -> tuple[Tensor, ...]:
        """Gradient of the bias of the one gate."""
        return (biases[0],)
