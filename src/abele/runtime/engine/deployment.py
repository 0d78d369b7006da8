"""Deployment: an executable on the host, with the memory, streams and host functions of its programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from abele.codelet.early_exits import STOPPED
from abele.compiler import Executable, compile_program
from abele.errors import ApplicationRuntimeError, EngineError, InvalidOptionError, StreamConnectionError, nearest
from abele.graph import Copy, Graph, Program, Stream, walk
from abele.job.progress import PROGRESS
from abele.runtime.checks.checking import Checks
from abele.runtime.checks.ended_vertices import LOOK_SECONDS, StepWatch
from abele.runtime.control.bytecode import Verdict
from abele.runtime.engine.options import EngineOptions
from abele.runtime.host.functions import HostFunctions
from abele.runtime.host.remote_memory import RemoteMemory
from abele.runtime.image import Host, Image, ImageOptions, RunCounts, build_image
from abele.runtime.ranks.group import Ranks, ReplicaShare
from abele.runtime.streams.connections import Connections
from abele.runtime.streams.prefetch import RunAbandonedError
from abele.words import counted

# Setting an engine up: its arguments checked, its program compiled, the streams that it uses.

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


class Alone:
    """The right to use a deployment, to be had inside ``with``.

    Args:
        running: Lock that is held while it is used.
        what: Use, for errors.

    Raises:
        EngineError: On entering, if it is used already.
    """

    __slots__ = ("_running", "_what")

    def __init__(self, running: threading.Lock, what: str) -> None:
        self._running, self._what = running, what

    def __enter__(self) -> None:
        if not self._running.acquire(blocking=False):
            raise EngineError(
                f"the engine cannot {self._what}: it is running already",
                remedy="wait for the run, or make a second engine",
            )

    def __exit__(self, *error: object) -> None:
        self._running.release()


class Deployment:
    """An executable on the host, which runs one of its programs at a time.

    Args:
        executable: The compiled programs.
        options: Options of how streams are fetched.
        image_options: Options of the image.
        show: Prints what programs print.
        progress: Called with the name of a stage of making native code and the part of it that is done.
        ranks: The processes that share the replicas; None where there is one.

    Attributes:
        executable: The compiled programs.
        image: Code and data of all programs.
        image_options: Options of the image.
        connections: Connections of streams.
        functions: Connections of host functions.
        remote: Contents of the remote buffers.
        host: Host side of the programs.

    Raises:
        EngineError: The host has too little memory.
    """

    def __init__(
        self,
        executable: Executable,
        options: EngineOptions,
        image_options: ImageOptions,
        show: Callable[[str], None],
        progress: Callable[[str, float], None],
        ranks: Ranks | None = None,
    ) -> None:
        self.executable = executable
        self.image_options = image_options
        self.connections = Connections(options)
        self.functions = HostFunctions(executable.graph)
        self.remote = RemoteMemory(executable.graph, ReplicaShare.of(executable.graph.replicas, ranks))
        self.host = Host(show, self.remote, self.functions, ranks)
        self._streams = [streams_of(p) for p in executable.programs]
        self._connected: set[int] = set()
        self._running = threading.Lock()
        self._step_seconds = options.number("target.hostSyncTimeout")
        self._watch = StepWatch(self._step_seconds)
        try:
            with PROGRESS.during("prepare"):
                self.image: Image = build_image(executable, image_options, self.host, progress)
        except MemoryError as error:
            raise too_little_memory(executable.graph) from error

    # --- programs ----------------------------------------------------------------------------------------------------

    def index(self, program: int | str) -> int:
        """Position of a program, by its position or its name.

        Raises:
            EngineError: There is none.
        """
        names = self.executable.program_names
        if isinstance(program, str):
            if program in names:
                return names.index(program)
            close = nearest(program, names)
            raise EngineError(
                f"no program is called {program!r}",
                remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(names),
            )
        if type(program) is not int and not isinstance(program, (int, np.integer)):
            raise EngineError(
                f"an engine runs programs by number or name, not {type(program).__name__}",
                because=f"it was made with {len(names)}: {', '.join(names)}",
                remedy="give all programs to the engine, run one by its place or name",
            )
        if not 0 <= program < len(names):
            raise EngineError(f"there is no program {program}: the engine has {len(names)}")
        return program

    def streams(self, index: int) -> list[Stream]:
        """The streams that a program copies from and to."""
        return self._streams[index]

    def check_connected(self, index: int) -> None:
        """Raise unless all that a program meets on the host is connected.

        Raises:
            StreamConnectionError: A stream or a host function is connected to nothing.
        """
        # What is connected can be connected to something else, and never to nothing.
        if index in self._connected:
            return
        missing = self.image.machine.unconnected(self._streams[index])
        if missing is not None:
            raise StreamConnectionError(
                f"{missing!r} is not connected",
                at=missing.debug.location,
                because=f"program {self.executable.program_names[index]!r} copies "
                + ("from it" if missing.direction == "in" else "to it"),
                remedy=f"engine.connect({missing.name!r}, array)",
            )
        self.functions.check_connected(self.executable.programs[index])
        self._connected.add(index)

    def connect(self, stream: Stream, data: Any, begin: int | None, end: int | None) -> None:
        """Connect a stream, in place of its connection so far.

        Raises:
            StreamConnectionError: The data does not fit.
        """
        connection = self.connections.connect(stream, data, begin, end)
        if stream in self.image.machine.streams:
            self.image.machine.connect(connection)

    # --- running -----------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """True while a program runs, or the memory is lent."""
        return self._running.locked()

    def alone(self, what: str) -> Alone:
        """Nothing else runs inside ``with``; it raises EngineError where a run is under way."""
        return Alone(self._running, what)

    def load(self) -> None:
        """Bring variables, the state of vertices and the positions of streams back to how they started."""
        self.image.load()
        self.connections.rewind(self.image.machine)

    def execute(self, index: int) -> tuple[Verdict, RunCounts | None]:
        """Run a program with its streams.

        Returns:
            Its verdict, and its counts if it came to its end.

        Raises:
            BaseException: The first error. Errors of the program come before those of data that was fetched ahead and
                never used.
        """
        streams = self._streams[index]
        verdict, failure, counts = Verdict.FAILED, None, None
        phase = PROGRESS.begin_run()
        try:
            try:
                self.connections.begin_run(streams, self.image.machine)
                verdict, failure, counts = self._run_machine(index)
            finally:
                late = self.connections.end_run(streams)
        finally:
            PROGRESS.end_run(phase)
        if isinstance(failure, RunAbandonedError):
            return Verdict.STOPPED, None
        wrong = failure or late
        if wrong is not None:
            raise wrong
        return verdict, counts

    def _run_machine(self, index: int) -> tuple[Verdict, BaseException | None, RunCounts | None]:
        """Run the code of a program. Ctrl-C stops it after its current step, so that its state stays whole."""
        image, machine, interrupt = self.image, self.image.machine, None
        image.begin_run()
        self._watch = watch = StepWatch(self._step_seconds)
        started, verdict = False, None
        while verdict is None:
            try:
                if not started:
                    machine.start(image.entries[index])
                    started = True
                verdict = machine.wait_for(LOOK_SECONDS)
                if verdict is None and watch.look(machine.step):
                    image.ends.ask(True)
            except KeyboardInterrupt as error:
                interrupt = error
                self.stop()
        image.ends.ask(False)
        counts = image.end_run(index, verdict)
        fault = machine.take_fault()
        ended = image.ends.error(fault)
        wrong = ended or image.overruns.error(fault)
        failure = wrong or image.callbacks.take_error() or image.untrusted.error()
        stopped = isinstance(failure, ApplicationRuntimeError) and failure.message.endswith(STOPPED)
        if isinstance(failure, ApplicationRuntimeError) and stopped and watch.is_late:
            watch.explain(failure)
        if interrupt is not None and (failure is None or stopped or isinstance(failure, RunAbandonedError)):
            if stopped:
                interrupt.add_note(str(failure))
            failure = interrupt
        return verdict, failure, counts

    def stop(self) -> None:
        """Let a run that is under way end after its current step; one that waits for prefetched data ends at once."""
        self._watch.stop()
        self.image.machine.stop()
        self.connections.abandon()

    def close(self) -> None:
        """End the host threads; a later run starts them again."""
        self.image.machine.close()
        self.connections.close()

    # --- lending -----------------------------------------------------------------------------------------------------

    def lend(self, image: Image, index: int) -> None:
        """Give another image the contents of the memory, and the streams, for a run of a program.

        Raises:
            EngineError: A run is under way, or the memory is lent already.
            StreamConnectionError: Something that the program meets on the host is connected to nothing.
        """
        self.check_connected(index)
        if not self._running.acquire(blocking=False):
            raise EngineError(
                "the engine is running or being debugged already", remedy="finish that first, or make a second engine"
            )
        self._hand_over(self.image, image)
        self.connections.begin_run(self._streams[index], image.machine)

    def take_back(self, image: Image, index: int) -> None:
        """Take back the memory that :meth:`lend` gave."""
        try:
            late = self.connections.end_run(self._streams[index])
            self._hand_over(image, self.image)
        finally:
            self._running.release()
        if late is not None:
            raise late

    def _hand_over(self, source: Image, target: Image) -> None:
        """Give ``target`` the memory, vertex state and stream places of ``source``."""
        for variable in self.executable.graph.variables:
            if variable.size and variable not in self.image.fused:
                target.arena.images(variable)[...] = source.arena.images(variable)
        groups = {(g.compute_set, g.position): g for g in source.supersteps.placed}
        for group in target.supersteps.placed:
            known = groups.get((group.compute_set, group.position))
            if known is not None:
                for (new, _), (old, _) in zip(group.tables.state, known.tables.state, strict=True):
                    new[...] = old
        places = source.machine.places()
        self.connections.attach(target.machine)
        for stream, words in target.machine.places().items():
            if stream in places:
                for word in words:
                    word[...] = places[stream][0]
