"""The document of an executable: its tables as types, into which it is decoded.

Whatever is decoded has the right kinds of values, all numbers fit 64 bits, and sizes are small enough that their sums
and products of two do so too. What the tables say of one another is checked where they are put to use.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from abele.report.contents import Plain

Name = Annotated[str, Meta(max_length=1 << 16)]
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Size = Annotated[int, Meta(ge=0, le=1 << 40)]
"""A number of elements, bytes or times."""
Number = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
"""A position in another table, or a tile."""
Small = Annotated[int, Meta(ge=0, le=10_000)]
Shape = Annotated[list[Size], Meta(max_length=64)]
Array = Name
"""The name of an array in the archive."""


class Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A row of a table: a list in the file."""


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """A mapping in the file."""


class Debug(Row):
    """Where something comes from."""

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


class CodeletTable(Table):
    """A codelet; its tree is a record."""

    name: Name
    kind: Literal["vertex", "multi", "supervisor"]
    fields: list[FieldRow]
    file: Name
    line: Number
    constraints: list[tuple[Literal["elem", "region"], Name, Name]]
    tree: Any


class RegionsTable(Table):
    """Regions, and the view that they are of."""

    ptr: Array
    begin: Array
    length: Array
    view: Number


class EdgeRow(Row):
    """What a field of the vertices of a group is wired to."""

    regions: Number
    index: Array
    row_begin: Array | None


class StateRow(Row):
    """What a state field of the vertices of a group starts with."""

    values: Array
    row_begin: Array | None


class GroupTable(Table):
    """Vertices of one codelet."""

    codelet: Number
    tile: Array
    edges: dict[str, EdgeRow]
    state: dict[str, StateRow]
    cycles: Array | None
    debug: Debug


class ComputeSetRow(Row):
    """A compute set."""

    debug: Debug
    groups: list[GroupTable]


class GraphTable(Table):
    """Everything but the programs and views."""

    system: dict[str, Any]
    replicas: Annotated[int, Meta(ge=1, le=1 << 20)]
    variables: list[VariableRow]
    streams: list[StreamRow]
    remote_buffers: list[RemoteRow]
    host_functions: list[HostFunctionRow]
    handles: list[HandleRow]
    sync_groups: list[SyncGroupRow]
    compute_sets: list[ComputeSetRow]
    codelets: list[CodeletTable]
    regions: list[RegionsTable]


# --- views -----------------------------------------------------------------------------------------------------------


class BlockRow(Row):
    """A block of a view; factors are extent, step in the view and stride in the variable."""

    variable: Number
    offset: Size
    origin: Shape
    factors: list[list[tuple[Size, Size, Int64]]]


class RunsTable(Table):
    """A view as runs of elements."""

    begin: Array
    length: Array


class ViewRow(Row):
    """A view."""

    dtype: Name
    shape: Shape
    content: list[BlockRow] | RunsTable


# --- programs --------------------------------------------------------------------------------------------------------


class Node(Row):
    """A program node; its parts follow in the order of its constructor."""

    debug: Debug


class SequenceRow(Node, tag="Sequence"):
    """Steps, by number."""

    steps: list[Number]


class ExecuteRow(Node, tag="Execute"):
    """A compute set."""

    compute_set: Number


class End(Table):
    """An end of a copy that is no view."""

    stream: Name | None = None
    remote: Name | None = None


class CopyRow(Node, tag="Copy"):
    """A copy."""

    source: Number | End
    destination: Number | End
    offset: Number | None


class WriteUndefRow(Node, tag="WriteUndef"):
    """A view that holds nothing from here on."""

    tensor: Number


class FormatRow(Row):
    """How PrintTensor writes."""

    summarise_threshold: Size
    edge_items: Small
    max_line_width: Small
    digits: Annotated[int, Meta(ge=0, le=100)]
    float_format: Literal["auto", "fixed", "scientific", "none"]
    separator: Name
    open_bracket: Name
    close_bracket: Name


class PrintTensorRow(Node, tag="PrintTensor"):
    """A print."""

    tensor: Number
    title: Name
    fmt: FormatRow | None


class RepeatRow(Node, tag="Repeat"):
    """A loop."""

    count: Annotated[int, Meta(ge=0, le=(1 << 62))]
    body: Number


class RepeatWhileRow(Node, tag="RepeatWhile"):
    """A loop that data ends."""

    condition: Number
    predicate: Number
    body: Number
    value: bool


class IfRow(Node, tag="If"):
    """A branch."""

    predicate: Number
    then: Number
    otherwise: Number


class CallRow(Node, tag="Call"):
    """A call of a function, by number."""

    function: Number
    arguments: list[Number]
    results: list[Number]


class LibraryCallRow(Node, tag="LibraryCall"):
    """A library call; its kernel is a record."""

    name: Name
    inputs: list[Number]
    outputs: list[Number]
    body: Number
    kernel: Any
    flops: Annotated[int, Meta(ge=0, le=1 << 60)]


class SwitchRow(Node, tag="Switch"):
    """A branch of many ways."""

    control: Number
    cases: list[tuple[Int64, Number]]
    default: Number
    unreachable_default: bool


class BlockOfSteps(Node, tag="Block"):
    """Steps under a name."""

    body: Number


class SyncRow(Node, tag="Sync"):
    """A barrier."""

    kind: Name


class AbortRow(Node, tag="Abort"):
    """An end with a message."""

    message: Name
    condition: Number | None


class ErrorProgramRow(Node, tag="ErrorProgram"):
    """An end with a message and a tensor."""

    message: Name
    tensor: Number


class CycleCountRow(Node, tag="CycleCount"):
    """A timed part."""

    body: Number
    result: Number
    tile: Number
    sync: Name


class CycleStampRow(Node, tag="CycleStamp"):
    """A reading of the cycle counter."""

    result: Number
    tile: Number
    sync: Name


class BehaviourRow(Node, tag="SetFloatingPointBehaviour"):
    """What floating-point exceptions do from here on."""

    fields: dict[str, bool]


class GetHwSeedsRow(Node, tag="GetHwSeeds"):
    """A reading of the seeds."""

    result: Number


class SetHwSeedsRow(Node, tag="SetHwSeeds"):
    """New seeds."""

    seeds: Number


class AssumeEqualRow(Node, tag="AssumeEqualAcrossReplicas"):
    """A promise."""

    tensor: Number


class CrossReplicaCopyRow(Node, tag="CrossReplicaCopy"):
    """A copy between replicas."""

    source: Number
    destination: Number
    map: list[tuple[Number, Number]]


class HostCallRow(Node, tag="HostCall"):
    """A call of a host function."""

    function: Name
    inputs: list[Number]
    outputs: list[Number]


NodeRow = (
    SequenceRow
    | ExecuteRow
    | CopyRow
    | WriteUndefRow
    | PrintTensorRow
    | RepeatRow
    | RepeatWhileRow
    | IfRow
    | CallRow
    | LibraryCallRow
    | SwitchRow
    | BlockOfSteps
    | SyncRow
    | AbortRow
    | ErrorProgramRow
    | CycleCountRow
    | CycleStampRow
    | BehaviourRow
    | GetHwSeedsRow
    | SetHwSeedsRow
    | AssumeEqualRow
    | CrossReplicaCopyRow
    | HostCallRow
)


class FunctionRow(Row):
    """A function."""

    body: Number
    debug: Debug
    parameters: list[Number]
    results: list[Number]


class Document(msgspec.Struct):
    """All of it."""

    format: str
    version: int
    graph: GraphTable
    nodes: list[NodeRow]
    functions: list[FunctionRow]
    programs: dict[Name, Number]
    meta: dict[str, Plain]
    views: list[ViewRow]
