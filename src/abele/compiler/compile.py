"""Compiling: from a graph and its control programs to an executable, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from abele.compiler.access import Access
from abele.compiler.analyse import Analysis
from abele.compiler.collector import collector_paused
from abele.compiler.countable import check_countable
from abele.compiler.divergence import check_divergence
from abele.compiler.executable import Executable
from abele.compiler.fingerprint import Fingerprint
from abele.compiler.fit import check_fit
from abele.compiler.liveness import liveness
from abele.compiler.lower import Lowered, lower
from abele.compiler.memory import MemoryPlan, plan_memory
from abele.compiler.remote import check_remote_memory
from abele.compiler.superstep import Superstep
from abele.compiler.validate import check_programs
from abele.errors import ControlProgramError, OutOfMemoryError
from abele.graph.graph import Graph
from abele.graph.program import Program
from abele.trace.channel import Channel
from abele.trace.environment import begin_from_environment

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
    buffers = {}
    for step in lowered.steps:
        needed = supersteps[step.superstep].buffer_bytes
        if needed is not None:
            buffers[step.index] = needed
    return plan_memory(analysis.layout, lifetimes, analysis.code_bytes(), buffers, graph.system, analysis.placement)
