"""Options of a picture of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from abele.errors import InvalidOptionError
from abele.report.programs import num_programs
from abele.words import counted

if TYPE_CHECKING:
    from abele.report.report import Report


@dataclass(frozen=True, kw_only=True)
class PlotOptions:
    """Choices of a picture.

    Attributes:
        program: Index of the program whose cycles are shown.
        top: Operations or exchange phases that are listed.
        first: First cycle of the time axis.
        cycles: Cycles of the time axis; None for as many as the report holds.
    """

    program: int = 0
    top: int = 12
    first: int = 0
    cycles: int | None = None

    def check(self, report: Report) -> None:
        """Check the choices against a report.

        Raises:
            InvalidOptionError: One is out of its range.
        """
        known = num_programs(report)
        if not 0 <= self.program < known:
            raise InvalidOptionError(f"there is no program {self.program}: the report has {counted(known, 'program')}")
        if self.top < 1:
            raise InvalidOptionError(f"top = {self.top}: must be at least 1")
        if self.first < 0 or (self.cycles is not None and self.cycles < 1):
            raise InvalidOptionError(f"no cycles from {self.first:,} to {self.first + (self.cycles or 0):,} to show")
