"""Cycles: how long the vertices of a compute set keep each tile busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.compiler.cost import VertexCosts, vertex_costs
from abele.compiler.tile_vector import TileSet, TileVector
from abele.compiler.workers import worker_makespans
from abele.graph.vertices import VertexGroup
from abele.machine import Ipu


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
