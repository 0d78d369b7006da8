"""Limits of the program, and differences between runs."""

from __future__ import annotations

from abele.report.insights import insights as found_in
from abele.report.programs import num_programs
from abele.viewer.answers.registry import Frozen, question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

COSTS = 5


def _programs(opened: Opened) -> Frozen:
    for program in range(min(num_programs(opened.report), 4)):
        yield {"program": str(program)}


@question("insights", frozen=_programs, rank=0)
def insights(opened: Opened, params: Params) -> Answer:
    """``Insights.to_json()`` of a program."""
    program = params.number("program")
    return Answer(opened.once(f"insights {program}", lambda: found_in(opened.report, program, count=COSTS).to_json()))
