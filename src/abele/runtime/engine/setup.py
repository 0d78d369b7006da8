"""Setting an engine up: its arguments checked, its program compiled, the streams that it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from abele.compiler import Executable, compile_program
from abele.errors import EngineError, InvalidOptionError, nearest
from abele.graph import Copy, Graph, Program, Stream, walk
from abele.runtime.checks.checks import Checks
from abele.runtime.engine.options import EngineOptions
from abele.words import counted

Programs = Program | Sequence[Program] | Mapping[str, Program]
MODES = ("native", "tiles")


def check_options(mode: str, threads: int | None) -> None:
    """Raise unless an engine can run in this mode on this number of threads.

    Raises:
        InvalidOptionError: It cannot.
    """
    if mode not in MODES:
        close = nearest(mode, MODES)
        raise InvalidOptionError(
            f"there is no mode {mode!r}", remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(MODES)
        )
    if threads is not None and threads < 1:
        raise InvalidOptionError(f"an engine cannot run on {counted(threads, 'thread')}", remedy="1 or more")


def executable(
    given: Graph | Executable,
    program: Programs | None,
    allow_out_of_memory: bool,
    progress: Callable[[str, float], None] | None,
) -> Executable:
    """The executable that was given, or that the program becomes.

    Raises:
        AbeleError: There is no program, or it does not compile.
    """
    if isinstance(given, Executable):
        given.check_unchanged()
        return given
    if program is None:
        raise EngineError("an engine needs a program", remedy="Engine(graph, program)")
    return compile_program(given, program, allow_out_of_memory=allow_out_of_memory, progress=progress)


def too_little_memory(graph: Graph) -> EngineError:
    """Error for a program that the host has no room for."""
    held = sum(v.bytes for v in graph.variables)
    return EngineError(
        "the host has too little memory for this program",
        because=f"its variables take {held:,} B, {graph.replicas} times"
        if graph.replicas > 1
        else f"its variables take {held:,} B",
        remedy="fewer replicas, or smaller variables",
    )


def streams_of(program: Program) -> list[Stream]:
    """The streams that a program copies from and to."""
    found: dict[Stream, None] = {}
    for step in walk(program):
        if isinstance(step, Copy):
            found.update((s, None) for s in (step.source, step.destination) if isinstance(s, Stream))
    return list(found)


def checks_of(given: Checks | str | None, options: EngineOptions) -> Checks:
    """The checks that the engine's user and its options ask for.

    Raises:
        InvalidOptionError: A check that does not exist.
    """
    found = Checks.of(given)
    if options.flag("debug.runtimeVerify"):
        return replace(found, uninitialised=True, bounds=True, inputs=True)
    return found
