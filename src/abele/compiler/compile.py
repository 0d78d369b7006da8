"""Compiling: from a graph and its control programs to an executable, stage by stage."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from abele.arrays import Bool
from abele.compiler.access import Access
from abele.compiler.analyse import Analysis
from abele.compiler.durations import check_remote_memory
from abele.compiler.executable import Executable, Fingerprint
from abele.compiler.fit import check_fit
from abele.compiler.half_steps import halved
from abele.compiler.liveness import liveness
from abele.compiler.lower import Lowered, Step, lower
from abele.compiler.memory import MemoryPlan, plan_memory
from abele.compiler.nodes.lookup import meaning_of
from abele.compiler.overlays import overlaid
from abele.compiler.superstep import Superstep
from abele.compiler.timeline import parts_of
from abele.compiler.validate import check_programs
from abele.errors import ControlProgramError, OutOfMemoryError
from abele.graph.control import AssumeEqualAcrossReplicas
from abele.graph.graph import Graph
from abele.graph.program import Program
from abele.graph.tensor import Tensor
from abele.machine import System
from abele.trace.channel import Channel
from abele.trace.environment import begin_from_environment
from abele.words import counted

# Python's cyclic collector while something large is made.


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing that compiling makes is garbage before it ends, so looking for some again and again only takes time.

    One look goes over every object of the process, those of PyTorch too, and takes a quarter of a second.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# Divergence: all that steers the program must be provably the same in every replica.
#
# This is taint analysis over whole variables: what may differ spreads from a variable that is read to all that the
# step writes, until nothing changes. It ends, since the set only grows, and it is safe because it ignores order and
# overwriting: what it clears cannot differ, while it may refuse a program whose variable is the same again by the time
# it steers. The user's promise is for these.


def check_divergence(graph: Graph, steps: Sequence[Step], accesses: Mapping[int, Access], always_live: Bool) -> None:
    """Refuse loops, branches and switches that can go different ways in different replicas.

    Args:
        graph: The graph; with one replica there is nothing to check.
        steps: All steps.
        accesses: Variables that each touches, by step index.
        always_live: Variables whose value comes from the host or from the run before, bool[variables].

    Raises:
        ControlProgramError: A predicate may differ between replicas.

    Model: whole variables, whatever the order of steps. A variable may differ if it is the replica's number; if it is
    written by a stream with data for each replica, a remote buffer, the host, a cycle counter or the random seeds; if
    its first value comes from the host; or if a step writes it that reads a variable that may differ. The user's word
    (AssumeEqualAcrossReplicas) stands for the tensor that it names; a variable that it names whole does not differ.
    """
    if graph.replicas == 1:
        return
    deciding = [s for s in steps if s.kind == "decide"]
    if not deciding:
        return
    source = _varying(graph, steps, accesses, always_live)
    promised = [s.node.tensor for s in steps if isinstance(s.node, AssumeEqualAcrossReplicas)]
    for step in deciding:
        number = int(accesses[step.index].reads[0])
        if number in source and not any(_covers(p, _predicate(step.node)) for p in promised):
            raise _error(graph, step, number, source)


def _varying(
    graph: Graph, steps: Sequence[Step], accesses: Mapping[int, Access], always_live: Bool
) -> dict[int, int | str]:
    """Variables that may differ between replicas, with why: a variable that they come from, or a text."""
    source: dict[int, int | str] = {}
    promised = _promised_whole(graph, steps)
    for number, variable in enumerate(graph.variables):
        if variable.kind == "replica_index":
            source[number] = "it is the number of the replica"
        elif always_live[number] and not variable.is_constant and variable.initial is None:
            source[number] = "its first value comes from the host, which may give each replica another"
    for step in steps:
        why = meaning_of(step.node).differs(step.node)
        if why is not None:
            for number in set(accesses[step.index].writes.tolist()) - promised:
                source.setdefault(number, f"{why} writes it")
    changed = True
    while changed:
        changed = False
        for step in steps:
            access = accesses[step.index]
            cause = next((n for n in access.reads.tolist() if n in source), None)
            written = access.writes.tolist() if cause is not None else []
            fresh = [n for n in written if n not in source and n not in promised]
            for number in fresh:
                assert cause is not None
                source[number] = cause
                changed = True
    return source


def _promised_whole(graph: Graph, steps: Sequence[Step]) -> set[int]:
    """Numbers of variables that are promised, all of each, to be the same in every replica."""
    named = [s.node.tensor for s in steps if isinstance(s.node, AssumeEqualAcrossReplicas)]
    whole = {v for t in named for v in t.variables if t.size == v.size and len(t.variables) == 1}
    return {number for number, variable in enumerate(graph.variables) if variable in whole}


def _predicate(node: Program) -> Tensor:
    return node.reads()[0]


def _covers(promised: Tensor, predicate: Tensor) -> bool:
    begin, length = promised.intervals()
    at = int(predicate.intervals()[0][0])
    return bool(((begin <= at) & (at < begin + length)).any())


def _error(graph: Graph, step: Step, number: int, source: Mapping[int, int | str]) -> ControlProgramError:
    chain, reason = [], source[number]
    while isinstance(reason, int):
        chain.append(f"it is computed from {graph.variables[reason].name!r}")
        number, reason = reason, source[reason]
    predicate = _predicate(step.node)
    name = type(step.node).__name__
    return ControlProgramError(
        f"{name} on {predicate!r}: control flow could diverge between the {counted(graph.replicas, 'replica')}",
        at=step.node.debug.location or None,
        because=" · ".join([*chain[:3], reason]),
        remedy=f"if it is the same in all replicas, say so before: AssumeEqualAcrossReplicas({predicate.name})",
    )


# Countable: the cycles of a program must fit 64 bits.

_MOST = 1 << 62
_YEAR_SECONDS = 31_557_600
_OFTEN = 1 << 24
"""Executions of steps below which a program is not checked: none lasts 2^38 cycles."""


def check_countable(steps: Sequence[Step], supersteps: Sequence[Superstep], system: System) -> None:
    """No run takes 2^62 cycles or more.

    Raises:
        ControlProgramError: One does.
    """
    if sum(s.executions for s in steps) < _OFTEN:
        return
    total = 0
    for step in steps:
        total += step.executions * (1 + sum(p.cycles for p in parts_of(supersteps[step.superstep], system)))
        if total >= _MOST:
            raise ControlProgramError(
                f"the program runs for {_shown(total)} cycles, and 2^62 is the most"
                f" ({system.seconds(_MOST) / _YEAR_SECONDS:,.0f} years)",
                at=step.node.debug.location or None,
                because=f"{step.name} is executed {_shown(step.executions)} times",
                remedy="fewer turns of its loops",
            )


def _shown(count: int) -> str:
    return f"{count:,}" if count < _MOST else f"2^{count.bit_length() - 1} or more"


Progress = Callable[[str, float], None]
Programs = Program | Sequence[Program] | Mapping[str, Program]
_CHANNEL = Channel("abele.compile")


@collector_paused()
def compile_program(
    graph: Graph,
    program: Programs,
    *,
    allow_out_of_memory: bool = False,
    progress: Progress | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Executable:
    """Check, plan and cost a program; nothing is executed and no data is needed.

    Args:
        graph: Variables, vertices and mapping; a virtual graph stands for the whole one that it belongs to.
        program: One control program, several, or several by name.
        allow_out_of_memory: Report a program that does not fit instead of refusing it.
        progress: Called with the name of the stage and the part of it that is done.
        meta: Entries for the ``meta`` of its reports.

    Returns:
        The executable. The graph and the program are left as they are, also when compiling fails.

    Raises:
        ControlProgramError: A program cannot be lowered, or replicas could go different ways.
        TileMappingError: A variable in use is not wholly mapped to tiles of the system.
        GraphConnectionError: A vertex field is not connected as its codelet says.
        ConstantWriteError: A step writes a constant.
        MemoryElementError: Fields cannot lie where their codelet wants them.
        DataRaceError: Vertices of one compute set touch the same element and one writes it.
        OutOfMemoryError: A tile needs more memory than it has; its ``report`` is that of the program as it is.
    """
    begin_from_environment()
    with _CHANNEL.tracepoint("compile_program"):
        return _compiled(graph, program, allow_out_of_memory, progress or _silent, meta or {})


def _compiled(
    graph: Graph, program: Programs, allow_out_of_memory: bool, report: Progress, meta: Mapping[str, Any]
) -> Executable:
    seconds: dict[str, float] = {}
    names, programs = _named(program)
    check_programs(len(programs))
    graph = graph.top_level
    if graph.auto_map:
        graph.map_unmapped()
    with _timed("lower", seconds, report):
        analysis = Analysis(graph)
        lowered = lower(programs, analysis.meeting)
    check_remote_memory(graph)
    with _timed("supersteps", seconds, report):
        supersteps = analysis.run(lowered, report)
    check_countable(lowered.steps, supersteps, graph.system)
    with _timed("memory", seconds, report):
        memory = _memory(graph, lowered, analysis, supersteps)
    executable = Executable(
        graph=graph,
        programs=tuple(programs),
        program_names=tuple(names),
        lowered=lowered,
        plan=supersteps,
        memory=memory,
        compile_seconds=seconds,
        meta=meta,
        _fingerprint=Fingerprint.of(graph, programs),
    )
    if not allow_out_of_memory:
        try:
            check_fit(memory, graph, lowered.steps)
        except OutOfMemoryError as error:
            error.make_report = lambda: executable.report
            raise
    return executable


def _silent(stage: str, fraction: float) -> None:
    """Progress that is not shown."""


def _named(program: Programs) -> tuple[list[str], list[Program]]:
    if isinstance(program, Program):
        return ["main"], [program]
    if isinstance(program, Mapping):
        names, programs = [str(n) for n in program], list(program.values())
    elif isinstance(program, Sequence):
        programs = list(program)
        names = [str(i) for i in range(len(programs))]
    else:
        programs, names = [program], ["main"]
    for item in programs:
        if not isinstance(item, Program):
            raise ControlProgramError(
                f"compile_program takes programs, not {type(item).__name__}", remedy="wrap a compute set in Execute(…)"
            )
    return names, programs


@contextmanager
def _timed(stage: str, seconds: dict[str, float], progress: Progress) -> Iterator[None]:
    progress(stage, 0.0)
    start = time.perf_counter()
    with _CHANNEL.tracepoint(stage):
        yield
    seconds[stage] = time.perf_counter() - start
    progress(stage, 1.0)


def _memory(graph: Graph, lowered: Lowered, analysis: Analysis, supersteps: Sequence[Superstep]) -> MemoryPlan:
    accesses: dict[int, Access] = {s.index: supersteps[s.superstep].access for s in lowered.steps}
    constants = np.array([v.is_constant for v in graph.variables], dtype=bool)
    lifetimes = liveness(lowered.programs, accesses, analysis.layout.size, constants)
    check_divergence(graph, lowered.steps, accesses, lifetimes.always_live)
    layout = analysis.layout
    lifetimes = overlaid(lifetimes, accesses, layout.size * layout.width, analysis.placement.apart)
    arranging = np.zeros(lifetimes.num_steps, dtype=bool)
    buffers = {}
    for step in lowered.steps:
        superstep = supersteps[step.superstep]
        arranging[step.index] = superstep.compute is not None and superstep.rows_before_vertices > 0
        needed = superstep.buffer_bytes
        if needed is not None:
            buffers[step.index] = needed
    lifetimes = halved(lifetimes, accesses, arranging)
    return plan_memory(layout, lifetimes, analysis.code_bytes(), buffers, graph.system, analysis.placement)
