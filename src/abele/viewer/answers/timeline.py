"""When each sync group does what: lanes as map tiles, flames, tiles over time, figures of a window, steps by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError
from abele.report import Report
from abele.report.text_column import Text
from abele.viewer.answers.registry import Frozen, once, question
from abele.viewer.answers.timeline_summary import summary_of
from abele.viewer.bars import COLUMNS, edges_of, seen, window
from abele.viewer.flames import blocks_of, flame_of, paths_of
from abele.viewer.lanes import (
    COMPLETE,
    FIRST,
    PARTS,
    GroupLanes,
    first_of_each,
    lanes_in,
    lanes_of,
    looped_covered,
    loops_of,
    stepped_shares,
)
from abele.viewer.opened import Opened
from abele.viewer.params import Params
from abele.viewer.tile_lanes import (
    KINDS,
    ROWS,
    Stretch,
    fine_by_tile,
    looped_shares_by_tile,
    owners_of,
    row_edges,
    shares_by_tile,
    stretches,
    vertices_for_workers,
)
from abele.viewer.wire import Answer, Array
from abele.words import counted, shortened

MOST_SPANS = 4_000
"""Spans that a map tile holds one by one."""
MOST_LEVEL = 40
_MOST_BARS = 1_200
_MOST_FINE = 320
_MOST_FOUND = 20_000
_MOST_OPS = 500
_NAME_LETTERS = 240
_FROZEN_LEVELS = 5
_FROZEN_FLAMES = 16
_FROZEN_STEPS = 400
_BUCKETS = 256

Int64 = npt.NDArray[np.int64]


def _programs(opened: Opened) -> range:
    named = len(opened.report.meta.get("programs", ()) or ())
    present = opened.report.steps["program"].max(initial=-1) + 1
    return range(max(int(named), int(present), 1))


def _frozen_programs(opened: Opened) -> Frozen:
    for program in list(_programs(opened))[:4]:
        yield {"program": str(program)}


def _frozen_tiles(opened: Opened) -> Frozen:
    for level in range(_FROZEN_LEVELS):
        for index in range(1 << level):
            yield {"program": "0", "level": str(level), "index": str(index)}


def _frozen_flames(opened: Opened) -> Frozen:
    lanes = lanes_of(opened, 0)
    for lane in range(min(len(lanes), _FROZEN_FLAMES)):
        for level in range(3):
            for index in range(1 << level):
                yield {"program": "0", "lane": str(lane), "level": str(level), "index": str(index)}


def _frozen_rows(opened: Opened) -> Frozen:
    """All tiles in one map tile's rows."""
    height = max((max(opened.report.memory.num_tiles, 1) - 1) // ROWS, 0).bit_length()
    for level in range(3):
        for index in range(1 << level):
            yield {"program": "0", "level": str(level), "index": str(index), "height": str(height), "chunk": "0"}


def _frozen_steps(opened: Opened) -> Frozen:
    for step in range(min(len(opened.report.steps), _FROZEN_STEPS)):
        yield {"step": str(step)}


def _lanes(opened: Opened, params: Params) -> tuple[int, GroupLanes]:
    program = params.number("program")
    if program not in _programs(opened):
        raise InvalidOptionError(
            f"the report has no program {program}", remedy=f"it has {counted(len(_programs(opened)), 'program')}"
        )
    return program, lanes_of(opened, program)


def _window(opened: Opened, params: Params) -> tuple[int, GroupLanes, int, int]:
    """The program of a map tile, its lanes as far as that needs them, level, index."""
    program, whole = _lanes(opened, params)
    level, index = _place(params)
    low, high = window(index, level, 0.0, float(whole.total))
    return program, lanes_in(opened, program, low, high), level, index


def _place(params: Params) -> tuple[int, int]:
    """Level and index of a map tile."""
    level = params.number("level", high=MOST_LEVEL)
    return level, params.number("index", high=(1 << level) - 1)


@question("timeline.outline", frozen=_frozen_programs, rank=1)
def outline(opened: Opened, params: Params) -> Answer:
    """The lanes of a program.

    Parameters: ``program``.

    Answer: head ``total`` cycles, ``parts``, ``lanes`` with ``name``, ``tiles``, ``end``, ``known``, ``spans`` and
    names of ``blocks``; ``note``, where the lanes do not show all executions; ``has_critical``, ``has_tiles``.
    """
    program, lanes = _lanes(opened, params)
    report = opened.report
    listed = []
    for lane, name in enumerate(lanes.names):
        group = int(lanes.group[lane])
        listed.append(
            {
                "name": _name(name),
                "tiles": int(report.groups["tiles"][group]) if group >= 0 else 0,
                "group": group,
                "end": int(lanes.end[lane]),
                "known": int(lanes.end[lane] if _is_beyond(opened, lanes, lanes.total) else lanes.known[lane]),
                "spans": int(lanes.first[lane + 1] - lanes.first[lane]),
                "blocks": list(dict.fromkeys(_block_names(opened, program, lanes, lane)))[:40],
            }
        )
    return Answer(
        {
            "total": lanes.total,
            "parts": list(PARTS),
            "lanes": listed,
            "made_of": lanes.made_of,
            "note": _note(report, lanes),
            "has_critical": bool(lanes.critical.any()),
            "has_tiles": bool(len(report.phase_tiles)) and bool((lanes.group >= 0).any()),
            "num_tiles": report.memory.num_tiles,
            "whole_height": max((max(report.memory.num_tiles, 1) - 1) // ROWS, 0).bit_length(),
            "inferred": owners_of(opened, program).inferred,
            "workers": min(int(report.target.get("num_workers", 0) or 0), 64),
            "tells_workers": bool(len(report.vertices)),
        }
    )


def _note(report: Report, lanes: GroupLanes) -> str:
    if lanes.made_of == COMPLETE:
        return ""
    if lanes.made_of == FIRST:
        if len(report.run_spans):
            return (
                f"The run has more executions than are unfolded at once. Up to cycle {lanes.held:,} all are at hand; "
                "beyond, bars are exact sums, and single executions where the window is short enough."
            )
        held = counted(len(lanes.step), "execution")
        known = int(lanes.known.max(initial=0))
        return (
            f"The report holds the first {held} of steps only: up to cycle {known:,} of {lanes.total:,}. "
            "What lies beyond is hatched."
        )
    return "The report does not say when steps run: each is drawn as long as all its executions, one after the other."


def _block_names(opened: Opened, program: int, held: GroupLanes, lane: int) -> list[str]:
    blocks = blocks_of(opened, program, held, lane)
    return [_name(word) for word in _words(opened.report, "block", np.unique(blocks.bars.row))]


def _words(report: Report, column: str, rows: Array) -> list[str]:
    held = report.steps.columns[column]
    assert isinstance(held, Text)
    return [held.words[code] for code in held.codes[rows].tolist()]


def _name(text: str) -> str:
    return shortened(text, _NAME_LETTERS)


@question("timeline.lanes", frozen=_frozen_tiles, rank=2)
def lanes(opened: Opened, params: Params) -> Answer:
    """What the lanes do in a map tile: level n cuts the run in 2^n tiles of 512 columns.

    Parameters: ``program``, ``level``, ``index``.

    Answer: head ``mode``. ``spans``: arrays ``lane``, ``start``, ``cycles``, ``step``, ``cuts`` (cycles to the end of
    each of four slots), ``part`` (of each slot) and ``critical`` (part of it on the critical path), with the ``names``
    of steps. ``shares``: ``shares`` uint8[lanes, 512, parts and unknown] in 255ths, ``critical`` uint8[lanes, 512].
    """
    program, held, level, index = _window(opened, params)
    low, high = window(index, level, 0.0, float(held.total))
    rows = [held.rows(lane, low, high) for lane in range(len(held))]
    head: dict[str, Any] = {"low": low, "high": high}
    if sum(r.stop - r.start for r in rows) <= MOST_SPANS and not _is_beyond(opened, held, high):
        at = np.concatenate([np.arange(r.start, r.stop) for r in rows])
        step = held.step[at]
        head |= {"mode": "spans", "names": _step_names(opened.report, step)}
        return Answer(
            head,
            {
                "lane": np.repeat(np.arange(len(rows)), [r.stop - r.start for r in rows]).astype(np.int32),
                "start": held.start[at],
                "cycles": held.cuts[at, -1],
                "step": step,
                "cuts": held.cuts[at].astype(np.float32),
                "part": held.part[step],
                "critical": held.critical[step].astype(np.float32),
            },
        )
    edges = edges_of(index, level, 0.0, float(held.total))
    widths = np.diff(edges)
    shares = np.empty((len(held), COLUMNS, len(PARTS) + 1), np.uint8)
    critical = np.empty((len(held), COLUMNS), np.uint8)
    for lane in range(len(held)):
        covered = _covered(opened, held, program, lane, edges)
        shares[lane] = stepped_shares(covered, widths)
        critical[lane] = np.rint(np.clip(held.critical_covered(lane, edges) / widths, 0, 1) * 255)
    return Answer(head | {"mode": "shares"}, {"shares": shares, "critical": critical})


def _is_beyond(opened: Opened, held: GroupLanes, high: float) -> bool:
    """True if the report knows more executions before a cycle than are at hand."""
    return high > held.held and held.made_of == FIRST and bool(len(opened.report.run_spans))


def _covered(opened: Opened, held: GroupLanes, program: int, lane: int, edges: npt.NDArray[np.float64]) -> Array:
    """Cycles of each part and of what is not known, float64[cells, parts + 1]."""
    if _is_beyond(opened, held, float(edges[-1])) and held.group[lane] >= 0:
        covered = looped_covered(opened, held, program, lane, edges)
        return np.concatenate([covered, np.zeros((len(covered), 1))], axis=1)
    return np.concatenate([held.covered(lane, edges), held.unknown(lane, edges)[:, None]], axis=1)


def _step_names(report: Report, step: Array) -> dict[str, str]:
    different = np.unique(step)
    return dict(zip(map(str, different.tolist()), map(_name, _words(report, "name", different)), strict=True))


@question("timeline.depth", frozen=once, rank=4)
def depth_of_flames(opened: Opened, params: Params) -> Answer:
    """How many rows flames have: head ``depth``."""
    return Answer({"depth": paths_of(opened).node.shape[1]})


@question("timeline.flame", frozen=_frozen_flames, rank=4)
def flame(opened: Opened, params: Params) -> Answer:
    """A lane by the names around its steps, in a map tile.

    Parameters: ``program``, ``lane``, ``level``, ``index``.

    Answer: arrays ``depth``, ``start``, ``cycles``, ``node`` (index into head ``names``), ``step`` (the first in it),
    ``part`` (what most of that step is), ``inner`` (1 where names follow below) and ``count`` (bars that each stands
    for; the longest of a column is shown); head ``beyond`` where there is too much to unfold.
    """
    program, held, level, index = _window(opened, params)
    lane = params.number("lane", high=len(held) - 1)
    edges = edges_of(index, level, 0.0, float(held.total))
    paths = paths_of(opened)
    columns: dict[str, list[Array]] = {
        name: [] for name in ("depth", "start", "cycles", "node", "step", "part", "inner", "count")
    }
    deeper = np.concatenate([paths.node[:, 1:] >= 0, np.zeros((len(paths.node), 1), dtype=bool)], axis=1)
    for depth, bars in enumerate(flame_of(opened, program, held, lane)):
        found = seen(bars, edges, _MOST_BARS)
        step = held.step[found.row]
        columns["depth"].append(np.full(len(step), depth, np.int32))
        columns["start"].append(found.begin)
        columns["cycles"].append(found.end - found.begin)
        columns["node"].append(paths.node[step, depth])
        columns["step"].append(step)
        columns["inner"].append(deeper[step, depth])
        columns["part"].append(_largest_part(opened, held)[step])
        columns["count"].append(found.count.astype(np.int32))
    arrays = {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in columns.items()}
    different, place = np.unique(arrays["node"].astype(np.int64), return_inverse=True)
    arrays["node"] = place.astype(np.int32)
    names = [_name(paths.names[n]) for n in different.tolist()]
    return Answer({"names": names, "beyond": _is_beyond(opened, held, float(edges[-1]))}, arrays)


def _largest_part(opened: Opened, held: GroupLanes) -> npt.NDArray[np.uint8]:
    """What most of each step is, as an index into ``PARTS``, uint8[steps]."""

    def make() -> npt.NDArray[np.uint8]:
        steps = opened.report.steps
        columns = [steps[f"{name}_cycles"] for name in ("sync", "exchange", "host", "compute")]
        slot = np.stack(columns, axis=1).argmax(axis=1) if len(steps) else np.zeros(0, np.int64)
        return np.asarray(held.part[np.arange(len(steps)), slot], np.uint8)

    return opened.once("largest parts of steps", make)


@question("timeline.blocks", frozen=_frozen_tiles, rank=3)
def blocks(opened: Opened, params: Params) -> Answer:
    """Runs of blocks, such as stages of a pipeline by micro-batch, on all lanes of a map tile.

    Parameters: ``program``, ``level``, ``index``.

    Answer: arrays ``lane``, ``start``, ``cycles``, ``number`` (which time it runs), ``name`` (index into head
    ``names``) and ``count`` (runs that each stands for).
    """
    program, held, level, index = _window(opened, params)
    edges = edges_of(index, level, 0.0, float(held.total))
    most = max(_MOST_BARS // max(len(held), 1), 16)
    columns: dict[str, list[Array]] = {name: [] for name in ("lane", "start", "cycles", "number", "name", "count")}
    names: dict[str, int] = {}
    for lane in np.flatnonzero(held.group >= 0).tolist():
        runs = blocks_of(opened, program, held, lane)
        places = type(runs.bars)(runs.bars.begin, runs.bars.end, np.arange(len(runs.bars)))
        found = seen(places, edges, most)
        words = [
            names.setdefault(_name(w), len(names)) for w in _words(opened.report, "block", runs.bars.row[found.row])
        ]
        columns["lane"].append(np.full(len(words), lane, np.int32))
        columns["start"].append(found.begin)
        columns["cycles"].append(found.end - found.begin)
        columns["number"].append(runs.number[found.row].astype(np.int32))
        columns["name"].append(np.array(words, np.int32))
        columns["count"].append(found.count.astype(np.int32))
    arrays = {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in columns.items()}
    return Answer({"names": list(names)}, arrays)


@question("timeline.tiles", frozen=_frozen_rows, rank=5)
def tiles(opened: Opened, params: Params) -> Answer:
    """What tiles do over time, in a map tile of 512 columns and 128 rows of 2^``height`` tiles.

    Parameters: ``program``, ``level``, ``index``, ``height``, ``chunk`` (which 128 rows).

    Answer: array ``edges``, first tile of each row and the end of the last. Head ``mode``: ``shares`` has array
    ``shares`` uint8[rows, 512, kinds]; ``spans`` has ``stretches`` of rows of one lane, each with its numbers of
    ``rows`` and ``spans``, and after each other ``start``, ``cuts``, ``step``, ``part`` of their spans and
    ``compute``, ``most``, ``exchange`` float32[spans, rows] of their rows.
    """
    program, held, level, index = _window(opened, params)
    height = params.number("height", high=24)
    edges = row_edges(opened.report.memory.num_tiles, height, params.number("chunk", high=1 << 24))
    low, high = window(index, level, 0.0, float(held.total))
    parts = stretches(owners_of(opened, program), edges)
    num_spans = sum(r.stop - r.start for r in (held.rows(part.lane, low, high) for part in parts))
    head: dict[str, Any] = {"kinds": list(KINDS), "low": low, "high": high}
    is_beyond = _is_beyond(opened, held, high)
    if num_spans <= _MOST_FINE and not is_beyond:
        return _fine(opened, held, parts, edges, head)
    columns = edges_of(index, level, 0.0, float(held.total))
    shares = np.zeros((max(len(edges) - 1, 0), COLUMNS, len(KINDS)), np.uint8)
    widths = np.diff(columns)
    for part in parts:
        if is_beyond:
            loops = loops_of(opened, held, program, part.lane)
            sums = looped_covered(opened, held, program, part.lane, columns)
            covered = looped_shares_by_tile(opened.report, held, part, columns, loops, sums)
        else:
            covered = shares_by_tile(opened.report, held, part, columns)
        rows = len(covered)
        flat = stepped_shares(covered.reshape(-1, len(KINDS)), np.tile(widths, rows))
        shares[part.first : part.first + rows] = flat.reshape(rows, COLUMNS, len(KINDS))
    return Answer(head | {"mode": "shares"}, {"edges": edges, "shares": shares})


def _fine(opened: Opened, held: GroupLanes, parts: list[Stretch], edges: Int64, head: dict[str, Any]) -> Answer:
    found = [fine_by_tile(opened.report, held, part, head["low"], head["high"]) for part in parts]
    listed = [
        {"first": part.first, "rows": len(part.edges) - 1, "lane": part.lane, "spans": len(fine.start)}
        for part, fine in zip(parts, found, strict=True)
    ]
    step = np.concatenate([np.zeros(0, np.int32), *(fine.step for fine in found)])
    arrays: dict[str, Array] = {
        "edges": edges,
        "step": step,
        "part": held.part[step],
        "start": np.concatenate([np.zeros(0, np.int64), *(fine.start for fine in found)]),
        "cuts": np.concatenate([np.zeros(0, np.float32), *(f.cuts.astype(np.float32).reshape(-1) for f in found)]),
        "vertices": vertices_for_workers(opened)[step],
    }
    for name in ("compute", "most", "exchange"):
        each = [getattr(fine, name).astype(np.float32).reshape(-1) for fine in found]
        arrays[name] = np.concatenate([np.zeros(0, np.float32), *each])
    return Answer(
        head | {"mode": "spans", "stretches": listed, "names": _step_names(opened.report, step)},
        arrays,
    )


@question("timeline.summary", frozen=_frozen_programs, rank=2)
def summary(opened: Opened, params: Params) -> Answer:
    """Figures of a run: what cycles go to, tile balance, bytes, lanes, and the critical path."""
    program, held = _lanes(opened, params)
    return Answer(opened.once(f"timeline summary {program}", lambda: summary_of(opened.report, held, program)))


@question("timeline.window")
def figures(opened: Opened, params: Params) -> Answer:
    """Figures of a window of the run.

    Parameters: ``program``, ``from`` and ``to`` in cycles; ``of``: ``all``, or ``lanes`` alone, which is quick.

    Answer: head ``lanes`` with ``cycles`` by part and ``unknown``; ``utilisation`` (mean part of the window in which a
    tile computes) and ``ops`` with most cycles: their name, row, executions begun or going on, cycles in the window.
    """
    program, held = _lanes(opened, params)
    low = params.real("from")
    high = max(params.real("to", float(held.total)), low)
    held = lanes_in(opened, program, low, high)
    edges = np.array([low, high], np.float64)
    report, steps = opened.report, opened.report.steps
    listed = []
    for lane, name in enumerate(held.names):
        covered = _covered(opened, held, program, lane, edges)[0]
        listed.append(
            {
                "name": _name(name),
                "group": int(held.group[lane]),
                "cycles": dict(zip(PARTS, covered[:-1].tolist(), strict=True)),
                "unknown": float(covered[-1]),
                "critical": float(held.critical_covered(lane, edges)[0]),
            }
        )
    if params.choice("of", ("all", "lanes")) == "lanes":
        return Answer({"low": low, "high": high, "lanes": listed})
    owned = [lane for lane in range(len(held)) if held.group[lane] >= 0 or held.made_of not in (COMPLETE, FIRST)]
    at = np.concatenate(
        [np.zeros(0, np.int64), *(np.arange(s.start, s.stop) for s in (held.rows(n, low, high) for n in owned))]
    )
    step = held.step[at]
    inside = np.minimum(held.stop[at], high) - np.maximum(held.start[at], low)
    part = inside / np.maximum(held.cuts[at, -1], 1)
    lane_tiles = np.zeros(len(held))
    for lane in owned:
        group = int(held.group[lane])
        lane_tiles[lane] = report.groups["tiles"][group] if group >= 0 else report.memory.num_tiles
    owner = np.searchsorted(held.first, at, side="right") - 1
    work = part * (held.cuts[at, 3] - held.cuts[at, 2]) * steps["tile_balance"][step] * lane_tiles[owner]
    whole = float(lane_tiles.sum()) * (high - low)
    return Answer(
        {
            "low": low,
            "high": high,
            "lanes": listed,
            "executions": len(at),
            "utilisation": float(work.sum()) / whole if whole else 0.0,
            "ops": _ops_in(report, held, at, step, inside),
        }
    )


def _ops_in(report: Report, held: GroupLanes, at: Int64, step: Array, inside: Array) -> list[dict[str, Any]]:
    """Operations by their cycles in a window; what several groups do at once counts once."""
    once = first_of_each(held.start[at], step)
    op = report.steps["op"][step[once]]
    cycles = np.bincount(op + 1, inside[once], len(report.ops) + 1)
    times = np.bincount(op + 1, minlength=len(report.ops) + 1)
    rows = np.argsort(-cycles, kind="stable")[:_MOST_OPS]
    rows = rows[times[rows] > 0]
    names, kinds, paths = (report.ops[column] for column in ("name", "kind", "path"))
    return [
        {
            "row": row - 1,
            "name": _name(str(names[row - 1])) if row else "steps of no operation",
            "kind": _name(str(kinds[row - 1])) if row else "",
            "path": _name(str(paths[row - 1])) if row else "",
            "cycles": float(cycles[row]),
            "executions": int(times[row]),
        }
        for row in rows.tolist()
    ]


@question("timeline.at")
def at_cycle(opened: Opened, params: Params) -> Answer:
    """The execution on a lane at a cycle.

    Parameters: ``program``, ``lane``, ``at``.

    Answer: head ``step`` (-1 where the lane waits), ``start``, ``cycles``, ``number`` (which of its executions it is)
    and ``of`` (how many the report holds).
    """
    program, held = _lanes(opened, params)
    lane, at = params.number("lane", high=len(held) - 1), params.real("at")
    held = lanes_in(opened, program, max(at - 1, 0), at + 1)
    rows = held.rows(lane, at, at + 0.5)
    if rows.stop <= rows.start:
        return Answer({"step": -1})
    row, first = rows.start, int(held.first[lane])
    step = int(held.step[row])
    same = np.count_nonzero(held.step[first : row + 1] == step)
    after = np.count_nonzero(held.step[row + 1 : held.first[lane + 1]] == step)
    return Answer(
        {
            "step": step,
            "start": int(held.start[row]),
            "cycles": int(held.cuts[row, -1]),
            "number": same,
            "of": same + after,
        }
    )


@question("timeline.find")
def find(opened: Opened, params: Params) -> Answer:
    """Executions of the steps whose names, blocks or operations hold some words, in order of time.

    Parameters: ``program``, ``text``.

    Answer: head ``steps`` (how many), ``total`` executions; arrays ``lane``, ``start``, ``cycles``, ``step``.
    """
    _, held = _lanes(opened, params)
    words = params.text("text").casefold().split()
    wanted = np.full(len(opened.report.steps), bool(words))
    for word in words:
        wanted &= _named(opened.report, word)
    group_lanes = int((held.group >= 0).sum()) or len(held)
    last = int(held.first[group_lanes])
    at = np.flatnonzero(wanted[held.step[:last]])
    total = len(at)
    order = at[np.argsort(held.start[at], kind="stable")][:_MOST_FOUND]
    return Answer(
        {"total": total, "steps": int(np.count_nonzero(wanted)), "names": {}},
        {
            "lane": (np.searchsorted(held.first, order, side="right") - 1).astype(np.int32),
            "start": held.start[order],
            "cycles": held.cuts[order, -1],
            "step": held.step[order],
        },
    )


def _named(report: Report, word: str) -> npt.NDArray[np.bool_]:
    """Steps that have a word in their name, block or operation."""

    def holds(column: Array | Text) -> npt.NDArray[np.bool_]:
        assert isinstance(column, Text)
        hits = np.array([word in w.casefold() for w in column.words], dtype=bool)
        return np.asarray(hits[column.codes] if len(hits) else np.zeros(len(column), dtype=bool), np.bool_)

    found = holds(report.steps.columns["name"]) | holds(report.steps.columns["block"])
    if len(report.ops):
        op = report.steps["op"]
        found = found | (holds(report.ops.columns["name"])[np.maximum(op, 0)] & (op >= 0))
    return found


@question("timeline.step", frozen=_frozen_steps, rank=6)
def step(opened: Opened, params: Params) -> Answer:
    """All that the report says of a step.

    Parameters: ``step``, its row; ``program``.

    Answer: head with its columns, those of its operation under ``operation``, ``groups``, and executions that the
    report holds; arrays ``compute``, ``exchange`` float32[256]: the most that a tile does, by bucket of tiles.
    """
    report = opened.report
    row = params.number("step", high=2**31)
    if row >= len(report.steps):
        raise InvalidOptionError(f"no step {row}", remedy=f"the report has {counted(len(report.steps), 'step')}")
    picked = report.steps.select(np.array([row]))
    head: dict[str, Any] = {name: picked[name][0] for name in picked.names}
    head["name"] = shortened(str(head["name"]), 1_000)
    op = int(head["op"])
    operation = report.ops.select(np.array([op])) if 0 <= op < len(report.ops) else None
    head["operation"] = {n: operation[n][0] for n in operation.names} if operation is not None else None
    head["groups"] = report.groups_of(row)[:64]
    head["row"] = row
    lanes = lanes_of(opened, int(head["program"]))
    head["critical"] = float(lanes.critical[row])
    head["held"] = int(np.count_nonzero(lanes.step[: lanes.first[int((lanes.group >= 0).sum()) or len(lanes)]] == row))
    compute = report.step_by_tile("compute_cycles", row)
    moved = np.maximum(report.step_by_tile("sent_bytes", row), report.step_by_tile("received_bytes", row))
    head["slowest_tile"] = int(compute.argmax()) if len(compute) and compute.any() else -1
    head["busiest_tile"] = int(moved.argmax()) if len(moved) and moved.any() else -1
    head["num_tiles"] = len(compute)
    return Answer(head, {"compute": _bucketed(compute), "exchange": _bucketed(moved)})


def _bucketed(values: Int64) -> npt.NDArray[np.float32]:
    """The largest of each bucket of neighbouring tiles."""
    if not len(values):
        return np.zeros(0, np.float32)
    edges = np.unique(np.linspace(0, len(values), min(_BUCKETS, len(values)) + 1).astype(np.int64))
    return np.maximum.reduceat(values, edges[:-1]).astype(np.float32)
