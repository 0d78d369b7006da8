"""Vertex costs: issue slots or tile cycles of every vertex of a group, without data."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import CodeletError, MissingPerfEstimateError
from abele.graph.vertices import Edge, StateData, VertexGroup
from abele.machine import Ipu
from abele.words import counted

if TYPE_CHECKING:
    from abele.codelet import CodeletDef, FieldDef
    from abele.graph.vertices import PerfEstimator


Column = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class VertexCosts:
    """Costs of the vertices of one group.

    Attributes:
        amount: Issue slots of each (tile cycles for multi-worker kinds), int64[N].
        is_estimate: True if the true figure depends on data and is only known after a run.
        flops: Floating-point operations of all vertices, where an estimator tells.
    """

    amount: Int64
    is_estimate: bool
    flops: int = 0


@dataclass(frozen=True, slots=True)
class FieldRows:
    """Sizes of a rank-2 field, as cost formulas see them.

    Attributes:
        rows: Number of rows of each vertex, int64[N].
        total: Elements of all its rows, int64[N].
        lengths: Elements of every row of all vertices, int64[rows].
        row_begin: Rows of vertex i are ``row_begin[i]`` to ``row_begin[i + 1]``, int64[N + 1].
    """

    rows: Int64
    total: Int64
    lengths: Int64
    row_begin: Int64


class GroupView:
    """Sizes of edges and values of state of a vertex group, as a cost formula reads them: one entry per vertex.

    ``num`` is the number of vertices, unless a field has that name.
    """

    def __init__(self, group: VertexGroup) -> None:
        self._group = group

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        group = self._group
        if name in group.edges:
            return _edge_sizes(group.edges[name])
        if name in group.state:
            data = group.state[name]
            return data.values if data.row_begin is None else np.diff(data.row_begin)
        if name == "num":
            return group.num
        fields = ", ".join(f.name for f in group.codelet.fields)
        raise AttributeError(f"{group.codelet.name} has no field {name!r}; its fields are {fields}")


def vertex_costs(group: VertexGroup, ipu: Ipu) -> VertexCosts:
    """Cost of every vertex of ``group``.

    Order of authority: cycles given when the vertices were made, the graph's estimator, the codelet's formula, the
    slots counted from its code. Where the count depends on data, a vertex is taken as one slot for every element that
    it is wired to, until a run counts it.

    Raises:
        CodeletError: A formula or estimator gives something else than one number per vertex.
        MissingPerfEstimateError: The code cannot be counted, and no estimate is given.
    """
    definition = group.codelet
    if group.cycles is not None:
        return VertexCosts(group.cycles, False)
    if group.estimator is not None:
        return _by_estimator(group, group.estimator, ipu)
    if definition.formula is not None:
        cycles = definition.formula(GroupView(group), ipu)
        return VertexCosts(_whole(cycles, group, f"cycles() of codelet {definition.name}"), False)
    slots = _slots_of(definition)
    return VertexCosts(_counted(group, slots), False) if slots else VertexCosts(assumed_slots(group), True)


def record_bytes(group: VertexGroup, ipu: Ipu) -> Int64 | None:
    """Bytes of the record of every vertex of ``group``, where they were given or its codelet says them.

    Raises:
        CodeletError: ``state_bytes`` of the codelet gives something else than one number per vertex.
    """
    if group.state_bytes is not None:
        return group.state_bytes
    if group.codelet.record is None:
        return None
    found = group.codelet.record(GroupView(group), ipu)
    return _whole(found, group, f"state_bytes() of codelet {group.codelet.name}")


def needs_counting(group: VertexGroup) -> bool:
    """True if the cost of vertices comes from their code, because no estimate is given."""
    return group.cycles is None and group.estimator is None and group.codelet.formula is None


def _slots_of(definition: CodeletDef) -> int | None:
    """Address of the function that counts the slots of vertices; None where they depend on data."""
    from abele.codelet import compile_codelet

    compiled = compile_codelet(definition)
    try:
        if compiled.data_dependent:
            return None
        slots = compiled.slots
    except CodeletError as error:
        if definition.language == "python":
            raise
        raise _not_counted(definition, error.message) from error
    if not slots:
        raise _not_counted(definition, "its code has no count of issue slots")
    return int(slots)


def _not_counted(definition: CodeletDef, why: str) -> MissingPerfEstimateError:
    return MissingPerfEstimateError(
        f"no perf estimate: what a vertex {definition.name} costs cannot be counted, and none is given",
        at=definition.location,
        because=why,
        remedy="graph.register_perf_estimator(codelet, function), or cycles=… where the vertices are made",
    )


def assumed_slots(group: VertexGroup) -> Int64:
    """Stand-in for a count that depends on data: one slot for every element that a vertex is wired to."""
    total = np.zeros(group.num, dtype=np.int64)
    for edge in group.edges.values():
        sizes = _edge_sizes(edge)
        total += sizes.total if isinstance(sizes, FieldRows) else sizes
    return total


def _by_estimator(group: VertexGroup, estimator: PerfEstimator, ipu: Ipu) -> VertexCosts:
    """Costs by a user's estimator, asked once for all vertices or once per vertex."""
    who = f"the perf estimator of codelet {group.codelet.name}"
    if not estimator.per_vertex:
        cycles, flops = _cycles_and_flops(estimator.function(GroupView(group), ipu))
        return VertexCosts(_whole(cycles, group, who), False, int(_whole(flops, group, who).sum()))
    asked = (estimator.ask(group, i) for i in range(group.num))
    pairs = [_cycles_and_flops(each) for each in asked]
    amount, operations = (_whole([pair[k] for pair in pairs], group, who) for k in (0, 1))
    return VertexCosts(amount, False, int(operations.sum()))


def _cycles_and_flops(found: Any) -> tuple[Any, Any]:
    """Cycles, and operations where they are given: as a pair, or as an object with both."""
    if isinstance(found, tuple) and len(found) == 2:
        return found
    return getattr(found, "cycles", found), getattr(found, "flops", 0)


def _whole(found: Any, group: VertexGroup, who: str) -> Int64:
    """One whole number per vertex, int64[N], fractions rounded up."""
    result = np.asarray(found)
    try:
        numbers = np.broadcast_to(result, (group.num,))
    except ValueError:
        numbers = None
    if numbers is None or numbers.dtype.kind not in "iuf" or not bool((np.isfinite(numbers) & (numbers >= 0)).all()):
        raise CodeletError(
            f"{who} gave {_described(result)} for {counted(group.num, 'vertex')}",
            at=group.codelet.location,
            remedy="return one number per vertex, not below 0; v.x of an edge is an array of lengths",
        )
    return np.asarray(np.ceil(numbers), dtype=np.int64)


def _described(result: Column) -> str:
    is_number = result.dtype.kind in "iuf"
    lowest = f", the lowest {result.min()}" if is_number and result.size and not result.min() >= 0 else ""
    return f"{result.dtype} of shape {list(result.shape)}{lowest}"


def _edge_sizes(edge: Edge) -> Int64 | FieldRows:
    sizes = edge.row_sizes
    if edge.row_begin is None:
        return sizes
    before = np.concatenate([[0], np.cumsum(sizes)])
    total = before[edge.row_begin[1:]] - before[edge.row_begin[:-1]]
    return FieldRows(np.diff(edge.row_begin), total, sizes, edge.row_begin)


def _counted(group: VertexGroup, address: int) -> Int64:
    """Slots by the codelet's own counting function, from lengths and state alone."""
    values = {n: np.ascontiguousarray(d.values) for n, d in group.state.items()}
    columns = [c for f in group.codelet.fields for c in _columns(f, group, values)]
    tables = (ctypes.c_void_p * max(1, len(columns)))(*(None if c is None else c.ctypes.data for c in columns))
    result = np.zeros(group.num, dtype=np.int64)
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    signature(address)(0, group.num, ctypes.addressof(tables), result.ctypes.data)
    return result


def _columns(field: FieldDef, group: VertexGroup, values: dict[str, Column]) -> list[Column | None]:
    """The field's columns of a codelet's table; those that only execution reads are left out."""
    if field.direction == "state":
        return _state_columns(values[field.name], group.state[field.name])
    edge = group.edges[field.name]
    if field.rank == 0:
        return [None]
    sizes = np.ascontiguousarray(edge.row_sizes)
    if edge.row_begin is None:
        return [None, sizes]
    return [np.ascontiguousarray(edge.row_begin, dtype=np.int64), None, sizes]


def _state_columns(values: Column, data: StateData) -> list[Column | None]:
    if data.row_begin is None:
        return [values]
    pointers = values.ctypes.data + data.row_begin[:-1] * values.itemsize
    return [pointers.astype(np.int64), np.diff(data.row_begin)]
