"""Debug mode: vertices run as the plain Python they were written in, with every access checked."""

from __future__ import annotations

import ctypes
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.codelet import FieldDef, interpret
from abele.codelet.early_exits import STOPPED
from abele.codelet.rounding import NEAREST, Rounding
from abele.errors import AbeleError, ApplicationRuntimeError, ControlProgramError
from abele.graph import ComputeSet, VertexGroup
from abele.graph.interval_set import IntervalSet
from abele.runtime.control.emitter import Emitter
from abele.runtime.control.virtual_machine import Callbacks
from abele.runtime.supersteps.native_supersteps import NativeSupersteps, transfers, written
from abele.runtime.supersteps.placed_groups import PlacedGroup, SuperstepWatch
from abele.runtime.supersteps.seeds import Seeds

RunVertices = Callable[[list[PlacedGroup]], None]


@dataclass(eq=False)
class InterpretedSupersteps:
    """Emits compute sets as calls back to Python, one per superstep.

    Attributes:
        supersteps: Places the vertices, as for native execution.
        callbacks: Callbacks that the calls are added to.
        run: Runs the vertices of a compute set.
    """

    supersteps: NativeSupersteps
    callbacks: Callbacks
    run: RunVertices
    _groups: dict[ComputeSet, list[PlacedGroup]] = field(default_factory=dict)

    def emit(
        self,
        compute_set: ComputeSet,
        emitter: Emitter,
        watch: SuperstepWatch | None = None,
        rounding: Rounding = NEAREST,
        seeds: Seeds | None = None,
    ) -> None:
        """Append the code that executes the compute set, with a watch before and after the vertices.

        Raises:
            ControlProgramError: Results are to be rounded at random, or held at the largest number.
        """
        if rounding != NEAREST:
            raise ControlProgramError(
                f"compute set {compute_set.name!r} cannot be {rounding} by interpreted vertices",
                at=compute_set.debug.location,
                remedy="run without debug=True and vertex checks, or leave the floating-point behaviour alone",
            )
        groups = self._placed(compute_set)
        gather, scatter = transfers(compute_set, groups)
        prints = self.supersteps.prints
        number = self.callbacks.add(
            (lambda: self.run(groups)) if prints is None else (lambda: prints.around(groups, self.run))
        )
        if gather:
            emitter.phase(gather)
        if watch is not None:
            watch.before(emitter, groups, native=False)
        emitter.callback(number)
        if watch is not None:
            watch.after(emitter)
        emitter.expect_writes(IntervalSet.union(written(g.group) for g in groups))
        if scatter:
            emitter.phase(scatter)

    def _placed(self, compute_set: ComputeSet) -> list[PlacedGroup]:
        """Its vertices, whose state all executions of it share."""
        if compute_set not in self._groups:
            self._groups[compute_set] = self.supersteps.place(compute_set)
        return self._groups[compute_set]


def can_interpret(group: VertexGroup) -> bool:
    """True if the codelet is written in Python."""
    return group.codelet.language == "python"


class _StoppedError(BaseException):
    """Ends a vertex that runs as plain Python; never leaves this file."""


_lock = threading.Lock()
_running: dict[int, PlacedGroup] = {}
"""Vertices that each thread runs as plain Python now."""


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Let a thread raise an error at its next line; None: forget one that it was to raise."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error)
    )


def stop_interpreted(groups: Sequence[PlacedGroup]) -> None:
    """End the vertices of some groups that run as plain Python now."""
    with _lock:
        for thread, placed in _running.items():
            if any(placed is group for group in groups):
                _raise_in(thread, _StoppedError)


def _interpret(placed: PlacedGroup, vertex: int, worker: int | None) -> None:
    thread = threading.get_ident()
    fields = vertex_fields(placed, vertex)
    try:
        _running[thread] = placed
        try:
            interpret(placed.group.codelet, fields, worker)
        finally:
            with _lock:  # nobody asks this thread to stop from here on; what came too late is forgotten
                _running.pop(thread, None)
                _raise_in(thread, None)
    except _StoppedError as stopped:
        codelet = placed.group.codelet
        lines = [
            line for frame, line in traceback.walk_tb(stopped.__traceback__) if frame.f_code.co_filename == codelet.file
        ]
        raise ApplicationRuntimeError(
            f"vertex {codelet.name} {STOPPED}",
            at=f"{codelet.file}:{lines[-1] if lines else codelet.line}",
        ) from None


def run_vertex(placed: PlacedGroup, vertex: int, worker: int | None = None) -> None:
    """Run one vertex (or one worker of it) as plain Python; an error also names the vertex and its source line."""
    try:
        _interpret(placed, vertex, worker)
    except AbeleError as error:
        at = "\n".join(filter(None, (error.at, place_of(placed, vertex))))
        raise type(error)(error.message, at=at, because=error.because, remedy=error.remedy) from error
    except Exception as error:
        error.add_note(place_of(placed, vertex))
        raise


def place_of(placed: PlacedGroup, vertex: int) -> str:
    """Name of a vertex: its tile, compute set and source line."""
    group = placed.group
    replica, vertex = divmod(vertex, group.num)
    where = f"vertex {vertex} of {group.num} × {group.codelet.name} on tile {int(group.tile[vertex])}"
    if placed.replicas > 1:
        where += f" of replica {replica}"
    return f"{where}\ncompute set {placed.compute_set.name!r}, made at {group.origin_of(vertex).location}"


def vertex_fields(placed: PlacedGroup, vertex: int) -> dict[str, Any]:
    """Fields of one vertex as arrays over the memory that native code would use; scalar state as numbers."""
    columns = iter(placed.tables.columns)
    return {f.name: _field(f, columns, vertex) for f in placed.group.codelet.fields}


def _field(definition: FieldDef, columns: Any, vertex: int) -> Any:
    dtype = definition.type.np
    if definition.rank == 2:
        rows, pointers, lengths = next(columns), next(columns), next(columns)
        return [_view(pointers[r], lengths[r], dtype) for r in range(rows[vertex], rows[vertex + 1])]
    if definition.rank == 1:
        pointers, lengths = next(columns), next(columns)
        return _view(pointers[vertex], lengths[vertex], dtype)
    column = next(columns)
    return column[vertex : vertex + 1] if definition.direction == "state" else _view(column[vertex], 1, dtype)


def _view(address: int, length: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    size = int(length) * dtype.itemsize
    memory = (ctypes.c_uint8 * size).from_address(int(address))
    return np.ctypeslib.as_array(memory).view(dtype)
