"""Nodes that steer, or touch registers, as the compiler sees them: decisions, barriers, timers, modes and seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.compiler.exchange import ExchangePlan, nothing_moves, plan_broadcast, plan_delivery
from abele.compiler.nodes.meaning import NODES, NodeMeaning
from abele.graph.control import (
    Abort,
    CycleCount,
    CycleStamp,
    ErrorProgram,
    GetHwSeeds,
    SetFloatingPointBehaviour,
    SetHwSeeds,
    Sync,
)
from abele.graph.flow import OneOf, While
from abele.graph.graph import Graph
from abele.graph.program import Program
from abele.graph.tensor import Tensor
from abele.machine import Ipu, System
from abele.words import tiles_text

if TYPE_CHECKING:
    from abele.compiler.analyse import Analysis
    from abele.compiler.lower import Step
    from abele.compiler.superstep import Superstep

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


def _steers(
    analysis: Analysis,
    superstep: Superstep,
    plan: ExchangePlan | None,
    sync_cycles: int,
    work_cycles: int = 0,
    host_seconds: float = 0.0,
) -> None:
    """Fill in a step at which all sync groups meet, unless ``meets`` is set afterwards.

    Args:
        analysis: The analysis.
        superstep: The step.
        plan: What moves between tiles, if anything.
        sync_cycles: Its barriers.
        work_cycles: What every tile does between them.
        host_seconds: Waiting for the host.
    """
    analysis.set_exchange(superstep, plan if plan is not None else nothing_moves(analysis.layout))
    superstep.sync_cycles, superstep.work_cycles = sync_cycles, work_cycles
    superstep.host_cycles = math.ceil(host_seconds * analysis.system.ipu.clock_hz)
    superstep.meets = (analysis.groups.all,)


# --- decisions -------------------------------------------------------------------------------------------------------


def _decide(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    """Every tile gets the scalar, so that all go the same way."""
    analysis.check_access(superstep, step)
    _look_at(analysis, superstep, _looked_at(step.node))


def _looked_at(node: Program) -> Tensor:
    flow = node.flow()
    assert isinstance(flow, OneOf | While)
    return flow.predicate if isinstance(flow, While) else flow.selector


def _look_at(analysis: Analysis, superstep: Superstep, scalar: Tensor) -> None:
    plan = plan_broadcast(scalar, analysis.layout, analysis.system.ipu.num_tiles)
    _steers(analysis, superstep, plan, analysis.system.sync_cycles)


def _decide_why(node: Program) -> Iterator[str]:
    yield _goes_by(_looked_at(node))


def _goes_by(scalar: Tensor) -> str:
    return f"  every tile goes by {scalar.name}, which is on {tiles_text(scalar.mapping.tile)}"


DECISION = NodeMeaning(lambda n: "decide", _decide, why=_decide_why)
"""What a loop or branch means that looks at a scalar, whatever its kind."""


# --- ends ------------------------------------------------------------------------------------------------------------


def _abort(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    assert isinstance(step.node, Abort)
    analysis.check_access(superstep, step)
    if step.node.condition is not None:
        _look_at(analysis, superstep, step.node.condition)
    else:
        _steers(analysis, superstep, None, analysis.system.sync_cycles)


NODES.add(
    Abort,
    NodeMeaning(lambda n: "abort", _abort, why=lambda n: [] if n.condition is None else [_goes_by(n.condition)]),
)


def _error(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    assert isinstance(step.node, ErrorProgram)
    analysis.check_access(superstep, step)
    _steers(analysis, superstep, None, analysis.system.sync_cycles)
    superstep.host_bytes = step.node.tensor.bytes
    superstep.host_cycles = analysis.host_cycles([step.node.tensor])


NODES.add(ErrorProgram, NodeMeaning(lambda n: "abort", _error))


# --- barriers and timers ---------------------------------------------------------------------------------------------


def _sync(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    assert isinstance(step.node, Sync)
    analysis.check_access(superstep, step)
    _barrier(analysis, superstep, step.node, None, 0)


def _barrier(analysis: Analysis, superstep: Superstep, sync: Sync, plan: ExchangePlan | None, work: int) -> None:
    """A barrier, and what is done after it; within an IPU each goes through it by itself."""
    wait = analysis.system.ipu.sync.host_seconds if sync.kind == "global" else 0.0
    _steers(analysis, superstep, plan, barrier_cycles(sync, analysis.graph), work, wait)
    if sync.kind == "internal":
        superstep.meets = analysis.groups.by_ipu


def barrier_cycles(sync: Sync, graph: Graph) -> int:
    """Cycles of a barrier: of the tiles of an IPU, or of all IPUs of all replicas.

    Source: ``Sync`` of the machine.
    """
    system: System = graph.whole_system
    return system.ipu.sync.on_chip_cycles if sync.kind == "internal" else system.sync_cycles


def _timer(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    """Reading the counter; a timed program reads it before too, which stores nothing yet."""
    node = step.node
    assert isinstance(node, CycleCount | CycleStamp)
    if step.kind == "timer_start":
        _barrier(analysis, superstep, node.sync, None, 0)
        return
    analysis.check_access(superstep, step)
    tile = np.full(node.result.size, node.tile, dtype=np.int32)
    plan = plan_delivery(node.result, tile, analysis.layout, analysis.system.ipu.num_tiles, outward=True)
    _barrier(analysis, superstep, node.sync, plan, TIMER_READ_CYCLES)


def _timer_why(node: Any) -> Iterator[str]:
    yield f"  the counter of tile {node.tile} is read, its value lies on {tiles_text(node.result.mapping.tile)}"


_TIMER = NodeMeaning(lambda n: "timer_read", _timer, differs=lambda n: "a cycle counter", why=_timer_why)

NODES.add(Sync, NodeMeaning(lambda n: "sync", _sync))
NODES.add(CycleCount, _TIMER)
NODES.add(CycleStamp, _TIMER)


# --- registers -------------------------------------------------------------------------------------------------------


def _mode(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    """Each tile writes its own registers."""
    analysis.check_access(superstep, step)
    _steers(analysis, superstep, None, 0, MODE_CYCLES)
    superstep.meets = analysis.groups.apart


def _seeds(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    node, graph = step.node, analysis.graph
    assert isinstance(node, SetHwSeeds | GetHwSeeds)
    analysis.check_access(superstep, step)
    outward = isinstance(node, GetHwSeeds)
    tensor = node.result if isinstance(node, GetHwSeeds) else node.seeds
    tile = np.arange(tensor.size, dtype=np.int64) * graph.num_tiles // max(1, tensor.size)
    ipu = analysis.system.ipu
    plan = plan_delivery(tensor, tile.astype(np.int32), analysis.layout, ipu.num_tiles, outward=outward)
    _steers(analysis, superstep, plan, analysis.system.sync_cycles, _seed_cycles(ipu))


def _seed_cycles(ipu: Ipu) -> int:
    """All workers move the four words of their seeds: they are started, and waited for."""
    launch = ipu.launch.compute_set_cycles + ipu.launch.run_all_cycles + ipu.sync.worker_cycles
    return launch + 4 * SEED_SLOTS * ipu.num_workers


def _seeds_why(node: Program) -> Iterator[str]:
    yield "  every tile has a row of seeds"


NODES.add(SetFloatingPointBehaviour, NodeMeaning(lambda n: "mode", _mode))
NODES.add(SetHwSeeds, NodeMeaning(lambda n: "seeds", _seeds, why=_seeds_why))
NODES.add(GetHwSeeds, NodeMeaning(lambda n: "seeds", _seeds, differs=lambda n: "GetHwSeeds", why=_seeds_why))
