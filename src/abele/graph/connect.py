"""Wiring: the user's value for a field, checked and turned into an edge or state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import ConstantWriteError, FieldOverflowError, GraphConnectionError, TypeMismatchError, nearest
from abele.graph.debug import DebugRecord
from abele.graph.regions import Regions, rows, whole, wholes
from abele.graph.tensor import Tensor, concat
from abele.graph.vertices import Edge, StateData
from abele.numerics import f8_152, misfit, to_device
from abele.words import counted

if TYPE_CHECKING:
    from abele.codelet import CodeletDef, FieldDef


@dataclass(frozen=True, eq=False, slots=True)
class Shared:
    """A view that every vertex of a group is wired to as a whole."""

    tensor: Tensor


def shared(tensor: Tensor) -> Shared:
    """Wire all of ``tensor`` to the field of every vertex, instead of one row each."""
    return Shared(tensor)


def wire(
    codelet: CodeletDef, values: Mapping[str, Any], num: int, debug: DebugRecord
) -> tuple[dict[str, Edge], dict[str, StateData]]:
    """Edges and state of ``num`` vertices from the values given by field name.

    Raises:
        GraphConnectionError: A field is missing, unknown, or its value has the wrong rank or number of rows.
        TypeMismatchError: An element type differs from the field's.
        ConstantWriteError: An output is wired to a constant or to a view in which an element appears twice.
    """
    fields = {f.name: f for f in codelet.fields}
    for name in values:
        if name not in fields:
            guess = nearest(name, fields)
            raise GraphConnectionError(
                f"vertex {codelet.name} has no field {name!r}",
                at=debug.location,
                remedy=f"did you mean {guess!r}?" if guess else "its fields are " + ", ".join(fields),
            )
    own = {f.name: f.initial(num) for f in codelet.fields if f.initial is not None and f.name not in values}
    values = {**values, **own}
    values |= {f.name: _metadata(values[f.metadata_of], num) for f in codelet.fields if f.metadata_of in values}
    missing = [name for name in fields if name not in values]
    if missing:
        raise GraphConnectionError(
            f"field {codelet.name}.{missing[0]} is not connected",
            at=debug.location,
            because=f"{codelet.name} is declared at {codelet.file}:{codelet.line}",
            remedy=f"give {missing[0]}=… when making the vertices",
        )
    edges, state = {}, {}
    for field in codelet.fields:
        if field.direction == "state":
            state[field.name] = _state(codelet, field, values[field.name], num, debug)
        else:
            edges[field.name] = _checked(codelet, field, _edge(codelet, field, values[field.name], num, debug), debug)
    return edges, state


def _metadata(value: Any, num: int) -> npt.NDArray[np.uint8]:
    """Metadata of the 8-bit floats that each of some vertices is wired to, as bytes."""
    each = list(value) if isinstance(value, list) and len(value) == num else [value] * num
    return np.array([_quarter_byte(v) for v in each], dtype=np.uint8)


def _quarter_byte(value: Any) -> int:
    """Metadata of a field's operand: the scale in bits 0 to 5, the format in bit 7."""
    while not isinstance(value, Tensor):
        if isinstance(value, Sequence) and value:
            value = value[0]
        elif isinstance(value, Shared):
            value = value.tensor
        elif isinstance(value, Edge | Regions):
            value = value.regions.tensor if isinstance(value, Edge) else value.tensor
        else:
            return 0
    wide = value.dtype.is_quarter and value.dtype.np == f8_152.np
    return (0x80 if wide else 0) | (value.dtype.scale & 0x3F)


def _edge(codelet: CodeletDef, field: FieldDef, value: Any, num: int, debug: DebugRecord) -> Edge:
    if isinstance(value, Edge):
        return value
    if field.rank == 2:
        return _rank2_edge(codelet, field, value, num, debug)
    if isinstance(value, Shared):
        return Edge(whole(value.tensor), np.zeros(num, dtype=np.int64))
    if isinstance(value, Regions):
        return _rows_edge(codelet, field, value, np.arange(value.num, dtype=np.int64), num, debug)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Regions):
        return _rows_edge(codelet, field, value[0], np.asarray(value[1], dtype=np.int64), num, debug)
    if isinstance(value, Tensor):
        if value.ndim == 0 or value.shape[0] != num:
            raise _mismatch(codelet, field, f"{value!r} has no first dimension of {num}", num, debug)
        regions = rows(value)
        return _rows_edge(codelet, field, regions, np.arange(num, dtype=np.int64), num, debug)
    if field.is_scattered and isinstance(value, Sequence) and not isinstance(value, Tensor):
        value = [_joined(item) for item in value]
    if isinstance(value, Sequence) and value and all(isinstance(t, Tensor) for t in value):
        regions = _regions_of_list(codelet, field, value, debug)
        return _rows_edge(codelet, field, regions, np.arange(len(value), dtype=np.int64), num, debug)
    raise _mismatch(codelet, field, f"got {type(value).__name__}", num, debug)


def _joined(elements: Any) -> Any:
    """Elements that are wired one by one, as one view."""
    several = isinstance(elements, Sequence) and elements and all(isinstance(e, Tensor) for e in elements)
    return concat([e.flatten() for e in elements]) if several else elements


def _regions_of_list(codelet: CodeletDef, field: FieldDef, value: Sequence[Tensor], debug: DebugRecord) -> Regions:
    for tensor in value:
        _check_type(codelet, field, tensor, debug)
        _check_writable(codelet, field, tensor, debug)
    return wholes(value)


def _rank2_edge(codelet: CodeletDef, field: FieldDef, value: Any, num: int, debug: DebugRecord) -> Edge:
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], Regions):
        regions, index, row_begin = value
        return Edge(regions, np.asarray(index, dtype=np.int64), np.asarray(row_begin, dtype=np.int64))
    if isinstance(value, Tensor):
        if value.ndim < 3 or value.shape[0] != num:
            raise _mismatch(codelet, field, f"{value!r} is not [{num}, rows, elements]", num, debug)
        each = value.shape[1]
        regions = rows(value.flatten(0, 2))
        row_begin = np.arange(num + 1, dtype=np.int64) * each
        return Edge(regions, np.arange(num * each, dtype=np.int64), row_begin)
    if isinstance(value, Sequence) and len(value) == num:
        lists = [list(item) for item in value]
        flat = [t for item in lists for t in item]
        if flat and all(isinstance(t, Tensor) for t in flat):
            row_begin = np.cumsum([0] + [len(item) for item in lists], dtype=np.int64)
            regions = _regions_of_list(codelet, field, flat, debug)
            return Edge(regions, np.arange(len(flat), dtype=np.int64), row_begin)
    raise _mismatch(codelet, field, f"got {type(value).__name__}", num, debug)


def _rows_edge(
    codelet: CodeletDef, field: FieldDef, regions: Regions, index: Any, num: int, debug: DebugRecord
) -> Edge:
    if len(index) != num:
        raise _mismatch(codelet, field, f"{len(index)} regions were given", num, debug)
    edge = Edge(regions, index)
    if field.rank == 0 and (edge.row_sizes != 1).any():
        size = int(edge.row_sizes[np.flatnonzero(edge.row_sizes != 1)[0]])
        raise _mismatch(codelet, field, f"it takes one element, not {size}", num, debug)
    return edge


def _checked(codelet: CodeletDef, field: FieldDef, edge: Edge, debug: DebugRecord) -> Edge:
    _check_type(codelet, field, edge.regions.tensor, debug)
    _check_writable(codelet, field, edge.regions.tensor, debug)
    _check_sizes(codelet, field, edge, debug)
    return edge


def _check_sizes(codelet: CodeletDef, field: FieldDef, edge: Edge, debug: DebugRecord) -> None:
    """Raise where a vector has more elements, or more rows, than its layout can say."""
    if not field.rank:
        return
    inner = field.layout(field.rank - 1).max_size
    _check_size(codelet, field, edge.row_sizes, inner, "elements", debug)
    if edge.row_begin is not None:
        _check_size(codelet, field, np.diff(edge.row_begin), field.layout().max_size, "rows", debug)


def _check_size(
    codelet: CodeletDef, field: FieldDef, sizes: Any, most: int | None, what: str, debug: DebugRecord
) -> None:
    if most is not None and len(sizes) and int(sizes.max()) > most:
        raise FieldOverflowError(
            f"field {codelet.name}.{field.name} has {int(sizes.max()):,} {what}, a SHORT_SPAN vector at most {most:,}",
            at=debug.location,
            because=f"{codelet.name} is declared at {codelet.file}:{codelet.line}",
            remedy="declare the field with layout SPAN, or give each vertex less",
        )


def _check_type(codelet: CodeletDef, field: FieldDef, tensor: Tensor, debug: DebugRecord) -> None:
    bits_alone = codelet.language == "cpp" and field.type.is_quarter and tensor.dtype.is_quarter
    if tensor.dtype != field.type and not bits_alone:  # in C++ metadata say what the bits of a quarter mean
        raise TypeMismatchError(
            f"field {codelet.name}.{field.name} is {field.type}, but {tensor!r} is {tensor.dtype}",
            at=debug.location,
            remedy="cast the tensor, or use a codelet of that type",
        )


def _check_writable(codelet: CodeletDef, field: FieldDef, tensor: Tensor, debug: DebugRecord) -> None:
    if field.direction == "in":
        return
    constant = next((v for v in tensor.variables if v.is_constant), None)
    if constant is not None:
        raise ConstantWriteError(
            f"field {codelet.name}.{field.name} writes to constant {constant.name!r}",
            at=debug.location,
            because=f"the constant was made at {constant.debug.location}" if constant.debug.file else None,
            remedy="copy the constant to a variable and connect that",
        )
    if tensor.contains_aliases:
        raise ConstantWriteError(
            f"field {codelet.name}.{field.name} writes to {tensor!r}, in which an element appears more than once",
            at=debug.location,
            remedy="write to the tensor before it was broadcast or repeated",
        )


def _state(codelet: CodeletDef, field: FieldDef, value: Any, num: int, debug: DebugRecord) -> StateData:
    if isinstance(value, StateData):
        return value
    if isinstance(value, (Tensor, Regions, Shared)):
        raise GraphConnectionError(
            f"field {codelet.name}.{field.name} is state, not an edge: it takes a number, not a tensor",
            at=debug.location,
            remedy=f"declare it as Input[…] to read a tensor, or give {field.name}=<number>",
        )
    if field.rank == 1 and isinstance(value, (list, tuple)) and any(np.ndim(v) for v in value):
        row_begin = np.cumsum([0] + [len(v) for v in value], dtype=np.int64)
        return StateData(_stored(codelet, field, np.concatenate([np.asarray(v) for v in value]), debug), row_begin)
    array = _stored(codelet, field, np.asarray(value), debug)
    want: tuple[int, ...] = (num,) if field.rank == 0 else (num, array.shape[-1] if array.ndim else 0)
    if array.ndim > len(want) or (field.rank == 1 and array.ndim == 0):
        raise _mismatch(codelet, field, f"state of shape {list(array.shape)}", num, debug)
    try:
        array = np.ascontiguousarray(np.broadcast_to(array, want))
    except ValueError:
        raise _mismatch(codelet, field, f"state of shape {list(array.shape)}", num, debug) from None
    if field.rank == 0:
        return StateData(array)
    return StateData(array.reshape(-1), np.arange(num + 1, dtype=np.int64) * want[-1])


def _stored(codelet: CodeletDef, field: FieldDef, given: Any, debug: DebugRecord) -> Any:
    """Values of state as elements of its type, which must hold them."""
    wrong = misfit(given, field.type)
    if wrong is not None:
        raise FieldOverflowError(
            f"field {codelet.name}.{field.name} is {field.type}, {wrong.limits}; it was given {wrong.value}"
            if wrong.limits
            else f"field {codelet.name}.{field.name} is {field.type}; it was given {wrong}",
            at=debug.location,
            because=f"{codelet.name} is declared at {codelet.file}:{codelet.line}",
            remedy="declare the field with another type, or give each vertex a number that fits",
        )
    return to_device(given, field.type)


_TAKES = {
    0: "a tensor of one element per vertex",
    1: "a tensor with one row per vertex, shared(tensor), regions, or a list of tensors",
    2: "a tensor [vertices, rows, elements] or a list of lists of tensors",
}


def _mismatch(codelet: CodeletDef, field: FieldDef, what: str, num: int, debug: DebugRecord) -> GraphConnectionError:
    takes = "one number per vertex" if field.direction == "state" and field.rank == 0 else _TAKES[field.rank]
    return GraphConnectionError(
        f"field {codelet.name}.{field.name} does not fit {counted(num, 'vertex')}: {what}",
        at=debug.location,
        remedy=f"a rank-{field.rank} field takes {takes}",
    )
