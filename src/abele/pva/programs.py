"""The program tree: what a report knows of control programs, as columns, and one node of it as an object."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.errors import InvalidOptionError, nearest
from abele.pva.missing import missing
from abele.pva.names import text_at
from abele.pva.program_nodes import NodeType, ProgramNodes
from abele.pva.sequences import Int64, LazySequence

if TYPE_CHECKING:
    from abele.pva.operations import Operation


class ProgramType(Enum):
    """What a program does. The names are libpva's but for ``Block`` and ``Control``."""

    Sequence = NodeType.SEQUENCE
    Block = NodeType.BLOCK
    OnTileExecute = NodeType.ON_TILE_EXECUTE
    DoExchange = NodeType.DO_EXCHANGE
    GlobalExchange = NodeType.GLOBAL_EXCHANGE
    StreamCopyMid = NodeType.STREAM_COPY_MID
    Control = NodeType.CONTROL


class ProgramVisitor:
    """A method for each type of program, which does nothing until a subclass says what.

    ``program.accept(visitor)`` calls the method of that program, and of no other: a visitor that wants the whole tree
    is given every program of ``compilation.programs``, or of ``program.walk()``.
    """

    def visitSequence(self, program: Program) -> None:
        """A control program: what one index of ``engine.run`` runs."""

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
        """A decision, a barrier, or another step that steers the program."""


class ComputeSet:
    """What a step runs on the tiles.

    Attributes:
        name: Its name with scopes.
        numVertices: Vertices that one execution runs.
        numActiveTiles: Tiles that have something to compute.
    """

    def __init__(self, name: str, num_vertices: int, num_active_tiles: int) -> None:
        self.name = name
        self.numVertices = num_vertices
        self.numActiveTiles = num_active_tiles

    @property
    def vertices(self) -> Any:
        """Not in a report of this version.

        Raises:
            MissingDatumError: Always.
        """
        raise missing("the vertices of compute sets", remedy="computeset.numVertices")


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
        """What it does."""
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
        """What a step exchanges data with beside tiles of its replica: one of the report's words, empty for nothing."""
        return self._text("partner")

    @property
    def executions(self) -> int:
        """How often a step is executed in one run of its control program; 1 for sequences, 0 for blocks."""
        if self.row < 0:
            return int(self.type is ProgramType.Sequence)
        return int(self._nodes.report.steps["executions"][self.row])

    @property
    def computeset(self) -> ComputeSet:
        """What an ``OnTileExecute`` runs.

        Raises:
            MissingDatumError: The program is of another type.
        """
        if self.type is not ProgramType.OnTileExecute:
            raise missing(f"a compute set of a {self.type.name}")
        steps = self._nodes.report.steps
        return ComputeSet(self.name, int(steps["num_vertices"][self.row]), int(steps["active_tiles"][self.row]))

    @property
    def vars(self) -> Any:
        """Not in a report of this version.

        Raises:
            MissingDatumError: Always.
        """
        raise missing("which variables a program uses", remedy="livenessProgramSteps tells which are live")

    @property
    def operation(self) -> Operation | None:
        """The operation that a step belongs to, which knows the user's source line; None for none."""
        from abele.pva.operations import Operation

        row = -1 if self.row < 0 else int(self._nodes.report.steps["op"][self.row])
        return None if row < 0 else Operation(self._nodes, row)

    def children(self) -> Programs:
        """The programs that it is made of, in order; none of a step."""
        return Programs(self._nodes, self._nodes.children(self._id))

    def walk(self) -> Iterator[Program]:
        """It and all programs below, each before its children."""
        return iter(Programs(self._nodes, self._nodes.subtree(self._id)))

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
        """Those whose name contains a text."""
        rows = self.rows
        return self._picked(rows[np.isin(self._nodes.name_codes[rows], self._nodes.codes_with(part))])
