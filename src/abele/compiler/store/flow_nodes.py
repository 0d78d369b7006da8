"""Steps that hold others, in a file: sequences, loops, branches, named parts, timed parts and calls.

What hosts run in place of steps (``host_body``) is a node like any other, and checked like any other: its views lie in
the graph's variables, and loops of hosts keep every trip inside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from abele.compiler.store.control_nodes import NodeForm, stored
from abele.compiler.store.format import Int64, Name, Number
from abele.compiler.store.records import HOST_KERNEL, decode, encode
from abele.graph.control import Block, CycleCount, Switch
from abele.graph.program import Call, HostLoop, HostOrder, If, LibraryCall, Repeat, RepeatWhile, Sequence, StashCopy
from abele.kernels import HostKernel

if TYPE_CHECKING:
    from abele.compiler.store.programs import ProgramsIn, ProgramsOut


class SequenceRow(NodeForm, tag="Sequence"):
    """Steps, by number, and the program that hosts run instead."""

    steps: list[Number]
    host_body: Number | None = None


def _sequence(at: ProgramsIn, steps: list[int], host_body: int | None) -> Sequence:
    made = Sequence(*(at.node(s) for s in steps))
    made.host_body = _host_body(at, host_body)
    return made


def _host_body(at: ProgramsIn, number: int | None) -> Sequence | None:
    return None if number is None else _steps(at, number, "what hosts run in place of steps")


def _steps(at: ProgramsIn, number: int, what: str) -> Sequence:
    """Node ``number``, which has to be a sequence."""
    found = at.node(number)
    if not isinstance(found, Sequence):
        raise ValueError(f"{what} is no sequence")
    return found


stored(
    Sequence,
    SequenceRow,
    parts=lambda out, n: [out.numbers(n.steps), None if n.host_body is None else out.number(n.host_body)],
    make=_sequence,
)


class RepeatRow(NodeForm, tag="Repeat"):
    """A loop."""

    count: Annotated[int, Meta(ge=0, le=(1 << 62))]
    body: Number


stored(
    Repeat,
    RepeatRow,
    parts=lambda out, n: [n.count, out.number(n.body)],
    make=lambda at, count, body: Repeat(count, at.node(body)),
)


class HostLoopRow(NodeForm, tag="HostLoop"):
    """A loop of host kernels, and by how much variables move on."""

    count: Annotated[int, Meta(ge=0, le=(1 << 31))]
    body: Number
    strides: list[tuple[Number, Annotated[int, Meta(ge=-(1 << 31), le=1 << 31)]]]


def _host_loop(at: ProgramsIn, count: int, body: int, strides: list[tuple[int, int]]) -> HostLoop:
    steps = _steps(at, body, "the body of a host's loop")
    return HostLoop(count, steps, {at.variable(variable): stride for variable, stride in strides})


stored(
    HostLoop,
    HostLoopRow,
    parts=lambda out, n: [n.count, out.number(n.body), [[v.id, stride] for v, stride in n.strides.items()]],
    make=_host_loop,
)


class HostOrderRow(NodeForm, tag="HostOrder"):
    """Another order of a variable's elements on hosts."""

    before: Number
    after: Number
    between: Number


stored(
    HostOrder,
    HostOrderRow,
    parts=lambda out, n: out.views([n.steps[0].source, n.steps[1].destination, n.steps[0].destination]),
    make=lambda at, *views: HostOrder(*at.views(views)),
)


class StashCopyRow(NodeForm, tag="StashCopy"):
    """A copy of a tensor to or from a row of a host's stash."""

    tensor: Number
    stash: Number
    row: Number | None
    saves: bool


def _stash_copy(at: ProgramsIn, tensor: int, stash: int, row: int | None, saves: bool) -> StashCopy:
    return StashCopy(at.view(tensor), at.view(stash), at.view(row), saves=saves)


stored(
    StashCopy,
    StashCopyRow,
    parts=lambda out, n: [*out.views([n.tensor, n.stash, n.row]), n.saves],
    make=_stash_copy,
)


class RepeatWhileRow(NodeForm, tag="RepeatWhile"):
    """A loop that data ends."""

    condition: Number
    predicate: Number
    body: Number
    value: bool


def _repeat_while(at: ProgramsIn, condition: int, predicate: int, body: int, value: bool) -> RepeatWhile:
    return RepeatWhile(at.node(condition), at.view(predicate), at.node(body), value=value)


stored(
    RepeatWhile,
    RepeatWhileRow,
    parts=lambda out, n: [out.number(n.condition), out.view(n.predicate), out.number(n.body), n.value],
    make=_repeat_while,
)


class IfRow(NodeForm, tag="If"):
    """A branch."""

    predicate: Number
    then: Number
    otherwise: Number


stored(
    If,
    IfRow,
    parts=lambda out, n: [out.view(n.predicate), out.number(n.then), out.number(n.otherwise)],
    make=lambda at, predicate, then, otherwise: If(at.view(predicate), at.node(then), at.node(otherwise)),
)


class SwitchRow(NodeForm, tag="Switch"):
    """A branch of many ways."""

    control: Number
    cases: list[tuple[Int64, Number]]
    default: Number
    unreachable_default: bool


def _switch_parts(out: ProgramsOut, node: Switch) -> list[Any]:
    cases = [[value, out.number(case)] for value, case in node.cases.items()]
    return [out.view(node.control), cases, out.number(node.default), node.unreachable_default]


def _switch(at: ProgramsIn, control: int, cases: list[tuple[int, int]], default: int, unreachable: bool) -> Switch:
    made = [(value, at.node(case)) for value, case in cases]
    return Switch(at.view(control), made, at.node(default), unreachable_default=unreachable)


stored(Switch, SwitchRow, parts=_switch_parts, make=_switch)


class BlockOfSteps(NodeForm, tag="Block"):
    """Steps under a name."""

    body: Number


stored(
    Block,
    BlockOfSteps,
    parts=lambda out, n: [out.number(n.body)],
    make=lambda at, body: Block(at.node(body), "block"),
)


class CycleCountRow(NodeForm, tag="CycleCount"):
    """A timed part."""

    body: Number
    result: Number
    tile: Number
    sync: Name


stored(
    CycleCount,
    CycleCountRow,
    parts=lambda out, n: [out.number(n.body), out.view(n.result), n.tile, n.sync.kind],
    make=lambda at, body, result, tile, sync: CycleCount(at.node(body), at.view(result), at.tile(tile), sync),
)


class CallRow(NodeForm, tag="Call"):
    """A call of a function, by number."""

    function: Number
    arguments: list[Number]
    results: list[Number]


def _call_parts(out: ProgramsOut, node: Call) -> list[Any]:
    arguments = [copy.source for copy in node.copies_in]
    results = [copy.destination for copy in node.copies_out]
    return [out.function(node.function), out.views(arguments), out.views(results)]


stored(
    Call,
    CallRow,
    parts=_call_parts,
    make=lambda at, function, arguments, results: Call(at.function(function), at.views(arguments), at.views(results)),
)


class LibraryCallRow(NodeForm, tag="LibraryCall"):
    """A library call; its kernel is a record."""

    name: Name
    inputs: list[Number]
    outputs: list[Number]
    body: Number
    kernel: Any
    flops: Annotated[int, Meta(ge=0, le=1 << 60)]
    host_body: Number | None = None


def _library_parts(out: ProgramsOut, node: LibraryCall) -> list[Any]:
    kernel = None if node.kernel is None else encode(node.kernel, HOST_KERNEL)
    host_body = None if node.host_body is None else out.number(node.host_body)
    views = out.views(node.inputs), out.views(node.outputs)
    return [node.name, *views, out.number(node.body), kernel, node.flops, host_body]


def _library_call(
    at: ProgramsIn,
    name: str,
    inputs: list[int],
    outputs: list[int],
    body: int,
    kernel: Any,
    flops: int,
    host_body: int | None,
) -> LibraryCall:
    """A library call whose kernel fits its operands."""
    read, written, steps = at.views(inputs), at.views(outputs), _steps(at, body, f"the body of library call {name}")
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
    if not all(t.writable for t in written):
        raise ValueError(f"library call {name} writes what it may not")
    return LibraryCall(
        name=name,
        inputs=read,
        outputs=written,
        body=steps,
        kernel=made,
        flops=flops,
        host_body=_host_body(at, host_body),
        debug=steps.debug,
    )


stored(LibraryCall, LibraryCallRow, parts=_library_parts, make=_library_call)
