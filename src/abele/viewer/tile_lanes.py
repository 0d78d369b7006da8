"""Tiles over time: what each tile, or each few neighbouring ones, does in the supersteps of a window.

A span keeps all tiles of its sync group from its start to its end. In it a tile takes part in the sync; exchanges for
as long as its own bytes take at the pace of the busiest tile; and computes for its own cycles. The rest it waits for
others. What a tile computes in any stretch of time is a sum over phases of how often each ran there, times what the
phase does on the tile: a product of two matrices, whatever the number of spans.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.report import Report
from abele.report.relations import flat_ranges, joined_rows
from abele.report.tiles import spread
from abele.viewer.executions import Looped
from abele.viewer.lanes import PARTS, SLOTS, GroupLanes, lanes_of
from abele.viewer.open_reports import Opened

ROWS = 128
"""Rows of a map tile."""
KINDS = ("compute", "arrange", "exchange", "sync", "streams")
"""Parts of a tile's time that are shown; the rest it waits."""
_NUMBERED = re.compile(r"IPU (\d+)")


@dataclass(frozen=True, eq=False)
class Owners:
    """Lanes that the tiles belong to.

    Attributes:
        lane: int64[tiles], -1 for none.
        inferred: True where lanes were told apart by what their steps touch.
    """

    lane: Int64
    inferred: bool


def owners_of(opened: Opened, program: int) -> Owners:
    """Lane that each tile belongs to; worked out once."""
    return opened.once(f"owners {program}", lambda: make_owners(opened.report, lanes_of(opened, program)))


def make_owners(report: Report, lanes: GroupLanes) -> Owners:
    """Lane that each tile belongs to.

    The group ``IPU i`` has the tiles of that IPU, but for those of groups that the user named: these have the tiles on
    which steps do something that keep no other group busy.
    """
    num_tiles = report.memory.num_tiles
    groups = np.flatnonzero(lanes.group >= 0)
    found = np.full(num_tiles, 0 if len(groups) <= 1 else -1, np.int64)
    if len(groups) <= 1:
        return Owners(found, False)
    per_ipu = max(int(report.target.get("tiles_per_ipu", num_tiles) or num_tiles), 1)
    named = []
    for lane in groups.tolist():
        match = _NUMBERED.fullmatch(lanes.names[lane])
        if match:
            found[int(match[1]) * per_ipu : (int(match[1]) + 1) * per_ipu] = lane
        else:
            named.append(lane)
    for lane in named:
        found[_touched(report, int(lanes.group[lane]))] = lane
    return Owners(found, bool(named))


def _touched(report: Report, group: int) -> npt.NDArray[np.bool_]:
    """Tiles with work in steps that keep only this group busy."""
    relation = report.step_groups
    sizes = np.bincount(relation["step"], relation["num_groups"], len(report.steps))
    alone = relation["step"][(relation["first_group"] == group) & (sizes[relation["step"]] == 1)]
    phases = np.unique(report.steps["phase"][alone])
    table = report.phase_tiles
    rows = np.isin(table["phase"], phases[phases >= 0])
    first, count = table["first_tile"][rows], table["num_tiles"][rows]
    return np.asarray(spread(first, count, np.ones(len(first), np.int64), report.memory.num_tiles) > 0, np.bool_)


@dataclass(frozen=True, eq=False)
class TileWork:
    """Work of some phases on rows of tiles in one execution.

    Attributes:
        compute: float64[phases, rows], mean cycles that a tile of the row computes.
        most: float64[phases, rows], the same of the tile that computes most; empty unless it was asked for.
        traffic: float64[phases, rows], mean bytes of the tiles, sent or received, whichever is more; as part of the
            busiest tile's.
    """

    compute: Float64
    most: Float64
    traffic: Float64


def work_of(report: Report, phases: Int64, edges: Int64, *, most: bool = False) -> TileWork:
    """Work of phases on rows of tiles.

    Args:
        report: The report.
        phases: The phases, ascending, int64[phases].
        edges: First tile of each row, and the end of the last, int64[rows + 1].
        most: Also the tile of each row that computes most.
    """
    table = report.phase_tiles
    at, owner = joined_rows(table, "phase", phases)
    begin = table["first_tile"][at].astype(np.int64)
    end = begin + table["num_tiles"][at]
    compute = table["compute_cycles"][at]
    moved = np.maximum(table["sent_bytes"][at], table["received_bytes"][at])
    busiest = np.zeros(len(phases))
    np.maximum.at(busiest, owner, moved)
    kept = (end > edges[0]) & (begin < edges[-1])
    begin, end, owner = np.maximum(begin[kept], edges[0]), np.minimum(end[kept], edges[-1]), owner[kept]
    compute, moved = compute[kept], moved[kept]
    rows = len(edges) - 1
    size = np.diff(edges).astype(np.float64)
    sums = _row_sums(owner, begin, end, np.stack([compute, moved], axis=1), len(phases), edges) / size[:, None]
    highest = np.zeros((len(phases), rows if most else 0))
    if most:
        low = np.searchsorted(edges, begin, side="right") - 1
        high = np.searchsorted(edges, end, side="left") - 1
        place, run = flat_ranges(low, high - low + 1)
        np.maximum.at(highest, (owner[run], place), compute[run])
    return TileWork(sums[..., 0], highest, sums[..., 1] / np.maximum(busiest, 1)[:, None])


def _row_sums(owner: Int64, begin: Int64, end: Int64, values: Int64, owners: int, edges: Int64) -> Float64:
    """Sums over the tiles of each row, float64[owners, rows, values]: runs count where they overlap a row."""
    rows = len(edges) - 1
    low = np.searchsorted(edges, begin, side="right") - 1
    high = np.searchsorted(edges, end, side="left") - 1
    sums = np.zeros((owners, rows, values.shape[1]))
    for n in range(values.shape[1]):
        value = values[:, n].astype(np.float64)
        # Whole rows between the first and the last by their differences; what sticks out at both ends apart.
        first = np.minimum(end, edges[low + 1]) - begin
        last = np.where(high > low, end - edges[high], 0)
        flat = np.bincount(owner * rows + low, value * first, owners * rows)
        flat += np.bincount(owner * rows + high, value * last, owners * rows)
        wide = high > low + 1
        steps = np.bincount(owner[wide] * (rows + 1) + low[wide] + 1, value[wide], owners * (rows + 1))
        steps -= np.bincount(owner[wide] * (rows + 1) + high[wide], value[wide], owners * (rows + 1))
        between = np.cumsum(steps.reshape(owners, rows + 1), axis=1)[:, :-1] * np.diff(edges)
        sums[..., n] = flat.reshape(owners, rows) + between
    return sums


def row_edges(num_tiles: int, level: int, chunk: int) -> Int64:
    """First tile of each row of a map tile, and the end of the last: 2^level tiles a row, ``ROWS`` rows."""
    places = (chunk * ROWS + np.arange(ROWS + 1, dtype=np.int64)) << level
    return np.unique(np.minimum(places, num_tiles))


@dataclass(frozen=True, eq=False)
class Stretch:
    """Neighbouring rows that belong to one lane.

    Attributes:
        lane: The lane.
        first: Its first row among those of the map tile.
        edges: First tile of each of its rows, and the end of the last, int64[rows + 1].
    """

    lane: int
    first: int
    edges: Int64


def stretches(owners: Owners, edges: Int64) -> list[Stretch]:
    """Rows by the lane that most of their tiles belong to, as stretches; rows of no lane are left out."""
    if len(edges) < 2:
        return []
    tiles = owners.lane[edges[0] : edges[-1]]
    row = np.searchsorted(edges, np.arange(edges[0], edges[-1]), side="right") - 1
    lanes = int(owners.lane.max(initial=-1)) + 2
    votes = np.bincount(row * lanes + tiles + 1, minlength=(len(edges) - 1) * lanes).reshape(-1, lanes)
    lane = votes.argmax(axis=1) - 1
    starts = np.flatnonzero(np.append(True, lane[1:] != lane[:-1]))
    ends = np.append(starts[1:], len(lane))
    return [
        Stretch(int(lane[a]), a, edges[a : b + 1])
        for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
        if lane[a] >= 0
    ]


def shares_by_tile(report: Report, lanes: GroupLanes, stretch: Stretch, edges: Float64) -> Float64:
    """Cycles that rows of tiles spend on each of ``KINDS`` between edges, float64[rows, cells, kinds].

    Args:
        report: The report.
        lanes: The lanes of a program.
        stretch: The rows.
        edges: Cycles between the cells, float64[cells + 1].
    """
    rows, cells = len(stretch.edges) - 1, len(edges) - 1
    found = np.zeros((rows, cells, len(KINDS)))
    spans = lanes.rows(stretch.lane, float(edges[0]), float(edges[-1]))
    step = lanes.step[spans]
    phase = report.steps["phase"][step].astype(np.int64)
    covered = lanes.covered(stretch.lane, edges)
    found[:, :, KINDS.index("sync")] = covered[:, PARTS.index("sync")]
    found[:, :, KINDS.index("streams")] = covered[:, PARTS.index("host")] + covered[:, PARTS.index("memory")]
    phases = np.unique(phase[phase >= 0])
    if not len(phases):
        return found
    work = work_of(report, phases, stretch.edges)
    weight, cell, span = _overlaps(lanes.start[spans], lanes.stop[spans], edges)
    known = phase[span] >= 0
    weight, cell, span = weight[known], cell[known], span[known]
    place = np.searchsorted(phases, phase[span])
    cuts = lanes.cuts[spans]
    scale = cuts[:, -1] / np.maximum(report.steps["cycles"][step], 1)
    arranges = lanes.part[step, SLOTS - 1] == PARTS.index("arrange")
    exchange = (cuts[:, 1] - cuts[:, 0]).astype(np.float64)
    for kind, amount, each in (
        ("compute", scale * ~arranges, work.compute),
        ("arrange", scale * arranges, work.compute),
        ("exchange", exchange, work.traffic),
    ):
        if amount.any():
            found[:, :, KINDS.index(kind)] = _sums(cell, place, weight * amount[span], each, cells)
    return found


def looped_shares_by_tile(
    report: Report, lanes: GroupLanes, stretch: Stretch, edges: Float64, loops: Looped, covered: Float64
) -> Float64:
    """As :func:`shares_by_tile`, of a run that is too long to unfold.

    Args:
        report: The report.
        lanes: The lanes of a program.
        stretch: The rows.
        edges: Cycles between the cells, float64[cells + 1].
        loops: The executions of the lane in their loops.
        covered: Cycles of each part on the lane, float64[cells, parts].
    """
    rows, cells = len(stretch.edges) - 1, len(edges) - 1
    found = np.zeros((rows, cells, len(KINDS)))
    found[:, :, KINDS.index("sync")] = covered[:, PARTS.index("sync")]
    found[:, :, KINDS.index("streams")] = covered[:, PARTS.index("host")] + covered[:, PARTS.index("memory")]
    phase = report.steps["phase"][loops.step].astype(np.int64)
    phases = np.unique(phase[phase >= 0])
    if not len(phases):
        return found
    work = work_of(report, phases, stretch.edges)
    times = np.array([sum(loops.shares_before(at)) for at in edges.tolist()])
    counts = np.diff(times, axis=0)[:, phase >= 0]
    step = loops.step[phase >= 0]
    place = np.searchsorted(phases, phase[phase >= 0])
    scale = loops.cycles[phase >= 0] / np.maximum(report.steps["cycles"][step], 1)
    arranges = lanes.part[step, SLOTS - 1] == PARTS.index("arrange")
    exchange = report.steps["exchange_cycles"][step] * scale
    for kind, amount, each in (
        ("compute", scale * ~arranges, work.compute),
        ("arrange", scale * arranges, work.compute),
        ("exchange", exchange, work.traffic),
    ):
        found[:, :, KINDS.index(kind)] = ((counts * amount) @ each[place]).T
    return found


def _sums(cell: Int64, place: Int64, weight: Float64, work: Float64, cells: int) -> Float64:
    """Work of phases, float64[phases, rows], as often as they are in each cell: float64[rows, cells].

    Args:
        cell: Cell of each part of an execution, ascending, int64[n].
        place: Its phase, int64[n].
        weight: Part of it that counts, float64[n].
        work: Work of each phase on each row.
        cells: Number of cells.
    """
    phases, rows = work.shape
    if len(cell) * rows > cells * phases:
        counts = np.bincount(cell * phases + place, weight, cells * phases).reshape(cells, phases)
        return np.asarray((counts @ work).T)
    sums = np.zeros((cells, rows))
    starts = np.flatnonzero(np.append(True, np.diff(cell) != 0)) if len(cell) else np.zeros(0, np.int64)
    if len(starts):
        sums[cell[starts]] = np.add.reduceat(weight[:, None] * work[place], starts, axis=0)
    return sums.T


def _overlaps(start: Int64, stop: Int64, edges: Float64) -> tuple[Float64, Int64, Int64]:
    """For each span and cell that overlap: the part of the span that lies in the cell, the cell, and the span."""
    cells = len(edges) - 1
    low = np.clip(np.searchsorted(edges, start, side="right") - 1, 0, cells - 1)
    high = np.clip(np.searchsorted(edges, stop, side="left") - 1, low, cells - 1)
    cell, span = flat_ranges(low, high - low + 1)
    covered = np.minimum(stop[span], edges[cell + 1]) - np.maximum(start[span], edges[cell])
    return np.clip(covered, 0, None) / np.maximum(stop - start, 1)[span], cell, span


@dataclass(frozen=True, eq=False)
class Fine:
    """Spans of rows of tiles one by one.

    Attributes:
        start: int64[spans], cycle at which each starts.
        cuts: int64[spans, SLOTS], cycles from its start to the end of each of its slots.
        step: int32[spans], row of the steps table.
        compute: float64[spans, rows], cycles that a tile of the row computes, their mean.
        most: float64[spans, rows], those of the tile of the row that computes most.
        exchange: float64[spans, rows], cycles that a tile of the row exchanges, their mean.
    """

    start: Int64
    cuts: Int64
    step: npt.NDArray[np.int32]
    compute: Float64
    most: Float64
    exchange: Float64


def fine_by_tile(report: Report, lanes: GroupLanes, stretch: Stretch, low: float, high: float) -> Fine:
    """The spans between two cycles, and what the rows do in each."""
    rows = len(stretch.edges) - 1
    spans = lanes.rows(stretch.lane, low, high)
    step, cuts = lanes.step[spans], lanes.cuts[spans]
    phase = report.steps["phase"][step].astype(np.int64)
    phases = np.unique(phase[phase >= 0])
    compute, most, traffic = (np.zeros((len(step), rows)) for _ in range(3))
    if len(phases):
        work = work_of(report, phases, stretch.edges, most=True)
        known = phase >= 0
        place = np.searchsorted(phases, phase[known])
        compute[known], most[known], traffic[known] = work.compute[place], work.most[place], work.traffic[place]
    scale = (cuts[:, -1] / np.maximum(report.steps["cycles"][step], 1))[:, None]
    exchange = traffic * (cuts[:, 1] - cuts[:, 0])[:, None]
    return Fine(lanes.start[spans], cuts, step, compute * scale, most * scale, exchange)


def vertices_for_workers(opened: Opened) -> npt.NDArray[np.float32]:
    """Vertices that the workers of a tile share in a step, the mean over its active tiles, float32[steps].

    −1 where all workers share one vertex, and where the report does not say of which codelets the vertices are.
    """

    def make() -> npt.NDArray[np.float32]:
        report, steps = opened.report, opened.report.steps
        found = (steps["num_vertices"] / np.maximum(steps["active_tiles"], 1)).astype(np.float32)
        vertices = report.vertices
        single = np.zeros(int(steps["superstep"].max(initial=-1)) + 2, dtype=bool)
        if len(vertices):
            # All vertices of the superstep must run on a worker each.
            alone = report.codelets["kind"][vertices["codelet"]] == "vertex"
            told = vertices["superstep"] < len(single) - 1
            single[vertices["superstep"][told]] = True
            single[vertices["superstep"][told & ~alone]] = False
        return np.where(single[steps["superstep"]], found, np.float32(-1))

    return opened.once("vertices for workers", make)
