"""Ticks of a pipeline: the stages that are busy at each time.

Stage ``s`` runs micro-batch ``m`` in tick ``s + stride · m``. So the first ticks fill the pipeline and the last ones
empty it; in between all stages are busy, each with another micro-batch and every ``stride`` ticks. With stride 1 all
stages run in every tick; with 2 those of even numbers take turns with those of odd numbers, which nearly
halves the micro-batches that are on their way; with as many as there are stages one runs after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

Busy = tuple[int, ...]
"""Stages that run in a tick, in ascending order."""


@dataclass(frozen=True)
class Ticks:
    """The schedule of a pipeline from empty to empty.

    Attributes:
        stages: Of both passes.
        micro_batches: Number of micro-batches.
        stride: Ticks from one micro-batch to the next.
    """

    stages: int
    micro_batches: int
    stride: int = 1

    @property
    def count(self) -> int:
        """Ticks until the last micro-batch has left."""
        return self.stages + self.stride * (self.micro_batches - 1)

    def busy(self, tick: int) -> Busy:
        """The stages that run in a tick."""
        first = max(tick - self.stride * (self.micro_batches - 1), tick % self.stride)
        return tuple(range(first, min(self.stages, tick + 1), self.stride))

    def runs(self, *, apart: bool = False) -> list[tuple[range, int]]:
        """All ticks as loops: the ticks of a loop's body, and how often it runs.

        From when the first micro-batch reaches the last stage until the last one enters, ticks repeat every ``stride``
        of them: that is one entry, whatever their number.

        Args:
            apart: True if no loop has the first or the last micro-batch of a stage in it.
        """
        full = max(0, self.count - 2 * (self.stages - 1)) // self.stride
        before, full = self.stages - 1 + apart * self.stride, full - 2 * apart
        if full < 1:
            return self._single(range(self.count))
        end = before + full * self.stride
        steady = range(before, before + self.stride)
        return [*self._single(range(before)), (steady, full), *self._single(range(end, self.count))]

    def _single(self, ticks: range) -> list[tuple[range, int]]:
        return [(range(tick, tick + 1), 1) for tick in ticks if self.busy(tick)]
