"""Debug mode: vertices run as the plain Python they were written in, with every access checked."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import AbeleError
from abele.graph import ComputeSet
from abele.runtime.callbacks import Callbacks
from abele.runtime.emitter import Emitter
from abele.runtime.interval_set import IntervalSet
from abele.runtime.supersteps import PlacedGroup, Supersteps, transfers, written

if TYPE_CHECKING:
    from abele.codelet import FieldDef


@dataclass(eq=False)
class InterpretedSupersteps:
    """Emits compute sets as calls back to Python, one a superstep.

    Attributes:
        supersteps: Places the vertices, as for native execution.
        callbacks: Where the calls go.
        num_workers: Workers of a tile, which a MultiVertex runs on one after the other.
    """

    supersteps: Supersteps
    callbacks: Callbacks
    num_workers: int

    def emit(self, compute_set: ComputeSet, emitter: Emitter) -> None:
        """Append what executes the compute set."""
        groups = self.supersteps.place(compute_set)
        gather, scatter = transfers(compute_set, groups)
        number = self.callbacks.add(lambda: self._run(groups))
        if gather:
            emitter.phase(gather)
        emitter.callback(number)
        emitter.expect_writes(IntervalSet.union(written(g.group) for g in groups))
        if scatter:
            emitter.phase(scatter)

    def _run(self, groups: list[PlacedGroup]) -> None:
        for placed in groups:
            for vertex in range(placed.group.num):
                self._run_vertex(placed, vertex)

    def _run_vertex(self, placed: PlacedGroup, vertex: int) -> None:
        from abele.codelet import interpret

        group = placed.group
        definition = group.codelet
        fields = vertex_fields(placed, vertex)
        workers = range(self.num_workers) if definition.kind == "multi" else (None,)
        try:
            for worker in workers:
                interpret(definition, fields, worker=worker)
        except AbeleError as error:
            raise _located(error, placed, vertex) from error


def _located(error: AbeleError, placed: PlacedGroup, vertex: int) -> AbeleError:
    """The same error, which also tells the vertex and where the user made it."""
    group = placed.group
    where = f"vertex {vertex} of {group.num} × {group.codelet.name} on tile {int(group.tile[vertex])}"
    made = f"compute set {placed.compute_set.name!r}, made at {group.debug.location}"
    at = "\n".join(filter(None, (error.at, where, made)))
    return type(error)(error.message, at=at, because=error.because, remedy=error.remedy)


def vertex_fields(placed: PlacedGroup, vertex: int) -> dict[str, Any]:
    """Fields of one vertex as arrays over the memory that native code would use; scalar state as numbers."""
    columns = iter(placed.tables.columns)
    return {f.name: _field(f, columns, vertex) for f in placed.group.codelet.fields}


def _field(field: FieldDef, columns: Any, vertex: int) -> Any:
    dtype = field.type.np
    if field.rank == 2:
        rows, pointers, lengths = next(columns), next(columns), next(columns)
        return [_view(pointers[r], lengths[r], dtype) for r in range(rows[vertex], rows[vertex + 1])]
    if field.rank == 1:
        pointers, lengths = next(columns), next(columns)
        return _view(pointers[vertex], lengths[vertex], dtype)
    column = next(columns)
    return column[vertex : vertex + 1] if field.direction == "state" else _view(column[vertex], 1, dtype)


def _view(address: int, length: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    size = int(length) * dtype.itemsize
    memory = (ctypes.c_uint8 * size).from_address(int(address))
    return np.ctypeslib.as_array(memory).view(dtype)
