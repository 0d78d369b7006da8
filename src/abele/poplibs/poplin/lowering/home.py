"""Homes: which tile ends up with which share of a planned contraction's output.

A block of the output that one vertex computes stays where it is computed: moving it would cost an exchange and gain
nothing. A block of which several tiles hold partials is shared out equally among these same tiles. Each then receives
only its share of the other partials, so the last stage takes 1/depth of the exchange that one receiver would, and all
tiles add. Shares are multiples of 32 bytes: smaller ones would make the pieces so short that their fixed cost
dominates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import IntervalMap, Regions
from abele.poplibs.poplin.contraction.operand import Operand
from abele.poplibs.poplin.lowering.grid import VertexGrid
from abele.poplibs.poplin.planner.plan import ContractionPlan
from abele.poplibs.poputil.regions import split_evenly

PIECE_BYTES = 32
"""Shares of a block that the tiles sum are multiples of this, so that partials are sent in few pieces."""


@dataclass(frozen=True)
class Home:
    """Share of a plan's output that each tile holds in the end.

    Attributes:
        regions: The shares, in the output's storage.
        tile: Tile of each, int32[n].
        block: Output block that each is part of, int64[n].
        low: First element of each in its block, int64[n].
        length: Elements of each, int64[n].
    """

    regions: Regions
    tile: npt.NDArray[np.int32]
    block: Int64
    low: Int64
    length: Int64


def home(plan: ContractionPlan, out: Operand) -> Home:
    """Tiles and regions in which ``plan`` leaves the output ``out``.

    A block that one vertex computes stays on its tile; one that several have partials of is shared equally by the tiles
    that do.
    """
    blocks = _blocks(plan, out)
    grain = max(1, PIECE_BYTES // plan.problem.partials.bytes)
    block, low, length = split_evenly(blocks.sizes, np.full(blocks.num, plan.depth, dtype=np.int64), grain)
    # Share s of a block goes to the s-th of the tiles that hold its partials.
    first = np.searchsorted(block, np.arange(blocks.num))
    tile = VertexGrid(plan).tiles[block * plan.depth + np.arange(len(block)) - first[block]]
    return Home(cut_regions(blocks, block, low, length), tile, block, low, length)


def home_on(plan: ContractionPlan, out: Operand, tiles: IntervalMap) -> Home:
    """Tiles and regions of an output that is mapped already: every block is cut where the tile changes."""
    blocks = _blocks(plan, out)
    begin, length, tile, interval = tiles.split(blocks.begin, blocks.length)
    block = blocks.row[interval]
    starts = np.append(True, (block[1:] != block[:-1]) | (tile[1:] != tile[:-1]))
    first = np.flatnonzero(starts)
    position = np.cumsum(length) - length
    block_start = np.cumsum(blocks.sizes) - blocks.sizes
    regions = Regions.from_intervals(out.storage, np.cumsum(starts) - 1, begin, length, len(first))
    return Home(regions, tile[first], block[first], position[first] - block_start[block[first]], regions.sizes)


def _blocks(plan: ContractionPlan, out: Operand) -> Regions:
    """The output blocks, in the order of their vertices."""
    grid = VertexGrid(plan)
    slices = grid.slices(grid.out_dims)
    return out.regions(slices.start, slices.size)


def cut_regions(regions: Regions, region: Int64, low: Int64, length: Int64) -> Regions:
    """Parts of regions: part p is ``length[p]`` elements of region ``region[p]`` from its element ``low[p]`` on.

    The parts are in order and cover the regions without a gap.
    """
    ends = np.cumsum(regions.length)
    starts = ends - regions.length
    region_starts = np.cumsum(regions.sizes) - regions.sizes
    part_starts = region_starts[region] + low
    # Positions count through all regions, one after the other; pieces end where an interval or a part does.
    cuts = np.union1d(starts, part_starts)
    lengths = np.diff(cuts, append=ends[-1])
    interval = np.searchsorted(starts, cuts, side="right") - 1
    part = np.searchsorted(part_starts, cuts, side="right") - 1
    begin = regions.begin[interval] + cuts - starts[interval]
    return Regions.from_intervals(regions.tensor, part, begin, lengths, len(region))
