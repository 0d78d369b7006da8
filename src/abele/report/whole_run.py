"""Every execution of a run: spans in loops, unfolded on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import InvalidOptionError
from abele.report.relations import rows_of
from abele.report.table import Table

if TYPE_CHECKING:
    from abele.report.report import Report


_MOST_NESTED = 128
"""Loops inside each other; programs of ours have fewer."""
_MOST_CYCLES = 1 << 62


def spans_between(report: Report, first: int, end: int, *, program: int = 0, most: int = 1 << 20) -> Table:
    """Every execution of steps that falls into a part of a run, in order of their starts.

    Args:
        report: The report.
        first: First cycle of the part.
        end: One past its last cycle.
        program: Index of the program.
        most: Spans that are given at most.

    Returns:
        Rows ``step`` (−1 for a time of which the report does not tell what happens), ``first_group``,
        ``num_groups``, ``start_cycle`` and ``cycles``.

    Raises:
        InvalidOptionError: More spans fall into it.
    """
    # Loops are unfolded from the outermost to the innermost, and of each only the trips that reach into the part, so
    # that a short part of a long run costs what is in it. How long a trip of a loop lasts is found for each span by
    # itself: from its start in the first trips of the loops inside to its end in their last ones.
    table = report.run_spans
    rows = rows_of(table, "program", program)
    start, cycles = (table[name][rows] for name in ("start_cycle", "cycles"))
    first, end = (int(np.clip(each, 0, _MOST_CYCLES)) for each in (first, end))
    chains, trips, periods = _loops(report, table["loop"][rows])
    # What all loops from a depth on add to the last start of a span, int64[spans] for each depth.
    lasting = [np.zeros(len(start), dtype=np.int64)]
    for each in chains:
        reach = np.minimum((trips[each] - 1) * periods[each].astype(float), _MOST_CYCLES / _MOST_NESTED)
        lasting.append(lasting[-1] + np.where(each >= 0, reach, 0.0).astype(np.int64))
    span = np.arange(len(start))
    at = start.copy()
    span, at = _reaching(span, at, lasting[-1] + cycles, first, end)
    for depth in range(len(chains) - 1, -1, -1):
        loop, inside = chains[depth][span], np.maximum(lasting[depth][span] + cycles[span], 1)
        period = np.where(loop >= 0, periods[loop], 0)
        step = np.maximum(period, 1)
        # Trip k is at + k x period to that + inside: it reaches into the part if it ends after its first cycle and
        # starts before its end.
        low = np.clip(-(-(first - inside + 1 - at) // step), 0, np.where(period > 0, trips[loop] - 1, 0))
        high = np.clip((end - 1 - at) // step, -1, np.where(period > 0, trips[loop] - 1, 0))
        count = np.maximum(high - low + 1, 0)
        if count.sum() > most:
            raise _too_many(int(count.sum()), first, end, most)
        trip = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - low, count)
        span, at = np.repeat(span, count), np.repeat(at, count) + trip * np.repeat(period, count)
    if len(span) > most:
        raise _too_many(len(span), first, end, most)
    order = np.lexsort((span, at))
    span, at = span[order], at[order]
    columns = {name: table[name][rows][span] for name in ("step", "first_group", "num_groups")}
    return Table({**columns, "start_cycle": at, "cycles": cycles[span]})


def _too_many(count: int, first: int, end: int, most: int) -> InvalidOptionError:
    return InvalidOptionError(
        f"{count:,} spans or more fall into cycles {first:,} to {end:,}, and at most {most:,} are taken",
        remedy="ask for a shorter part of the run",
    )


def _reaching(span: Int64, at: Int64, lasting: Int64, first: int, end: int) -> tuple[Int64, Int64]:
    """The spans that may reach into a part of a run; those of no cycles are there at the cycle at which they are."""
    some = (at < end) & (at + np.maximum(lasting, 1) > first)
    return span[some], at[some]


def _loops(report: Report, loop: npt.NDArray[np.int32]) -> tuple[list[Int64], Int64, Int64]:
    """The loops around spans, innermost first, −1 where there are no more; and trips and period of every loop."""
    parent = np.append(report.run_loops["parent"].astype(np.int64), -1)
    trips, periods = (np.append(report.run_loops[name], 1) for name in ("trips", "period_cycles"))
    chains: list[Int64] = []
    around = loop.astype(np.int64)
    # A loop comes before the one around it, so this ends.
    while (around >= 0).any() and len(chains) < _MOST_NESTED:
        chains.append(around)
        around = parent[around]
    return chains, trips, periods
