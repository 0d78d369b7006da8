"""Controls: what steps cost that move no tensor of the user's: decisions, barriers, timers, modes and seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.compiler.exchange import ExchangePlan, nothing_moves, plan_broadcast, plan_delivery
from abele.compiler.layout import Layout
from abele.graph.control import Abort, CycleCount, CycleStamp, GetHwSeeds, SetHwSeeds, Switch, Sync
from abele.graph.graph import Graph
from abele.graph.program import If, Program, RepeatWhile
from abele.machine import Ipu, System

TIMER_READ_CYCLES = 45
"""Reading the cycle counter before and after a program, together.

Source: machine.md §1.5 (TessellateIPU, tile_interpreter_hw_primitives.py:110-115).
"""
MODE_CYCLES = 12
"""Reading, masking and writing a tile's floating-point control register and the one that new workers copy.

Source: guessed, two instructions each.
"""
SEED_SLOTS = 2
"""Issue slots of a worker for one word of its seed: a load or store, and an access to its register.

Source: guessed from the instruction set.
"""


@dataclass(frozen=True, eq=False, slots=True)
class ControlCost:
    """What a step of control costs.

    Attributes:
        plan: What moves between tiles.
        sync_cycles: Its barriers.
        work_cycles: What every tile does between them.
        host_seconds: Waiting for the host.
    """

    plan: ExchangePlan
    sync_cycles: int
    work_cycles: int = 0
    host_seconds: float = 0.0


def control_cost(node: Program, kind: str, layout: Layout, graph: Graph) -> ControlCost:
    """The cost of one execution of a step of control.

    Args:
        node: The program node.
        kind: The kind of the step, for nodes that become several.
        layout: Where the graph's elements live.
        graph: The graph; barriers over all IPUs are those of all replicas.
    """
    system, ipu = graph.system, graph.system.ipu
    match node:
        case If(predicate=tensor) | RepeatWhile(predicate=tensor) | Switch(control=tensor) | Abort(condition=tensor):
            if tensor is not None:
                return ControlCost(plan_broadcast(tensor, layout, ipu.num_tiles), system.sync_cycles)
        case Sync():
            return ControlCost(nothing_moves(layout), barrier_cycles(node, graph), 0, _host_wait(node, graph))
        case CycleCount() | CycleStamp():
            return _timer(node, kind, layout, graph)
        case SetHwSeeds(seeds=tensor) | GetHwSeeds(result=tensor):
            tile = np.arange(tensor.size, dtype=np.int64) * graph.num_tiles // max(1, tensor.size)
            outward = isinstance(node, GetHwSeeds)
            plan = plan_delivery(tensor, tile.astype(np.int32), layout, ipu.num_tiles, outward=outward)
            return ControlCost(plan, system.sync_cycles, _seed_cycles(ipu))
    if kind == "mode":
        return ControlCost(nothing_moves(layout), 0, MODE_CYCLES)
    return ControlCost(nothing_moves(layout), system.sync_cycles)


def barrier_cycles(sync: Sync, graph: Graph) -> int:
    """Cycles of a barrier: of the tiles of an IPU, or of all IPUs of all replicas.

    Source: ``Sync`` of the machine.
    """
    system: System = graph.whole_system
    return system.ipu.sync.on_chip_cycles if sync.kind == "internal" else system.sync_cycles


def _host_wait(sync: Sync, graph: Graph) -> float:
    return graph.system.ipu.sync.host_seconds if sync.kind == "global" else 0.0


def _timer(node: CycleCount | CycleStamp, kind: str, layout: Layout, graph: Graph) -> ControlCost:
    barrier, wait = barrier_cycles(node.sync, graph), _host_wait(node.sync, graph)
    if kind == "timer_start":
        return ControlCost(nothing_moves(layout), barrier, 0, wait)
    tile = np.full(node.result.size, node.tile, dtype=np.int32)
    plan = plan_delivery(node.result, tile, layout, graph.system.ipu.num_tiles, outward=True)
    return ControlCost(plan, barrier, TIMER_READ_CYCLES, wait)


def _seed_cycles(ipu: Ipu) -> int:
    """All workers move the four words of their seeds: they are started, and waited for."""
    launch = ipu.launch.compute_set_cycles + ipu.launch.run_all_cycles + ipu.sync.worker_cycles
    return launch + 4 * SEED_SLOTS * ipu.num_workers
