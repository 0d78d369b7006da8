"""The executions of a program's steps, group by group: all of them, those of a window, or the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.errors import InvalidOptionError
from abele.report import Report
from abele.report.relations import flat_ranges, rows_of

MOST_WHOLE = 1 << 22
"""Executions that are unfolded for a whole run."""
MOST_WINDOW = 1 << 17
"""Executions that are unfolded for a window of a longer run."""
_MOST_NESTED = 128


class TooManySpansError(InvalidOptionError):
    """A window has more executions than are unfolded."""


@dataclass(frozen=True, eq=False)
class Executions:
    """Executions of steps, one for each sync group that takes part.

    Attributes:
        group: int64[n], row of the groups table.
        step: int64[n], row of the steps table.
        start: int64[n], cycle at which each starts.
        cycles: int64[n], how long it takes.
        untold: For rows of the groups table from which cycle on the report does not tell what they do.
        end: Cycle up to which these are all there are.
        total: Cycles of the run.
    """

    group: Int64
    step: Int64
    start: Int64
    cycles: Int64
    untold: dict[int, int] | None
    end: int
    total: int

    def known(self, groups: Int64, reached: Sequence[int], ends: Sequence[int]) -> list[int]:
        """Cycle up to which the report tells what each group does.

        Args:
            groups: Rows of the groups table, int64[groups].
            reached: End of the last execution of each.
            ends: End of each.
        """
        if self.untold is None:
            return list(reached)
        return [min(self.untold.get(int(g), e), e) for g, e in zip(groups, ends, strict=True)]


def executions_of(report: Report, program: int, window: tuple[int, int] | None = None) -> Executions:
    """The executions of a program; of a long run those of a window, or the first.

    Raises:
        TooManySpansError: The window has too many.
    """
    total = int(report.cycles(program).total)
    # Reports without run spans list every execution in ``spans``.
    if not len(report.run_spans) or not (report.run_spans["program"] == program).any():
        spans = report.spans.where("program", program)
        group, step, start, cycles = (
            spans[name].astype(np.int64) for name in ("group", "step", "start_cycle", "cycles")
        )
        return Executions(group=group, step=step, start=start, cycles=cycles, untold=None, end=total, total=total)
    # A window, or all of a short run, is unfolded from its loops.
    untold = _untold(report, program)
    if window is not None:
        return _unfolded(report, program, *window, MOST_WINDOW, untold, total)
    if num_executions(report, program) <= MOST_WHOLE:
        return _unfolded(
            report=report, program=program, first=0, end=max(total, 1), most=4 * MOST_WHOLE, untold=untold, total=total
        )
    # The longest beginning that is not too much, by halving.
    low, high = 0, max(total, 1)
    best = no_executions(untold, 0, total)
    while high - low > max(total >> 12, 1):
        middle = (low + high) // 2
        try:
            best = _unfolded(
                report=report, program=program, first=0, end=middle, most=MOST_WINDOW, untold=untold, total=total
            )
            low = middle
        except TooManySpansError:
            high = middle
    # Beyond the beginning that was unfolded, nothing is told of any group.
    horizon = {int(g): best.end for g in np.flatnonzero(report.groups["program"] == program)}
    return Executions(
        group=best.group,
        step=best.step,
        start=best.start,
        cycles=best.cycles,
        untold={g: min(untold.get(g, end), end) for g, end in horizon.items()},
        end=best.end,
        total=total,
    )


def no_executions(untold: dict[int, int] | None, end: int, total: int) -> Executions:
    """A stretch of a run in which nothing is executed."""
    nothing = np.zeros(0, np.int64)
    return Executions(group=nothing, step=nothing, start=nothing, cycles=nothing, untold=untold, end=end, total=total)


def num_executions(report: Report, program: int) -> float:
    """Executions in a run, those of each group counted apart."""
    rows = rows_of(report.run_spans, "program", program)
    loops, trips, _ = chains_of(report, report.run_spans["loop"][rows])
    times = np.ones(rows.stop - rows.start)
    for each in loops:
        times *= trips[each]
    return float(np.dot(times, report.run_spans["num_groups"][rows]))


def chains_of(report: Report, loop: npt.NDArray[np.int32]) -> tuple[list[Int64], Float64, Float64]:
    """The loops around spans, innermost first, −1 where there are no more; trips and periods of all, 1 for none."""
    parent = np.append(report.run_loops["parent"].astype(np.int64), -1)
    trips, periods = (np.append(report.run_loops[name], 1).astype(np.float64) for name in ("trips", "period_cycles"))
    chains: list[Int64] = []
    around = loop.astype(np.int64)
    while (around >= 0).any() and len(chains) < _MOST_NESTED:
        chains.append(around)
        around = parent[around]
    return chains, trips, periods


def _untold(report: Report, program: int) -> dict[int, int]:
    table = report.run_spans
    rows = np.flatnonzero((table["program"] == program) & (table["step"] < 0))
    group, span = flat_ranges(table["first_group"][rows], table["num_groups"][rows])
    start = table["start_cycle"][rows[span]]
    found: dict[int, int] = {}
    for g, at in zip(group.tolist(), start.tolist(), strict=True):
        found[g] = min(found.get(g, at), at)
    return found


def _unfolded(
    report: Report, program: int, first: int, end: int, most: int, untold: dict[int, int], total: int
) -> Executions:
    try:
        spans = report.spans_between(first, end, program=program, most=most)
    except InvalidOptionError as error:
        raise TooManySpansError(error.message, remedy=error.remedy) from error
    told = spans["step"] >= 0
    count = spans["num_groups"][told].astype(np.int64)
    if int(count.sum()) > 4 * most:
        raise TooManySpansError(f"{int(count.sum()):,} spans fall into cycles {first:,} to {end:,}")
    group, span = flat_ranges(spans["first_group"][told], count)
    step, start, cycles = (spans[name][told][span].astype(np.int64) for name in ("step", "start_cycle", "cycles"))
    inside = group < len(report.groups)
    return Executions(
        group=group[inside],
        step=step[inside],
        start=start[inside],
        cycles=cycles[inside],
        untold=untold,
        end=end,
        total=total,
    )


@dataclass(frozen=True, eq=False)
class Looped:
    """The executions of one group in their loops, for sums over any stretch of a run that is too long to unfold.

    Attributes:
        step: int64[n], row of the steps table.
        start: float64[n], cycle at which the first execution of each starts.
        cycles: float64[n], how long one takes.
        loops: For each depth, outermost first: trips and period of the loop there, float64[n] each; 1 and 1 for none.
    """

    step: Int64
    start: Float64
    cycles: Float64
    loops: tuple[tuple[Float64, Float64], ...]

    def before(self, at: float) -> tuple[Float64, Float64]:
        """Executions of each that are done before an instant, and the cycles since the next one began."""
        passed = at - self.start
        done = np.zeros(len(passed))
        inner = np.ones(len(passed))
        for trips, _ in self.loops:
            inner *= trips
        for trips, period in self.loops:
            inner /= trips
            trip = np.clip(np.floor(passed / period), 0, trips - 1)
            done += trip * inner
            passed -= trip * period
        return done, np.clip(passed, 0, self.cycles)

    def shares_before(self, at: float) -> tuple[Float64, Float64]:
        """Executions of each that are done before an instant, and the done part of the next one."""
        done, inside = self.before(at)
        return done, inside / np.maximum(self.cycles, 1.0)


def looped(report: Report, program: int, group: int) -> Looped:
    """The executions of a group in their loops."""
    table = report.run_spans
    first, count = table["first_group"], table["num_groups"]
    rows = np.flatnonzero(
        (table["program"] == program) & (table["step"] >= 0) & (first <= group) & (group < first + count)
    )
    chains, trips, periods = chains_of(report, table["loop"][rows])
    loops = tuple((trips[each], np.maximum(periods[each], 1.0)) for each in reversed(chains))
    start, cycles = (table[name][rows].astype(np.float64) for name in ("start_cycle", "cycles"))
    return Looped(table["step"][rows].astype(np.int64), start, cycles, loops)
