"""Engines and executables by Poplar's names."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt

from abele import graph as g
from abele import runtime
from abele.arrays import Array
from abele.compiler import Executable, compile_program
from abele.errors import EngineError, StreamConnectionError, TensorAccessError
from abele.machine import System, Target
from abele.poplar.device import Device
from abele.report import Report
from abele.runtime.engine.deployment import Programs
from abele.runtime.engine.options import read_options
from abele.runtime.engine.run_log import AutoReport
from abele.runtime.host.access import find_stream, find_tensor
from abele.words import counted

Progress = Callable[[int, int], None]
_STAGES = 100


class EngineKeywords(TypedDict, total=False):
    """Keyword arguments of :class:`Engine`; see :class:`abele.runtime.Engine`."""

    mode: str
    threads: int | None
    debug: bool
    allow_out_of_memory: bool
    keep: Iterable[str | g.Tensor]
    options: Mapping[str, Any] | None
    checks: runtime.Checks | str | None
    progress: Callable[[str, float], None] | None
    progressCb: Progress


class Engine(runtime.Engine):
    """A compiled program with its data, ready to run on the host, under Poplar's names and our own.

    ``Engine(graph, programs[, options])``, ``Engine(executable[, options])`` and the older ``Engine(device, graph,
    programs[, options])`` are Poplar's forms. The keyword arguments, and what an engine does, are those of
    :class:`abele.runtime.Engine`. Where Poplar takes the begin and end of memory, these methods take an array and,
    optionally, the number of its elements that are used, as ``data.size`` is.

    Raises:
        AbeleError: The program does not compile.
        InvalidOptionError: An unknown option.
        EngineError: The device is another machine than the graph was made for.
    """

    @overload
    def __init__(
        self,
        graph_or_executable: g.Graph | Executable,
        program: Programs | None = None,
        /,
        *rest: Mapping[str, Any] | Progress,
        **keywords: Unpack[EngineKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self,
        device: Device,
        graph: g.Graph,
        program: Programs,
        /,
        *rest: Mapping[str, Any] | Progress,
        **keywords: Unpack[EngineKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self, graph_or_executable: g.Graph | Executable, *, program: Programs, **keywords: Unpack[EngineKeywords]
    ) -> None: ...
    def __init__(self, *given: Any, **keywords: Any) -> None:
        """Compile the programs, unless an executable is given."""
        device = next((item for item in given if isinstance(item, Device)), None)
        rest = [item for item in given if item is not device]
        if "graph_or_executable" in keywords:
            rest.insert(0, keywords.pop("graph_or_executable"))
        what, programs = _graph_and_programs(rest, keywords.pop("program", None))
        options = next((item for item in rest if isinstance(item, Mapping)), keywords.pop("options", None))
        callback = next((item for item in rest if callable(item)), keywords.pop("progressCb", None))
        if callback is not None:
            keywords["progress"] = _in_steps(callback)
        if device is not None and not isinstance(what, Executable):
            _check_device(what, device)
        super().__init__(what, programs, options=options, **keywords)

    def load(self, device: Device | None = None) -> None:
        """Bring everything to how it starts; ``device``, if given, must be what the graph was made for.

        Raises:
            EngineError: It is another machine.
        """
        if device is not None:
            _check_device(self.graph, device)
        super().load()

    def loadAndRun(self, *device_and_program: Any) -> bool:
        """Load, then run: ``loadAndRun(device)``, ``loadAndRun(device, program)`` or ``loadAndRun(program)``.

        Raises:
            EngineError: The device is another machine.
        """
        for item in device_and_program:
            if isinstance(item, Device):
                _check_device(self.graph, item)
        return self.load_and_run(next((item for item in device_and_program if isinstance(item, (int, str))), 0))

    def prepare(self, device: Device | None = None) -> None:
        """Make everything ready that :meth:`deploy` loads.

        Raises:
            EngineError: The device is another machine.
        """
        if device is not None:
            _check_device(self.graph, device)

    # --- host access -------------------------------------------------------------------------------------------------

    def writeTensor(self, handle: str | g.Tensor, begin: npt.ArrayLike, end: int | None = None) -> None:
        """See :meth:`abele.runtime.Engine.write`; the values may be flat.

        Raises:
            TensorAccessError: No handle of this name, one that may only be read, or another number of values.
        """
        tensor = _known(self, handle)
        values, replicas = np.asarray(begin).reshape(-1)[:end], self.graph.replicas
        if values.size not in (tensor.size, replicas * tensor.size):
            raise TensorAccessError(f"{tensor!r} has {counted(tensor.size, 'element')}, it was given {values.size}")
        each = () if values.size == tensor.size else (replicas,)
        self.write(handle, values.reshape((*each, *tensor.shape)))

    def readTensor(self, handle: str | g.Tensor, begin: Array | None = None, end: int | None = None) -> Array:
        """See :meth:`abele.runtime.Engine.read`; fills the array ``begin`` if given.

        Raises:
            TensorAccessError: No handle of this name, one that may only be written, or an array of another size.
        """
        tensor = _known(self, handle)
        values = self.read(handle)
        if begin is None:
            return values
        flat = begin.reshape(-1)[:end]
        if flat.size != values.size:
            raise TensorAccessError(f"{tensor!r} has {counted(values.size, 'element')}, there is room for {flat.size}")
        np.copyto(flat, values.reshape(-1))
        return begin

    def connectStream(self, stream: str | g.Stream, begin: Any, end: int | None = None) -> None:
        """See :meth:`abele.runtime.Engine.connect`: memory that is used round and round, or anything else it takes."""
        if isinstance(begin, np.ndarray):
            self.connect(stream, begin, end=None if end is None else int(end))
        else:
            self.connect(stream, begin)

    def connectStreamToCallback(self, stream: str | g.Stream, callback: Any, replicaCallback: Any = None) -> None:
        """Connect a function ``f(buffer)`` that fills or takes the buffer of a copy, or a callback object.

        Functions for an input that take nothing and return the data work too.

        Raises:
            StreamConnectionError: A replica is named: a callback serves all replicas.
        """
        if replicaCallback is not None:
            raise StreamConnectionError(
                f"stream {stream!r} cannot be connected for replica {callback} alone",
                remedy="connect one callback; its buffer holds the data of all replicas",
            )
        found = find_stream(self.graph, stream)
        fills = found.direction == "in" and callable(callback) and not hasattr(callback, "fetch")
        self.connect(found, _Filling(callback) if fills and _takes_buffer(callback) else callback)

    def connectHostFunction(self, handle: str, *replica_and_callback: Any) -> None:
        """Poplar's name for connecting a host function to a callable of its inputs and outputs."""
        self.connect_function(handle, replica_and_callback[-1])

    def copyToRemoteBuffer(
        self, begin: npt.ArrayLike, handle: str | g.RemoteBuffer, repeatIndex: int = 0, replica: int = 0
    ) -> None:
        """Set a row of a remote buffer from the host."""
        self.write_remote(handle, repeatIndex, np.asarray(begin), **_for_replica(replica))

    def copyFromRemoteBuffer(
        self,
        handle: str | g.RemoteBuffer,
        begin: Array | None = None,
        repeatIndex: int = 0,
        replica: int = 0,
    ) -> Array:
        """A row of a remote buffer, into ``begin`` if given."""
        values: Array = self.read_remote(handle, repeatIndex, **_for_replica(replica))
        if begin is None:
            return values
        np.copyto(begin.reshape(-1)[: values.size], values.reshape(-1))
        return begin

    # --- running -----------------------------------------------------------------------------------------------------

    def deploy(self) -> None:
        """Poplar's second half of loading."""
        self.load()

    # --- profile -----------------------------------------------------------------------------------------------------

    def getReport(self, *ignored: Any) -> Report:
        """Poplar's name for :attr:`Engine.report`."""
        return self.report

    def getProfile(self) -> Report:
        """The report, runs included.

        Raises:
            ProfilingDisabledError: Runs are not recorded.
        """
        _ = self.runs  # raises where none are recorded
        return self.report

    def printProfileSummary(self, stream: IO[str] | None = None, options: Mapping[str, Any] | None = None) -> None:
        """See :meth:`abele.runtime.Engine.print_profile_summary`."""
        self.print_profile_summary(stream, options)

    def enableExecutionProfiling(self) -> None:
        """Record runs from here on."""
        self.enable_execution_profiling()

    def disableExecutionProfiling(self) -> None:
        """Record no runs from here on."""
        self.disable_execution_profiling()

    def resetExecutionProfile(self) -> None:
        """Forget the runs recorded so far."""
        self.reset_execution_profile()

    def getTileClockFrequency(self) -> float:
        """Clock of the tiles in Hz."""
        return self.executable.system.ipu.clock_hz

    def getTimeStamp(self) -> float:
        """A time of the host in seconds, for :meth:`reportTiming`."""
        return time.perf_counter()

    def reportTiming(self, start: float, end: float | None = None) -> str:
        """Time between two time stamps, or since one, in words."""
        seconds = (time.perf_counter() if end is None else end) - start
        return f"{seconds:.6f} s on the host"

    # --- printing ----------------------------------------------------------------------------------------------------

    def setPrintStream(self, stream: IO[str]) -> None:
        """Set the stream that vertices and PrintTensor print to."""
        self.print_stream = stream

    def setPrintTensorStream(self, stream: IO[str]) -> None:
        """Set the stream that PrintTensor and vertices print to."""
        self.print_stream = stream


def compileGraph(
    graph: g.Graph,
    progs: Programs,
    options: Mapping[str, Any] | None = None,
    progressCb: Progress | None = None,
    name: Any = "",
) -> Executable:
    """Compile programs without running them.

    Raises:
        AbeleError: A program does not compile.
        InvalidOptionError: An unknown option.
    """
    flags = read_options(options)
    with AutoReport(flags).of_failure():
        return compile_program(
            graph,
            progs,
            allow_out_of_memory=flags.flag("debug.allowOutOfMemory"),
            progress=None if progressCb is None else _in_steps(progressCb),
        )


def _in_steps(callback: Progress) -> Callable[[str, float], None]:
    """Poplar's progress callback takes the step and the number of steps."""
    return lambda stage, part: callback(round(part * _STAGES), _STAGES)


def _graph_and_programs(rest: list[Any], program: Programs | None) -> tuple[g.Graph | Executable, Programs | None]:
    """Parts of an engine, taken off its arguments: a graph and programs, or an executable."""
    if rest and isinstance(rest[0], Executable):
        return rest.pop(0), None
    if not rest or not isinstance(rest[0], g.Graph):
        given = ", ".join(type(item).__name__ for item in rest)
        raise EngineError(f"an Engine takes a graph and programs, or an executable, got ({given})")
    graph = rest.pop(0)
    return graph, rest.pop(0) if rest and program is None else program


def _check_device(graph: g.Graph, device: Device) -> None:
    if not isinstance(device, Device):
        raise EngineError(
            f"{device!r} is no device", remedy="IPUModel().createDevice(), or a device of a DeviceManager"
        )
    wanted, given = graph.whole_system, device.system
    if _size(wanted) != _size(given):
        raise EngineError(
            f"the program was made for {_words(wanted)}, the device has {_words(given)}",
            remedy="make the graph for device.getTarget()",
        )


def _size(system: System) -> tuple[int, int, str]:
    return system.num_ipus, system.ipu.num_tiles, system.ipu.generation


def _words(system: System) -> str:
    target = Target(system)
    return f"{target.num_ipus} × {target.tiles_per_ipu} tiles of {system.ipu.name}"


class _Filling:
    """A function that fills a buffer, as a callback object."""

    def __init__(self, function: Callable[[Array], object]) -> None:
        self.fetch = function


def _takes_buffer(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _known(engine: Engine, handle: str | g.Tensor) -> g.Tensor:
    """The tensor behind a handle or, where the host made none, behind a variable's name."""
    graph = engine.graph
    if isinstance(handle, str) and handle not in graph.host_handles and not graph.find(handle):
        handles = ", ".join(graph.host_handles)
        raise TensorAccessError(
            f"no host handle is called {handle!r}",
            remedy=f"there are {handles}"
            if handles
            else f"graph.createHostRead({handle!r}, tensor), or createHostWrite",
        )
    return find_tensor(graph, handle)


def _for_replica(replica: int) -> dict[str, int]:
    return {"replica": replica} if replica else {}
