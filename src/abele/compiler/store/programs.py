"""Control programs in a file: nodes in a table, each once."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from abele.compiler.store import control_nodes, flow_nodes
from abele.compiler.store.control_nodes import STORED, NodeForm, made_again, stored, stored_with_view, tag_of
from abele.compiler.store.format import FunctionRow, KeyedTable, Name, Number, Row, Size, Small
from abele.compiler.store.graphs import GraphIn, GraphOut, debug_of
from abele.graph import Call, LibraryCall, Sequence
from abele.graph.compute_set import ComputeSet
from abele.graph.control import AssumeEqualAcrossReplicas
from abele.graph.host_interface import HostCall, HostFunction
from abele.graph.program import Copy, Execute, Function, PrintTensor, PrintTensorFmt, Program, WriteUndef
from abele.graph.remote import RemoteBuffer
from abele.graph.replica_copies import CrossReplicaCopy, CrossReplicaExchange
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable
from abele.report.archive import part
from abele.words import counted

# Extent of a program from a file once it is unfolded, before anything walks through it.

_MOST_DEPTH = 128
_MOST_STEPS, _STEPS_PER_NODE = 1 << 16, 64


class _Extent(NamedTuple):
    depth: int
    steps: int


class Extents:
    """Depth and unfolded steps of program nodes, each entered after its children.

    A few nodes that are shared again and again would make a program endless, a long chain one that no walk survives.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Extent] = {}

    def add(self, node: Program) -> None:
        """Take note of a node.

        Raises:
            ValueError: It is nested too deep.
        """
        inside = list(node.children())
        if isinstance(node, Call):
            inside.append(node.function.body)
        if isinstance(node, Sequence | LibraryCall) and node.host_body is not None:
            inside.append(node.host_body)
        # Nodes come after those inside them, so each is one step of arithmetic; the unfolded program is never walked.
        parts = [self._known.get(id(p), _Extent(1, 1)) for p in inside]
        depth = 1 + max((p.depth for p in parts), default=0)
        if depth > _MOST_DEPTH:
            raise ValueError(f"program steps are nested more than {_MOST_DEPTH} deep")
        self._known[id(node)] = _Extent(depth, 1 + sum(p.steps for p in parts))

    def check(self, programs: list[Program]) -> None:
        """The programs do not unfold to many more steps than there are nodes.

        Raises:
            ValueError: They do.
        """
        steps = sum(self._known[id(p)].steps for p in programs)
        most = max(_MOST_STEPS, _STEPS_PER_NODE * len(self._known))
        if steps > most:
            raise ValueError(
                f"the programs unfold to {counted(steps, 'step')}, and {len(self._known):,} nodes may to {most:,}"
            )


# Steps that compute or move data, in a file.


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


NODE_MODULES = (flow_nodes, control_nodes)
"""Modules that enter the file form of nodes, besides ``data_nodes``."""


class ProgramsOut:
    """Numbers the nodes of programs and describes each once.

    Args:
        graph: Numbers views.

    Attributes:
        rows: The descriptions so far.
        compute_sets: Compute sets that are executed, in order of first use.
    """

    def __init__(self, graph: GraphOut) -> None:
        self._graph = graph
        self._numbers: dict[int, int] = {}
        self._functions: dict[int, int] = {}
        self.function_rows: list[Any] = []
        self.rows: list[Any] = []
        self.compute_sets: list[ComputeSet] = []

    def number(self, node: Program) -> int:
        """The number of a node, those inside it first."""
        if id(node) not in self._numbers:
            parts = STORED.of(node).parts(self, node)
            self._numbers[id(node)] = len(self.rows)
            self.rows.append([tag_of(node), self._graph.debug(node.debug), *parts])
        return self._numbers[id(node)]

    def numbers(self, nodes: Any) -> list[int]:
        """The numbers of several nodes."""
        return [self.number(node) for node in nodes]

    def view(self, tensor: Tensor | None) -> int | None:
        """The number of a view."""
        return None if tensor is None else self._graph.views.number(tensor)

    def views(self, tensors: Any) -> list[int | None]:
        """The numbers of several views."""
        return [self.view(tensor) for tensor in tensors]

    def end(self, end: Any) -> Any:
        """An end of a copy."""
        if isinstance(end, Stream):
            return {"stream": end.name}
        return {"remote": end.name} if isinstance(end, RemoteBuffer) else self.view(end)

    def compute_set(self, compute_set: ComputeSet) -> int:
        """The number of a compute set."""
        if compute_set not in self.compute_sets:
            self.compute_sets.append(compute_set)
        return self.compute_sets.index(compute_set)

    def function(self, function: Function) -> int:
        """The number of a function."""
        if id(function) not in self._functions:
            body = self.number(function.body)
            self._functions[id(function)] = len(self.function_rows)
            views = [self.views(function.parameters), self.views(function.results)]
            self.function_rows.append([body, self._graph.debug(function.debug), *views])
        return self._functions[id(function)]


class ProgramsIn:
    """Makes the nodes of a file anew, through their own checks.

    Args:
        graph: Gives views, ends and compute sets.
        rows: The descriptions of nodes.
        functions: The descriptions of functions.

    Attributes:
        extents: Number of nodes that each unfolds to.
    """

    def __init__(self, graph: GraphIn, rows: list[NodeForm], functions: list[FunctionRow]) -> None:
        self._graph = graph
        self._function_rows = functions
        self._functions: dict[int, Function] = {}
        self._nodes: list[Program] = []
        self.extents = Extents()
        for number, row in enumerate(rows):
            with part(f"program step {number}, {type(row).__struct_config__.tag}"):
                node = self._node(row)
                self.extents.add(node)
                self._nodes.append(node)

    def node(self, number: int) -> Program:
        """The node of a number.

        Raises:
            IndexError: It comes later or not at all.
        """
        # Nodes are listed after what they hold, so references go backwards and no cycle can be written down.
        if number >= len(self._nodes):
            raise IndexError(f"there is no program step {number} before it")
        return self._nodes[number]

    def view(self, number: Any) -> Any:
        """The view of a number."""
        return None if number is None else self._graph.views.tensor(number)

    def views(self, numbers: Any) -> tuple[Tensor, ...]:
        """The views of several numbers."""
        return tuple(self.view(number) for number in numbers)

    def variable(self, number: int) -> Variable:
        """The variable of a number."""
        return self._graph.graph.variables[number]

    def end(self, end: Any) -> Any:
        """An end of a copy."""
        if isinstance(end, CopyEndTable):
            graph = self._graph.graph
            return graph.remote_buffers[end.remote or ""] if end.stream is None else graph.streams[end.stream]
        return self.view(end)

    def compute_set(self, number: int) -> ComputeSet:
        """The compute set of a number."""
        return self._graph.graph.compute_sets[number]

    def host_function(self, name: str) -> HostFunction:
        """The host function of a name."""
        return self._graph.graph.host_functions[name]

    def function(self, number: int) -> Function:
        """The function of a number."""
        if number not in self._functions:
            row = self._function_rows[number]
            self._functions[number] = Function(
                self.node(row.body), debug_of(row.debug), self.views(row.parameters), self.views(row.results)
            )
        return self._functions[number]

    def tile(self, number: int) -> int:
        """A tile that there is."""
        if number >= self._graph.graph.num_tiles:
            raise IndexError(f"there is no tile {number}")
        return number

    def _node(self, row: NodeForm) -> Program:
        debug, *parts = (getattr(row, name) for name in row.__struct_fields__)
        node = made_again(self, row, *parts)
        node.debug = debug_of(debug)
        return node
