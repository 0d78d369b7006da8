"""Poplar's names for the engine's methods, so that a C++ program ports line by line."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import StreamConnectionError, TensorAccessError
from abele.runtime.host.access import find_stream, find_tensor
from abele.words import counted

if TYPE_CHECKING:
    from typing import IO

    from abele.graph import RemoteBuffer, Stream, Tensor
    from abele.report import Report
    from abele.runtime.engine.engine import Engine

Array = npt.NDArray[Any]


class CppNames:
    """Mix-in of :class:`Engine`: each method is Poplar's name for one that the engine has.

    Where Poplar takes the begin and end of memory, these take an array and, optionally, the number of its elements that
    are used, as ``data.size`` is.
    """

    # --- host access -------------------------------------------------------------------------------------------------

    def writeTensor(  # type: ignore[misc]
        self: Engine, handle: str | Tensor, begin: npt.ArrayLike, end: int | None = None
    ) -> None:
        """Poplar's name for :meth:`Engine.write`; the values may be flat.

        Raises:
            TensorAccessError: No handle of this name, one that may only be read, or another number of values.
        """
        tensor = _known(self, handle)
        values, replicas = np.asarray(begin).reshape(-1)[:end], self.graph.replicas
        if values.size not in (tensor.size, replicas * tensor.size):
            raise TensorAccessError(f"{tensor!r} has {counted(tensor.size, 'element')}, it was given {values.size}")
        each = () if values.size == tensor.size else (replicas,)
        self.write(handle, values.reshape((*each, *tensor.shape)))

    def readTensor(  # type: ignore[misc]
        self: Engine, handle: str | Tensor, begin: Array | None = None, end: int | None = None
    ) -> Array:
        """Poplar's name for :meth:`Engine.read`; fills the array ``begin`` if given.

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

    def connectStream(  # type: ignore[misc]
        self: Engine, stream: str | Stream, begin: Any, end: int | None = None
    ) -> None:
        """Poplar's name for :meth:`Engine.connect`: memory that is used round and round, or anything else it takes."""
        if isinstance(begin, np.ndarray):
            self.connect(stream, begin, end=None if end is None else int(end))
        else:
            self.connect(stream, begin)

    def connectStreamToCallback(  # type: ignore[misc]
        self: Engine, stream: str | Stream, callback: Any, replicaCallback: Any = None
    ) -> None:
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

    def connectHostFunction(  # type: ignore[misc]
        self: Engine, handle: str, *replica_and_callback: Any
    ) -> None:
        """Poplar's name for connecting a host function to a callable of its inputs and outputs."""
        self.connect_function(handle, replica_and_callback[-1])

    def copyToRemoteBuffer(  # type: ignore[misc]
        self: Engine, begin: npt.ArrayLike, handle: str | RemoteBuffer, repeatIndex: int = 0, replica: int = 0
    ) -> None:
        """Set a row of a remote buffer from the host."""
        self.write_remote(handle, repeatIndex, np.asarray(begin), **_for_replica(replica))

    def copyFromRemoteBuffer(  # type: ignore[misc]
        self: Engine,
        handle: str | RemoteBuffer,
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

    def loadAndRun(self: Engine, *device_and_program: Any) -> bool:  # type: ignore[misc]
        """Load, then run: ``loadAndRun(device)``, ``loadAndRun(device, program)`` or ``loadAndRun(program)``."""
        program = next((item for item in device_and_program if isinstance(item, (int, str))), 0)
        return self.load_and_run(program)

    def prepare(self: Engine, device: Any = None) -> None:  # type: ignore[misc]
        """Make everything ready that :meth:`deploy` loads; making the engine did so already."""

    def deploy(self: Engine) -> None:  # type: ignore[misc]
        """Poplar's second half of loading."""
        self.load()

    # --- profile -----------------------------------------------------------------------------------------------------

    def getReport(self: Engine, *ignored: Any) -> Report:  # type: ignore[misc]
        """Poplar's name for :attr:`Engine.report`."""
        return self.report

    def getProfile(self: Engine) -> Report:  # type: ignore[misc]
        """The report, runs included.

        Raises:
            ProfilingDisabledError: Runs are not recorded.
        """
        _ = self.runs  # raises where none are recorded
        return self.report

    def printProfileSummary(  # type: ignore[misc]
        self: Engine, stream: IO[str] | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        """Poplar's name for :meth:`Engine.print_profile_summary`."""
        self.print_profile_summary(stream, options)

    def enableExecutionProfiling(self: Engine) -> None:  # type: ignore[misc]
        """Record runs from here on."""
        self.enable_execution_profiling()

    def disableExecutionProfiling(self: Engine) -> None:  # type: ignore[misc]
        """Record no runs from here on."""
        self.disable_execution_profiling()

    def resetExecutionProfile(self: Engine) -> None:  # type: ignore[misc]
        """Forget the runs recorded so far."""
        self.reset_execution_profile()

    def getTileClockFrequency(self: Engine) -> float:  # type: ignore[misc]
        """Clock of the tiles in Hz."""
        return self.executable.system.ipu.clock_hz

    def getTimeStamp(self: Engine) -> float:  # type: ignore[misc]
        """A time of the host in seconds, for :meth:`reportTiming`."""
        return time.perf_counter()

    def reportTiming(self: Engine, start: float, end: float | None = None) -> str:  # type: ignore[misc]
        """Time between two time stamps, or since one, in words."""
        seconds = (time.perf_counter() if end is None else end) - start
        return f"{seconds:.6f} s on the host"

    # --- printing ----------------------------------------------------------------------------------------------------

    def setPrintStream(self: Engine, stream: IO[str]) -> None:  # type: ignore[misc]
        """Where vertices and PrintTensor print to."""
        self.print_stream = stream

    def setPrintTensorStream(self: Engine, stream: IO[str]) -> None:  # type: ignore[misc]
        """Where PrintTensor and vertices print to."""
        self.print_stream = stream


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


def _known(engine: Engine, handle: str | Tensor) -> Tensor:
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
