"""Host functions: Python that a program calls and waits for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import EngineError, StreamConnectionError, nearest
from abele.graph import Graph, HostCall, HostFunction, Program, walk
from abele.graph.host_interface import Argument
from abele.numerics import to_host
from abele.runtime.memory.arena import Arena

_REPLICA = "replica"


class HostFunctions:
    """Python functions connected to the host functions of a graph.

    Args:
        graph: Their graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._connected: dict[HostFunction, Callable[..., Any]] = {}
        self._calls: dict[Program, tuple[HostCall, ...]] = {}

    def connect(self, handle: str | HostFunction, function: Callable[..., Any]) -> None:
        """Connect a host function; see :meth:`abele.Engine.connect_function`."""
        found = self._find(handle)
        if not callable(function):
            raise StreamConnectionError(
                f"host function {found.name!r} cannot be connected to {type(function).__name__}",
                at=found.debug.location,
                remedy="connect a callable",
            )
        self._connected[found] = function

    def _find(self, handle: str | HostFunction) -> HostFunction:
        name = handle.name if isinstance(handle, HostFunction) else handle
        found = self._graph.host_functions.get(name)
        if found is None or (isinstance(handle, HostFunction) and found is not handle):
            close = nearest(name, list(self._graph.host_functions))
            raise EngineError(
                f"the graph has no host function {name!r}", remedy=f"did you mean {close!r}?" if close else None
            )
        return found

    def check_connected(self, program: Program) -> None:
        """Raise unless all host functions that a program calls are connected.

        Raises:
            StreamConnectionError: One is not.
        """
        if program not in self._calls:
            nodes = set(walk(program)) if self._graph.host_functions else ()
            self._calls[program] = tuple(s for s in nodes if isinstance(s, HostCall))
        for step in self._calls[program]:
            if step.function not in self._connected:
                raise StreamConnectionError(
                    f"host function {step.function.name!r} is not connected",
                    at=step.debug.location,
                    remedy=f"engine.connect_function({step.function.name!r}, function)",
                )

    def call(self, step: HostCall, arena: Arena) -> None:
        """Call the function of a step for every replica in order, and store its results.

        Raises:
            StreamConnectionError: Its results do not fit.
        """
        function = self._connected[step.function]
        by_replica = _takes_replica(function)
        for replica in range(arena.replicas):
            arguments = [
                to_host(arena.read(tensor, replica), tensor.dtype).reshape(argument.shape)
                for tensor, argument in zip(step.inputs, step.function.inputs, strict=True)
            ]
            given = function(*arguments, **({_REPLICA: arena.first_replica + replica} if by_replica else {}))
            results = _results(step, given)
            for tensor, values in zip(step.outputs, results, strict=True):
                arena.write(tensor, values.reshape(tensor.shape), replica)


def _takes_replica(function: Callable[..., Any]) -> bool:
    try:
        return _REPLICA in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _results(step: HostCall, given: Any) -> list[npt.NDArray[Any]]:
    wanted = step.function.outputs
    several = isinstance(given, tuple) or (isinstance(given, list) and len(wanted) != 1)
    items: list[Any] = list(given) if several else [] if given is None else [given]
    if len(items) != len(wanted):
        raise _misfit(step, f"gave {len(items)} results, it has {len(wanted)} outputs")
    return [_checked(step, n, a, v) for n, (a, v) in enumerate(zip(wanted, _arrays(items), strict=True))]


def _arrays(items: Iterable[Any]) -> list[npt.NDArray[Any]]:
    return [np.asarray(item) for item in items]


def _checked(step: HostCall, number: int, wanted: Argument, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if values.shape != wanted.shape:
        raise _misfit(
            step, f"gave an array of shape {list(values.shape)} for output {number}, {list(wanted.shape)} fits"
        )
    if not np.can_cast(values.dtype, wanted.dtype.np, "same_kind"):
        raise _misfit(step, f"gave elements of {values.dtype} for output {number}, which is {wanted.dtype}")
    return values


def _misfit(step: HostCall, what: str) -> StreamConnectionError:
    made = step.function.debug.location
    return StreamConnectionError(
        f"host function {step.function.name!r} {what}",
        at=step.debug.location,
        because=f"it was declared at {made}" if made else None,
    )
