"""Figures of the run and of a window of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array, Int64
from abele.report import Report
from abele.report.block_runs import meets_host
from abele.report.text_column import Text
from abele.viewer.answers.registry import question
from abele.viewer.answers.timeline_asked import covered_in, frozen_programs, lanes_asked, short_name
from abele.viewer.lanes import COMPLETE, FIRST, PARTS, SLOTS, GroupLanes, first_of_each, lanes_in, parts_of_steps
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer
from abele.words import shortened

# Figures of a run of a program: what cycles go to, lanes, bytes, and the chain of steps that bounds it.

_MOST_LINKS = 200
_MOST_STAGES = 12
_NAME_LETTERS = 200
_BYTES = {"exchange": "", "host": "host", "memory": "streaming memory", "replicas": "replicas"}
"""Partners of exchanges, by which bytes are told."""


def summary_of(report: Report, lanes: GroupLanes, program: int) -> dict[str, Any]:
    """The figures of a run, as plain data."""
    parts = _parts(report)
    steps = report.steps
    mine = steps["program"] == program
    times = np.where(mine, steps["executions"], 0).astype(np.int64)
    cycles = {part: int(np.dot(times, each)) for part, each in parts.items()}
    found = [_lane(report, lanes, lane, parts) for lane in np.flatnonzero(lanes.group >= 0).tolist()]
    run = report.cycles(program)
    groups = report.groups.where("program", program)
    offered = float(np.dot(groups["tiles"].astype(np.float64), groups["compute_cycles"]))
    computed = float(report.program_by_tile("compute_cycles", program).sum())
    counted = steps.columns["basis"]
    assert isinstance(counted, Text)
    basis = {w: int((mine & (counted.codes == n)).sum()) for n, w in enumerate(counted.words) if w}
    return {
        "total": lanes.total,
        "cycles": cycles,
        "hidden": float(run.hidden),
        "bubble_share": float(np.mean([lane["bubble"] for lane in found])) / lanes.total if found else 0.0,
        "at_once": sum(sum(lane["cycles"].values()) for lane in found) / lanes.total if found else 1.0,
        "tile_balance": computed / offered if offered else 0.0,
        "efficiency": computed / (max(report.memory.num_tiles, 1) * lanes.total),
        "bytes": _bytes(report, times),
        "executions": int(times.sum()),
        "steps": int(np.count_nonzero(mine)),
        "basis": basis,
        "figures_of": _of(report.meta.get("figures_of"), program),
        "replicas": int(report.target.get("num_replicas", 1) or 1),
        "lanes": found,
        "critical": critical_links(report, program),
    }


def _of(names: Any, program: int) -> str:
    return str(names[program]) if isinstance(names, list | tuple) and program < len(names) else ""


def _parts(report: Report) -> dict[str, Int64]:
    """Cycles of one execution of each step by part, int64[steps] each."""
    steps, part = report.steps, parts_of_steps(report)
    slots = [steps[f"{name}_cycles"] for name in ("sync", "exchange", "host", "compute")]
    return {
        name: np.sum([np.where(part[:, s] == n, slots[s], 0) for s in range(SLOTS)], axis=0, dtype=np.int64)
        for n, name in enumerate(PARTS)
    }


def _bytes(report: Report, times: Int64) -> dict[str, int]:
    steps = report.steps
    partner = steps.columns["partner"]
    assert isinstance(partner, Text)
    moved = times * steps["exchanged_bytes"]
    found = {}
    for name, word in _BYTES.items():
        code = partner.words.index(word) if word in partner.words else -1
        found[name] = int(moved[partner.codes == code].sum())
    return found


def _lane(report: Report, lanes: GroupLanes, lane: int, parts: dict[str, Int64]) -> dict[str, Any]:
    """Facts of one sync group in a run."""
    steps, group = report.steps, int(lanes.group[lane])
    relation = report.step_groups
    first = relation["first_group"]
    rows = relation["step"][(first <= group) & (group < first + relation["num_groups"])]
    times = np.zeros(len(steps), np.int64)
    times[rows] = steps["executions"][rows]
    ran = np.flatnonzero((times > 0) & ~meets_host(report))
    block = steps.columns["block"]
    assert isinstance(block, Text)
    ran = ran[np.argsort(steps["start_cycle"][ran], kind="stable")]
    codes, place = np.unique(block.codes[ran], return_index=True)
    stages = [block.words[codes[n]] for n in np.argsort(place).tolist()]
    return {
        "name": shortened(lanes.names[lane], _NAME_LETTERS),
        "cycles": {part: int(np.dot(times, each)) for part, each in parts.items()},
        "bubble": int(report.groups["idle_cycles"][group]),
        "tiles": int(report.groups["tiles"][group]),
        "tile_balance": float(report.groups["tile_balance"][group]),
        "stages": [shortened(stage, _NAME_LETTERS) for stage in stages if stage][:_MOST_STAGES],
        "bytes": _bytes(report, times),
    }


def critical_links(report: Report, program: int) -> list[dict[str, Any]]:
    """Cycles on the critical path, by stage or operation and sync groups; the largest first.

    The figures of ``report.timeline().critical_path``, whatever the number of steps.
    """
    steps = report.steps
    chain = report.critical.where("program", program)
    step = chain["step"].astype(np.int64)
    if not len(step):
        return []
    block, name = steps.columns["block"], steps.columns["name"]
    assert isinstance(block, Text)
    assert isinstance(name, Text)
    key = np.stack([*_names(report, step), _group_sets(report)[step]])
    links, first, which = np.unique(key, axis=1, return_index=True, return_inverse=True)
    whole = np.maximum(steps["cycles"][step], 1)
    cycles = np.bincount(which.reshape(-1), chain["cycles"], links.shape[1])
    shares = {
        part: np.bincount(which.reshape(-1), each[step] * (chain["cycles"] / whole), links.shape[1])
        for part, each in _parts(report).items()
    }
    starts = np.full(links.shape[1], np.iinfo(np.int64).max)
    np.minimum.at(starts, which.reshape(-1), steps["start_cycle"][step])
    order = np.argsort(-cycles, kind="stable")[:_MOST_LINKS]
    return [
        {
            "name": shortened(_name_of(report, int(step[first[n]])), _NAME_LETTERS),
            "where": report.groups_of(int(step[first[n]]))[:64],
            "step": int(step[first[n]]),
            "op": int(steps["op"][step[first[n]]]),
            "cycles": float(cycles[n]),
            "parts": {part: float(each[n]) for part, each in shares.items() if each[n]},
            "start": int(starts[n]),
        }
        for n in order.tolist()
    ]


def _names(report: Report, step: Int64) -> tuple[Int64, Int64]:
    """Names of steps: their block, else their operation, else their name: a kind and a code for each."""
    steps = report.steps
    block, name = steps.columns["block"], steps.columns["name"]
    assert isinstance(block, Text)
    assert isinstance(name, Text)
    unnamed = [n for n, word in enumerate(block.words) if not word]
    in_block = ~np.isin(block.codes[step], unnamed)
    op = steps["op"][step].astype(np.int64)
    op_name = report.ops.columns["name"]
    assert isinstance(op_name, Text)
    of_op = op_name.codes[np.maximum(op, 0)] if len(op_name) else np.zeros(len(op), np.int64)
    kind = np.where(in_block, 0, np.where(op >= 0, 1, 2))
    code = np.select([kind == 0, kind == 1], [block.codes[step], of_op], name.codes[step])
    return kind.astype(np.int64), code.astype(np.int64)


def _name_of(report: Report, step: int) -> str:
    steps = report.steps.select(np.array([step]))
    if str(steps["block"][0]):
        return str(steps["block"][0])
    op = int(steps["op"][0])
    return str(report.ops.select(np.array([op]))["name"][0]) if op >= 0 else str(steps["name"][0])


def _group_sets(report: Report) -> Int64:
    """A number for the set of sync groups of each step, int64[steps]."""
    relation = report.step_groups
    mixed = relation["first_group"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) + relation["num_groups"].astype(np.uint64) * np.uint64(
        0xBF58476D1CE4E5B9
    )
    mixed ^= mixed >> np.uint64(32)
    found = np.zeros(len(report.steps), np.uint64)
    np.add.at(found, relation["step"], mixed)
    return found.view(np.int64)


_MOST_OPS = 500


@question("timeline.summary", frozen=frozen_programs, rank=2)
def summary(opened: Opened, params: Params) -> Answer:
    """Figures of a run: what cycles go to, tile balance, bytes, lanes, and the critical path."""
    program, held = lanes_asked(opened, params)
    return Answer(opened.once(f"timeline summary {program}", lambda: summary_of(opened.report, held, program)))


@question("timeline.window")
def figures(opened: Opened, params: Params) -> Answer:
    """Figures of a window of the run.

    Parameters: ``program``, ``from`` and ``to`` in cycles; ``of``: ``all``, or ``lanes`` alone, which is quick.

    Answer: head ``lanes`` with ``cycles`` by part and ``unknown``; ``utilisation`` (mean part of the window in which a
    tile computes) and ``ops`` with most cycles: their name, row, executions begun or going on, cycles in the window.
    """
    program, held = lanes_asked(opened, params)
    low = params.real("from")
    high = max(params.real("to", float(held.total)), low)
    held = lanes_in(opened, program, low, high)
    edges = np.array([low, high], np.float64)
    report, steps = opened.report, opened.report.steps
    # Parts of the window by lane, from sums that need no executions.
    listed = []
    for lane, name in enumerate(held.names):
        covered = covered_in(opened, held, program, lane, edges)[0]
        listed.append(
            {
                "name": short_name(name),
                "group": int(held.group[lane]),
                "cycles": dict(zip(PARTS, covered[:-1].tolist(), strict=True)),
                "unknown": float(covered[-1]),
                "critical": float(held.critical_covered(lane, edges)[0]),
            }
        )
    if params.choice("of", ("all", "lanes")) == "lanes":
        return Answer({"low": low, "high": high, "lanes": listed})
    # Executions that touch the window, of lanes with tiles; each counts by its part inside.
    owned = [lane for lane in range(len(held)) if held.group[lane] >= 0 or held.made_of not in (COMPLETE, FIRST)]
    at = np.concatenate(
        [np.zeros(0, np.int64), *(np.arange(s.start, s.stop) for s in (held.rows(n, low, high) for n in owned))]
    )
    step = held.step[at]
    inside = np.minimum(held.stop[at], high) - np.maximum(held.start[at], low)
    part = inside / np.maximum(held.cuts[at, -1], 1)
    # Utilisation weighs compute cycles with the tiles of the lane and their balance.
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
            "name": short_name(str(names[row - 1])) if row else "steps of no operation",
            "kind": short_name(str(kinds[row - 1])) if row else "",
            "path": short_name(str(paths[row - 1])) if row else "",
            "cycles": float(cycles[row]),
            "executions": int(times[row]),
        }
        for row in rows.tolist()
    ]
