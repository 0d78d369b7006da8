"""Control programs in a file: nodes in a table, each once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from abele.compiler.store import format as stored
from abele.compiler.store.extent import Extents
from abele.compiler.store.graphs import GraphIn, GraphOut, debug_of
from abele.compiler.store.records import HOST_KERNEL, decode, encode
from abele.graph import (
    Abort,
    AssumeEqualAcrossReplicas,
    Block,
    Call,
    ComputeSet,
    Copy,
    CrossReplicaCopy,
    CycleCount,
    CycleStamp,
    ErrorProgram,
    Execute,
    Function,
    GetHwSeeds,
    HostCall,
    If,
    LibraryCall,
    PrintTensor,
    PrintTensorFmt,
    Program,
    RemoteBuffer,
    Repeat,
    RepeatWhile,
    Sequence,
    SetFloatingPointBehaviour,
    SetHwSeeds,
    Stream,
    Switch,
    Sync,
    Tensor,
    WriteUndef,
)
from abele.kernels import HostKernel
from abele.report.archive import part


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
            parts = _PARTS[type(node)](self, node)
            self._numbers[id(node)] = len(self.rows)
            self.rows.append([type(node).__name__, self._graph.debug(node.debug), *parts])
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


def _call_parts(out: ProgramsOut, node: Call) -> list[Any]:
    arguments = [copy.source for copy in node.copies_in]
    results = [copy.destination for copy in node.copies_out]
    return [out.function(node.function), out.views(arguments), out.views(results)]


def _print_parts(out: ProgramsOut, node: PrintTensor) -> list[Any]:
    fmt = None if node.fmt is None else [getattr(node.fmt, name) for name in PrintTensorFmt.__dataclass_fields__]
    return [out.view(node.tensor), node.title, fmt]


def _library_parts(out: ProgramsOut, node: LibraryCall) -> list[Any]:
    kernel = None if node.kernel is None else encode(node.kernel, HOST_KERNEL)
    return [node.name, out.views(node.inputs), out.views(node.outputs), out.number(node.body), kernel, node.flops]


_PARTS: dict[type[Program], Callable[[ProgramsOut, Any], list[Any]]] = {
    Sequence: lambda out, n: [out.numbers(n.steps)],
    Execute: lambda out, n: [out.compute_set(n.compute_set)],
    Copy: lambda out, n: [out.end(n.source), out.end(n.destination), out.view(n.offset)],
    WriteUndef: lambda out, n: [out.view(n.tensor)],
    PrintTensor: _print_parts,
    Repeat: lambda out, n: [n.count, out.number(n.body)],
    RepeatWhile: lambda out, n: [out.number(n.condition), out.view(n.predicate), out.number(n.body), n.value],
    If: lambda out, n: [out.view(n.predicate), out.number(n.then), out.number(n.otherwise)],
    Call: _call_parts,
    LibraryCall: _library_parts,
    Switch: lambda out, n: [
        out.view(n.control),
        [[value, out.number(case)] for value, case in n.cases.items()],
        out.number(n.default),
        n.unreachable_default,
    ],
    Block: lambda out, n: [out.number(n.body)],
    Sync: lambda out, n: [n.kind],
    Abort: lambda out, n: [n.message, out.view(n.condition)],
    ErrorProgram: lambda out, n: [n.message, out.view(n.tensor)],
    CycleCount: lambda out, n: [out.number(n.body), out.view(n.result), n.tile, n.sync.kind],
    CycleStamp: lambda out, n: [out.view(n.result), n.tile, n.sync.kind],
    SetFloatingPointBehaviour: lambda out, n: [dict(n.fields)],
    GetHwSeeds: lambda out, n: [out.view(n.result)],
    SetHwSeeds: lambda out, n: [out.view(n.seeds)],
    AssumeEqualAcrossReplicas: lambda out, n: [out.view(n.tensor)],
    CrossReplicaCopy: lambda out, n: [out.view(n.source), out.view(n.destination), list(n.map.items())],
    HostCall: lambda out, n: [n.function.name, out.views(n.inputs), out.views(n.outputs)],
}
"""What is kept of each kind of node."""


class ProgramsIn:
    """Makes the nodes of a file anew, through their own checks.

    Args:
        graph: Gives views, ends and compute sets.
        rows: The descriptions of nodes.
        functions: The descriptions of functions.

    Attributes:
        extents: How much each node unfolds to.
    """

    def __init__(self, graph: GraphIn, rows: list[stored.NodeRow], functions: list[stored.FunctionRow]) -> None:
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
        if number >= len(self._nodes):
            raise IndexError(f"there is no program step {number} before it")
        return self._nodes[number]

    def view(self, number: Any) -> Any:
        """The view of a number."""
        return None if number is None else self._graph.views.tensor(number)

    def views(self, numbers: Any) -> tuple[Tensor, ...]:
        """The views of several numbers."""
        return tuple(self.view(number) for number in numbers)

    def end(self, end: Any) -> Any:
        """An end of a copy."""
        if isinstance(end, stored.End):
            graph = self._graph.graph
            return graph.remote_buffers[end.remote or ""] if end.stream is None else graph.streams[end.stream]
        return self.view(end)

    def execute(self, number: int) -> Execute:
        """An Execute of the compute set of a number."""
        return Execute(self._graph.graph.compute_sets[number])

    def call(self, number: int, arguments: Any, results: Any) -> Call:
        """A call of the function of a number."""
        if number not in self._functions:
            row = self._function_rows[number]
            self._functions[number] = Function(
                self.node(row.body), debug_of(row.debug), self.views(row.parameters), self.views(row.results)
            )
        return Call(self._functions[number], self.views(arguments), self.views(results))

    def library_call(
        self, name: str, inputs: Any, outputs: Any, body: int, kernel: Any, flops: int, *, debug: Any
    ) -> LibraryCall:
        """A library call whose kernel fits its operands."""
        read, written, steps = self.views(inputs), self.views(outputs), self.node(body)
        made = None if kernel is None else decode(kernel, HOST_KERNEL)
        if made is not None:
            operands = [*read, *written]
            fits = isinstance(made, HostKernel) and (made.num_inputs, made.num_outputs) == (len(read), len(written))
            if (
                not fits
                or [(t.dtype, tuple(t.shape)) for t in operands]
                != list(zip(made.types, made.shapes, strict=True))[: len(operands)]
            ):
                raise ValueError(f"the kernel of {name} does not fit its operands")
        if not isinstance(steps, Sequence) or not all(t.writable for t in written):
            raise ValueError(f"library call {name} has no body, or writes what it may not")
        return LibraryCall(str(name), read, written, steps, made, int(flops), debug)

    def tile(self, number: int) -> int:
        """A tile that there is."""
        if number >= self._graph.graph.num_tiles:
            raise IndexError(f"there is no tile {number}")
        return number

    def _node(self, row: stored.NodeRow) -> Program:
        debug, *parts = (getattr(row, name) for name in row.__struct_fields__)
        made = debug_of(debug)
        if isinstance(row, stored.LibraryCallRow):
            return self.library_call(*parts, debug=made)
        node = _MAKE[type(row)](self, *parts)
        node.debug = made
        return node


def _print(programs: ProgramsIn, tensor: int, title: str, fmt: stored.FormatRow | None) -> PrintTensor:
    made = None if fmt is None else PrintTensorFmt(**msgspec.structs.asdict(fmt))
    return PrintTensor(programs.view(tensor), title, made)


_MAKE: dict[type[stored.Node], Callable[..., Program]] = {
    stored.SequenceRow: lambda at, steps: Sequence(*(at.node(s) for s in steps)),
    stored.ExecuteRow: lambda at, number: at.execute(number),
    stored.CopyRow: lambda at, source, target, offset: Copy(at.end(source), at.end(target), offset=at.view(offset)),
    stored.WriteUndefRow: lambda at, tensor: WriteUndef(at.view(tensor)),
    stored.PrintTensorRow: _print,
    stored.RepeatRow: lambda at, count, body: Repeat(count, at.node(body)),
    stored.RepeatWhileRow: lambda at, condition, predicate, body, value: RepeatWhile(
        at.node(condition), at.view(predicate), at.node(body), value=value
    ),
    stored.IfRow: lambda at, predicate, then, otherwise: If(at.view(predicate), at.node(then), at.node(otherwise)),
    stored.CallRow: lambda at, function, arguments, results: at.call(function, arguments, results),
    stored.SwitchRow: lambda at, control, cases, default, unreachable: Switch(
        at.view(control),
        [(value, at.node(case)) for value, case in cases],
        at.node(default),
        unreachable_default=unreachable,
    ),
    stored.BlockOfSteps: lambda at, body: Block(at.node(body), "block"),
    stored.SyncRow: lambda at, kind: Sync(kind),
    stored.AbortRow: lambda at, message, condition: Abort(message, at.view(condition)),
    stored.ErrorProgramRow: lambda at, message, tensor: ErrorProgram(message, at.view(tensor)),
    stored.CycleCountRow: lambda at, body, result, tile, sync: CycleCount(
        at.node(body), at.view(result), at.tile(tile), sync
    ),
    stored.CycleStampRow: lambda at, result, tile, sync: CycleStamp(at.view(result), at.tile(tile), sync),
    stored.BehaviourRow: lambda at, fields: SetFloatingPointBehaviour(**fields),
    stored.GetHwSeedsRow: lambda at, result: GetHwSeeds(at.view(result)),
    stored.SetHwSeedsRow: lambda at, seeds: SetHwSeeds(at.view(seeds)),
    stored.AssumeEqualRow: lambda at, tensor: AssumeEqualAcrossReplicas(at.view(tensor)),
    stored.CrossReplicaCopyRow: lambda at, source, target, pairs: CrossReplicaCopy(
        at.view(source), at.view(target), dict(pairs)
    ),
    stored.HostCallRow: lambda at, name, inputs, outputs: HostCall(
        at._graph.graph.host_functions[name], at.views(inputs), at.views(outputs)
    ),
}
"""How each kind of node is made again; constructors check what they are given."""
