"""The document of an executable: its tables as types, into which it is decoded.

Whatever is decoded has the right kinds of values, all numbers fit 64 bits, and sizes are small enough that their sums
and products of two do so too. What the tables say of one another is checked where they are put to use.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from abele.graph.graph import SyncPattern
from abele.report.contents import Plain

Name = Annotated[str, Meta(max_length=1 << 16)]
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Size = Annotated[int, Meta(ge=0, le=1 << 40)]
"""A number of elements, bytes or times."""
Number = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
"""A position in another table, or a tile."""
Positive = Annotated[int, Meta(ge=1, le=1 << 40)]
Small = Annotated[int, Meta(ge=0, le=10_000)]
Shape = Annotated[list[Size], Meta(max_length=64)]
Array = Name
"""The name of an array in the archive."""


class Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A row of a table: a list in the file."""


class KeyedTable(msgspec.Struct, forbid_unknown_fields=True):
    """A mapping in the file."""


class Debug(Row):
    """Name and source line of an object."""

    name: Name
    path: Name
    file: Name
    line: Number
    text: Name


# --- the graph -------------------------------------------------------------------------------------------------------


class VariableRow(Row):
    """A variable; its mapping is two arrays."""

    name: Name
    dtype: Name
    shape: Shape
    kind: Literal["variable", "constant", "replica_index"]
    mapping: tuple[Array, Array]
    initial: Array | None
    debug: Debug


class StreamRow(Row):
    """A host stream."""

    name: Name
    dtype: Name
    shape: Shape
    direction: Literal["in", "out"]
    replicated: bool
    depth: Annotated[int, Meta(ge=1, le=1 << 20)]
    debug: Debug


class RemoteRow(Row):
    """A remote buffer."""

    name: Name
    dtype: Name
    elements: Annotated[int, Meta(ge=1, le=1 << 40)]
    repeats: Annotated[int, Meta(ge=1, le=1 << 31)]
    debug: Debug


class ArgumentRow(Row):
    """An argument of a host function."""

    dtype: Name
    shape: Shape


class HostFunctionRow(Row):
    """A host function."""

    name: Name
    inputs: list[ArgumentRow]
    outputs: list[ArgumentRow]
    debug: Debug


class HandleRow(Row):
    """A tensor that the host may read or write by name."""

    name: Name
    view: Number
    readable: bool
    writable: bool
    debug: Debug


class SyncGroupRow(Row):
    """A sync group."""

    name: Name
    tiles: Array
    debug: Debug


class SparseNoteRow(Row):
    """A note on a sparse operand: fields of ``SparseNote`` in order, tiles and values as arrays; buckets or null."""

    name: Name
    library: Literal["static", "dynamic", "experimental"]
    dtype: Name
    shape: tuple[Size, Size]
    block: tuple[Positive, Positive]
    blocks: Size
    tile: Array
    values: Array
    groups: Positive
    capacity: Size
    worst_passes: Size
    words: Number | None
    buckets: tuple[Size, Positive, Positive, Positive] | None


class FieldRow(Row):
    """A field of a codelet."""

    name: Name
    direction: Literal["in", "out", "inout", "state"]
    type: Name
    rank: Literal[0, 1, 2]
    layouts: list[Name]
    min_align: Annotated[int, Meta(ge=0, le=1 << 16)]
    interleaved: bool
    scattered: bool


class CodeletTable(KeyedTable):
    """A codelet; its tree is a record."""

    name: Name
    kind: Literal["vertex", "multi", "supervisor"]
    fields: list[FieldRow]
    file: Name
    line: Number
    constraints: list[tuple[Literal["elem", "region"], Name, Name]]
    tree: Any
    overlays: list[tuple[Name, Name]] = []
    least_code_bytes: Size = 0


class RegionsTable(KeyedTable):
    """Regions, and the view that they are of."""

    ptr: Array
    begin: Array
    length: Array
    view: Number


class EdgeRow(Row):
    """Regions that a field of the vertices of a group is wired to."""

    regions: Number
    index: Array
    row_begin: Array | None


class StateRow(Row):
    """Initial values of a state field of the vertices of a group."""

    values: Array
    row_begin: Array | None


class GroupTable(KeyedTable):
    """Vertices of one codelet."""

    codelet: Number
    tile: Array
    edges: dict[str, EdgeRow]
    state: dict[str, StateRow]
    cycles: Array | None
    debug: Debug
    state_bytes: Array | None = None


class ComputeSetRow(Row):
    """A compute set."""

    debug: Debug
    groups: list[GroupTable]


class GraphTable(KeyedTable):
    """Everything but the programs and views."""

    system: dict[str, Any]
    replicas: Annotated[int, Meta(ge=1, le=1 << 20)]
    sync_pattern: SyncPattern
    variables: list[VariableRow]
    streams: list[StreamRow]
    remote_buffers: list[RemoteRow]
    host_functions: list[HostFunctionRow]
    handles: list[HandleRow]
    sync_groups: list[SyncGroupRow]
    compute_sets: list[ComputeSetRow]
    codelets: list[CodeletTable]
    regions: list[RegionsTable]
    sparse_operands: list[SparseNoteRow] = []


# --- views -----------------------------------------------------------------------------------------------------------


class BlockRow(Row):
    """A block of a view; factors are extent, step in the view and stride in the variable."""

    variable: Number
    offset: Size
    origin: Shape
    factors: list[list[tuple[Size, Size, Int64]]]


class RunsTable(KeyedTable):
    """A view as runs of elements."""

    begin: Array
    length: Array


class ViewRow(Row):
    """A view."""

    dtype: Name
    shape: Shape
    content: list[BlockRow] | RunsTable
    is_cut: bool


# --- programs --------------------------------------------------------------------------------------------------------


class FunctionRow(Row):
    """A function."""

    body: Number
    debug: Debug
    parameters: list[Number]
    results: list[Number]


class ExecutableDocument(msgspec.Struct):
    """All of it."""

    format: str
    version: int
    graph: GraphTable
    nodes: msgspec.Raw
    functions: list[FunctionRow]
    programs: dict[Name, Number]
    meta: dict[str, Plain]
    views: list[ViewRow]
