"""Account of sync groups: when steps start, how busy each group is, and the spans that a picture is drawn from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.compiler.lower import Lowered, Step, StepBlock
from abele.compiler.schedule import MAX_TRACED, ProgramSchedule, schedule, unroll
from abele.compiler.superstep import Superstep
from abele.compiler.sync_groups import SyncGroups
from abele.compiler.tile_vector import TileTotal, TileVector
from abele.compiler.timeline import Part
from abele.report import GROUPS, SPANS, STEP_GROUPS, Table
from abele.report.tiles import runs_of

_PARTS = ("compute", "exchange", "sync", "host")
_LEAST_TRACED = 16


@dataclass(frozen=True, eq=False, slots=True)
class GroupTables:
    """Tables of the report about sync groups.

    Attributes:
        groups: The table of groups.
        spans: The table of spans.
        starts: First start of each row of the steps table in a run of its program, int64[rows].
        step_groups: Rows of the steps table and the groups that they keep busy.
        row_of: For each program the row of each group that takes part in it.
    """

    groups: Table
    spans: Table
    starts: Int64
    step_groups: Table
    row_of: Sequence[Mapping[int, int]]


def schedule_of(
    program: StepBlock, parts: Sequence[Part], first_row: Int64, executions: Int64, num_groups: int
) -> ProgramSchedule:
    """The schedule of a program, run by itself."""
    traced = max(_LEAST_TRACED, MAX_TRACED // num_groups)
    return schedule(unroll(program, executions, first_row), parts, num_groups, traced=traced)


def group_tables(
    rows: Sequence[tuple[Step, Part]],
    executions: Int64,
    groups: SyncGroups,
    found: Sequence[ProgramSchedule],
    compute: Sequence[TileVector],
) -> GroupTables:
    """The tables of sync groups.

    Args:
        rows: Step and part of each row of the steps table.
        executions: Times that each step runs in one run of its program, int64[steps].
        groups: The sync groups.
        found: The schedule of each program.
        compute: Cycles that each tile computes in one run of each program.
    """
    parts = [p for _, p in rows]
    starts = np.full(len(rows), -1, dtype=np.int64)
    for each in found:
        starts = np.maximum(starts, each.starts)
    times = executions[np.array([s.index for s, _ in rows], dtype=np.int64)].tolist()
    columns: dict[str, list[object]] = {name: [] for name in GROUPS.columns}
    row_of: list[dict[int, int]] = []
    for number, each in enumerate(found):
        own = [(p, n) for (s, p), n in zip(rows, times, strict=True) if s.program == number]
        row_of.append({})
        for group, line in _lines(each, own, groups, compute[number]):
            row_of[number][group] = len(columns["name"])
            for name, value in ({"program": number} | line).items():
                columns[name].append(value)
    spans = _spans(found, parts, row_of)
    return GroupTables(GROUPS.table(**columns), spans, starts, _step_groups(rows, row_of), row_of)


def _step_groups(rows: Sequence[tuple[Step, Part]], row_of: Sequence[Mapping[int, int]]) -> Table:
    """The relation of steps and sync groups, with neighbouring groups as one run.

    Few sets of groups come up among many rows, so that each set is made into runs once.
    """
    sets: dict[tuple[int, tuple[int, ...]], int] = {}
    of_part: dict[tuple[int, int], int] = {}
    for step, part in rows:
        if (step.program, id(part)) not in of_part:
            of_part[step.program, id(part)] = sets.setdefault((step.program, part.groups), len(sets))
    which = np.array([of_part[s.program, id(p)] for s, p in rows], dtype=np.int64)
    runs = [_runs_of_groups([row_of[program][g] for g in groups]) for program, groups in sets]
    first = [r[0] for r in runs]
    counts = np.array([len(f) for f in first], dtype=np.int64)
    begin = np.cumsum(counts) - counts
    each = counts[which]
    # Rows repeat the runs of their set of groups.
    at = np.repeat(begin[which] - (np.cumsum(each) - each), each) + np.arange(each.sum())
    return STEP_GROUPS.table(
        step=np.repeat(np.arange(len(rows)), each),
        first_group=np.concatenate([np.zeros(0, np.int64), *first])[at],
        num_groups=np.concatenate([np.zeros(0, np.int64), *(r[1] for r in runs)])[at],
    )


def _runs_of_groups(rows: Sequence[int]) -> tuple[Int64, Int64]:
    """First row and length of each run of neighbouring rows of the groups table."""
    first, count, _ = runs_of(np.array(sorted(rows), dtype=np.int32), busy=np.ones(len(rows), dtype=np.int64))
    return first, count


def _lines(
    found: ProgramSchedule, parts: Sequence[tuple[Part, int]], groups: SyncGroups, compute: TileVector
) -> Iterator[tuple[int, dict[str, object]]]:
    """The rows of the groups table for one program: those of groups that take part in it, with their numbers."""
    cycles = np.zeros((len(groups), len(_PARTS)), dtype=np.int64)
    used = np.zeros(len(groups), dtype=bool)
    together: dict[tuple[int, ...], list[int]] = {}
    for part, count in _summed(parts):
        sums = together.setdefault(part.groups, [0] * len(_PARTS))
        for position, name in enumerate(_PARTS):
            sums[position] += count * getattr(part, name)
    for meeting, sums in together.items():
        cycles[list(meeting)] += sums
        used[list(meeting)] = True
    # One group alone is never idle, whatever the trace shows.
    single = int(used.sum()) == 1
    end = int(cycles.sum()) if single else found.end
    computed = np.bincount(groups.of_tile[compute.tile_set.tiles], weights=compute.values[:-1], minlength=len(groups))
    for group in np.flatnonzero(used).tolist():
        busy, work = int(cycles[group].sum()), int(cycles[group, 0])
        line = {
            "name": groups.names[group],
            "tiles": int(groups.tiles[group]),
            "busy_cycles": busy,
            "idle_cycles": end - busy,
            **{f"{name}_cycles": int(n) for name, n in zip(_PARTS, cycles[group], strict=True)},
            "end_cycle": end if single else int(found.free[group]),
            "tile_balance": float(computed[group]) / int(groups.tiles[group]) / work if work else 0.0,
        }
        yield group, line


def _summed(parts: Sequence[tuple[Part, int]]) -> Iterator[tuple[Part, int]]:
    """The parts that differ, each with its executions over all rows; the rows of a superstep share theirs."""
    times: dict[int, int] = {}
    different: dict[int, Part] = {}
    for part, count in parts:
        key = id(part)
        times[key] = times.get(key, 0) + count
        different[key] = part
    return ((part, times[key]) for key, part in different.items())


def compute_by_tile(
    program: int, lowered: Lowered, supersteps: Sequence[Superstep], executions: Int64, num_tiles: int
) -> TileVector:
    """Cycles that each tile computes in one run of a program."""
    runs = np.zeros(len(supersteps), dtype=np.int64)
    for step in lowered.steps:
        if step.program == program:
            runs[step.superstep] += executions[step.index]
    total = TileTotal(num_tiles)
    for number in np.flatnonzero(runs).tolist():
        total.add(supersteps[number].compute_by_tile(num_tiles), int(runs[number]))
    return total.vector()


def _spans(found: Sequence[ProgramSchedule], parts: Sequence[Part], row_of: Sequence[dict[int, int]]) -> Table:
    lines = [
        (program, row_of[program][group], span.row, span.start, span.end - span.start)
        for program, each in enumerate(found)
        for span in each.trace
        for group in parts[span.row].meets[span.meet]
    ]
    columns: npt.NDArray[np.int64] = np.array(lines, dtype=np.int64).reshape(len(lines), len(SPANS.columns))
    return SPANS.table(**dict(zip(SPANS.columns, columns.T, strict=True)))
