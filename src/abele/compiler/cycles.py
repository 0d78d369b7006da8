"""Cycles: how long the vertices of a compute set keep each tile busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.compiler.cost import VertexCosts, vertex_costs
from abele.compiler.tile_vector import Positions, TileSet, TileVector
from abele.graph.vertices import VertexGroup
from abele.machine import Ipu

# Workers: how long a tile's vertices take on its worker threads.
#
# The list schedule gives each vertex to the worker that is free first, in the order of the vertices; it cannot be
# found by sorting, for each choice depends on all before it. But tiles do not depend on each other, so vertex k of
# every tile is placed at once: as many array operations as the fullest tile has vertices, whatever the number of
# tiles. Tiles are ordered by their number of vertices, so that those that have a vertex k are the first ones. Where
# all vertices of a tile cost the same, or there are no more than workers, the result has a closed form, and that is
# most tiles.


def worker_makespans(tile: Positions, slots: Int64, num_tiles: int, num_workers: int) -> Int64:
    """Issue slots of the busiest worker of each tile, int64[num_tiles].

    Args:
        tile: Tile of each vertex, or its position among tiles, int[n].
        slots: Issue slots of each vertex, int64[n].
        num_tiles: Tiles, or positions.
        num_workers: Workers of a tile.

    Model: list scheduling in the order in which vertices were added; each goes to the worker that is free first.
    Tiles with as many vertices as workers, or whose vertices all cost the same, have a closed form.
    Source: poplar_api §11 (six slots, list schedule); tutorial 6 for equal vertices.
    """
    result = np.zeros(num_tiles, dtype=np.int64)
    if len(tile) == 0:
        return result
    if not bool((tile[1:] >= tile[:-1]).all()):
        # NumPy sorts 16-bit keys by radix, without comparisons.
        order = np.argsort(tile.astype(np.uint16) if num_tiles <= 1 << 16 else tile, kind="stable")
        tile, slots = tile[order], slots[order]
    count = np.bincount(tile, minlength=num_tiles)
    busy = np.flatnonzero(count)
    count = count[busy]
    first = np.cumsum(count) - count
    most, least = np.maximum.reduceat(slots, first), np.minimum.reduceat(slots, first)
    # Right where all cost the same, or where there are no more vertices than workers; others are replaced below.
    result[busy] = -(-count // num_workers) * most
    mixed = np.flatnonzero((count > num_workers) & (most != least))
    result[busy[mixed]] = _list_schedule(first[mixed], count[mixed], slots, num_workers)
    return result


def _list_schedule(first: Int64, count: Int64, slots: Int64, num_workers: int) -> Int64:
    """Makespan of each run of ``slots``, vertex k of all runs being placed at once."""
    order = np.argsort(-count, kind="stable")
    first, sizes = first[order], count[order]
    # The first six vertices go to the six free workers.
    loads = slots[first[:, None] + np.arange(num_workers)]
    # running[k]: how many tiles have a vertex k; they come first, as tiles are sorted by falling size.
    running = np.searchsorted(-sizes, -np.arange(sizes.max(initial=0)), side="left")
    rows = np.arange(len(first))
    for k in range(num_workers, len(running)):
        n = int(running[k])
        free = loads[:n].argmin(axis=1)
        loads[rows[:n], free] += slots[first[:n] + k]
    result = np.empty(len(first), dtype=np.int64)
    result[order] = loads.max(axis=1)
    return result


@dataclass(frozen=True, eq=False, slots=True)
class ComputeCycles:
    """The compute phase of one compute set.

    Attributes:
        by_tile: Cycles of the vertices on each tile; 0 on tiles without one.
        launch: Cycles around them on the tile that is done last: starting the compute set, its vertices and workers,
            and waiting for these.
        estimated: Names of codelets whose cost depends on data and is assumed until a run counts it.
        flops: Floating-point operations that estimators told of.
    """

    by_tile: TileVector
    launch: int
    estimated: tuple[str, ...]
    flops: int = 0


def compute_cycles(
    groups: Sequence[VertexGroup], ipu: Ipu, num_tiles: int, costs: Sequence[VertexCosts] | None = None
) -> ComputeCycles:
    """Cycles of a compute set on every tile.

    Args:
        groups: Its vertices.
        ipu: The chip.
        num_tiles: Tiles of the system.
        costs: Cost of each group's vertices; by default from formulas and counting functions.

    Model: single-worker vertices are list-scheduled onto the workers, and a worker issues once every
    ``num_workers`` cycles; vertices that use all workers run one after the other. The launch of the compute set comes
    on top; single-worker vertices need their workers started and waited for, and each MultiVertex is started by a
    stub. A SupervisorVertex starts its workers itself, in the cycles that it costs.
    Source: machine.md §1.2, §1.5, §4.0; constants: ``Launch``.
    """
    costs = [vertex_costs(g, ipu) for g in groups] if costs is None else costs
    plain = [i for i, g in enumerate(groups) if g.codelet.kind == "vertex"]
    tiles = TileSet.of([g.tile for g in groups], num_tiles)
    total, starts = tiles.zeros(), tiles.zeros()
    if plain:
        at = tiles.positions(np.concatenate([groups[i].tile for i in plain]))
        slots = np.concatenate([costs[i].amount for i in plain])
        # A worker issues in every sixth cycle: slots of the busiest one, times six.
        total += ipu.num_workers * worker_makespans(at, slots, len(total), ipu.num_workers)
        starts[at] = ipu.launch.run_all_cycles + ipu.sync.worker_cycles
    for group, cost in zip(groups, costs, strict=True):
        if group.codelet.kind != "vertex":
            total += tiles.sum(tiles.positions(group.tile), cost.amount)
        if group.codelet.kind == "multi":
            starts += ipu.launch.multi_vertex_cycles * tiles.count(tiles.positions(group.tile))
    launch = ipu.launch.compute_set_cycles if groups else 0
    # What starting workers adds to the tile that is done last, which need not be the one that computes longest.
    launch += int((total + starts).max(initial=0) - total.max(initial=0))
    estimated = [g.codelet.name for g, c in zip(groups, costs, strict=True) if c.is_estimate]
    by_tile = TileVector(tiles, total).packed()
    return ComputeCycles(by_tile, launch, tuple(dict.fromkeys(estimated)), sum(c.flops for c in costs))
