"""One step of a plain recurrent network: the new state is f(x·Wi + h·Wo + b)."""

from __future__ import annotations

from abele.graph import Tensor
from abele.poplibs.popnn.recurrent.cell import Setting
from abele.poplibs.popnn.recurrent.loop import SequenceLoop
from abele.poplibs.popnn.recurrent.lstm_cell import OneProductCell, activate, slope
from abele.poplibs.popops.expr import _1, _2

KEPT = ("output", "previous_output")
"""Values kept of every step for the backward pass."""


class RnnCell(OneProductCell):
    """The cell of a plain network; see :class:`~abele.poplibs.popnn.recurrent.cell.Cell`. Its state is the output."""

    def __init__(self, setting: Setting, *, has_input: bool) -> None:
        super().__init__(setting, has_input=has_input, gates=1, name="product", previous=KEPT.index("previous_output"))

    def forward(self, loop: SequenceLoop, states: list[Tensor], step: Tensor, given: Tensor | None) -> None:
        """One step; see the protocol."""
        (output,) = states
        sums = self.sums(loop, output, given)
        loop.copy([output], [step[1]], "keep_output")
        new = activate(self.params.activation, _1)
        loop.map([new, new], [sums[0]], [step[0], output], "new_output")

    def backward(self, loop: SequenceLoop, step: Tensor, gradients: list[Tensor], deltas: Tensor) -> Tensor | None:
        """One step back; see the protocol."""
        (output,) = gradients
        loop.map([slope(self.params.activation, _1, _2)], [step[0], output], [deltas[0]], "delta")
        return self.back(loop, step, output, deltas)
