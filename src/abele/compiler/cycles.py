"""Cycles: how long the vertices of a compute set keep each tile busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.compiler.cost import VertexCosts, vertex_costs
from abele.compiler.traffic import sum_by_tile
from abele.compiler.workers import worker_makespans
from abele.graph.intervals import Int64
from abele.graph.vertices import VertexGroup
from abele.machine import Ipu


@dataclass(frozen=True, eq=False, slots=True)
class ComputeCycles:
    """The compute phase of one compute set.

    Attributes:
        by_tile: Cycles of the vertices on each tile, int64[tiles]; 0 on tiles without one.
        launch: Cycles around them on the tile that is done last: starting the compute set, its vertices and workers,
            and waiting for these.
        estimated: Names of codelets whose cost depends on data and is assumed until a run counts it.
        busy: Whether a tile has a vertex, bool[tiles].
        flops: Floating-point operations that estimators told of.
    """

    by_tile: Int64
    launch: int
    estimated: tuple[str, ...]
    busy: npt.NDArray[np.bool_]
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
    total, starts = np.zeros(num_tiles, dtype=np.int64), np.zeros(num_tiles, dtype=np.int64)
    if plain:
        tile = np.concatenate([groups[i].tile for i in plain])
        slots = np.concatenate([costs[i].amount for i in plain])
        total += ipu.num_workers * worker_makespans(tile, slots, num_tiles, ipu.num_workers)
        starts[tile] = ipu.launch.run_all_cycles + ipu.sync.worker_cycles
    for group, cost in zip(groups, costs, strict=True):
        if group.codelet.kind != "vertex":
            total += sum_by_tile(group.tile, cost.amount, num_tiles)
        if group.codelet.kind == "multi":
            starts += ipu.launch.multi_vertex_cycles * np.bincount(group.tile, minlength=num_tiles)
    launch = ipu.launch.compute_set_cycles if groups else 0
    launch += int((total + starts).max(initial=0) - total.max(initial=0))
    estimated = [g.codelet.name for g, c in zip(groups, costs, strict=True) if c.is_estimate]
    busy = np.zeros(num_tiles, dtype=bool)
    for group in groups:
        busy[group.tile] = True
    return ComputeCycles(total, launch, tuple(dict.fromkeys(estimated)), busy, sum(c.flops for c in costs))
