"""Steps that compute or move data, in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from abele.compiler.store.format import KeyedTable, Name, Number, Row, Size, Small
from abele.compiler.store.nodes import NodeForm, stored, stored_with_view
from abele.graph.control import AssumeEqualAcrossReplicas
from abele.graph.host import HostCall
from abele.graph.program import Copy, Execute, PrintTensor, PrintTensorFmt, WriteUndef
from abele.graph.replica_copies import CrossReplicaCopy, CrossReplicaExchange

if TYPE_CHECKING:
    from abele.compiler.store.programs import ProgramsIn, ProgramsOut


class ExecuteRow(NodeForm, tag="Execute"):
    """A compute set."""

    compute_set: Number


stored(
    Execute,
    ExecuteRow,
    parts=lambda out, n: [out.compute_set(n.compute_set)],
    make=lambda at, number: Execute(at.compute_set(number)),
)


class CopyEndTable(KeyedTable):
    """An end of a copy that is no view."""

    stream: Name | None = None
    remote: Name | None = None


class CopyRow(NodeForm, tag="Copy"):
    """A copy."""

    source: Number | CopyEndTable
    destination: Number | CopyEndTable
    offset: Number | None


stored(
    Copy,
    CopyRow,
    parts=lambda out, n: [out.end(n.source), out.end(n.destination), out.view(n.offset)],
    make=lambda at, source, target, offset: Copy(at.end(source), at.end(target), offset=at.view(offset)),
)


stored_with_view(WriteUndef, "WriteUndef", "tensor")


class FormatRow(Row):
    """Format of PrintTensor."""

    summarise_threshold: Size
    edge_items: Small
    max_line_width: Small
    digits: Annotated[int, Meta(ge=0, le=100)]
    float_format: Literal["auto", "fixed", "scientific", "none"]
    separator: Name
    open_bracket: Name
    close_bracket: Name


class PrintTensorRow(NodeForm, tag="PrintTensor"):
    """A print."""

    tensor: Number
    title: Name
    fmt: FormatRow | None


def _print_parts(out: ProgramsOut, node: PrintTensor) -> list[Any]:
    fmt = None if node.fmt is None else [getattr(node.fmt, name) for name in PrintTensorFmt.__dataclass_fields__]
    return [out.view(node.tensor), node.title, fmt]


def _print(at: ProgramsIn, tensor: int, title: str, fmt: FormatRow | None) -> PrintTensor:
    made = None if fmt is None else PrintTensorFmt(**msgspec.structs.asdict(fmt))
    return PrintTensor(at.view(tensor), title, made)


stored(PrintTensor, PrintTensorRow, parts=_print_parts, make=_print)


class HostCallRow(NodeForm, tag="HostCall"):
    """A call of a host function."""

    function: Name
    inputs: list[Number]
    outputs: list[Number]


stored(
    HostCall,
    HostCallRow,
    parts=lambda out, n: [n.function.name, out.views(n.inputs), out.views(n.outputs)],
    make=lambda at, name, inputs, outputs: HostCall(at.host_function(name), at.views(inputs), at.views(outputs)),
)


class CrossReplicaCopyRow(NodeForm, tag="CrossReplicaCopy"):
    """A copy between replicas."""

    source: Number
    destination: Number
    map: list[tuple[Number, Number]]


stored(
    CrossReplicaCopy,
    CrossReplicaCopyRow,
    parts=lambda out, n: [out.view(n.source), out.view(n.destination), list(n.map.items())],
    make=lambda at, source, target, pairs: CrossReplicaCopy(at.view(source), at.view(target), dict(pairs)),
)


class CrossReplicaExchangeRow(NodeForm, tag="CrossReplicaExchange"):
    """Several copies between replicas in one exchange."""

    copies: list[Number]


stored(
    CrossReplicaExchange,
    CrossReplicaExchangeRow,
    parts=lambda out, n: [out.numbers(n.copies)],
    make=lambda at, numbers: CrossReplicaExchange([at.node(number) for number in numbers]),
)


stored_with_view(AssumeEqualAcrossReplicas, "AssumeEqualAcrossReplicas", "tensor")
