"""Account of steps: cost of each row of the steps table, and its basis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.compiler.account_groups import GroupTables
from abele.compiler.lower import Step
from abele.compiler.run_account import RunAccount
from abele.compiler.superstep import Superstep
from abele.compiler.timeline import Part, partner_of
from abele.compiler.whole_run import WholeRun
from abele.report import RUN_LOOPS, RUN_SPANS, STEPS, Table
from abele.report.tiles import runs_of

# Account of runs: all executions of steps, those that come again and again in loops.


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


def is_estimated(program: int, superstep: Superstep, account: RunAccount) -> bool:
    """True if the cost of some vertices of a superstep depends on data, and no run of a program has counted them."""
    compute = account.compute.get((program, superstep.index), superstep.compute)
    return compute is not None and bool(compute.estimated)


def basis_of(row: tuple[Step, Part], supersteps: Sequence[Superstep], account: RunAccount) -> str:
    """Basis of the figures of a row: one of ``BASES``."""
    step, part = row
    superstep = supersteps[step.superstep]
    if account.assumed[step.index] or (part.kind == "compute" and is_estimated(step.program, superstep, account)):
        return "assumed"
    return "counted" if step.is_assumed or (part.kind == "compute" and superstep.data_dependent) else "static"


def steps_table(
    rows: Sequence[tuple[Step, Part]],
    op_of: Int64,
    executions: Int64,
    groups: GroupTables,
    basis: Sequence[str],
    phases: Sequence[Part],
    phase_of: Int64,
) -> Table:
    """The table of steps.

    Args:
        rows: Step and part of each row.
        op_of: The operation of each step, int64[steps].
        executions: Times that each step runs in one run of its program, int64[steps].
        groups: Tables of sync groups.
        basis: Basis of the figures of each row.
        phases: The parts that differ.
        phase_of: That of each row, int64[rows].
    """
    index = np.array([s.index for s, _ in rows], dtype=np.int64)

    def column(value: Callable[[Part], Any]) -> npt.NDArray[Any]:
        """A column that is the same in all rows of a phase."""
        return np.array([value(p) for p in phases])[phase_of] if phases else np.empty(0)

    return STEPS.table(
        name=[f"{s.name}: {p.name}" if p.name else s.name for s, p in rows],
        kind=[p.kind for _, p in rows],
        program=[s.program for s, _ in rows],
        op=op_of[index],
        superstep=[s.superstep for s, _ in rows],
        executions=executions[index],
        cycles=column(lambda p: p.cycles),
        compute_cycles=column(lambda p: p.compute),
        exchange_cycles=column(lambda p: p.exchange),
        sync_cycles=column(lambda p: p.sync),
        host_cycles=column(lambda p: p.host),
        tile_balance=column(lambda p: p.balance),
        exchanged_bytes=column(lambda p: p.bytes),
        max_receive_bytes=column(lambda p: p.max_receive_bytes),
        num_vertices=column(lambda p: p.num_vertices),
        active_tiles=column(lambda p: p.active_tiles),
        start_cycle=groups.starts,
        block=[s.block for s, _ in rows],
        basis=basis,
        phase=phase_of,
        partner=[partner_of(s.kind) for s, _ in rows],
    )
