"""Nodes that steer, or touch registers, as the compiler sees them: decisions, barriers, timers, modes and seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.compiler.access import Access
from abele.compiler.exchange import ExchangePlan, nothing_moves, plan_broadcast, plan_delivery
from abele.compiler.nodes.meaning import NODES, NodeMeaning
from abele.compiler.superstep import Superstep
from abele.compiler.sync_groups import Meets
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


def _steering(
    analysis: Analysis,
    step: Step,
    access: Access,
    *,
    sync_cycles: int,
    plan: ExchangePlan | None = None,
    work_cycles: int = 0,
    host_cycles: int = 0,
    host_bytes: int = 0,
    meets: Meets | None = None,
) -> Superstep:
    """A step that steers.

    Args:
        analysis: The analysis.
        step: The step.
        access: Variables that it touches.
        sync_cycles: Its barriers.
        plan: Exchange between tiles, if any.
        work_cycles: Cycles of work on every tile between the barriers.
        host_cycles: Waiting for the host, or transfer to it.
        host_bytes: Bytes of that transfer.
        meets: Sync groups that meet there; all of them, unless others are given.
    """
    found = Superstep(
        step.superstep,
        step.kind,
        step.node,
        access=access,
        sync_cycles=sync_cycles,
        work_cycles=work_cycles,
        host_cycles=host_cycles,
        host_bytes=host_bytes,
        meets=(analysis.groups.all,) if meets is None else meets,
    )
    return analysis.moving(found, plan if plan is not None else nothing_moves(analysis.layout))


# --- decisions -------------------------------------------------------------------------------------------------------


def _decide(analysis: Analysis, step: Step) -> Superstep:
    """Every tile gets the scalar, so that all go the same way."""
    return _looking_at(analysis, step, _looked_at(step.node))


def _looked_at(node: Program) -> Tensor:
    flow = node.flow()
    assert isinstance(flow, OneOf | While)
    return flow.predicate if isinstance(flow, While) else flow.selector


def _looking_at(analysis: Analysis, step: Step, scalar: Tensor) -> Superstep:
    access = analysis.access(step)
    plan = plan_broadcast(scalar, analysis.layout, analysis.system.ipu.num_tiles)
    return _steering(analysis, step, access, sync_cycles=analysis.system.sync_cycles, plan=plan)


def _decide_why(node: Program) -> Iterator[str]:
    yield _goes_by(_looked_at(node))


def _goes_by(scalar: Tensor) -> str:
    return f"  every tile goes by {scalar.name}, which is on {tiles_text(scalar.mapping.tile)}"


DECISION = NodeMeaning(lambda n: "decide", _decide, why=_decide_why)
"""Rules for a loop or branch that tests a scalar, whatever its kind."""


# --- ends ------------------------------------------------------------------------------------------------------------


def _abort(analysis: Analysis, step: Step) -> Superstep:
    assert isinstance(step.node, Abort)
    if step.node.condition is not None:
        return _looking_at(analysis, step, step.node.condition)
    return _steering(analysis, step, analysis.access(step), sync_cycles=analysis.system.sync_cycles)


NODES.add(
    Abort,
    NodeMeaning(lambda n: "abort", _abort, why=lambda n: [] if n.condition is None else [_goes_by(n.condition)]),
)


def _error(analysis: Analysis, step: Step) -> Superstep:
    assert isinstance(step.node, ErrorProgram)
    return _steering(
        analysis,
        step,
        analysis.access(step),
        sync_cycles=analysis.system.sync_cycles,
        host_cycles=analysis.host_cycles([step.node.tensor]),
        host_bytes=step.node.tensor.bytes,
    )


NODES.add(ErrorProgram, NodeMeaning(lambda n: "abort", _error))


# --- barriers and timers ---------------------------------------------------------------------------------------------


def _sync(analysis: Analysis, step: Step) -> Superstep:
    assert isinstance(step.node, Sync)
    return _barrier(analysis, step, analysis.access(step), step.node)


def _barrier(
    analysis: Analysis, step: Step, access: Access, sync: Sync, plan: ExchangePlan | None = None, work_cycles: int = 0
) -> Superstep:
    """Barrier, and the work after it; within an IPU each tile goes through it by itself."""
    ipu = analysis.system.ipu
    return _steering(
        analysis,
        step,
        access,
        sync_cycles=barrier_cycles(sync, analysis.graph),
        plan=plan,
        work_cycles=work_cycles,
        host_cycles=math.ceil(ipu.sync.host_seconds * ipu.clock_hz) if sync.kind == "global" else 0,
        meets=analysis.groups.by_ipu if sync.kind == "internal" else None,
    )


def barrier_cycles(sync: Sync, graph: Graph) -> int:
    """Cycles of a barrier: of the tiles of an IPU, or of all IPUs of all replicas.

    Source: ``Sync`` of the machine.
    """
    system: System = graph.whole_system
    return system.ipu.sync.on_chip_cycles if sync.kind == "internal" else system.sync_cycles


def _timer(analysis: Analysis, step: Step) -> Superstep:
    """Reading the counter; a timed program reads it before too, which stores nothing yet."""
    node = step.node
    assert isinstance(node, CycleCount | CycleStamp)
    if step.kind == "timer_start":
        assert node.sync is not None  # of a timed program
        return _barrier(analysis, step, Access(), node.sync)
    access = analysis.access(step)
    tile = np.resize(np.repeat(np.asarray(node.tile, np.int32), 2), node.result.size)
    plan = plan_delivery(node.result, tile, analysis.layout, analysis.system.ipu.num_tiles, outward=True)
    if node.sync is None:
        apart = analysis.groups.apart
        return _steering(analysis, step, access, sync_cycles=0, plan=plan, work_cycles=TIMER_READ_CYCLES, meets=apart)
    return _barrier(analysis, step, access, node.sync, plan, TIMER_READ_CYCLES)


def _timer_why(node: Any) -> Iterator[str]:
    read = tiles_text(np.asarray(node.tile))
    yield f"  the counter of {read} is read, its value lies on {tiles_text(node.result.mapping.tile)}"


_TIMER = NodeMeaning(lambda n: "timer_read", _timer, differs=lambda n: "a cycle counter", why=_timer_why)

NODES.add(Sync, NodeMeaning(lambda n: "sync", _sync))
NODES.add(CycleCount, _TIMER)
NODES.add(CycleStamp, _TIMER)


# --- registers -------------------------------------------------------------------------------------------------------


def _mode(analysis: Analysis, step: Step) -> Superstep:
    """Each tile writes its own registers."""
    access, apart = analysis.access(step), analysis.groups.apart
    return _steering(analysis, step, access, sync_cycles=0, work_cycles=MODE_CYCLES, meets=apart)


def _seeds(analysis: Analysis, step: Step) -> Superstep:
    node, graph = step.node, analysis.graph
    assert isinstance(node, SetHwSeeds | GetHwSeeds)
    access = analysis.access(step)
    outward = isinstance(node, GetHwSeeds)
    tensor = node.result if isinstance(node, GetHwSeeds) else node.seeds
    tile = np.arange(tensor.size, dtype=np.int64) * graph.num_tiles // max(1, tensor.size)
    ipu = analysis.system.ipu
    plan = plan_delivery(tensor, tile.astype(np.int32), analysis.layout, ipu.num_tiles, outward=outward)
    sync, work = analysis.system.sync_cycles, _seed_cycles(ipu)
    return _steering(analysis, step, access, sync_cycles=sync, plan=plan, work_cycles=work)


def _seed_cycles(ipu: Ipu) -> int:
    """All workers move the four words of their seeds (§1.4): they are started, and waited for."""
    launch = ipu.launch.compute_set_cycles + ipu.launch.run_all_cycles + ipu.sync.worker_cycles
    return launch + 4 * SEED_SLOTS * ipu.num_workers


def _seeds_why(node: Program) -> Iterator[str]:
    yield "  every tile has a row of seeds"


NODES.add(SetFloatingPointBehaviour, NodeMeaning(lambda n: "mode", _mode))
NODES.add(SetHwSeeds, NodeMeaning(lambda n: "seeds", _seeds, why=_seeds_why))
NODES.add(GetHwSeeds, NodeMeaning(lambda n: "seeds", _seeds, differs=lambda n: "GetHwSeeds", why=_seeds_why))
