"""The check for uninitialised reads: a shadow of memory, followed from step to step."""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.codelet import FieldDef, interpret
from abele.errors import CodeletError, UninitialisedReadError
from abele.graph import (
    ComputeSet,
    Edge,
    Execute,
    Graph,
    Program,
    RepeatWhile,
    Tensor,
    Variable,
    VertexGroup,
    WriteUndef,
)
from abele.graph.elements import elements_of
from abele.graph.interval_set import IntervalSet
from abele.graph.intervals import distinct, expand
from abele.numerics import ElementType
from abele.runtime.checks.watching import Look
from abele.runtime.control.leaf import Leaf
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.memory.elements import Elements, VariablePart, row_elements
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.supersteps.copy_leaves import Runs, copy_leaf
from abele.runtime.supersteps.interpreted import can_interpret, vertex_fields
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.runtime.supersteps.vertex_places import element_text, made_at, vertex_text
from abele.runtime.supersteps.vertex_tables import FieldMemory

# Shadow: flags of written elements, and the poison of others.

_POISON = {"f16": 0x7EDE, "bf16": 0x7FED, "f32": 0x7FE0DEAD, 32: 0xDEADBEEF, 64: 0xDEADBEEFDEADBEEF}
"""Bits of elements that nothing has written: quiet NaN with a payload that no arithmetic makes, or a rare integer."""


def poison_bits(dtype: ElementType) -> int | None:
    """Bits that mark an element of a type as not written; None where every pattern is an ordinary value."""
    return _POISON.get(dtype.name, _POISON.get(dtype.bits) if dtype.kind in ("int", "uint") else None)


class Shadow:
    """Validity of every element in every replica.

    An element that is not valid holds poison, so a step that leaves poison there has not written it. Integers of 8 and
    16 bits, and bools, have no pattern to spare: what may write them counts as having done so.

    Attributes:
        valid: bool[replicas, elements of the global space].
    """

    def __init__(self, arena: Arena, variables: Iterable[Variable]) -> None:
        self._arena = arena
        self._variables = tuple(v for v in variables if v.size)
        size = max((v.base + v.size for v in self._variables), default=0)
        self.valid = np.zeros((arena.replicas, size), dtype=bool)

    def load(self) -> None:
        """Only initial contents are valid; the rest is poisoned."""
        self.valid[...] = False
        for variable in self._variables:
            if variable.initial is not None or variable.is_constant:
                self.valid[:, variable.base : variable.base + variable.size] = True
            else:
                _poison(self._arena, variable, slice(None))

    def set(self, tensor: Tensor) -> None:
        """A view was written."""
        self.valid[:, addresses_of(tensor)] = True

    def forget(self, elements: Elements) -> None:
        """Mark the contents of some elements as undefined."""
        self.valid[:, elements.address] = False
        for part in elements.parts:
            _poison(self._arena, part.variable, part.index)

    def learn(self, elements: Elements) -> None:
        """A step that may have written some elements is done: those that do not hold poison are valid."""
        for part in elements.parts:
            address = elements.address[part.place]
            self.valid[:, address] |= self.written(part)

    def written(self, part: VariablePart) -> npt.NDArray[np.bool_] | bool:
        """True for each element that holds something other than poison, [replicas, k]."""
        poison = poison_bits(part.variable.dtype)
        return True if poison is None else np.asarray(part.bits(self._arena) != poison)

    def first_invalid(self, address: Int64) -> tuple[int, int] | None:
        """Replica, and position in ``address``, of the first element that nothing has written; None when all are."""
        found = self.valid[:, address]
        if found.all():
            return None
        replica, place = np.unravel_index(int(np.argmin(found)), found.shape)
        return int(replica), int(place)


def addresses_of(tensor: Tensor) -> Int64:
    """Addresses of the elements that a view shows, in its flattened order, int64[n]."""
    return expand(*tensor.intervals())


def _poison(arena: Arena, variable: Variable, index: Any) -> None:
    bits = poison_bits(variable.dtype)
    if bits is not None:
        flat = arena.images(variable).reshape(arena.replicas, -1)
        flat.view(f"u{variable.dtype.bytes}")[:, index] = bits


# Traced vertices: one vertex run as plain Python on copies, to see which elements it really reads.

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


# Poison in Outputs, so that an element that a vertex does not write cannot pass for a result.

_LEAF = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class OutputPoison:
    """Poison in the Outputs of a compute set's vertices, in place or in the memory they are gathered in.

    A row that shares an element with something that is read is left alone, and so are types without poison.

    Args:
        placed: The vertices.
        read: Elements that the compute set reads.
        arena: Memory of the variables.

    Attributes:
        address: Elements that are poisoned, int64[n].
    """

    def __init__(self, placed: Iterable[PlacedGroup], read: IntervalSet, arena: Arena) -> None:
        found: list[Int64] = []
        self._leaves: list[Leaf] = []
        for group in placed:
            for field, edge, memory in _outputs(group):
                bits = poison_bits(field.type)
                if bits is None:
                    continue
                address, row = row_elements(edge)
                kept = np.zeros(len(edge.index), dtype=bool)
                # An element of these rows is read, by this vertex or another: its contents are wanted.
                kept[row[read.contains(address)]] = True
                found.append(address[~kept[row]])
                rows = np.tile(~kept, arena.replicas) & (memory.bytes > 0)
                self._leaves.append(_fill_leaf(memory, rows, bits, field.type.bytes))
        self.address = distinct(np.concatenate(found)) if found else np.empty(0, np.int64)

    def apply(self) -> None:
        """Poison all of it."""
        for leaf in self._leaves:
            arguments = np.array(leaf.args, dtype=np.int64)
            _LEAF(leaf.address)(0, leaf.units, address_of(arguments))


def _outputs(placed: PlacedGroup) -> Iterator[tuple[FieldDef, Edge, FieldMemory]]:
    memory = iter(placed.tables.memory)
    for field in placed.group.codelet.fields:
        if field.direction == "state":
            continue
        here = next(memory)
        if field.direction == "out":
            yield field, placed.group.edges[field.name], here


def _fill_leaf(memory: FieldMemory, rows: npt.NDArray[np.bool_], bits: int, width: int) -> Leaf:
    size = memory.bytes[rows]
    pattern = aligned_block(int(size.max(initial=0)))
    pattern.view(f"u{width}")[...] = bits
    # One block of poison, as long as the longest row, is the source of every copy.
    source = np.full(len(size), address_of(pattern), dtype=np.int64)
    return copy_leaf("poison", Runs(source, memory.address[rows], size)).keeping(pattern)


_REMEDY = "give it an initial value, write it from the host, or let a step write it first"


@dataclass(frozen=True, eq=False)
class _Superstep:
    """A compute set as the check sees it.

    Attributes:
        placed: Its vertices.
        read: Addresses of elements that fields connect vertices to for reading.
        written: Elements that they may write.
        poison: Poison of the Outputs.
    """

    placed: list[PlacedGroup]
    read: Int64
    written: Elements
    poison: OutputPoison


class UninitialisedWatch:
    """Ends the run at the first read of an element that nothing has written.

    A step other than a compute set reads all of its source. A vertex whose inputs are not all written is run as plain
    Python first, and only the elements that it reads count.

    Args:
        graph: The graph.
        arena: Its memory.
        effects: Elements that steps touch.
        placed: All vertex groups that are made ready, now and later.
        shadow: Elements that were written.
    """

    def __init__(
        self, graph: Graph, arena: Arena, effects: EffectsOf, placed: list[PlacedGroup], shadow: Shadow
    ) -> None:
        self._graph = graph
        self._arena = arena
        self._effects = effects
        self._placed = placed
        self._shadow = shadow
        self._compute_sets: dict[ComputeSet, _Superstep] = {}

    def load(self) -> None:
        """Poison variables without contents."""
        self._shadow.load()

    def host_wrote(self, tensor: Tensor) -> None:
        """The view is valid."""
        self._shadow.set(tensor)

    def before(self, step: Program) -> Look | None:
        """Check the elements that the step reads."""
        match step:
            case Execute():
                return partial(self._before_vertices, step.compute_set)
            case RepeatWhile():
                return None
            case _ if step.reads():
                return partial(self._check, step)
            case _:
                return None

    def after(self, step: Program) -> Look | None:
        """Note the elements that the step wrote."""
        match step:
            case Execute():
                return partial(self._after_vertices, step.compute_set)
            case WriteUndef():
                elements = Elements.of(elements_of(step.tensor), self._arena)
                return partial(self._shadow.forget, elements)
            case _ if step.writes():
                return partial(self._note_writes, step.writes())
            case _:
                return None

    def decision(self, step: Program) -> Look | None:
        """Check the predicate."""
        return partial(self._check, step)

    # --- plain steps -------------------------------------------------------------------------------------------------

    def _check(self, step: Program) -> None:
        for tensor in step.reads():
            address = addresses_of(tensor)
            found = self._shadow.first_invalid(address)
            if found is not None:
                replica, place = found
                raise UninitialisedReadError(
                    f"{element_text(self._graph, int(address[place]))} is read, and nothing has written it",
                    at=f"{_step_text(step)}, which reads {tensor!r}{self._of_replica(replica)}",
                    because=made_at(self._graph, int(address[place])),
                    remedy=_REMEDY,
                )

    def _note_writes(self, tensors: tuple[Tensor, ...]) -> None:
        for tensor in tensors:
            self._shadow.set(tensor)

    def _of_replica(self, replica: int) -> str:
        return f" of replica {replica}" if self._arena.replicas > 1 else ""

    # --- vertices ----------------------------------------------------------------------------------------------------

    def _superstep(self, compute_set: ComputeSet) -> _Superstep:
        if compute_set not in self._compute_sets:
            effects = self._effects.compute_set(compute_set)
            mine = [p for p in self._placed if p.compute_set is compute_set]
            self._compute_sets[compute_set] = _Superstep(
                mine,
                Elements.of(effects.exposed, self._arena).address,
                Elements.of(effects.written, self._arena),
                OutputPoison(mine, effects.exposed, self._arena),
            )
        return self._compute_sets[compute_set]

    def _before_vertices(self, compute_set: ComputeSet) -> None:
        step = self._superstep(compute_set)
        if self._shadow.first_invalid(step.read) is not None:
            for placed in step.placed:
                for replica, vertex in suspects(placed.group, self._shadow):
                    self._trace(placed, replica, vertex)
        step.poison.apply()
        self._shadow.valid[:, step.poison.address] = False

    def _after_vertices(self, compute_set: ComputeSet) -> None:
        self._shadow.learn(self._superstep(compute_set).written)

    def _trace(self, placed: PlacedGroup, replica: int, vertex: int) -> None:
        found = run_traced(placed, replica, vertex, self._shadow, self._arena)
        if found is None:
            return
        place = vertex_text(placed.compute_set, placed.group, vertex, replica if self._arena.replicas > 1 else None)
        raise UninitialisedReadError(
            f"{element_text(self._graph, found.address)} is read as {placed.group.codelet.name}.{found.field}, and "
            "nothing has written it",
            at="\n".join(filter(None, (found.line, place))),
            because=made_at(self._graph, found.address),
            remedy=_REMEDY,
        )


def _step_text(step: Program) -> str:
    name = step.debug.full_name
    kind = type(step).__name__
    words = kind if name.replace("_", "") == kind.lower() else f"{kind} {name!r}"
    return f"{words}, made at {step.debug.location}" if step.debug.file else words
