"""Vertices at work: tiles that wait for the slowest one, and what the others would need."""

from __future__ import annotations

import numpy as np

from abele.report.insights.element_types import ElementTypes, is_product
from abele.report.insights.model import Cost, Lever
from abele.report.insights.op_groups import OpGroup
from abele.report.text import count_text, percent_text
from abele.words import counted, visible

_UNBALANCED = 0.3
"""Part of the cycles in which tiles wait, from which on balance is what the cost is about."""
_EVEN = 0.9
"""Mean of the tiles that compute, as part of the slowest one, from which on they have the same to do."""
_ONE_VERTEX = 0.5
"""Part of what the slowest tile does from which on one vertex is worth telling."""
_WORTH = 0.02
"""Part of the cost below which a lever is not told."""


def compute_cost(group: OpGroup, types: ElementTypes) -> Cost:
    """What the vertices of some operations cost, and what would help."""
    steps, mine = group.steps, group.at
    cycles = group.cycles[mine]
    on_active = float((steps.times * steps.mean_of_active)[mine].sum())
    # No tile computes for less than starting it costs.
    started = np.minimum(steps.times * steps.sides["sync"], group.cycles)[mine]
    on_all = float(np.maximum(cycles * steps.balance[mine], started).sum())
    waiting = group.total - on_all
    levers = [*_spread(group, on_active, on_all), *_workers(group), *_half(group, types)]
    unbalanced = waiting >= _UNBALANCED * group.total
    slowest = steps.slowest_tile(group.worst_row)
    return Cost(
        kind="balance" if unbalanced else "compute",
        title=f"compute of {group.title}",
        reason=_reason(group, on_active, on_all, unbalanced=unbalanced),
        where=group.where,
        op=group.op,
        step=group.worst_row,
        cycles=group.total,
        share=group.share,
        levers=tuple(levers),
        view="tiles" if unbalanced else "operations",
        select={
            "op": group.op,
            "step": group.worst_row,
            **({"tile": slowest} if unbalanced and slowest >= 0 else {}),
        },
    )


def _reason(group: OpGroup, on_active: float, on_all: float, *, unbalanced: bool) -> str:
    steps, at = group.steps, group.worst
    active, tiles = int(steps.active_tiles[at]), int(steps.tiles[at])
    if unbalanced and active < tiles and group.total - on_active <= on_active - on_all:
        return f"it computes on {active:,} of {counted(tiles, 'tile')}; the others wait"
    if unbalanced:
        slowest, mean = int(steps.column("compute_cycles")[at]), float(steps.mean_of_active[at])
        tile = steps.slowest_tile(group.worst_row)
        which = f"tile {tile:,} takes" if tile >= 0 else "it takes"
        return (
            f"tiles wait for the slowest: {which} {count_text(slowest)} cycles, the mean "
            f"of {counted(active, 'tile')} that compute {count_text(mean)}, "
            f"balance {percent_text(float(steps.balance[at]))}{_largest_vertex(group, slowest)}"
        )
    ops = np.unique(steps.op[group.at])
    flops = int(steps.report.ops["flops"][ops].sum()) if steps.program == 0 else 0
    rate = f", {count_text(flops / group.total)} operations a cycle on all tiles" if flops else ""
    balance = percent_text(on_all / group.total)
    return f"its vertices keep {active:,} of {counted(tiles, 'tile')} busy, balance {balance}{rate}"


def _largest_vertex(group: OpGroup, slowest: int) -> str:
    """That one vertex takes most of what the slowest tile does, where the report tells it and it is so."""
    name, _, cycles = max(group.steps.vertices_of(group.worst_row), key=lambda found: found[2], default=("", "", 0))
    if cycles < _ONE_VERTEX * slowest:
        return ""
    return f"; one vertex, of {visible(name)}, takes {count_text(cycles)} of them"


def _spread(group: OpGroup, on_active: float, on_all: float) -> list[Lever]:
    steps, at = group.steps, group.worst
    active, tiles = int(steps.active_tiles[at]), int(steps.tiles[at])
    levers = []
    if on_active - on_all > _WORTH * group.total:
        levers.append(
            Lever(
                f"map it over all {counted(tiles, 'tile')} instead of {active:,}",
                gain_cycles=steps.at_most(group.total - on_all, group.worst_row),
                assumption="its work divides evenly over all tiles, down to what starting it costs; what moves to them "
                "comes on top",
                at_most=True,
            )
        )
    if group.total - on_active > _WORTH * group.total:
        levers.append(
            Lever(
                f"spread its work evenly over the {counted(active, 'tile')} that compute",
                gain_cycles=steps.at_most(group.total - on_active, group.worst_row),
                assumption="each of these tiles takes what the mean of them takes now (slowest less mean)",
                at_most=len(steps.group_rows) > 1,
            )
        )
    return levers


def _workers(group: OpGroup) -> list[Lever]:
    """Single-worker vertices that leave workers idle.

    Files that do not hold which codelets a superstep runs may tell it of the user's own compute sets alone.
    """
    steps, mine = group.steps, group.at
    workers = int(steps.report.target.get("num_workers", 0))
    active = np.maximum(steps.active_tiles[mine], 1)
    each = -(-steps.column("num_vertices")[mine] // active)
    # Where tiles do not have the same to do, the slowest one may well have more vertices than the mean.
    alike = steps.mean_of_active[mine] >= _EVEN * steps.column("compute_cycles")[mine]
    idle = np.where(alike & (each > 0), 1 - each / max(workers, 1), 0.0).clip(0.0)
    gain = float((group.cycles[mine] * idle).sum())
    codelets = {kind for _, kind, _ in steps.vertices_of(group.worst_row)}
    single = codelets == {"vertex"} if codelets else group.kind == "compute set"
    if not single or gain < _WORTH * group.total:
        return []
    has = int(each[int(np.argmax(group.cycles[mine] * idle))])
    return [
        Lever(
            f"more vertices on each tile: {has} of {workers} workers have one",
            gain_cycles=steps.at_most(gain, group.worst_row),
            assumption=f"the work of its single-worker vertices (Vertex) divides evenly over {workers}",
            at_most=True,
        )
    ]


def _half(group: OpGroup, types: ElementTypes) -> list[Lever]:
    """Products of f32 are slower than those of f16 by the ratio of the peaks, and their data is twice as long."""
    steps, target = group.steps, group.steps.report.target
    single, half = (float(target.get(f"{name}_flops_per_second", 0)) for name in ("f32", "f16"))
    if (
        not is_product(group.kind)
        or types.of(group.op, steps.title_of(group.op, group.worst_row)) != "f32"
        or half <= single
    ):
        return []
    moved = sum(float(steps.on_path(side)[group.mask].sum()) for side in ("exchange", "arrange"))
    return [
        Lever(
            "half precision: operands in f16",
            gain_cycles=steps.at_most(group.total * (1 - single / half) + moved / 2, group.worst_row),
            assumption=f"products of f16 take {percent_text(single / half)} of the cycles of f32, the ratio of the "
            "machine's peaks, and moving their data half; results are rounded otherwise",
            at_most=True,
            changes_numbers=True,
        )
    ]
