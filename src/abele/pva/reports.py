"""A report under libpva's names."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from abele.pva.compilation import Compilation
from abele.pva.execution import Execution
from abele.pva.missing import missing
from abele.pva.program_nodes import ProgramNodes
from abele.report import Report as Columns
from abele.report.file import KIND


class Version:
    """The version of the report format."""

    major: int = KIND.version
    minor: int = 0
    point: int = 0

    @property
    def isUnstableFormat(self) -> bool:
        """False: earlier reports stay readable."""
        return False


class PoplarVersion:
    """Version of the compiler: Abele, under the name that libpva has for it.

    Attributes:
        string: Abele's version, as in ``0.1.0``; empty when the report does not say.
    """

    def __init__(self, string: str) -> None:
        self.string = string

    def _number(self, place: int) -> int:
        parts = self.string.split(".")
        return int(parts[place]) if len(parts) > place and parts[place].isdecimal() else 0

    @property
    def major(self) -> int:
        """The first number of the version."""
        return self._number(0)

    @property
    def minor(self) -> int:
        """The second."""
        return self._number(1)

    @property
    def point(self) -> int:
        """The third."""
        return self._number(2)

    @property
    def packageHash(self) -> str:
        """Not in a report.

        Raises:
            MissingDatumError: Always.
        """
        raise missing("the hash of a package", remedy="poplarVersion.string is Abele's version")


class InstrumentationSettings:
    """Instrumentation of a program. Cycles are modelled, for every step and tile, and add nothing to the program."""

    def __init__(self, host_profile: bool) -> None:
        self._host_profile = host_profile

    @property
    def computeInstrumentation(self) -> bool:
        """False: no cycle counters were added to the program."""
        return False

    @property
    def externalExchangeInstrumentation(self) -> bool:
        """False, as above."""
        return False

    @property
    def hostProfile(self) -> bool:
        """True if the report holds what runs took on the host."""
        return self._host_profile


class Report:
    """A report under libpva's names.

    Args:
        columns: The report; :attr:`columns` gives it back, with all that libpva has no name for.

    Attributes:
        columns: The ``abele.report.Report`` underneath.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    @cached_property
    def nodes(self) -> ProgramNodes:
        """The program tree as columns."""
        return ProgramNodes(self.columns)

    @cached_property
    def compilation(self) -> Compilation:
        """Result of compiling."""
        return Compilation(self.nodes)

    @cached_property
    def execution(self) -> Execution:
        """Result of running; without runs where none was recorded."""
        return Execution(self.nodes)

    @property
    def poplarVersion(self) -> PoplarVersion:
        """Version of the compiler."""
        return PoplarVersion(str(self.columns.meta.get("abele_version", "")))

    @property
    def version(self) -> Version:
        """The version of the report format."""
        return Version()

    @property
    def instrumentationSettings(self) -> InstrumentationSettings:
        """Instrumentation of the program."""
        return InstrumentationSettings(len(self.columns.host_leaves) > 0)

    def __repr__(self) -> str:
        return f"pva.Report({self.columns!r})"


def openReport(file: str | Path | Columns, debugFile: str | Path | None = None) -> Report:
    """A report under libpva's names.

    Columns of a large file are read when they are asked for.

    Args:
        file: A report file, or a report that is in memory.
        debugFile: As in libpva, and not read: our reports hold source lines themselves.

    Raises:
        FileFormatError: The file is missing, damaged, cut short, written by a newer version, or no report.
    """
    return Report(file if isinstance(file, Columns) else Columns.load(file))
