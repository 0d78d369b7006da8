"""Vertices at work: tiles that wait for the slowest one, and the work of the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from abele.arrays import Float64, Int64
from abele.report.insights.element_types import ElementTypes, is_product
from abele.report.insights.model import Cost, Lever
from abele.report.insights.op_groups import OpGroup
from abele.report.text import count_text, percent_text
from abele.words import counted, visible

_UNBALANCED = 0.3
"""Share of waiting in the cycles above which balance is the cost's subject."""
_EVEN = 0.9
"""Mean of the tiles at work, as part of the slowest one, above which they have equal work."""
_ONE_VERTEX = 0.5
"""Part of the slowest tile's work above which one vertex is named."""
_WORTH = 0.05
"""Part of the cost below which a lever is not listed."""


class _Waiting(NamedTuple):
    """Cycles that tiles wait for each other in the compute sets of some operations.

    Attributes:
        group: The operations.
        at: The step in which tiles wait longest, as a place among those of the program.
        on_active: Cycles of a run if work were spread evenly over the tiles that compute.
        on_all: The same over all tiles of the sync groups, none of which computes for less than starting it costs.
    """

    group: OpGroup
    at: int
    on_active: float
    on_all: float

    @staticmethod
    def of(group: OpGroup) -> _Waiting:
        """Of a group of operations."""
        steps, mine = group.steps, group.at
        cycles = group.cycles[mine]
        started = np.minimum(steps.times * steps.sides["sync"], group.cycles)[mine]
        even = np.maximum(cycles * steps.balance[mine], started)
        on_active = float((steps.times * steps.mean_of_active)[mine].sum())
        return _Waiting(group, int(mine[np.argmax(cycles - even)]), on_active, float(even.sum()))

    @property
    def row(self) -> int:
        """That step as a row of the steps table."""
        return int(self.group.steps.rows[self.at])

    @property
    def cycles(self) -> float:
        """Cycles of a run in which tiles wait."""
        return self.group.total - self.on_all

    @property
    def active(self) -> int:
        """Tiles that compute in that step."""
        return int(self.group.steps.active_tiles[self.at])

    @property
    def tiles(self) -> str:
        """All tiles of its sync groups, in words."""
        return counted(int(self.group.steps.tiles[self.at]), "tile")


def compute_cost(group: OpGroup, types: ElementTypes) -> Cost:
    """Cost of the vertices of some operations, with levers."""
    waiting = _Waiting.of(group)
    unbalanced = waiting.cycles >= _UNBALANCED * group.total
    at, row = (waiting.at, waiting.row) if unbalanced else (group.worst, group.worst_row)
    op, tile = int(group.steps.op[at]), group.steps.slowest_tile(row) if unbalanced else -1
    return Cost(
        kind="balance" if unbalanced else "compute",
        title=f"compute of {group.title}",
        reason=_unbalanced(waiting, tile) if unbalanced else _balanced(waiting),
        where=group.where,
        op=op,
        step=row,
        cycles=group.total,
        share=group.share,
        levers=(*_spread(waiting), *_workers(group), *_half(group, types)),
        view="tiles" if unbalanced else "operations",
        select={"op": op, "step": row, **({"tile": tile} if tile >= 0 else {})},
    )


def _balanced(waiting: _Waiting) -> str:
    """Sentence on the busy tiles where they do not wait for each other."""
    group, steps = waiting.group, waiting.group.steps
    active, tiles = int(steps.active_tiles[group.worst]), counted(int(steps.tiles[group.worst]), "tile")
    ops = np.unique(steps.op[group.at])
    flops = int(steps.report.ops["flops"][ops].sum()) if steps.program == 0 else 0
    rate = f", {count_text(flops / group.total)} operations a cycle on all tiles" if flops else ""
    balance = percent_text(waiting.on_all / group.total)
    return f"its vertices keep {active:,} of {tiles} busy, balance {balance}{rate}"


def _unbalanced(waiting: _Waiting, tile: int) -> str:
    """Why tiles wait, in the step in which they wait longest."""
    group, steps, at = waiting.group, waiting.group.steps, waiting.at
    slowest, mean = int(steps.column("compute_cycles")[at]), float(steps.mean_of_active[at])
    op = int(steps.op[at])
    inside = f"in {steps.title_of(op, waiting.row)} " if op != group.op else ""
    idle = int(steps.tiles[at]) - waiting.active
    if idle and (slowest - mean) * waiting.active <= mean * idle:
        return f"{inside}it computes on {waiting.active:,} of {waiting.tiles}; the others wait"
    which = f"tile {tile:,} takes" if tile >= 0 else "it takes"
    return (
        f"{inside}tiles wait for the slowest: {which} {count_text(slowest)} cycles, the mean "
        f"of {counted(waiting.active, 'tile')} that compute {count_text(mean)}, "
        f"balance {percent_text(float(steps.balance[at]))}{_largest_vertex(waiting, slowest)}"
    )


def _largest_vertex(waiting: _Waiting, slowest: int) -> str:
    """Sentence that one vertex takes most of the slowest tile's cycles, where the report shows that."""
    vertices = waiting.group.steps.vertices_of(waiting.row)
    name, _, cycles = max(vertices, key=lambda found: found[2], default=("", "", 0))
    if cycles < _ONE_VERTEX * slowest:
        return ""
    return f"; one vertex, of {visible(name)}, takes {count_text(cycles)} of them"


def _spread(waiting: _Waiting) -> list[Lever]:
    """Wider and more even mappings."""
    group, steps = waiting.group, waiting.group.steps
    several = len(np.unique(steps.op[group.at])) > 1
    levers = []
    if waiting.on_active - waiting.on_all > _WORTH * group.total:
        instead = "" if several else f" instead of {waiting.active:,}"
        levers.append(
            Lever(
                f"map {'them' if several else 'it'} over all {waiting.tiles}{instead}",
                gain_cycles=steps.at_most(waiting.cycles, waiting.row),
                assumption="its work divides evenly over all tiles, down to what starting it costs; what moves to them "
                "comes on top",
                at_most=True,
            )
        )
    if group.total - waiting.on_active > _WORTH * group.total:
        which = "tiles that compute" if several else f"{counted(waiting.active, 'tile')} that compute"
        levers.append(
            Lever(
                f"spread its work evenly over the {which}",
                gain_cycles=steps.at_most(group.total - waiting.on_active, waiting.row),
                assumption="each of these tiles takes what the mean of them takes now (slowest less mean)",
                at_most=len(steps.group_rows) > 1,
            )
        )
    return levers


def _workers(group: OpGroup) -> list[Lever]:
    """Workers that have nothing to do while others of their tile or of other tiles do."""
    steps, mine = group.steps, group.at
    workers = int(steps.report.target.get("num_workers", 0))
    each = -(-steps.column("num_vertices")[mine] // np.maximum(steps.active_tiles[mine], 1))
    compute, even = steps.column("compute_cycles")[mine], steps.even_workers[mine]
    saved = np.where(np.isnan(even), _idle_cycles(group, each, workers), compute - even).clip(0.0)
    gains = steps.times[mine] * saved
    gain, at = float(gains.sum()), int(np.argmax(gains))
    if gain < _WORTH * group.total or (even[at] > 0 and compute[at] - even[at] <= _WORTH * compute[at]):
        return []
    has = int(each[at])
    few = f"more vertices on each tile: {has} of {workers} workers have one"
    return [
        Lever(
            few if has < workers else "deal its vertices evenly over the workers, the longest ones first",
            gain_cycles=steps.at_most(gain, group.worst_row),
            assumption=f"its single-worker vertices (Vertex) can be dealt so that each of the {workers} workers of the "
            "tiles that compute has the same to do",
            at_most=True,
        )
    ]


def _idle_cycles(group: OpGroup, each: Int64, workers: int) -> Float64:
    """Compute cycles that all workers would save, by the number of vertices, float64[steps of the group].

    Files that do not hold which codelets a superstep runs may tell it of the user's own compute sets alone; and where
    tiles do not have the same to do, the slowest one may well have more vertices than the mean.
    """
    steps, mine = group.steps, group.at
    compute = steps.column("compute_cycles")[mine].astype(np.float64)
    alike = steps.mean_of_active[mine] >= _EVEN * compute
    known = alike & (each > 0) & (group.kind == "compute set") & (len(steps.report.vertices) == 0)
    return np.where(known, compute * (1 - each / max(workers, 1)), 0.0)


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
