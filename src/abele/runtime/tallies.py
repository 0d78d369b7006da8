"""Tallies: how often a run took each way that data decides."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from abele.graph import If, Program, RepeatWhile, Switch
from abele.graph.intervals import Int64
from abele.runtime.arena import address_of, aligned_block
from abele.runtime.emitter import Emitter


class Tallies:
    """A word for every way: the branches of an If, the cases and default of a Switch, the body of a while loop.

    Args:
        nodes: All steps of the programs.
    """

    def __init__(self, nodes: Iterable[Program]) -> None:
        self._first: dict[Program, int] = {}
        self._num: dict[Program, int] = {}
        total = 0
        for node in nodes:
            ways = _ways(node)
            if ways:
                self._first[node], self._num[node] = total, ways
                total += ways
        self._words: Int64 = aligned_block(8 * max(1, total)).view(np.int64)

    def count(self, emitter: Emitter, node: Program, way: int) -> None:
        """Count that a node goes a way; thread 0 does."""
        emitter.tally(address_of(self._words) + 8 * (self._first[node] + way))

    def reset(self) -> None:
        """A run begins."""
        self._words[:] = 0

    def taken(self) -> dict[Program, tuple[int, ...]]:
        """How often the last run went each way of each node."""
        words = self._words.tolist()
        return {node: tuple(words[first : first + self._num[node]]) for node, first in self._first.items()}


def _ways(node: Program) -> int:
    match node:
        case If():
            return 2
        case RepeatWhile():
            return 1
        case Switch():
            return len(node.cases) + 1
        case _:
            return 0
