"""Tallies: how often a run took each way that data decides, and so how often each step ran."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from abele.compiler import Executable
from abele.compiler.lower import Block, Step
from abele.graph import If, Program, RepeatWhile, Switch
from abele.graph.intervals import Int64
from abele.runtime.control.emitter import Emitter
from abele.runtime.memory.host_memory import address_of, aligned_block

TRIP, ENTRY = 0, 1
"""What is counted of a while loop."""


class Tallies:
    """A word for every way: branches of an If, cases and default of a Switch, trips and entries of a while loop.

    Args:
        nodes: All steps of the programs.
    """

    def __init__(self, nodes: Iterable[Program]) -> None:
        self._ways: dict[Program, slice] = {}
        total = 0
        for node in nodes:
            ways = _num_ways(node)
            if ways:
                self._ways[node] = slice(total, total + ways)
                total += ways
        self._words: Int64 = aligned_block(8 * max(1, total)).view(np.int64)
        self._last: dict[int, Int64] = {}

    def count(self, emitter: Emitter, node: Program, way: int) -> None:
        """Count that a node goes a way; thread 0 does."""
        emitter.tally(address_of(self._words) + 8 * (self._ways[node].start + way))

    def begin(self) -> None:
        """A run begins."""
        self._words[:] = 0

    def end(self, program: int) -> None:
        """A run of a program came to its end: remember what it did."""
        if self._ways:
            self._last[program] = self._words.copy()

    def record(self, executable: Executable) -> None:
        """Tell an executable how often each step ran in the last whole run of each program."""
        if not self._last:
            return
        executions, ran = executable.executions.copy(), list(self._last)
        for program, words in self._last.items():
            self._fill(executable.lowered.programs[program], 1, words, executions)
        self._last.clear()
        executable.record_executions(executions, programs=ran)

    def _fill(self, item: Step | Block, times: int, words: Int64, into: Int64) -> None:
        """Note that a part of a program ran a number of times."""
        if isinstance(item, Step):
            into[item.index] = times
            return
        for inner, count in zip(item.items, self._times(item, times, words), strict=True):
            self._fill(inner, count, words, into)

    def _times(self, block: Block, times: int, words: Int64) -> list[int]:
        """How often each item of a block ran. What is counted over all calls of a function is dealt out evenly.

        What host kernels stand for is not counted: it stays as the compiler assumes.
        """
        counts = words[self._ways[block.node]].tolist() if block.node in self._ways else []
        match block.kind:
            case "repeat":
                return [times * block.count] * len(block.items)
            case "while":
                trips = round(times * counts[TRIP] / counts[ENTRY]) if counts[ENTRY] else times
                return [times + trips, times + trips, trips]
            case "if":
                entries = sum(counts)
                if not entries:
                    return [times, *([0] * (len(block.items) - 1))]
                return [round(times * count / entries) for count in counts]
            case _:
                return [times] * len(block.items)


def _num_ways(node: Program) -> int:
    match node:
        case If() | RepeatWhile():
            return 2
        case Switch():
            return len(node.cases) + 1
        case _:
            return 0
