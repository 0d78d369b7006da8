"""Runs of blocks: from when to when a sync group is in a named part of the program."""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.pva.program_nodes import ProgramNodes
from abele.pva.programs import Program
from abele.pva.sequences import LazySequence
from abele.pva.steps import RunContext


class Block:
    """One run of a block.

    Attributes:
        program: The block.
        cyclesFrom: Cycle at which its first step starts.
        cyclesTo: Cycle at which its last step ends.
    """

    __slots__ = ("cyclesFrom", "cyclesTo", "program")

    def __init__(self, program: Program, begin: int, end: int) -> None:
        self.program = program
        self.cyclesFrom = begin
        self.cyclesTo = end

    def __repr__(self) -> str:
        return f"Block({self.program.name!r}, {self.cyclesFrom:,} to {self.cyclesTo:,})"


class Blocks(LazySequence[Block]):
    """Runs of blocks in order of when they start, outer ones first: objects one by one, or arrays of all.

    Args:
        nodes: The program tree.
        node: The block of each, int64[n].
        begin: Start of each in cycles, int64[n].
        end: End of each in cycles, int64[n].
    """

    def __init__(self, nodes: ProgramNodes, node: Int64, begin: Int64, end: Int64) -> None:
        def make(row: int) -> Block:
            return Block(Program(nodes, int(node[row])), int(begin[row]), int(end[row]))

        super().__init__(len(node), make, "block")
        self._node, self._begin, self._end = node, begin, end

    @property
    def programIds(self) -> Int64:
        """Place of the block of each in ``compilation.programs``, int64[n]."""
        return self._node[self.rows]

    @property
    def cyclesFrom(self) -> Int64:
        """Start of each block in cycles, int64[n]."""
        return self._begin[self.rows]

    @property
    def cyclesTo(self) -> Int64:
        """End of each block in cycles, int64[n]."""
        return self._end[self.rows]


Columns = tuple[Int64, Int64, Int64]


def blocks_of(context: RunContext, group: int, origin: int) -> Columns:
    """Block, begin and end of each run of a block on a sync group, int64[n] each.

    What follows each other in one block is one run of it; where the step comes again that the run began with, the next
    run begins. A group that does no more in a block than meet others at exchanges with the host does not run it: it may
    only wait there.

    Args:
        context: The program's.
        group: Row of the groups table.
        origin: Cycle at which the run of the program starts.
    """
    nodes, table = context.nodes, context.nodes.report.spans
    rows = np.flatnonzero(table["group"] == group)
    rows = rows[np.argsort(table["start_cycle"][rows], kind="stable")]
    step = table["step"][rows].astype(np.int64)
    begin = table["start_cycle"][rows]
    end = begin + table["cycles"][rows]
    works = ~context.is_wait[step]
    found: list[Columns] = [_at_depth(level[step], step, begin, end, works) for level in nodes.blocks]
    node, first, last = (
        np.concatenate([np.zeros(0, np.int64), *parts]) for parts in (zip(*found, strict=True) if found else ([],) * 3)
    )
    order = np.lexsort((node, first))
    return node[order], first[order] + origin, last[order] + origin


def _at_depth(
    block: Int64, step: Int64, begin: Int64, end: Int64, works: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Columns:
    """The runs of the blocks of one nesting depth; arguments are of spans in order of time."""
    if not len(block):
        return block, begin, end
    enters = np.ones(len(block), bool)
    enters[1:] = block[1:] != block[:-1]
    # The step that each stretch in a block begins with.
    leader = step[np.maximum.accumulate(np.where(enters, np.arange(len(step)), 0))]
    first = np.flatnonzero(enters | (step == leader))
    last = np.append(first[1:], len(block)) - 1
    runs = (block[first] >= 0) & np.logical_or.reduceat(works, first)
    return block[first][runs], begin[first][runs], end[last][runs]
