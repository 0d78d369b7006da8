"""Traced vertices: one vertex run as plain Python on copies, to see which elements it really reads."""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.codelet import FieldDef, interpret
from abele.errors import CodeletError
from abele.graph import Edge, VertexGroup
from abele.runtime.checks.shadow import Shadow
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.elements import row_elements
from abele.runtime.supersteps.interpreted import can_interpret, vertex_fields
from abele.runtime.supersteps.placed_groups import PlacedGroup

READ = ("in", "inout")


@dataclass(frozen=True, slots=True)
class UninitialisedElement:
    """A read of an element that nothing has written.

    Attributes:
        address: The element.
        field: The field and index, as in ``x[3]``.
        line: File and line of the codelet that reads it; empty when not known.
    """

    address: int
    field: str
    line: str


class _Found(Exception):  # noqa: N818  never leaves this file
    def __init__(self, found: UninitialisedElement) -> None:
        self.found = found


class _WatchedRow(np.ndarray[Any, Any]):
    """Copy of one row of a field that notes its written elements."""

    valid: npt.NDArray[np.bool_]
    address: Int64
    field: FieldDef
    number: int

    def __getitem__(self, index: Any) -> Any:
        at = operator.index(index)
        if not self.valid[at]:
            raise _Found(self.unwritten(at, _codelet_line()))
        return super().__getitem__(at)

    def unwritten(self, at: int, line: str) -> UninitialisedElement:
        """The read of one of its elements, which was not written, at a line of the codelet."""
        index = {0: "", 1: f"[{at}]", 2: f"[{self.number}][{at}]"}[self.field.rank]
        return UninitialisedElement(int(self.address[at]), f"{self.field.name}{index}", line)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.valid[operator.index(index)] = True
        super().__setitem__(index, value)


def suspects(group: VertexGroup, shadow: Shadow) -> Iterator[tuple[int, int]]:
    """Replica and number of each vertex that may read an element without a write."""
    for replica in range(len(shadow.valid)):
        found: set[int] = set()
        for field in group.codelet.fields:
            if field.direction in READ:
                edge = group.edges[field.name]
                address, row = row_elements(edge)
                rows = np.unique(row[~shadow.valid[replica, address]])
                found.update(edge.vertex_of_row[rows].tolist())
        for vertex in sorted(found):
            yield replica, vertex


def run_traced(
    placed: PlacedGroup, replica: int, vertex: int, shadow: Shadow, arena: Arena
) -> UninitialisedElement | None:
    """Run one vertex on copies of its data; gives the first read of an element that nothing has written.

    A codelet that cannot be run as plain Python reads all of its Inputs.
    """
    group = placed.group
    fields = vertex_fields(placed, replica * group.num + vertex)
    for field in group.codelet.fields:
        if field.direction == "state":
            fields[field.name] = np.array(fields[field.name])
            continue
        rows = _rows(group.edges[field.name], vertex)
        arrays = [_watched(row, field, number, replica, shadow, arena) for number, row in enumerate(rows)]
        fields[field.name] = arrays if field.rank == 2 else arrays[0]
    if not can_interpret(group):
        return _first_invalid(group, fields)
    try:
        interpret(group.codelet, fields)
    except _Found as error:
        return error.found
    except CodeletError:
        # What else is wrong with the vertex is for the run itself to find.
        return None
    return None


def _first_invalid(group: VertexGroup, fields: dict[str, Any]) -> UninitialisedElement | None:
    for field in group.codelet.fields:
        if field.direction != "in":
            continue
        rows = fields[field.name] if field.rank == 2 else [fields[field.name]]
        for row in rows:
            if not row.valid.all():
                unwritten: UninitialisedElement = row.unwritten(int(np.argmin(row.valid)), group.codelet.location)
                return unwritten
    return None


def _rows(edge: Edge, vertex: int) -> list[Int64]:
    """Addresses of the elements of each row of one vertex."""
    begin, end = (vertex, vertex + 1) if edge.row_begin is None else edge.row_begin[vertex : vertex + 2]
    one = Edge(edge.regions, edge.index[begin:end])
    address, row = row_elements(one)
    return np.split(address, np.searchsorted(row, np.arange(1, end - begin)))


def _watched(address: Int64, field: FieldDef, number: int, replica: int, shadow: Shadow, arena: Arena) -> _WatchedRow:
    dtype = field.type.np
    memory = arena.pieces(address, np.ones_like(address), replica)
    values = np.empty(len(address), dtype=dtype)
    for place, source in enumerate(memory.address.tolist()):
        values[place] = _element(source, dtype)
    row = values.view(_WatchedRow)
    row.valid, row.address, row.field, row.number = shadow.valid[replica, address], address, field, number
    return row


def _element(address: int, dtype: np.dtype[Any]) -> Any:
    memory = (ctypes.c_uint8 * dtype.itemsize).from_address(address)
    return np.ctypeslib.as_array(memory).view(dtype)[0]


def _codelet_line() -> str:
    """File and line of the codelet that is running."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("_abele_debug"):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ""
