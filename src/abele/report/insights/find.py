"""From a report to its insights: all costs of a program, in order of the time that they take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from abele.errors import InvalidOptionError
from abele.report.insights.compute import compute_cost
from abele.report.insights.element_types import ElementTypes
from abele.report.insights.loader import loader_cost, loader_cycles
from abele.report.insights.memory import headroom_cost, memory_costs, overfull_cost
from abele.report.insights.model import Cost, FullestTile, Insights
from abele.report.insights.moves import arrange_cost, exchange_cost, replicas_cost
from abele.report.insights.op_groups import OpGroups
from abele.report.insights.pipeline import pipeline_cost
from abele.report.insights.program_steps import ProgramSteps
from abele.report.insights.roofline import roofline_of
from abele.report.insights.streams import host_cost, streaming_memory_cost
from abele.report.insights.sync import sync_cost
from abele.report.insights.tile_contents import fullest_tile
from abele.report.programs import check_program, program_name
from abele.report.text import percent_text
from abele.words import visible

if TYPE_CHECKING:
    from abele.report.report import Report

COUNT = 5
"""Default number of costs."""
_CANDIDATES = 8
"""Most operations that are examined for each side."""
_LEAST = 0.005
"""Part of a run below which a cost is left out."""
_WITHOUT_GAIN = 4
"""Divisor by which a cost of unknown gain counts: as much as one with a quarter to gain."""


def insights(report: Report, program: int = 0, *, count: int = COUNT) -> Insights:
    """Limits of a program, the costs that matter with reasons and levers, and operations below their roofs.

    Args:
        report: The report.
        program: Index of the program.
        count: Most costs that are listed, of cycles and of memory each.

    Returns:
        Figures, costs and levers; all cycles are those of one run of the program on its critical path.

    Raises:
        InvalidOptionError: The report has no such program, or ``count`` is not positive.

    Model: costs are ordered by the largest gain of a lever that leaves numbers as they are, or by a quarter of their
    cycles where that is more. A program that does not fit comes first.
    """
    _check(report, program, count)
    steps, types = ProgramSteps(report, program), ElementTypes(report)
    fullest = fullest_tile(report)
    contents = memory_costs(report, count)
    least = _LEAST * steps.run_cycles
    found = [cost for cost in _cycle_costs(steps, types) if cost.cycles and cost.cycles >= least]
    found.sort(key=lambda cost: -max(cost.gain_cycles, cost.cycles / _WITHOUT_GAIN))
    first, last = overfull_cost(steps, fullest, contents), headroom_cost(fullest, contents)
    costs = [*([first] if first else []), *found][: count - (last is not None)] + ([last] if last else [])
    by_tile = report.program_by_tile("compute_cycles", program)
    return Insights(
        program=program,
        program_name=program_name(report, program) or str(program),
        step_name=visible(str(report.meta.get("step_name", "step"))) if program == 0 else "run",
        steps_per_run=_steps_per_run(report, program),
        run_cycles=steps.run_cycles,
        step_seconds=report.seconds(steps.run_cycles / _steps_per_run(report, program)),
        parts=_parts(steps),
        tile_balance=_balance(steps, by_tile),
        active_tiles=int((by_tile > 0).sum()),
        num_tiles=report.memory.num_tiles,
        memory=fullest,
        limit=_limit(steps, fullest, costs),
        costs=tuple(costs),
        memory_costs=tuple(contents),
        roofline=roofline_of(steps, types),
        notes=tuple(_notes(steps)),
    )


def _check(report: Report, program: int, count: int) -> None:
    check_program(report, program)
    if count < 1:
        raise InvalidOptionError(f"count = {count}: how many costs are told must be at least 1")


def _cycle_costs(steps: ProgramSteps, types: ElementTypes) -> Iterator[Cost]:
    groups = OpGroups(steps)
    for group in groups.largest("compute", _CANDIDATES):
        yield compute_cost(group, types)
    for group in groups.largest("exchange", _CANDIDATES):
        yield exchange_cost(group)
    for group in groups.largest("arrange", _CANDIDATES):
        yield arrange_cost(group)
    for group in groups.largest("replicas", _CANDIDATES):
        yield replicas_cost(group)
    for whole in (sync_cost, host_cost, streaming_memory_cost, pipeline_cost, loader_cost):
        if (cost := whole(steps)) is not None:
            yield cost


def _steps_per_run(report: Report, program: int) -> int:
    return report.steps_per_run if program == 0 else 1


def _parts(steps: ProgramSteps) -> dict[str, float | None]:
    """Cycles of a step by part; the loader's where it is known."""
    cycles, each = steps.report.cycles(steps.program), _steps_per_run(steps.report, steps.program)
    loader = loader_cycles(steps)
    return {
        "compute": cycles.compute / each,
        "exchange": cycles.exchange / each,
        "sync": cycles.sync / each,
        "host": cycles.host / each,
        "loader": None if loader is None else loader / each,
        "hidden": cycles.hidden / each,
    }


def _balance(steps: ProgramSteps, by_tile: np.ndarray) -> float:
    """As ``Report.tile_balance``, of any program."""
    mine = steps.report.groups.select(steps.group_rows)
    offered = float(np.dot(mine["tiles"].astype(np.int64), mine["compute_cycles"]))
    if not len(mine):
        offered = len(by_tile) * float(steps.report.cycles(steps.program).compute)
    return float(by_tile.sum()) / offered if offered else 0.0


def _limit(steps: ProgramSteps, fullest: FullestTile, costs: list[Cost]) -> str:
    """Limit of the program, as a sentence."""
    if not fullest.fits:
        return f"It does not fit: {costs[0].reason}."
    if not steps.run_cycles:
        return "Nothing: it takes no cycles."
    worst = next((cost for cost in costs if cost.kind != "memory"), None)
    if worst is None:
        return "No single cost takes as much as half a per cent of the run."
    return f"{worst.title[0].upper()}{worst.title[1:]}, {percent_text(worst.share)} of the run: {worst.reason}."


def _notes(steps: ProgramSteps) -> Iterator[str]:
    report = steps.report
    if not len(report.runs):
        yield "It has not run: all figures are modelled."
    assumed = steps.column("basis") == "assumed"
    if np.asarray(assumed, dtype=bool).any():
        part = float((steps.executions * steps.column("cycles"))[np.asarray(assumed, dtype=bool)].sum())
        yield (
            f"Data decides {percent_text(part / max(steps.run_cycles, 1))} of the cycles, and no run has counted "
            "them: one trip of each loop and the first way of each decision are assumed. Run it, and ask engine.report."
        )
    if not steps.has_path and steps.run_cycles:
        yield "The report holds no critical path: gains count as if every step were on it."
    if len(steps.group_rows) > 1:
        yield "Several sync groups work side by side: gains are at most what the busiest other group leaves."
    if len(report.phase_tiles) and not steps.has_tile_runs:
        yield "The report is so large that which tile is the busiest of a step is not looked up."
    if steps.program == 0 and report.loading is None and report.meta.get("samples_per_run"):
        yield "Nobody said how data is loaded, so that the loader is not among the costs."
