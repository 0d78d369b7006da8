"""Tallies: the count of each way that data decides in a run; executions of steps follow from them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from abele.arrays import Int64
from abele.compiler.scopes import num_ways
from abele.graph import Program
from abele.runtime.control.emitter import Emitter
from abele.runtime.memory.host_memory import address_of, aligned_block


class Tallies:
    """A word for every way: branches of an If, cases and default of a Switch, trips and entries of a while loop.

    Native code adds to them, thread 0 alone. ``abele.compiler.scopes`` tells executions of steps from them.

    Args:
        nodes: All steps of the programs.

    Attributes:
        places: Range of each node's words.
    """

    def __init__(self, nodes: Iterable[Program]) -> None:
        self.places: dict[Program, slice] = {}
        total = 0
        for node in nodes:
            ways = num_ways(node)
            if ways:
                self.places[node] = slice(total, total + ways)
                total += ways
        self._words: Int64 = aligned_block(8 * max(1, total)).view(np.int64)

    def count(self, emitter: Emitter, node: Program, way: int) -> None:
        """Count that a node goes a way; thread 0 does."""
        emitter.tally(address_of(self._words) + 8 * (self.places[node].start + way))

    def begin(self) -> None:
        """A run begins."""
        self._words[:] = 0

    def counted(self) -> bytes:
        """Counts of the run so far, int64[words] as bytes."""
        return self._words.tobytes()
