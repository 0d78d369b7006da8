"""Programs of a report: named ones, and those known by their steps alone."""

from __future__ import annotations

import pytest

from abele.errors import InvalidOptionError
from abele.report import Report
from abele.report.programs import check_program, num_programs, program_name


def test_programs__named_and_with_steps__are_counted_by_the_most(report: Report) -> None:
    named = list(report.meta.get("programs", ()))
    assert num_programs(report) == max(len(named), int(report.steps["program"].max(initial=-1)) + 1, 1)
    assert program_name(report, 0) == (named[0] if named else "")
    assert program_name(report, 10**9) == ""


@pytest.mark.parametrize("program", [-1, 10**6])
def test_check__no_such_program__says_which_there_are(report: Report, program: int) -> None:
    with pytest.raises(InvalidOptionError, match=f"report 2 has no program {program}") as caught:
        check_program(report, program, "report 2")
    assert f"0 to {num_programs(report) - 1}" in str(caught.value.remedy)
