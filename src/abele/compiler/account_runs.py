"""Account of runs: all executions of steps, those that come again and again in loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.compiler.timeline import Part
from abele.compiler.whole_run import WholeRun
from abele.report import RUN_LOOPS, RUN_SPANS, Table
from abele.report.tile_runs import runs_of


class RunTables(NamedTuple):
    """Tables of the report about whole runs.

    Attributes:
        run_spans: The executions.
        run_loops: The loops that these are in.
    """

    run_spans: Table
    run_loops: Table


def run_tables(
    found: Sequence[WholeRun], parts: Sequence[Part], row_of: Sequence[Mapping[int, int]], ends: Sequence[Int64]
) -> RunTables:
    """The tables of whole runs.

    Args:
        found: Executions of each program.
        parts: Timeline of each row of the steps table.
        row_of: For each program the row in the groups table of each sync group that takes part.
        ends: Cycle after which each sync group is done, for each program, int64[groups].
    """
    columns: dict[str, list[Int64]] = {name: [np.empty(0, np.int64)] for name in RUN_SPANS.columns}
    loops: dict[str, list[Int64]] = {name: [np.empty(0, np.int64)] for name in RUN_LOOPS.columns}
    num_loops = 0
    for program, (run, rows) in enumerate(zip(found, row_of, strict=True)):
        span, first, count = _groups(run, parts, rows)
        loop = run.loop[span]
        untold = np.array([g for g in rows if 0 <= run.known[g] < ends[program][g]], dtype=np.int64)
        nothing = np.full(len(untold), -1)
        told = {
            "program": np.full(len(span) + len(untold), program),
            "step": np.append(run.row[span], nothing),
            "first_group": np.append(first, np.array([rows[g] for g in untold.tolist()], dtype=np.int64)),
            "num_groups": np.append(count, np.ones_like(untold)),
            "start_cycle": np.append(run.start[span], run.known[untold]),
            "cycles": np.append((run.end - run.start)[span], ends[program][untold] - run.known[untold]),
            "loop": np.append(np.where(loop >= 0, loop + num_loops, -1), nothing),
        }
        for name, column in told.items():
            columns[name].append(column)
        around = {"trips": run.trips, "period_cycles": run.period}
        around["parent"] = np.where(run.parent >= 0, run.parent + num_loops, -1)
        for name, column in around.items():
            loops[name].append(column)
        num_loops += len(run.parent)
    return RunTables(
        RUN_SPANS.table(**{name: np.concatenate(each) for name, each in columns.items()}),
        RUN_LOOPS.table(**{name: np.concatenate(each) for name, each in loops.items()}),
    )


def _groups(run: WholeRun, parts: Sequence[Part], rows: Mapping[int, int]) -> tuple[Int64, Int64, Int64]:
    """The sync groups that are at each span: the span, first row and number of rows of each run of neighbours.

    Few sets of groups come up among many spans, so that each set is made into runs once.
    """
    numbers: dict[tuple[int, ...], int] = {}
    of_part: dict[tuple[int, int], int] = {}
    which = np.empty(len(run.row), dtype=np.int64)
    for span, (row, meet) in enumerate(zip(run.row.tolist(), run.meet.tolist(), strict=True)):
        key = (id(parts[row]), meet)
        if key not in of_part:
            of_part[key] = numbers.setdefault(parts[row].meets[meet], len(numbers))
        which[span] = of_part[key]
    none = np.empty(0, dtype=np.int64)
    runs = [(none, none)]
    for meet in numbers:
        ordered = np.array(sorted(rows[g] for g in meet), dtype=np.int32)
        runs.append(runs_of(ordered, busy=np.ones(len(ordered), dtype=np.int64))[:2])
    first, length = (np.concatenate(side) for side in zip(*runs, strict=True))
    counts = np.array([len(each[0]) for each in runs[1:]], dtype=np.int64)
    begin = np.cumsum(counts) - counts
    each = counts[which]
    at = np.repeat(begin[which] - (np.cumsum(each) - each), each) + np.arange(each.sum())
    return np.repeat(np.arange(len(which)), each), first[at], length[at]
