"""One step of a plain recurrent network: the new state is f(x·Wi + h·Wo + b)."""

from __future__ import annotations

from abele.graph import Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn.recurrent.cell import Columns, Setting, Weights, put
from abele.poplibs.popnn.recurrent.host_loop import HostProduct, host_product, host_sum
from abele.poplibs.popnn.recurrent.loop import SequenceLoop
from abele.poplibs.popnn.recurrent.lstm_cell import activate, slope
from abele.poplibs.popops.expr import _1, _2, _3

KEPT = ("output", "previous_output")
"""Values kept of every step for the backward pass."""


class RnnCell:
    """The cell of a plain network; see :class:`~abele.poplibs.popnn.recurrent.cell.Cell`. Its state is the output."""

    def __init__(self, setting: Setting, *, has_input: bool) -> None:
        self.setting, self.params = setting, setting.params
        sizes = {"input": self.params.input_size} if has_input else {}
        self.columns = Columns(setting.units, {**sizes, "output": self.params.hidden}, "operand")
        self.names = tuple(self.columns.sizes)
        self.product = setting.product(self.columns, self.names, 1, "product")
        self.score: Tensor | None = None
        self.score_gradient: Tensor | None = None
        self._biases: Tensor | None = None
        self._bias_sum: Tensor | None = None

    def arrange(self, weights: Weights, prog: Sequence, *, forward: bool) -> None:
        """Take the weights; see the protocol."""
        both = [w for w in (weights.input, weights.output) if w is not None]
        self._biases = weights.biases
        take = self.product.arrange if forward else self.product.turn
        take(both if "input" in self.names else [weights.output], prog)

    def forward(self, loop: SequenceLoop, states: list[Tensor], step: Tensor, given: Tensor | None) -> None:
        """One step; see the protocol."""
        assert self._biases is not None
        (output,) = states
        put(loop, output, self.columns.of("output"))
        sums = self.product.forward(loop.prog)
        biases = self._biases.expand_dims(1)
        if given is None:
            loop.map([_1 + _2], [sums, biases], [sums], "add_bias")
        else:
            loop.map([_1 + _2 + _3], [sums, biases, given], [sums], "add_bias")
        loop.copy([output], [step[1]], "keep_output")
        new = activate(self.params.activation, _1)
        loop.map([new, new], [sums[0]], [step[0], output], "new_output")

    def backward(self, loop: SequenceLoop, step: Tensor, gradients: list[Tensor], deltas: Tensor) -> Tensor | None:
        """One step back; see the protocol."""
        (output,) = gradients
        loop.map([slope(self.params.activation, _1, _2)], [step[0], output], [deltas[0]], "delta")
        self.put_deltas(loop, step, deltas)
        *inputs, before = self.product.backward(loop.prog)
        put(loop, before, output)
        return inputs[0] if inputs else None

    def put_deltas(self, loop: SequenceLoop, step: Tensor, deltas: Tensor) -> None:
        """Bring gradients of the sums to the product; see the protocol."""
        self.product.put_deltas(deltas, loop.prog)

    def accumulate(self, loop: SequenceLoop, step: Tensor, deltas: Tensor, number: int, together: int) -> None:
        """Add the gradients of the weights; see the protocol."""
        put(loop, step[1], self.columns.of("output"))
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
        before = kept[:, KEPT.index("previous_output")]
        host_product(prog, "tbk,tgbu->gku", before, deltas, gradients.output, "output_weights_gradient")
        host_sum(prog, "tgbu->gu", deltas, gradients.biases, "bias_gradient")
