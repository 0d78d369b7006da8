"""Operations: the results of the user's lines of code, and their costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.pva.locations import Location
from abele.pva.names import text_at
from abele.pva.program_nodes import ProgramNodes
from abele.pva.programs import Programs
from abele.pva.sequences import LazySequence

if TYPE_CHECKING:
    from abele.pva.reports import Report


class DebugContext:
    """Origin of an operation.

    Attributes:
        name: Its name with the scopes around it.
        location: The user's line.
        json: All of it as a JSON object: ``name``, ``category``, ``path``, ``fileName``, ``lineNumber``.
    """

    __slots__ = ("json", "location", "name")

    def __init__(self, name: str, category: str, path: str, location: Location) -> None:
        self.name = f"{path}/{name}" if path else name
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
