"""One step of an LSTM: gates and states, forwards and backwards."""

from __future__ import annotations

from abele.graph import Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn.nonlinearity import NON_LINEARITIES
from abele.poplibs.popnn.recurrent.cell import Columns, Setting, Weights, put
from abele.poplibs.popnn.recurrent.host_loop import HostProduct, host_product, host_sum
from abele.poplibs.popnn.recurrent.loop import SequenceLoop
from abele.poplibs.popops.expr import Expr, Op, PlaceHolder, _1, _2, _3

KEPT = ("forget", "input", "cell", "output", "tanh", "previous_cell", "previous_output")
"""Values kept of every step for the backward pass; without one, only the first five."""
WITHOUT_PREVIOUS = 5


def activate(name: str, x: Expr) -> Expr:
    """A non-linearity as an expression."""
    return Op(NON_LINEARITIES[name.lower()].op, x)


def slope(name: str, y: Expr, gradient: Expr) -> Expr:
    """The gradient of a non-linearity's input, from its output and the gradient of that."""
    return Op(NON_LINEARITIES[name.lower()].gradient, y, gradient)


class OneProductCell:
    """A cell whose gates are all sums of one product of input and output, with a bias each.

    Args:
        setting: The layer.
        has_input: True if the product takes the input too, in place of products made for all steps before.
        gates: Gates of the product.
        name: Name of the product.
        previous: Place of the output before a step among what is kept of it.
    """

    def __init__(self, setting: Setting, *, has_input: bool, gates: int, name: str, previous: int) -> None:
        self.setting, self.params = setting, setting.params
        self.score: Tensor | None = None
        self.score_gradient: Tensor | None = None
        sizes = {"input": self.params.input_size} if has_input else {}
        self.columns = Columns(setting.units, {**sizes, "output": self.params.hidden}, "operand")
        self.names = tuple(self.columns.sizes)
        self.product = setting.product(self.columns, self.names, gates, name)
        self._previous = previous
        self._biases: Tensor | None = None
        self._bias_sum: Tensor | None = None

    def arrange(self, weights: Weights, prog: Sequence, *, forward: bool) -> None:
        """Take the weights, as the products of this pass need them."""
        both = [w for w in (weights.input, weights.output) if w is not None]
        self._biases = weights.biases
        take = self.product.arrange if forward else self.product.turn
        take(both if "input" in self.names else [weights.output], prog)

    def sums(self, loop: SequenceLoop, output: Tensor, given: Tensor | None) -> Tensor:
        """The sum of each gate, from the output before; ``given`` are products of the input."""
        assert self._biases is not None
        put(loop, output, self.columns.of("output"))
        sums = self.product.forward(loop.prog)
        biases = self._biases.expand_dims(1)
        if given is None:
            loop.map([_1 + _2], [sums, biases], [sums], "add_bias")
        else:
            loop.map([_1 + _2 + _3], [sums, biases, given], [sums], "add_bias")
        return sums

    def back(self, loop: SequenceLoop, step: Tensor, output: Tensor, deltas: Tensor) -> Tensor | None:
        """Bring gradients of the sums to input and output; see :meth:`Cell.backward`."""
        self.put_deltas(loop, step, deltas)
        *inputs, before = self.product.backward(loop.prog)
        put(loop, before, output)
        return inputs[0] if inputs else None

    def put_deltas(self, loop: SequenceLoop, step: Tensor, deltas: Tensor) -> None:
        """Bring gradients of the sums to the product; see the protocol."""
        self.product.put_deltas(deltas, loop.prog)

    def accumulate(self, loop: SequenceLoop, step: Tensor, deltas: Tensor, number: int, together: int) -> None:
        """Add the gradients of the weights; see the protocol."""
        put(loop, step[self._previous], self.columns.of("output"))
        self.product.accumulate(loop.prog, loop.before, number, together)
        self._bias_sum = self.setting.add_biases(loop, self._bias_sum, deltas)

    def gradients(self, prog: Sequence) -> Weights:
        """The gradients of the weights."""
        assert self._bias_sum is not None
        *inputs, output = self.product.gradients(prog)
        return Weights(inputs[0] if inputs else None, output, self.setting.in_layer_type(self._bias_sum, prog))

    def take_deltas(self, deltas: Tensor) -> None:
        """Let the product of a step back read gradients of the sums where they are."""
        assert isinstance(self.product, HostProduct)
        self.product.take_deltas(deltas)

    def host_gradients(self, prog: Sequence, kept: Tensor, deltas: Tensor, gradients: Weights) -> None:
        """Write the gradients of output weights and biases; see the protocol."""
        before = kept[:, self._previous]
        host_product(prog, "tbk,tgbu->gku", before, deltas, gradients.output, "output_weights_gradient")
        host_sum(prog, "tgbu->gu", deltas, gradients.biases, "bias_gradient")


class LstmCell(OneProductCell):
    """The cell of an LSTM; see :class:`~abele.poplibs.popnn.recurrent.cell.Cell`. States are output and cell state."""

    def __init__(self, setting: Setting, *, has_input: bool) -> None:
        super().__init__(setting, has_input=has_input, gates=4, name="gates", previous=KEPT.index("previous_output"))

    def forward(self, loop: SequenceLoop, states: list[Tensor], step: Tensor, given: Tensor | None) -> None:
        """One step; see the protocol."""
        output, cell = states
        at = {name: step[n] for n, name in enumerate(KEPT[: step.shape[0]])}
        sums = self.sums(loop, output, given)
        gates = [at[name] for name in self.params.cell_order]
        loop.map(self._gate_expressions(), [sums[n] for n in range(4)], gates, "gates")
        self.update_cell(loop, at, output, cell)
        loop.map([_1 * _2], [at["output"], at["tanh"]], [output], "new_output")

    def update_cell(self, loop: SequenceLoop, at: dict[str, Tensor], output: Tensor, cell: Tensor) -> None:
        """cell ← forget · cell + input · candidate, and its non-linearity; the state before is put where it is kept."""
        # The products, and the states to keep, in one superstep: all expressions read what was there before it, so
        # `cell` may be overwritten by one and kept by another.
        product = loop.graph.clone(cell, name="input_times_candidate")
        expressions: list[Expr] = [_1 * _2, _3 * PlaceHolder(4)]
        operands, results = [at["forget"], cell, at["input"], at["cell"]], [cell, product]
        if "previous_cell" in at:
            expressions += [_2, PlaceHolder(5)]
            operands.append(output)
            results += [at["previous_cell"], at["previous_output"]]
        loop.map(expressions, operands, results, "forget")
        loop.map([_1 + _2], [cell, product], [cell], "new_cell")
        loop.map([activate(self.params.activation, _1)], [cell], [at["tanh"]], "tanh")

    def backward(self, loop: SequenceLoop, step: Tensor, gradients: list[Tensor], deltas: Tensor) -> Tensor | None:
        """One step back; see the protocol."""
        output, cell = gradients
        at = {name: step[n] for n, name in enumerate(KEPT)}
        self._gate_gradients(loop, at, output, cell, deltas)
        return self.back(loop, step, output, deltas)

    def _gate_expressions(self) -> list[Expr]:
        special = {"cell": self.params.activation}
        kinds = [special.get(cell, self.params.recurrent_activation) for cell in self.params.cell_order]
        return [activate(kind, PlaceHolder(n + 1)) for n, kind in enumerate(kinds)]

    def _gate_gradients(
        self, loop: SequenceLoop, at: dict[str, Tensor], output: Tensor, cell: Tensor, deltas: Tensor
    ) -> None:
        gate, candidate = self.params.recurrent_activation, self.params.activation
        into = {name: deltas[n] for n, name in enumerate(self.params.cell_order)}
        _4, _5, _6, _7, _8 = (PlaceHolder(n) for n in range(4, 9))
        through = _1 + slope(candidate, _2, _3 * _4)
        loop.map([through], [cell, at["tanh"], at["output"], output], [cell], "cell_gradient")
        loop.map(
            [
                slope(gate, _2, _1 * _3),
                slope(gate, _4, _1 * _5),
                slope(candidate, _5, _1 * _4),
                slope(gate, _6, _7 * _8),
                _1 * _2,
            ],
            [cell, at["forget"], at["previous_cell"], at["input"], at["cell"], at["output"], output, at["tanh"]],
            [into["forget"], into["input"], into["cell"], into["output"], cell],
            "gate_gradients",
        )
