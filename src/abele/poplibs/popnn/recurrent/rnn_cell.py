"""One step of a plain recurrent network: the new state is f(x·Wi + h·Wo + b)."""

from __future__ import annotations

from abele.graph import Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn.recurrent.cell import Columns, Setting, Weights, put
from abele.poplibs.popnn.recurrent.loop import SequenceLoop
from abele.poplibs.popnn.recurrent.lstm_cell import activate, slope
from abele.poplibs.popops.expr import _1, _2

KEPT = ("output", "previous_output")
"""What is kept of every step for the backward pass."""


class RnnCell:
    """The cell of a plain network; see :class:`~abele.poplibs.popnn.recurrent.cell.Cell`. Its state is the output."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.params = setting, setting.params
        sizes = {"input": self.params.input_size, "output": self.params.hidden}
        self.columns = Columns(setting.units, sizes, "operand")
        self.product = setting.product(self.columns, ("input", "output"), 1, "product")
        self.score: Tensor | None = None
        self.score_gradient: Tensor | None = None
        self._biases: Tensor | None = None
        self._bias_sum: Tensor | None = None

    def arrange(self, weights: Weights, prog: Sequence, *, forward: bool) -> None:
        """Take the weights; see the protocol."""
        assert weights.input is not None
        self._biases = weights.biases
        take = self.product.arrange if forward else self.product.turn
        take([weights.input, weights.output], prog)

    def forward(self, loop: SequenceLoop, states: list[Tensor], step: Tensor, given: Tensor | None) -> None:
        """One step; see the protocol."""
        assert self._biases is not None
        (output,) = states
        put(loop, output, self.columns.of("output"))
        sums = self.product.forward(loop.prog)
        loop.map([_1 + _2], [sums, self._biases.expand_dims(1)], [sums], "add_bias")
        loop.copy([output], [step[1]], "keep_output")
        new = activate(self.params.activation, _1)
        loop.map([new, new], [sums[0]], [step[0], output], "new_output")

    def backward(self, loop: SequenceLoop, step: Tensor, gradients: list[Tensor], deltas: Tensor) -> Tensor | None:
        """One step back; see the protocol."""
        (output,) = gradients
        loop.map([slope(self.params.activation, _1, _2)], [step[0], output], [deltas[0]], "delta")
        self.put_deltas(loop, step, deltas)
        of_input, before = self.product.backward(loop.prog)
        put(loop, before, output)
        return of_input

    def put_deltas(self, loop: SequenceLoop, step: Tensor, deltas: Tensor) -> None:
        """Bring gradients of the sums to the product; see the protocol."""
        put(loop, deltas, self.product.deltas())

    def accumulate(self, loop: SequenceLoop, step: Tensor, deltas: Tensor, number: int, together: int) -> None:
        """Add the gradients of the weights; see the protocol."""
        put(loop, step[1], self.columns.of("output"))
        self.product.accumulate(loop.prog, loop.before, number, together)
        self._bias_sum = self.setting.add_biases(loop, self._bias_sum, deltas)

    def gradients(self, prog: Sequence) -> Weights:
        """The gradients of the weights."""
        assert self._bias_sum is not None
        of_input, of_output = self.product.gradients(prog)
        return Weights(of_input, of_output, self.setting.in_layer_type(self._bias_sum, prog))
