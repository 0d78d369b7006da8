"""The engine: a compiled program with its data, ready to run on the host."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Self

import numpy.typing as npt

from abele.compiler import Executable, compile_program
from abele.errors import AbeleError, EngineError, InvalidOptionError, StreamConnectionError, nearest
from abele.graph import Copy, Graph, PrintTensor, Program, Stream, Tensor, Variable, walk
from abele.numerics import to_host
from abele.report import Report
from abele.runtime.bytecode import Verdict, listing
from abele.runtime.host_access import Handle, checked_values, find_stream, find_tensor
from abele.runtime.image import Image, ImageOptions, build_image
from abele.runtime.names import CppNames
from abele.runtime.prints import tensor_text
from abele.runtime.streams import Connection
from abele.runtime.threads import available_cores

Programs = Program | Sequence[Program] | Mapping[str, Program]
MODES = ("native", "tiles")


class Engine(CppNames):
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
        progress: Called with the name of a compile stage and the part of it that is done.

    Raises:
        AbeleError: The program does not compile; see :func:`abele.compiler.compile_program`.
        InvalidOptionError: An unknown mode, or fewer than one thread.
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
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        _check_options(mode, threads)
        self.executable = _executable(graph_or_executable, program, allow_out_of_memory, progress)
        self.graph = self.executable.graph
        self.mode = "tiles" if debug else mode
        self.threads = threads or available_cores()
        self.debug = debug
        self.print_stream: IO[str] = sys.stdout
        self._keep = frozenset(v for handle in keep for v in find_tensor(self.graph, handle).variables)
        self._progress = progress or _silent
        self._connections: dict[Stream, Connection] = {}
        self._image: Image | None = None
        self._running = threading.Lock()
        self._runs: list[dict[str, Any]] = []
        self._streams = [_streams_of(p) for p in self.executable.programs]
        self._prepared()

    # --- host access -------------------------------------------------------------------------------------------------

    def __getitem__(self, handle: Handle) -> npt.NDArray[Any]:
        return self.read(handle)

    def __setitem__(self, handle: Handle, values: npt.ArrayLike) -> None:
        self.write(handle, values)

    def read(self, handle: Handle) -> npt.NDArray[Any]:
        """A copy of a variable or tensor, in its shape; bf16 comes as f32.

        Raises:
            EngineError: No such variable, or one that only lives inside fused kernels.
        """
        tensor = find_tensor(self.graph, handle)
        self._check_visible(tensor)
        return to_host(self._prepared().arena.read(tensor))

    def write(self, handle: Handle, values: npt.ArrayLike) -> None:
        """Set a variable or tensor from an array of its shape, or from one number.

        Raises:
            EngineError: No such variable.
            ConstantWriteError: It is constant.
            TensorError: The shape differs.
            TypeMismatchError: The values do not fit the element type.
        """
        tensor = find_tensor(self.graph, handle)
        self._prepared().arena.write(tensor, checked_values(tensor, values))

    def connect(self, stream: str | Stream, data: Any) -> None:
        """Connect a host stream.

        Args:
            stream: The stream or its name.
            data: An array, used in place and round and round; or, for input, an iterable of arrays or a callable that
                returns one; for output, a callable that takes one.

        Raises:
            EngineError: No such stream.
            StreamConnectionError: The data does not fit.
        """
        found = find_stream(self.graph, stream)
        self._connections[found] = connection = Connection(found, data)
        machine = self._prepared().machine
        if found in machine.streams:
            machine.connect(connection)

    def load(self) -> None:
        """Bring variables with initial contents, and the state of vertices, back to how they started."""
        self._prepared().load()

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
        """
        index = self._index(program)
        image = self._prepared()
        self._check_connected(index, image)
        if not self._running.acquire(blocking=False):
            raise EngineError("the engine is running already", remedy="wait for the run, or make a second engine")
        try:
            start = time.perf_counter()
            verdict = self._execute(image, index)
            self._note_run(index, name, time.perf_counter() - start)
        finally:
            self._running.release()
        return verdict is Verdict.DONE

    def _execute(self, image: Image, index: int) -> Verdict:
        machine, interrupt = image.machine, None
        while True:
            try:
                if interrupt is None:
                    machine.start(image.entries[index])
                verdict = machine.wait()
                break
            except KeyboardInterrupt as error:
                interrupt = error
                machine.stop()
        failure = image.callbacks.take_error()
        if failure is not None:
            raise failure
        if interrupt is not None:
            raise interrupt
        return verdict

    def stop(self) -> None:
        """Let a run that is under way in another thread end after its current step, within a moment."""
        if self._image is not None:
            self._image.machine.stop()

    @property
    def report(self) -> Report:
        """What the program costs on the machine, and what its runs took on the host."""
        if self._image is not None:
            self._image.record_counts(self.executable)
        report = self.executable.report
        for row in self._runs:
            report = report.with_run(**row)
        return report

    def listing(self) -> str:
        """The bytecode that the engine runs, and what its leaves do."""
        image = self._prepared()
        return listing(image.machine.code) + "\n" + image.listing

    def close(self) -> None:
        """End the host threads; a later run starts them again."""
        if self._image is not None:
            self._image.machine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _prepared(self) -> Image:
        if self._image is None:
            self._image = build_image(self.executable, self._image_options(), self._print, self._progress)
            for stream, connection in self._connections.items():
                if stream in self._image.machine.streams:
                    self._image.machine.connect(connection)
        return self._image

    def _image_options(self) -> ImageOptions:
        return ImageOptions(self.mode == "native", self.threads, self.debug, self._keep)

    def _print(self, step: PrintTensor) -> None:
        print(tensor_text(step.title, self._prepared().arena.read(step.tensor)), file=self.print_stream)

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

    def _note_run(self, index: int, name: str, seconds: float) -> None:
        self._runs.append(
            {
                "name": name or self.executable.program_names[index],
                "program": index,
                "mode": self.mode,
                "threads": self.threads,
                "wall_seconds": seconds,
            }
        )


def _fused_away(variable: Variable) -> AbeleError:
    return EngineError(
        f"{variable!r} cannot be read: in native mode it only lives inside fused kernels",
        at=variable.debug.location,
        remedy=f"Engine(…, keep=[{variable.name!r}]), or mode='tiles'",
    )


def _silent(stage: str, fraction: float) -> None:
    """Progress that nobody watches."""


def _check_options(mode: str, threads: int | None) -> None:
    if mode not in MODES:
        close = nearest(mode, MODES)
        raise InvalidOptionError(
            f"there is no mode {mode!r}", remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(MODES)
        )
    if threads is not None and threads < 1:
        raise InvalidOptionError(f"an engine cannot run on {threads} threads", remedy="1 or more")


def _executable(
    given: Graph | Executable,
    program: Programs | None,
    allow_out_of_memory: bool,
    progress: Callable[[str, float], None] | None,
) -> Executable:
    if isinstance(given, Executable):
        return given
    if program is None:
        raise EngineError("an engine needs a program", remedy="Engine(graph, program)")
    return compile_program(given, program, allow_out_of_memory=allow_out_of_memory, progress=progress)


def _streams_of(program: Program) -> list[Stream]:
    found: dict[Stream, None] = {}
    for step in walk(program):
        if isinstance(step, Copy):
            found.update((s, None) for s in (step.source, step.destination) if isinstance(s, Stream))
    return list(found)
