"""The engine: a compiled program with its data, ready to run on the host."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt

from abele.compiler import Executable, RunAccount
from abele.errors import AbeleError, EngineError, StreamConnectionError, nearest
from abele.graph import Graph, Program, Stream, Tensor, Variable
from abele.numerics import to_host
from abele.report import Report
from abele.runtime.checks.checks import Checks
from abele.runtime.checks.untrusted_codelets import first_violation
from abele.runtime.control.bytecode import Verdict, listing
from abele.runtime.control.threads import available_cores
from abele.runtime.debugger.lending import Debuggable
from abele.runtime.engine.compare_orders import compare_orders
from abele.runtime.engine.options import read_options, set_log_level
from abele.runtime.engine.profile_access import ProfileAccess
from abele.runtime.engine.run_log import AutoReport, RunLog
from abele.runtime.engine.setup import (
    MODES,
    Programs,
    check_options,
    checks_of,
    executable,
    silent,
    streams_of,
    too_little_memory,
)
from abele.runtime.host.access import Handle, checked_values, find_stream, find_tensor, readable, writable
from abele.runtime.host.ends import HostEnds
from abele.runtime.image import Host, Image, ImageOptions, RunCounts, build_image
from abele.runtime.streams.connections import Connections
from abele.runtime.streams.prefetch import RunAbandonedError
from abele.runtime.supersteps.float_behaviour import CHECKS, STOCHASTIC
from abele.terminal import shown_text

__all__ = ["MODES", "Engine", "Programs"]


class Engine(HostEnds, ProfileAccess, Debuggable):
    """Runs programs of a graph on the host, with real data.

    Values of variables, positions of streams and state of vertices persist from run to run until :meth:`load`.

    Args:
        graph_or_executable: A graph with ``program``, or an executable that was compiled before.
        program: One program, several, or several by name.
        mode: ``tiles`` runs every vertex as placed; ``native`` lets host kernels carry out library calls and fuses
            them, which agrees within rounding and is faster.
        threads: Host threads; as many as there are cores by default. Results have the same bits for any number.
        debug: Run vertices as plain Python with access checks.
        allow_out_of_memory: Run a program that would not fit the machine.
        keep: Tensors that the host wants to read although only fused library calls touch them.
        options: Options under Poplar's names; docs/engine.md lists them. The environment variables
            POPLAR_ENGINE_OPTIONS, POPLAR_RUNTIME_OPTIONS and ABELE_ENGINE_OPTIONS override them.
        checks: Checks that no IPU gives: :class:`Checks`, ``"all"``, or names with commas between. They take ``tiles``.
        progress: Called with the name of a compile stage and the part of it that is done.

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
    ) -> None:
        set_log_level()
        check_options(mode, threads)
        self.options = read_options(options)
        fits_or_not = allow_out_of_memory or self.options.flag("debug.allowOutOfMemory")
        self.executable = executable(graph_or_executable, program, fits_or_not, progress)
        self.graph = self.executable.graph
        HostEnds.__init__(self, self.graph)
        self.checks = checks_of(checks, self.options)
        self.mode = "tiles" if debug or self.checks.any else mode
        self.threads = threads or available_cores()
        self._interprets = debug
        self.print_stream: IO[str] = sys.stdout
        self._keep = self._kept(keep)
        self._progress = progress or silent
        self._connections = Connections(self.options)
        self._image: Image | None = None
        self._running = threading.Lock()
        self._log = RunLog(self.options, self.executable)
        self._auto_report = AutoReport(self.options)
        self._streams = [streams_of(p) for p in self.executable.programs]
        self._prepared()
        self._auto_report.after_compile(lambda: self.report)

    def _kept(self, keep: Iterable[Handle]) -> frozenset[Variable]:
        """Variables that the host may read or write in any case."""
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
        """A copy of what a host handle, the name of a variable or a tensor stands for, in its shape; bf16 comes as f32.

        Raises:
            EngineError: No such variable, or one that only lives inside fused kernels.
            TensorAccessError: The host may only write it.
        """
        tensor = readable(self.graph, handle)
        self._check_visible(tensor)
        return to_host(self._prepared().arena.read_all(tensor), tensor.dtype)

    def write(self, handle: Handle, values: npt.ArrayLike) -> None:
        """Set what a host handle, the name of a variable or a tensor stands for, from an array of its shape, or from
        one number.

        Raises:
            EngineError: No such variable.
            TensorAccessError: The host may only read it.
            ConstantWriteError: It is constant.
            TensorError: The shape differs.
            TypeMismatchError: The values do not fit the element type.
        """
        tensor = writable(self.graph, handle)
        image = self._prepared()
        image.arena.write_all(tensor, checked_values(tensor, values))
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
        found = find_stream(self.graph, stream)
        connection = self._connections.connect(found, data, begin, end)
        machine = self._prepared().machine
        if found in machine.streams:
            machine.connect(connection)

    def load(self) -> None:
        """Bring variables with initial contents, the state of vertices and the positions of streams back to how they
        started.

        Raises:
            EngineError: A run is under way.
        """
        with self._alone("be loaded"):
            image = self._prepared()
            image.load()
            self._connections.rewind(image.machine)

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self, program: int | str = 0, name: str = "") -> bool:
        """Run a program to its end.

        Args:
            program: Its position, or its name.
            name: What the run is called in the report.

        Returns:
            Whether it ended; False after :meth:`stop`.

        Raises:
            EngineError: No such program, or a run is under way already.
            StreamConnectionError: A stream that the program uses is connected to nothing, or ran out.
            KeyboardInterrupt: Ctrl-C; state is as of the last finished step, and the engine stays usable.
            Exception: What a stream's callback raised, with a note of the stream.
        """
        index = self._index(program)
        image = self._prepared()
        self._check_connected(index, image)
        self._functions.check_connected(self.executable.programs[index])
        with self._alone("run"):
            start = time.perf_counter()
            verdict, counts = self._execute(image, index)
            self._note_run(index, counts, name, time.perf_counter() - start)
        return verdict is Verdict.DONE

    def compare_orders(self, program: int | str = 0, seeds: Iterable[int] = range(4)) -> None:
        """Run a program in the usual order of vertices and in drawn ones, each time from the present state.

        The engine itself is left as it is. Streams must be connected to arrays, of which copies are used from their
        beginning on.

        Args:
            program: Its position, or its name.
            seeds: What the orders are drawn from.

        Raises:
            ApplicationRuntimeError: A result depends on the order; it is named.
            EngineError: A stream is connected to something other than an array.
        """
        streams = self._streams[self._index(program)]
        arrays = {c.stream: c.array for c in self._connections.of(streams) if c.array is not None}
        compare_orders(self, self._prepared(), streams, arrays, program, seeds)

    def load_and_run(self, program: int | str = 0, name: str = "") -> bool:
        """:meth:`load`, then :meth:`run`."""
        self.load()
        return self.run(program, name)

    def _execute(self, image: Image, index: int) -> tuple[Verdict, RunCounts | None]:
        """Run a program with its streams; raises what went wrong first. Gives what it counted, if it came to its
        end."""
        streams = self._streams[index]
        verdict, failure, counts = Verdict.FAILED, None, None
        try:
            self._connections.begin_run(streams, image.machine)
            verdict, failure, counts = self._run_machine(image, index)
        finally:
            late = self._connections.end_run(streams)
        if isinstance(failure, RunAbandonedError):
            return Verdict.STOPPED, None
        if failure is not None or late is not None:
            raise failure or late  # type: ignore[misc]
        return verdict, counts

    def _run_machine(self, image: Image, index: int) -> tuple[Verdict, BaseException | None, RunCounts | None]:
        machine, interrupt = image.machine, None
        image.begin_run()
        while True:
            try:
                if interrupt is None:
                    machine.start(image.entries[index])
                verdict = machine.wait()
                break
            except KeyboardInterrupt as error:
                interrupt = error
                self.stop()
        counts = image.end_run(index, verdict)
        wrong = image.overruns.error(machine.take_fault())
        failure = wrong or image.callbacks.take_error() or first_violation(image.supersteps.placed)
        if failure is None or isinstance(failure, RunAbandonedError):
            failure = interrupt or failure
        return verdict, failure, counts

    def stop(self) -> None:
        """Let a run that is under way in another thread end after its current step, within a moment.

        A run that waits for stream data which is being prefetched ends at once.
        """
        if self._image is not None:
            self._image.machine.stop()
            self._connections.abandon()

    # --- profile -----------------------------------------------------------------------------------------------------

    @property
    def report(self) -> Report:
        """What each program cost on the machine when it ran last, and what every recorded run took.

        ``meta["figures_of"]`` names the run that the figures of each program are of; those of a program that has not
        run to its end rest on assumptions where data decides, as in ``executable.report``.
        """
        return self._log.report()

    @property
    def account(self) -> RunAccount:
        """What the last whole run of each program counted, for ``executable.report_of`` and its kin."""
        return self._log.account.latest

    def listing(self) -> str:
        """The bytecode that the engine runs, and what its leaves do."""
        image = self._prepared()
        return listing(image.machine.code) + "\n" + image.listing

    # --- end ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the host threads; a later run starts them again."""
        if self._image is not None:
            self._image.machine.close()
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        from abele.runtime.engine.shown import engine_line

        return engine_line(self)

    def _repr_html_(self) -> str:
        from abele.runtime.engine.shown import engine_card

        return engine_card(self)

    @property
    def state(self) -> str:
        """``not loaded``, ``loaded`` or ``running``."""
        if self._image is None:
            return "not loaded"
        return "running" if self._running.locked() else "loaded"

    # --- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        if not self._running.acquire(blocking=False):
            raise EngineError(
                f"the engine cannot {what}: it is running already",
                remedy="wait for the run, or make a second engine",
            )
        try:
            yield
        finally:
            self._running.release()

    def _prepared(self) -> Image:
        if self._image is None:
            try:
                self._image = build_image(self.executable, self._image_options(), self._host(), self._progress)
            except MemoryError as error:
                raise too_little_memory(self.graph) from error
            self._connections.attach(self._image.machine)
            self._log.account.begin(self._image.tallies.places)
        return self._image

    def _image_options(self) -> ImageOptions:
        options = self.options
        behaviour = CHECKS * options.flag("debug.floatPointOpException")
        behaviour |= STOCHASTIC * options.flag("prng.enableStochasticRounding")
        return ImageOptions(
            native=self.mode == "native",
            num_threads=self.threads,
            debug=self._interprets,
            keep=self._keep,
            checks=self.checks,
            behaviour=behaviour,
            seed=options.number("prng.seed"),
        )

    def _host(self) -> Host:
        return Host(self._print, self._remote, self._functions)

    def _print(self, text: str) -> None:
        print(shown_text(text, self.print_stream), file=self.print_stream)

    def _index(self, program: int | str) -> int:
        names = self.executable.program_names
        if isinstance(program, str):
            if program in names:
                return names.index(program)
            close = nearest(program, names)
            raise EngineError(
                f"no program is called {program!r}",
                remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(names),
            )
        if not isinstance(program, (int, np.integer)):
            raise EngineError(
                f"an engine runs programs by number or name, not {type(program).__name__}",
                because=f"it was made with {len(names)}: {', '.join(names)}",
                remedy="give all programs to the engine, run one by its place or name",
            )
        if not 0 <= program < len(names):
            raise EngineError(f"there is no program {program}: the engine has {len(names)}")
        return program

    def _check_connected(self, index: int, image: Image) -> None:
        missing = image.machine.unconnected(self._streams[index])
        if missing is not None:
            raise StreamConnectionError(
                f"{missing!r} is not connected",
                at=missing.debug.location,
                because=f"program {self.executable.program_names[index]!r} copies "
                + ("from it" if missing.direction == "in" else "to it"),
                remedy=f"engine.connect({missing.name!r}, array)",
            )

    def _check_visible(self, tensor: Tensor) -> None:
        hidden = [v for v in tensor.variables if v in self._prepared().fused]
        if hidden:
            raise _fused_away(hidden[0])

    def _note_run(self, index: int, counts: RunCounts | None, name: str, seconds: float) -> None:
        recorded = self._log.note(
            index,
            counts,
            name=name or self.executable.program_names[index],
            mode=self.mode,
            threads=self.threads,
            wall_seconds=seconds,
        )
        if recorded:
            self._auto_report.after_run(index, lambda: self.report)


def _fused_away(variable: Variable) -> AbeleError:
    return EngineError(
        f"{variable!r} cannot be read: in native mode it only lives inside fused kernels",
        at=variable.debug.location,
        remedy=f"Engine(…, keep=[{variable.name!r}]), or mode='tiles'",
    )
