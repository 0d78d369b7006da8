"""Whole plans compiled for real: the network with a place for every op, through the ordinary path."""

from __future__ import annotations

import time
from dataclasses import replace

from abele.compiler import Executable, compile_program
from abele.distribution import inference_program, training_program
from abele.errors import AbeleError
from abele.fitting.chain import SegmentChain
from abele.fitting.plan import Compilation, Recomputation, Spreading
from abele.fitting.space import FitSpace, Model
from abele.graph import Graph
from abele.network import (
    Locations,
    Network,
    NetworkOp,
    OutputMode,
    Place,
    Schedule,
    TensorLocation,
    Value,
    training_pipeline,
)
from abele.network.ir import FrozenDict, PlanHint
from abele.network.passes.place import substituted
from abele.network.registry import RULES


def compiled_plan(plan: Spreading, model: Model, chain: SegmentChain, space: FitSpace) -> Compilation:
    """Compile a plan as a whole; nothing runs.

    Args:
        plan: The plan.
        model: The model with its micro-batch.
        chain: The model as a chain.
        space: The machine, and how networks are compiled.
    """
    start = time.perf_counter()
    try:
        run = _compile(plan, model, chain, space)
    except AbeleError as error:
        told = f"{type(error).__name__}: {error.message}"
        return Compilation(cycles=None, problem=told, seconds=time.perf_counter() - start)
    report = run.report
    tiles = space.system.ipu.num_tiles
    by_tile = report.memory.by_tile
    by_ipu = tuple(int(by_tile[i * tiles : (i + 1) * tiles].max()) for i in range(plan.ipus))
    return Compilation(
        cycles=report.total_cycles,
        ipu_bytes=by_ipu,
        fits=max(by_ipu) <= report.memory.available_bytes,
        seconds=time.perf_counter() - start,
    )


def _compile(plan: Spreading, model: Model, chain: SegmentChain, space: FitSpace) -> Executable:
    net = placed(plan, model.net, chain)
    settings = replace(
        space.settings,
        memory_proportion=(plan.proportion_of(0) if plan.stages == 1 else None) or space.settings.memory_proportion,
        shared_functions=plan.shared_functions,
    )
    graph = Graph(space.system.with_ipus(plan.num_ipus), replicas=plan.replicas)
    graph.sync_pattern = settings.sync_pattern
    planning, modes = settings.planning, settings.modes
    if model.groups is None:
        schedule = Schedule(device_iterations=plan.accumulation, replicas=plan.replicas)
        program = inference_program(net, graph, schedule, planning=planning, modes=modes)
    else:
        state = TensorLocation(on_chip=not plan.state.is_off_chip, sharded=plan.state.is_sharded)
        schedule = Schedule(
            accumulation=plan.accumulation,
            replicas=plan.replicas,
            outputs=OutputMode.FINAL,
            locations=Locations(optimiser=state),
        )
        again = plan.recompute != Recomputation.NOTHING
        passes = training_pipeline(schedule, model.groups, recompute=settings.recompute, recompute_stages=again)
        program = training_program(net, graph, schedule, model.groups, planning=planning, modes=modes, pipeline=passes)
    return compile_program(graph, program.program, allow_out_of_memory=True)


def placed(plan: Spreading, net: Network, chain: SegmentChain) -> Network:
    """The network with the IPU and the stage of every op, and a checkpoint at each segment that the plan keeps."""
    if plan.stages == 1:
        return net
    moved: dict[Value, Value] = {}
    for stage, (begin, end) in enumerate(plan.bounds(len(chain.segments))):
        place = Place(plan.ipu_of(stage), stage)
        for op in net.ops[chain.segments[begin].begin : chain.segments[end - 1].end]:
            moved |= {v: replace(v, place=place) for v in op.outputs}
    there = _with_shares(plan, substituted(net, moved))
    if plan.recompute != Recomputation.SEGMENTS:
        return there
    return _with_checkpoints(plan, there, chain, moved)


def _with_shares(plan: Spreading, net: Network) -> Network:
    """Set in ``net`` the proportion of memory that products plan with, on each IPU its own."""
    if not plan.plans_smaller:
        return net

    def hinted(op: NetworkOp) -> NetworkOp:
        share = plan.proportion_of(op.outputs[0].place.ipu) if op.outputs else None
        if share is None or not RULES[op.kind].planned:
            return op
        hint = replace(op.hint or PlanHint(), proportion=share)
        return replace(op, attrs=FrozenDict({**op.attrs, "hint": hint}))

    return replace(net, ops=tuple(map(hinted, net.ops)))


def _with_checkpoints(plan: Spreading, net: Network, chain: SegmentChain, moved: dict[Value, Value]) -> Network:
    """``net`` with a ``keep`` where a segment begins inside of a stage."""
    kept: dict[Value, Value] = {}
    before: dict[int, list[NetworkOp]] = {}
    count = len(chain.segments)
    for stage, (begin, end) in enumerate(plan.bounds(count)[:-1]):
        place = Place(plan.ipu_of(stage), stage)
        for segment in chain.segments[begin + 1 : end]:
            for value in segment.entering:
                if value not in chain.flowing or value not in moved:
                    continue
                source = moved[value]
                made = replace(source, place=place)
                kept[source] = made
                before.setdefault(segment.begin, []).append(
                    NetworkOp("keep", (source,), (made,), FrozenDict({}), net.ops[segment.begin].debug)
                )
    ops: list[NetworkOp] = []
    now: dict[Value, Value] = {}
    for number, op in enumerate(net.ops):
        for keep in before.get(number, ()):
            ops.append(replace(keep, inputs=tuple(now.get(v, v) for v in keep.inputs)))
            now[keep.inputs[0]] = keep.outputs[0]
        ops.append(replace(op, inputs=tuple(now.get(v, v) for v in op.inputs)))
    return replace(net, ops=tuple(ops))
