"""The engine: a compiled program with its data, ready to run on the host."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

import numpy.typing as npt

from abele import card
from abele.compiler import Executable, RunAccount
from abele.compiler.text.display import programs_text
from abele.errors import AbeleError, EngineError
from abele.graph import Graph, HostFunction, Program, RemoteBuffer, Stream, Variable
from abele.host_facts.libraries import against_library
from abele.job.launched import ranks_on_host
from abele.llvm.host import num_threads
from abele.numerics import to_host
from abele.report import CallTimes, HostProfile, Report, Table
from abele.runtime.checks.checking import Checks
from abele.runtime.control.bytecode import Verdict
from abele.runtime.control.listing import listing
from abele.runtime.engine.compare_orders import compare_orders
from abele.runtime.engine.deployment import MODES, Deployment, Programs, check_options, checks_of, executable
from abele.runtime.engine.options import read_options, set_log_level
from abele.runtime.engine.profiling import Profiler
from abele.runtime.engine.run_log import AutoReport, RunLog, profile_summary
from abele.runtime.engine.sparse_operands import with_counted
from abele.runtime.host.access import Handle, checked_values, find_stream, find_tensor, readable, writable
from abele.runtime.image import ImageOptions, silent
from abele.runtime.ranks.group import Ranks
from abele.runtime.supersteps.float_behaviour import CHECKS, STOCHASTIC
from abele.terminal import shown_text
from abele.trace.channel import Channel
from abele.trace.environment import begin_from_environment
from abele.words import counted

if TYPE_CHECKING:
    from abele.runtime.debugger.debugger import Debugger
    from abele.viewer import Page, Viewer


# Views of an engine: one line, and a card for notebooks.

_STREAMS = 12
"""Streams that the card lists."""


def engine_line(engine: Engine) -> str:
    """System, programs, mode, threads and state of an engine."""
    names = engine.executable.program_names
    return f"Engine({engine.executable.system.name}: {programs_text(names)}; {_way(engine)}, {engine.state})"


def _way(engine: Engine) -> str:
    checks = ", with checks" if engine.checks.any else ""
    return f"mode {engine.mode}, {counted(engine.threads, 'thread')}{checks}"


def engine_card(engine: Engine) -> str:
    """Engine as HTML: its mode, its runs, and its streams."""
    facts = [
        ("system", f"{engine.executable.system.name} ({engine.executable.system.title})"),
        ("programs", programs_text(engine.executable.program_names)),
        ("runs in", _way(engine)),
        ("state", engine.state),
    ]
    streams = list(engine.graph.streams.values())
    rows = [(s.name, s.direction, f"{s.dtype}{list(s.shape)}") for s in streams[:_STREAMS]]
    if len(streams) > _STREAMS:
        rows.append((f"… and {len(streams) - _STREAMS:,} more", "", ""))
    return card.card("Engine", facts, *([card.table(("stream", "direction", "type"), rows)] if rows else []))


__all__ = ["MODES", "Engine", "Programs"]
_CHANNEL = Channel("abele.run")


class Engine:
    """Runs programs of a graph on the host, with real data.

    Values of variables, positions of streams and state of vertices persist from run to run until :meth:`load`.

    Args:
        graph_or_executable: A graph with ``program``, or an executable that was compiled before.
        program: One program, several, or several by name.
        mode: ``native`` if host kernels carry out library calls, else ``tiles``.
        threads: Host threads; as many as there are cores by default. Results have the same bits for any number.
        debug: Run vertices as plain Python with access checks.
        allow_out_of_memory: Run a program that would not fit the machine.
        keep: Tensors that the host wants to read although only fused library calls touch them.
        options: Options under Poplar's names; docs/engine.md lists them. The environment variables
            POPLAR_ENGINE_OPTIONS, POPLAR_RUNTIME_OPTIONS and ABELE_ENGINE_OPTIONS override them.
        checks: Checks that no IPU gives: :class:`Checks`, ``"all"``, or names with commas between. They take ``tiles``.
        progress: Called with the name of a compile stage and the part of it that is done.
        ranks: The processes that share the replicas of the program, each of which runs the same; see docs/ranks.md.

    Attributes:
        executable: The compiled programs.
        graph: Their graph.
        options: Options under Poplar's names, with their values.
        checks: The checks that are on.
        mode: Mode of library calls: ``tiles`` or ``native``.
        threads: Host threads.
        print_stream: File that vertices and ``PrintTensor`` print to.
        deployment: Memory, code and streams of the programs.

    Raises:
        AbeleError: The program does not compile; see :func:`abele.compiler.compile_program`.
        InvalidOptionError: An unknown mode, option or check, or fewer than one thread.
    """

    def __init__(
        self,
        graph_or_executable: Graph | Executable,
        program: Programs | None = None,
        *,
        mode: str = "native",
        threads: int | None = None,
        debug: bool = False,
        allow_out_of_memory: bool = False,
        keep: Iterable[Handle] = (),
        options: Mapping[str, Any] | None = None,
        checks: Checks | str | None = None,
        progress: Callable[[str, float], None] | None = None,
        ranks: Ranks | None = None,
        report_folder: str = "",
    ) -> None:
        set_log_level()
        begin_from_environment()
        check_options(mode, threads)
        self.options = read_options(options)
        fits_or_not = allow_out_of_memory or self.options.flag("debug.allowOutOfMemory")
        self._auto_report = AutoReport(self.options, report_folder)
        with self._auto_report.of_failure():
            self.executable = executable(graph_or_executable, program, fits_or_not, progress)
        self.graph = self.executable.graph
        self.checks = checks_of(checks, self.options)
        # Only vertices as placed have fields to check.
        self.mode = "tiles" if debug or self.checks.any else mode
        self.threads = threads or max(1, num_threads() // (1 if ranks is None else ranks_on_host()))
        self.print_stream: IO[str] = sys.stdout
        image_options = self._image_options(debug, self._kept(keep))
        self._log = RunLog(self.options, self.executable, self.mode, self.threads)
        with _CHANNEL.tracepoint("Engine.prepare"):
            self.deployment = Deployment(
                self.executable, self.options, image_options, self._print, progress or silent, ranks
            )
        self._log.account.begin(self.deployment.image.tallies.places)
        self._profiler = Profiler(self.deployment.image.machine)
        if self.options.flag("profiler.host"):
            self._profiler.begin("wall")
        self._auto_report.after_compile(lambda: self.report)

    def _kept(self, keep: Iterable[Handle]) -> frozenset[Variable]:
        """Variables that the host may read or write in any case."""
        # A handle is a promise to the host: fusing may not remove its variables.
        exposed = [handle.tensor for handle in self.graph.host_handles.values()]
        return frozenset(v for t in (*exposed, *(find_tensor(self.graph, h) for h in keep)) for v in t.variables)

    @property
    def programs(self) -> dict[str, Program]:
        """The programs by name, in order."""
        return dict(zip(self.executable.program_names, self.executable.programs, strict=True))

    # --- host access -------------------------------------------------------------------------------------------------

    def __getitem__(self, handle: Handle) -> npt.NDArray[Any]:
        return self.read(handle)

    def __setitem__(self, handle: Handle, values: npt.ArrayLike) -> None:
        self.write(handle, values)

    def read(self, handle: Handle) -> npt.NDArray[Any]:
        """Copy of the values of a host handle, the name of a variable or a tensor, in its shape; bf16 comes as f32.

        Raises:
            EngineError: No such variable, or one that only lives inside fused kernels.
            TensorAccessError: The host may only write it.
        """
        tensor = readable(self.graph, handle)
        image = self.deployment.image
        hidden = [v for v in tensor.variables if v in image.fused or v in image.reordered]
        if hidden:
            raise _fused_away(hidden[0], "read")
        return to_host(image.arena.read_all(tensor), tensor.dtype)

    def write(self, handle: Handle, values: npt.ArrayLike) -> None:
        """Set the values of a host handle, the name of a variable or a tensor, from an array of its shape, or from one
        number.

        Raises:
            EngineError: No such variable, or one that only fused kernels look at, in an order of their own.
            TensorAccessError: The host may only read it.
            ConstantWriteError: It is constant.
            TensorError: The shape differs.
            TypeMismatchError: The values do not fit the element type.
        """
        tensor = writable(self.graph, handle)
        image = self.deployment.image
        hidden = [v for v in tensor.variables if v in image.reordered]
        if hidden:
            raise _fused_away(hidden[0], "written")
        image.arena.write_all(tensor, checked_values(tensor, values, image.arena.replicas))
        image.checking.host_wrote(tensor)

    def connect(self, stream: str | Stream, data: Any, *, begin: int | None = None, end: int | None = None) -> None:
        """Connect a host stream, before or after :meth:`load`.

        Args:
            stream: The stream or its name.
            data: An array, used in place and round and round; or, for input, an iterable of arrays or a callable that
                returns one; for output, a callable that takes one; or an object with the methods of
                :class:`StreamCallback`.
            begin: First element of the array that is used.
            end: One past the last.

        Raises:
            EngineError: No such stream.
            StreamConnectionError: The data does not fit.
        """
        self.deployment.connect(find_stream(self.graph, stream), data, begin, end)

    def connect_function(self, handle: str | HostFunction, function: Callable[..., Any]) -> None:
        """Connect a host function.

        Args:
            handle: The function or its name.
            function: Called with an array for each input; gives an array for each output (alone, or as a tuple), or
                None where there is none. It is called for one replica after the other; one that has a parameter
                ``replica`` is told which. What it raises ends the run and comes out of :meth:`Engine.run`.

        Raises:
            EngineError: No such host function.
            StreamConnectionError: It cannot be called.
        """
        self.deployment.functions.connect(handle, function)

    def write_remote(
        self, buffer: str | RemoteBuffer, row: int | None, values: npt.ArrayLike, replica: int = 0
    ) -> None:
        """Set a row of a remote buffer.

        Args:
            buffer: The buffer or its name.
            row: Number of the row; None for all rows.
            values: As many elements as a row has (or all rows have), or one number.
            replica: Replica of the buffer.

        Raises:
            RemoteBufferError: No such buffer, row or replica.
            TensorError: Another number of elements.
            TypeMismatchError: The values do not fit the element type.
        """
        self.deployment.remote.write(buffer, row, values, replica)

    def read_remote(self, buffer: str | RemoteBuffer, row: int | None = None, replica: int = 0) -> npt.NDArray[Any]:
        """A copy of a row of a remote buffer, of shape [elements], or of all rows, [rows, elements].

        Raises:
            RemoteBufferError: No such buffer, row or replica.
        """
        return self.deployment.remote.read(buffer, row, replica)

    def load(self) -> None:
        """Bring variables with initial contents, the state of vertices and the positions of streams back to how they
        started.

        Raises:
            EngineError: A run is under way.
        """
        with self.deployment.alone("be loaded"), _CHANNEL.tracepoint("Engine.load"):
            self.deployment.load()

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self, program: int | str = 0, name: str = "", *, times: CallTimes | None = None) -> bool:
        """Run a program to its end.

        Args:
            program: Its position, or its name.
            name: Name of the run in the report.
            times: Times that the caller spends on the run besides; the report has them, as they are when it is made.

        Returns:
            True if it ended; False after :meth:`stop`.

        Raises:
            EngineError: No such program, or a run is under way already.
            StreamConnectionError: A stream that the program uses is connected to nothing, or ran out.
            KeyboardInterrupt: Ctrl-C; state is as of the last finished step, and the engine stays usable.
            Exception: Error of a stream's callback, with a note of the stream.
        """
        index = self.deployment.index(program)
        self.deployment.check_connected(index)
        with self.deployment.alone("run"):
            start = time.perf_counter()
            with _CHANNEL.tracepoint("Engine.run", self._told_of(index, name) if _CHANNEL.is_on else None):
                verdict, counts = self.deployment.execute(index)
            seconds = time.perf_counter() - start
            self._profiler.note_run(seconds)
            if self._log.note(index, counts, seconds, times, name):
                self._auto_report.after_run(index, lambda: self.report)
        return verdict is Verdict.DONE

    def _told_of(self, index: int, name: str) -> dict[str, str]:
        """Arguments of a run for a trace."""
        told = {"program": self.executable.program_names[index], "mode": self.mode}
        return told | ({"name": name} if name else {})

    def compare_orders(self, program: int | str = 0, seeds: Iterable[int] = range(4)) -> None:
        """Run a program in the usual order of vertices and in drawn ones, each time from the present state.

        The engine itself is left as it is. Streams must be connected to arrays, of which copies are used from their
        beginning on.

        Args:
            program: Its position, or its name.
            seeds: Seeds of the orders.

        Raises:
            ApplicationRuntimeError: A result depends on the order; it is named.
            EngineError: A stream is connected to something other than an array.
        """
        streams = self.deployment.streams(self.deployment.index(program))
        arrays = {c.stream: c.array for c in self.deployment.connections.of(streams) if c.array is not None}
        compare_orders(self, self.deployment.image, streams, arrays, program, seeds)

    def load_and_run(self, program: int | str = 0, name: str = "") -> bool:
        """:meth:`load`, then :meth:`run`."""
        self.load()
        return self.run(program, name)

    def stop(self) -> None:
        """Let a run that is under way in another thread end after its current step, within a moment.

        A run that waits for stream data which is being prefetched ends at once.
        """
        self.deployment.stop()

    def debug(self, program: int | str = 0, **options: Any) -> Debugger:
        """Debugger at the beginning of a program, on a copy of the engine's memory.

        Args:
            program: Its position, or its name.
            **options: ``history_bytes``, the memory for taking steps back.

        Raises:
            EngineError: No such program, or a run is under way.
            StreamConnectionError: A stream that the program uses is connected to nothing.
        """
        from abele.runtime.debugger.debugger import Debugger

        return Debugger(self, program, **options)

    # --- profile -----------------------------------------------------------------------------------------------------

    @contextmanager
    def profiling(self, clock: str = "wall") -> Iterator[None]:
        """Runs inside are measured, leaf by leaf; runs outside pay nothing for it.

        Args:
            clock: ``wall``: time that passes. ``processor``: time that threads are given a core for, which other
                programs on the machine do not disturb, and which says nothing of waiting.

        Raises:
            InvalidOptionError: There is no such clock.
            EngineError: A run is under way.
        """
        with self.deployment.alone("begin to measure"):
            self._profiler.begin(clock)
        try:
            yield
        finally:
            self._profiler.end()

    def profile(self, *, against: bool = False) -> HostProfile:
        """Profile of measured runs on the host: time, arithmetic and bytes of every native function and copy.

        Args:
            against: Also measure what the best library at hand does on the same products; some seconds.

        Raises:
            ProfilingDisabledError: No run was measured.
        """
        profile = self._profiler.profile()
        return against_library(profile) if against else profile

    @property
    def report(self) -> Report:
        """Costs of each program on the machine when it ran last, and times of every recorded run.

        ``meta["figures_of"]`` names the run that the figures of each program are of; those of a program that has not
        run to its end rest on assumptions where data decides, as in ``executable.report``.
        """
        report = with_counted(self._log.report(), self.executable, self.deployment.image)
        if not self._profiler.has_runs:
            return report
        return report.with_host(self._profiler.profile())

    def view(self) -> Page | Viewer:
        """Show the report: in the cell of a notebook, else in the browser.

        Returns:
            What :func:`abele.viewer.show` does: a page, or the viewer, which goes on until it is closed or the program
            ends; its ``wait()`` keeps a script from ending.

        Raises:
            MissingPackageError: The packages of the extra ``view`` are not installed.
        """
        from abele.viewer import show

        return show(self.report)

    @property
    def account(self) -> RunAccount:
        """Counts of the last whole run of each program, for ``executable.report_of`` and its kin."""
        return self._log.account.latest

    @property
    def runs(self) -> Table:
        """The recorded runs; columns as ``abele.report.RUNS``.

        Raises:
            ProfilingDisabledError: Runs are not recorded.
        """
        return self._log.table()

    def print_profile_summary(self, stream: IO[str] | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Print the costs of the program.

        Args:
            stream: File to print to; standard output when left out.
            options: ``showExecutionSteps``, ``showVarStorage``, ``showOptimizations``; each true or false.

        Raises:
            ProfilingDisabledError: Execution steps are asked for, and runs are not recorded.
            InvalidOptionError: An unknown option or value.
        """
        text = profile_summary(self.report, self._log.table, options or {})
        print(shown_text(text, stream), file=stream or sys.stdout)

    def enable_execution_profiling(self) -> None:
        """Record runs from here on."""
        self._log.enable()

    def disable_execution_profiling(self) -> None:
        """Record no runs from here on."""
        self._log.disable()

    def reset_execution_profile(self) -> None:
        """Forget the runs recorded so far."""
        self._log.reset()
        self._profiler.reset()

    def listing(self) -> str:
        """Bytecode that the engine runs, and its leaves."""
        image = self.deployment.image
        return listing(image.machine.code, image.leaf_names) + "\n" + image.listing

    # --- end ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the host threads; a later run starts them again."""
        self.deployment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return engine_line(self)

    def _repr_html_(self) -> str:
        return engine_card(self)

    @property
    def state(self) -> str:
        """``loaded`` or ``running``."""
        return "running" if self.deployment.is_running else "loaded"

    # --- inside ------------------------------------------------------------------------------------------------------

    def _image_options(self, debug: bool, keep: frozenset[Variable]) -> ImageOptions:
        options = self.options
        behaviour = CHECKS * options.flag("debug.floatPointOpException")
        behaviour |= STOCHASTIC * options.flag("prng.enableStochasticRounding")
        return ImageOptions(
            native=self.mode == "native",
            num_threads=self.threads,
            debug=debug,
            keep=keep,
            checks=self.checks,
            behaviour=behaviour,
            seed=options.number("prng.seed"),
        )

    def _print(self, text: str) -> None:
        print(shown_text(text, self.print_stream), file=self.print_stream)


def _fused_away(variable: Variable, done: str) -> AbeleError:
    return EngineError(
        f"{variable!r} cannot be {done}: in native mode it only lives inside fused kernels",
        at=variable.debug.location,
        remedy=f"Engine(…, keep=[{variable.name!r}]), or mode='tiles'",
    )
