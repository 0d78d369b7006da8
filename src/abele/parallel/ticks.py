"""Ticks of a pipeline: at which time which stages are busy.

In tick ``t`` stage ``s`` runs micro-batch ``t − s``. So the first ticks fill the pipeline and the last ones empty it;
in between all stages are busy, each with another micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Ticks:
    """The schedule of a pipeline from empty to empty.

    Attributes:
        stages: Of both passes.
        micro_batches: How many go through.
    """

    stages: int
    micro_batches: int

    @property
    def count(self) -> int:
        """Ticks until the last micro-batch has left."""
        return self.stages + self.micro_batches - 1

    def busy(self, tick: int) -> range:
        """The stages that run in a tick."""
        return range(max(0, tick - self.micro_batches + 1), min(self.stages, tick + 1))

    def runs(self) -> list[tuple[range, int]]:
        """Busy stages, and for how many ticks in a row it is these."""
        # All ticks between filling and emptying have the same stages: they are one entry, whatever their number.
        full = max(0, self.micro_batches - self.stages)
        shortened = Ticks(self.stages, self.micro_batches - full)
        found = [(stages, len(list(same))) for stages, same in groupby(map(shortened.busy, range(shortened.count)))]
        return [(stages, n + (full if len(stages) == self.stages else 0)) for stages, n in found]
