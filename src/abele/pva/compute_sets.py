"""Compute sets of steps: the vertices that run on the tiles, and the variables used."""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.pva.missing import missing
from abele.pva.sequences import LazySequence
from abele.pva.variables import Variable, Variables, text_at
from abele.report import Report, Table
from abele.report.relations import rows_of


class VertexGroup:
    """The vertices of one codelet in a compute set.

    Attributes:
        row: Row of the report's ``vertices`` table.
    """

    __slots__ = ("_report", "row")

    def __init__(self, report: Report, row: int) -> None:
        self._report = report
        self.row = row

    @property
    def name(self) -> str:
        """Name of the codelet."""
        return text_at(self._report.codelets.columns, "name", int(self._report.vertices["codelet"][self.row]))

    @property
    def count(self) -> int:
        """Number of vertices in the group."""
        return int(self._report.vertices["num_vertices"][self.row])

    @property
    def numTiles(self) -> int:
        """Tiles that they are on."""
        return int(self._report.vertices["tiles"][self.row])

    @property
    def maxCycles(self) -> int:
        """Cycles of the slowest one."""
        return int(self._report.vertices["max_cycles"][self.row])

    def __repr__(self) -> str:
        return f"VertexGroup({self.count:,} x {self.name})"


class VertexGroups(LazySequence[VertexGroup]):
    """The vertices of a compute set, codelet by codelet.

    Args:
        report: The report.
        rows: Rows of its ``vertices`` table, int64[n].
    """

    def __init__(self, report: Report, rows: Int64) -> None:
        super().__init__(rows, lambda row: VertexGroup(report, row), "codelet")
        self._report = report

    @property
    def counts(self) -> Int64:
        """Vertices of each codelet, int64[n]."""
        return np.asarray(self._report.vertices["num_vertices"][self.rows], dtype=np.int64)


class ComputeSet:
    """Compute set that an ``OnTileExecute`` runs.

    Args:
        report: The report.
        row: Row of its steps table.
    """

    __slots__ = ("_report", "_row")

    def __init__(self, report: Report, row: int) -> None:
        self._report = report
        self._row = row

    @property
    def name(self) -> str:
        """Name of the compute set with scopes."""
        return text_at(self._report.steps.columns, "name", self._row)

    @property
    def numVertices(self) -> int:
        """Vertices that one execution runs; none where data is arranged."""
        return int(self._report.steps["num_vertices"][self._row])

    @property
    def numActiveTiles(self) -> int:
        """Tiles that have something to compute."""
        return int(self._report.steps["active_tiles"][self._row])

    @property
    def vertices(self) -> VertexGroups:
        """Its vertices, codelet by codelet; none where data is arranged.

        Raises:
            MissingDatumError: The report is of a version that does not say.
        """
        rows = np.zeros(0, np.int64)
        if self.numVertices:
            if not len(self._report.vertices):
                raise missing("the vertices of compute sets here: it is of an earlier version")
            rows = _rows(self._report.vertices, int(self._report.steps["superstep"][self._row]))
        return VertexGroups(self._report, rows)

    def __repr__(self) -> str:
        return f"ComputeSet({self.name!r}, {self.numVertices:,} vertices)"


class UsedVariable(Variable):
    """A variable that a step touches.

    Attributes:
        readBytes: Bytes of it that the step may read.
        writtenBytes: Bytes of it that the step writes.
    """

    __slots__ = ("readBytes", "writtenBytes")

    def __init__(self, report: Report, row: int, read_bytes: int, written_bytes: int) -> None:
        super().__init__(report, row)
        self.readBytes = read_bytes
        self.writtenBytes = written_bytes


class UsedVariables(LazySequence[UsedVariable]):
    """The variables that a step touches.

    Args:
        report: The report.
        rows: Rows of its ``superstep_variables`` table, int64[n].
    """

    def __init__(self, report: Report, rows: Int64) -> None:
        table = report.superstep_variables

        def make(row: int) -> UsedVariable:
            read, written = int(table["read_bytes"][row]), int(table["written_bytes"][row])
            return UsedVariable(report, int(table["variable"][row]), read, written)

        super().__init__(rows, make, "variable")
        self._report = report

    @property
    def variables(self) -> Variables:
        """Variables that are used, without their uses, with their arrays."""
        return Variables(self._report, self._report.superstep_variables["variable"][self.rows].astype(np.int64))


def used_variables(report: Report, row: int) -> UsedVariables:
    """Variables that a step touches, with those of its exchange and of its rearrangements.

    Args:
        report: The report.
        row: Row of its steps table.

    Raises:
        MissingDatumError: The report is of a version that does not say.
    """
    table = report.superstep_variables
    if not len(table):
        raise missing("which variables a step uses here", remedy="livenessProgramSteps tells which are live")
    return UsedVariables(report, _rows(table, int(report.steps["superstep"][row])))


def _rows(table: Table, superstep: int) -> Int64:
    """Rows of a relation that belong to a superstep, int64[n]."""
    found = rows_of(table, "superstep", superstep)
    return np.arange(found.start, found.stop)
