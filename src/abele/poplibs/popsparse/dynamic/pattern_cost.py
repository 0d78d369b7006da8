"""Cost of one pattern on a plan: cycles of its vertices by their formulas, from its buckets.

The compiled program is costed with full buckets, the worst that the plan allows. A given pattern leaves most of them
emptier, and its fullest cell decides. Every tile of a cell does the same work in the first step; of a pass, each step
is as long as the longest sub-group that has come to its cell.

Example: cells of 90 and 110 blocks on one plan: the first step takes what 110 blocks take, on all tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Float64, Int64
from abele.poplibs.popsparse.dynamic import costs
from abele.poplibs.popsparse.dynamic.buckets import SubGroups, sub_groups_of
from abele.poplibs.popsparse.dynamic.costs import WORKERS, VertexWork
from abele.poplibs.popsparse.dynamic.partitioner import BucketPlacement
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.dynamic.work import vertex_cycles


@dataclass(frozen=True)
class PatternCost:
    """Cycles of a pattern's vertices in one pass over the matrix.

    Attributes:
        first: Cycles of the products of the first step, on the busiest tile.
        mean: The same on the mean tile.
        passes: Cycles of one step of each further pass [passes]; 0 where nothing is computed.
        turns: Passes among them that move along x.
    """

    first: int
    mean: float
    passes: Int64
    turns: int

    @property
    def imbalance(self) -> float:
        """Busiest tile over the mean one, in the first step."""
        return self.first / self.mean if self.mean else 1.0


def pattern_cost(placement: BucketPlacement, name: str = "fwd") -> PatternCost:
    """The cost of a pass (``fwd`` or ``gradA``) on a placed pattern.

    Source: popsparse.md §5 (a vertex starts in 30 cycles, and skips a sub-group of others in 33).
    """
    plan, placed = placement.plan, placement.placed
    (px, py, pz), num_cells = plan.parts, plan.num_cells
    groups = sub_groups_of(placed.bucket, placed.cell, placed.row)
    cycles = _cycles_of(plan, name, groups)
    home = groups.bucket // pz % num_cells
    matrix = groups.bucket // plan.group_tiles
    near = home == groups.cell
    cells = np.bincount((matrix * num_cells + groups.cell)[near], cycles[near], plan.layer.numGroups * num_cells)
    skipped = costs.supervisor_cycles("block" if plan.by_block else "forward", VertexWork(1, 1, 1, pz, 0))
    cells = np.asarray(cells + float(skipped), np.float64)
    far_x, far_y = (home // py - groups.cell // py) % px, (home % py - groups.cell % py) % py
    num_x, num_y = int(placement.info[0]), int(placement.info[1])
    steps = np.zeros(num_x * num_y, np.int64)
    works = np.repeat(placement.info[3 : 3 + num_x] != 0, num_y)
    steps[works] = 30 + 33 * 2
    order = far_x * num_y + far_y
    np.maximum.at(steps, order[~near], (cycles[~near]).astype(np.int64) + 30)
    return PatternCost(int(cells.max(initial=0)), float(cells.mean()), steps[1:], num_x - 1)


def _cycles_of(plan: DynamicPlan, name: str, groups: SubGroups) -> Float64:
    """Cycles of each sub-group on the tile that it is for."""
    counts = np.diff(groups.row_first)
    work = VertexWork(groups.rows, groups.count / groups.rows, plan.columns, 1, 1)
    if plan.by_block or name == "gradA":
        return vertex_cycles(plan, name, work)
    half, grain = plan.is_half, 4 if plan.is_half else 2
    ways = []
    for parts in (6, 3, 2, 1):
        columns = -(-plan.columns // (grain * (WORKERS // parts))) * grain
        once = costs.element_forward_worker(0, 0, columns, half)
        row = costs.element_forward_worker(1, counts, columns, half) - once
        row = row + costs.further_groups_worker("forward", 1, columns, half)
        ways.append(once + _longest_part(row, groups, parts))
    return np.asarray(np.minimum.reduce(ways) * WORKERS) + costs.supervisor_cycles("forward", work)


def _longest_part(row: Float64, groups: SubGroups, parts: int) -> Float64:
    """Largest sum of the costs of rows among equal parts of each sub-group's rows."""
    total = np.concatenate([[0.0], np.cumsum(row)])
    cuts = groups.first_row[:, None] + groups.rows[:, None] * np.arange(parts + 1) // parts
    return np.asarray(np.diff(total[cuts], axis=1).max(axis=1))
