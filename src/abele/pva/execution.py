"""Results of running: runs, steps, blocks, cycles."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, nearest
from abele.pva.missing import missing
from abele.pva.program_nodes import ProgramNodes
from abele.pva.programs import Program
from abele.pva.sequences import LazySequence
from abele.pva.steps import AllSteps, RunContext, RunSteps, Step, group_of_tile
from abele.pva.variables import text_at

# Runs of blocks: from when to when a sync group is in a named part of the program.


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


class TotalCycles:
    """Cycles of all runs.

    Attributes:
        total: Their sum; 0 when nothing ran.
    """

    __slots__ = ("total",)

    def __init__(self, total: int) -> None:
        self.total = total


class Contexts:
    """Contexts of the runs of each control program, made when one is asked for.

    Args:
        nodes: The program tree.
    """

    def __init__(self, nodes: ProgramNodes) -> None:
        self.nodes = nodes
        self._made: dict[int, RunContext] = {}

    def of(self, program: int) -> RunContext:
        """Context shared by all runs of a program."""
        if program not in self._made:
            self._made[program] = RunContext(self.nodes, program)
        return self._made[program]


class Run:
    """Run of a control program: a recorded one, or the run that the report models.

    Attributes:
        name: Name of what was run.
        cycles: Modelled cycles; 0 for a run that did not end.
        cyclesFrom: Cycle at which it starts: runs are counted one behind the other.
    """

    def __init__(self, contexts: Contexts, program: int, name: str, cycles: int, begin: int, number: int) -> None:
        self._contexts = contexts
        self._program = program
        self._number = number
        self.name = name
        self.cycles = cycles
        self.cyclesFrom = begin

    @property
    def cyclesTo(self) -> int:
        """Cycle at which it ends."""
        return self.cyclesFrom + self.cycles

    @property
    def program(self) -> Program:
        """The control program that ran."""
        nodes = self._contexts.nodes
        return Program(nodes, nodes.root_of(self._program))

    @property
    def steps(self) -> RunSteps:
        """Executions of steps in the run, as far as the report holds them, in order of their starts.

        Raises:
            MissingDatumError: The steps of a run depend on data, and the report holds those of another run; or the
                run did not end.
        """
        self._check()
        return RunSteps(self._contexts.of(self._program), self.cyclesFrom)

    def blocks(self, tile: int = 0) -> Blocks:
        """From when to when a tile is in which block.

        Args:
            tile: The tile.

        Raises:
            InvalidOptionError: There is no such tile.
            MissingDatumError: The report does not say to which sync group the tile belongs; or as for ``steps``.
        """
        nodes = self._contexts.nodes
        if not 0 <= tile < nodes.report.memory.num_tiles:
            raise InvalidOptionError(
                f"no tile {tile:,}", remedy=f"tiles are numbered 0 to {nodes.report.memory.num_tiles - 1:,}"
            )
        return self._blocks(group_of_tile(nodes, self._program, tile))

    def blocksOfGroup(self, name: str) -> Blocks:
        """From when to when a sync group is in which block.

        Args:
            name: The sync group, as in ``IPU 0``.

        Raises:
            InvalidOptionError: It takes no part in this program.
            MissingDatumError: As for ``steps``.
        """
        groups = self._contexts.nodes.report.groups
        rows = np.flatnonzero(groups["program"] == self._program)
        names = groups["name"][rows].tolist()
        if name not in names:
            close = nearest(name, names)
            raise InvalidOptionError(
                f"no sync group of the program is called {name!r}",
                remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(map(repr, names)),
            )
        return self._blocks(int(rows[names.index(name)]))

    def _blocks(self, group: int) -> Blocks:
        return Blocks(self._contexts.nodes, *self.block_columns(group))

    def block_columns(self, group: int) -> Columns:
        """Block, begin and end of the runs of blocks on a row of the groups table, int64[n] each; none for -1."""
        self._check()
        if group < 0:
            none = np.zeros(0, np.int64)
            return none, none, none
        return blocks_of(self._contexts.of(self._program), group, self.cyclesFrom)

    def _check(self) -> None:
        if self._number and not self.cycles:
            raise missing(f"the steps of run {self._number:,}, which did not end")
        if self._number and not self._is_told():
            raise missing(
                f"the steps of run {self._number:,}: data decides which steps it took, and the report tells those of a "
                "later one",
                remedy="the last run of each program has its steps",
            )

    def _is_told(self) -> bool:
        """True if the report's steps are those of this run: it is the last of its program, or data decides nothing."""
        report, context = self._contexts.nodes.report, self._contexts.of(self._program)
        if self.cycles != int(report.cycles(self._program).total):
            return False
        return context.last_run == self._number or not context.data_decides

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self.cycles:,} cycles)"


class Execution:
    """Result of running a program: modelled cycles of the recorded runs.

    Args:
        nodes: The program tree of the report.
    """

    def __init__(self, nodes: ProgramNodes) -> None:
        self._nodes = nodes
        self._report = nodes.report
        self._contexts = Contexts(nodes)

    @property
    def totalCycles(self) -> TotalCycles:
        """Cycles of all recorded runs together."""
        return TotalCycles(int(self._report.runs["cycles"].sum()))

    @cached_property
    def runs(self) -> LazySequence[Run]:
        """The recorded runs, in order."""
        table = self._report.runs
        begin = np.cumsum(table["cycles"]) - table["cycles"]

        def make(row: int) -> Run:
            name, program = text_at(table.columns, "name", row), int(table["program"][row])
            return Run(self._contexts, program, name, int(table["cycles"][row]), int(begin[row]), row + 1)

        return LazySequence(len(table), make, "run")

    @cached_property
    def modelled(self) -> LazySequence[Run]:
        """One run of each control program as the report models it, also where nothing ran."""
        nodes = self._nodes

        def make(row: int) -> Run:
            root = Program(nodes, int(nodes.roots[row]))
            program = int(nodes.columns.programs[row])
            return Run(self._contexts, program, root.name, int(self._report.cycles(program).total), 0, 0)

        return LazySequence(len(nodes.roots), make, "control program")

    @property
    def steps(self) -> LazySequence[Step]:
        """The steps of all runs, one run after the other.

        Raises:
            MissingDatumError: The report does not hold the steps of one of them.
        """
        return AllSteps([run.steps for run in self.runs])

    def blocks(self, tile: int = 0) -> Blocks:
        """From when to when a tile is in which block, over all runs.

        Args:
            tile: The tile.

        Raises:
            InvalidOptionError: There is no such tile.
            MissingDatumError: The report does not say to which sync group the tile belongs, or does not hold the steps
                of a run.
        """
        parts = [run.blocks(tile) for run in self.runs]
        columns = ([p.programIds for p in parts], [p.cyclesFrom for p in parts], [p.cyclesTo for p in parts])
        return Blocks(self._nodes, *(np.concatenate([np.zeros(0, np.int64), *column]) for column in columns))
