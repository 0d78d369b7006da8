"""The program tree: what a report knows of control programs, as columns, and one node of it as an object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, nearest
from abele.pva.compute_sets import ComputeSet, UsedVariables, used_variables
from abele.pva.missing import missing
from abele.pva.program_nodes import NodeType, ProgramNodes
from abele.pva.sequences import LazySequence
from abele.pva.tiles import OperationCategories, own_code
from abele.pva.variables import Location, text_at
from abele.report.text import full_name

if TYPE_CHECKING:
    from abele.pva.reports import Report


class ProgramType(Enum):
    """Kind of a program. The names are libpva's but for ``Block``, ``LibraryCall``, ``RepeatWhile``, ``Control``."""

    Sequence = NodeType.SEQUENCE
    Block = NodeType.BLOCK
    OnTileExecute = NodeType.ON_TILE_EXECUTE
    DoExchange = NodeType.DO_EXCHANGE
    GlobalExchange = NodeType.GLOBAL_EXCHANGE
    StreamCopyMid = NodeType.STREAM_COPY_MID
    Control = NodeType.CONTROL
    Repeat = NodeType.REPEAT
    RepeatWhile = NodeType.REPEAT_WHILE
    If = NodeType.IF
    Switch = NodeType.SWITCH
    Call = NodeType.CALL
    LibraryCall = NodeType.LIBRARY_CALL
    Sync = NodeType.SYNC
    WriteUndef = NodeType.WRITE_UNDEF


class ProgramVisitor:
    """A method for each type of program, which does nothing until a subclass says what.

    ``program.accept(visitor)`` calls the method of that program, and of no other: a visitor that wants the whole tree
    is given every program of ``compilation.programs``, or of ``program.walk()``.
    """

    def visitSequence(self, program: Program) -> None:
        """Programs one after the other; control programs and functions are sequences, too."""

    def visitBlock(self, program: Program) -> None:
        """A named part of a program."""

    def visitOnTileExecute(self, program: Program) -> None:
        """Tiles run vertices, or arrange what arrived."""

    def visitDoExchange(self, program: Program) -> None:
        """Tiles of a replica send each other data."""

    def visitGlobalExchange(self, program: Program) -> None:
        """Replicas send each other data."""

    def visitStreamCopyMid(self, program: Program) -> None:
        """Tiles exchange data with the host or with streaming memory."""

    def visitControl(self, program: Program) -> None:
        """A decision, or another step that steers the program."""

    def visitSync(self, program: Program) -> None:
        """A barrier."""

    def visitRepeat(self, program: Program) -> None:
        """A loop with a number of trips."""

    def visitRepeatWhile(self, program: Program) -> None:
        """A loop that data ends."""

    def visitIf(self, program: Program) -> None:
        """A branch of two ways."""

    def visitSwitch(self, program: Program) -> None:
        """A branch of several ways."""

    def visitCall(self, program: Program) -> None:
        """A call of a function."""

    def visitLibraryCall(self, program: Program) -> None:
        """Visit a program that a library function made."""

    def visitWriteUndef(self, program: Program) -> None:
        """The end of a value's life."""


class Program:
    """A node of the program tree: a control program, a block in it, or a step.

    Attributes:
        Type: The types that there are, for ``pva.Program.Type.OnTileExecute``.
    """

    Type: ClassVar[type[ProgramType]] = ProgramType
    __slots__ = ("_id", "_nodes")

    def __init__(self, nodes: ProgramNodes, node: int) -> None:
        self._nodes = nodes
        self._id = node

    @property
    def type(self) -> ProgramType:
        """Kind of the program."""
        return ProgramType(NodeType(int(self._nodes.type[self._id])))

    @property
    def name(self) -> str:
        """Name of the step with its scopes, of the block, or of the control program."""
        return self._nodes.name(self._id)

    @property
    def row(self) -> int:
        """Row of the report's steps table that it is, -1 for sequences and blocks."""
        return int(self._nodes.row[self._id])

    @property
    def kind(self) -> str:
        """The report's own word for a step: one of ``abele.report.STEP_KINDS``; empty for sequences and blocks."""
        return self._text("kind")

    @property
    def partner(self) -> str:
        """Partner of an exchange besides tiles of the replica: one of the report's words, empty for none."""
        return self._text("partner")

    @property
    def executions(self) -> int:
        """Executions of a step in one run of its control program, whoever calls its function; 0 for others."""
        if self.row < 0:
            return 0
        here = self._nodes.of_step == self._id
        return int(self._nodes.report.steps["executions"][here].sum())

    @property
    def count(self) -> int:
        """Trips of a ``Repeat`` for each time that it is entered; 1 for others."""
        return int(self._nodes.report.program_tree["count"][self._source]) if self._source >= 0 else 1

    @property
    def location(self) -> Location:
        """The user's line: that of the node, or of the operation that a step belongs to."""
        if self._source >= 0:
            tree = self._nodes.report.program_tree
            return Location(text_at(tree.columns, "file", self._source), int(tree["line"][self._source]))
        operation = self.operation
        return Location("", 0) if operation is None else operation.debugContext.location

    @property
    def function(self) -> Program:
        """The function that a ``Call`` runs.

        Raises:
            MissingDatumError: The program is of another type, or the report does not say.
        """
        called = self._nodes.functions_of(np.array([self._id]))
        if not len(called):
            raise missing(f"a function of a {self.type.name}")
        return Program(self._nodes, int(called[0]))

    @property
    def computeset(self) -> ComputeSet:
        """Compute set that an ``OnTileExecute`` runs.

        Raises:
            MissingDatumError: The program is of another type.
        """
        if self.type is not ProgramType.OnTileExecute:
            raise missing(f"a compute set of a {self.type.name}")
        return ComputeSet(self._nodes.report, self.row)

    @property
    def vars(self) -> UsedVariables:
        """The variables that a step reads or writes.

        Raises:
            MissingDatumError: The program is no step, or the report is of a version that does not say.
        """
        if self.row < 0:
            raise missing(f"the variables of a {self.type.name}", remedy="those of the steps in it: program.walk()")
        return used_variables(self._nodes.report, self.row)

    @property
    def operation(self) -> Operation | None:
        """Operation of a step, with the user's source line; None for none."""
        row = -1 if self.row < 0 else int(self._nodes.report.steps["op"][self.row])
        return None if row < 0 else Operation(self._nodes, row)

    @property
    def _source(self) -> int:
        return int(self._nodes.columns.source[self._id])

    def children(self) -> Programs:
        """The programs that it is made of, in order: of a ``Call`` the function, of a step none."""
        called = self._nodes.functions_of(np.array([self._id]))
        return Programs(self._nodes, called if len(called) else self._nodes.children(self._id))

    def walk(self) -> Iterator[Program]:
        """It and all programs below, each before its children; then each function that is called there, once."""
        begun, waiting = {self._id}, [self._id]
        while waiting:
            inside = self._nodes.subtree(waiting.pop(0))
            yield from Programs(self._nodes, inside)
            for called in self._nodes.functions_of(inside).tolist():
                if called not in begun:
                    begun.add(called)
                    waiting.append(called)

    def accept(self, visitor: ProgramVisitor) -> None:
        """Call the visitor's method for this type of program."""
        getattr(visitor, f"visit{self.type.name}")(self)

    def _text(self, column: str) -> str:
        return "" if self.row < 0 else text_at(self._nodes.report.steps.columns, column, self.row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and other._nodes is self._nodes and other._id == self._id

    def __hash__(self) -> int:
        return hash((id(self._nodes), self._id))

    def __repr__(self) -> str:
        return f"Program({self.type.name}, {self.name!r})"


class Programs(LazySequence[Program]):
    """Programs of a report.

    Args:
        nodes: The tree.
        which: Nodes, int64[n].
    """

    def __init__(self, nodes: ProgramNodes, which: Int64) -> None:
        super().__init__(which, lambda node: Program(nodes, node), "program")
        self._nodes = nodes

    @property
    def steps(self) -> Int64:
        """Rows of the steps table that they are, int64[n]; -1 for sequences and blocks."""
        return self._nodes.row[self.rows]

    def of_type(self, type: ProgramType | str) -> Programs:
        """Those of one type.

        Args:
            type: A type, or its name.

        Raises:
            InvalidOptionError: There is no such type.
        """
        names = [each.name for each in ProgramType]
        name = type.name if isinstance(type, ProgramType) else type
        if name not in names:
            close = nearest(name, names)
            raise InvalidOptionError(
                f"no type of program is called {name!r}",
                remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(names),
            )
        rows = self.rows
        return self._picked(rows[self._nodes.type[rows] == ProgramType[name].value])

    def named(self, part: str) -> Programs:
        """Programs whose name contains a text."""
        rows = self.rows
        return self._picked(rows[np.isin(self._nodes.columns.name_codes[rows], self._nodes.codes_with(part))])


# Operations: the results of the user's lines of code, and their costs.


class DebugContext:
    """Origin of an operation.

    Attributes:
        name: Its name with the scopes around it.
        location: The user's line.
        json: All of it as a JSON object: ``name``, ``category``, ``path``, ``fileName``, ``lineNumber``.
    """

    __slots__ = ("json", "location", "name")

    def __init__(self, name: str, category: str, path: str, location: Location) -> None:
        self.name = full_name(path, name)
        self.location = location
        told = {"name": name, "category": category, "path": path}
        self.json = json.dumps(told | {"fileName": location.fileName, "lineNumber": location.lineNumber})


class Operation:
    """A call of a library, a compute set or a copy of the user's: one row of the report's ops table."""

    __slots__ = ("_nodes", "row")

    def __init__(self, nodes: ProgramNodes, row: int) -> None:
        self._nodes = nodes
        self.row = row

    @property
    def name(self) -> str:
        """Name of the operation."""
        return self._text("name")

    @property
    def kind(self) -> str:
        """The library call, as in ``poplin.matmul``; ``compute set`` or ``copy`` otherwise."""
        return self._text("kind")

    @property
    def debugContext(self) -> DebugContext:
        """Origin of the operation: its name, scopes and source line."""
        location = Location(self._text("file"), self._number("line"))
        return DebugContext(self.name, self.kind, self._text("path"), location)

    @property
    def replacedDebugContext(self) -> None:
        """None: operations are told as the user wrote them, also where another form of them was compiled."""
        return

    @property
    def cycles(self) -> int:
        """Modelled cycles in one run of the program."""
        return self._number("cycles")

    @property
    def flops(self) -> int:
        """Floating-point operations in one run."""
        return self._number("flops")

    @property
    def codeSize(self) -> int:
        """Bytes of the vertex code of its codelets."""
        return self._number("code_bytes")

    @property
    def category(self) -> OperationCategories:
        """Bytes of its state and code over all tiles: what several share counts for the first."""
        return OperationCategories(self._nodes.report, self.row)

    @property
    def programs(self) -> Programs:
        """Steps of the operation."""
        nodes = self._nodes
        return Programs(nodes, np.unique(nodes.of_step[nodes.report.steps["op"] == self.row]))

    def _text(self, column: str) -> str:
        return text_at(self._nodes.report.ops.columns, column, self.row)

    def _number(self, column: str) -> int:
        return int(self._nodes.report.ops[column][self.row])

    def __repr__(self) -> str:
        return f"Operation({self.name!r}, {self.cycles:,} cycles)"


class Operations(LazySequence[Operation]):
    """Operations of a program.

    Args:
        nodes: The program tree.
    """

    def __init__(self, nodes: ProgramNodes) -> None:
        super().__init__(len(nodes.report.ops), lambda row: Operation(nodes, row), "operation")
        self._nodes = nodes

    def category(self, name: str, tile: int | None = None) -> Int64:
        """Bytes of one category of state or code of each, int64[n]; their sum is that of the tiles.

        Args:
            name: ``vertexInstanceState``, ``vertexCode``, ``controlCode`` or ``internalExchangeCode``.
            tile: Bytes on this tile; by default over all tiles.

        Raises:
            MissingDatumError: Operations have no bytes of it.
            InvalidOptionError: There is no such tile.
        """
        own = own_code(name)
        report = self._nodes.report
        if tile is None:
            return report.ops[f"{own}_bytes"][self.rows]
        on, found = report.code_on(tile), np.zeros(len(report.ops), dtype=np.int64)
        found[on["op"]] = on[own]
        return found[self.rows]

    def column(self, name: str) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """A column of the report's ops table for each, as in ``cycles`` or ``flops``.

        Raises:
            InvalidOptionError: There is no such column.
        """
        return self._nodes.report.ops[name][self.rows]


class OperationAnalysis:
    """The operations of a report.

    Args:
        report: Result of ``openReport``.

    Attributes:
        operations: One for each library call, compute set and copy of the user's.
    """

    def __init__(self, report: Report) -> None:
        self.operations = Operations(report.nodes)
