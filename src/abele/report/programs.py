"""Programs of a report: their number, and their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from abele.errors import InvalidOptionError
from abele.words import visible

if TYPE_CHECKING:
    from abele.report.report import Report


def num_programs(report: Report) -> int:
    """Programs that are named or have steps or sync groups; at least one."""
    used = (int(table["program"].max(initial=-1)) + 1 for table in (report.steps, report.groups))
    return max(len(report.meta.get("programs") or ()), *used, 1)


def program_name(report: Report, program: int) -> str:
    """The name of a program; empty where the report does not say."""
    names = report.meta.get("programs") or ()
    return visible(str(names[program])) if 0 <= program < len(names) else ""


def check_program(report: Report, program: int, title: str = "the report") -> None:
    """Check that a report has a program.

    Args:
        report: The report.
        program: Index of the program.
        title: Name of the report in the error.

    Raises:
        InvalidOptionError: It has no such program.
    """
    known = num_programs(report)
    if not 0 <= program < known:
        raise InvalidOptionError(
            f"{title} has no program {program}", remedy=f"its programs are numbered 0 to {known - 1}"
        )
