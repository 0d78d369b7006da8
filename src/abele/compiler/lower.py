"""Lowering: the control program as blocks of steps, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from abele.errors import ControlProgramError
from abele.graph.program import (
    Call,
    Copy,
    Execute,
    If,
    LibraryCall,
    PrintTensor,
    Program,
    Repeat,
    RepeatWhile,
    Sequence,
    WriteUndef,
)
from abele.graph.stream import Stream

ASSUMED_TRIPS = 1


@dataclass(eq=False)
class Step:
    """One step of the lowered program: a superstep, a copy, a host transfer or a decision.

    Attributes:
        index: Position in program order.
        kind: ``execute``, ``copy``, ``stream_in``, ``stream_out``, ``decide``, ``print`` or ``undef``.
        node: The program node that it came from; a called function's nodes appear once a call.
        name: What it does, scopes included.
        executions: Times that it runs in one run of the program.
        is_assumed: Whether that number depends on data: a while loop counts as one trip, an If takes its first branch.
        call: Position of the library call that it belongs to, or −1.
        program: Position of the program that it belongs to.
        sync_group: Tiles that meet at its barriers; 0 is all tiles.
        superstep: Number of the analysed superstep that it runs; −1 before analysis.
        joins_previous: Whether it is a stream copy that shares the host rendezvous of the one right before it.
    """

    index: int
    kind: str
    node: Program
    name: str
    executions: int
    is_assumed: bool
    call: int
    program: int
    sync_group: int = 0
    superstep: int = -1
    joins_previous: bool = False


@dataclass(eq=False)
class Block:
    """Steps and blocks under one rule of control.

    Attributes:
        kind: ``sequence``, ``repeat``, ``while`` or ``if``; an ``if`` has two items, of which one runs.
        items: Its parts in order; a ``while`` has the condition, its decision, and the body.
        count: Trips of a ``repeat``.
    """

    kind: str
    items: list[Step | Block] = field(default_factory=list)
    count: int = 1

    def steps(self) -> Iterator[Step]:
        """All steps inside, in program order."""
        for item in self.items:
            if isinstance(item, Block):
                yield from item.steps()
            else:
                yield item


@dataclass(eq=False)
class Lowered:
    """A lowered control program.

    Attributes:
        programs: One block a program.
        steps: All steps in program order.
        calls: The library calls that steps refer to; a call inside a function appears once a call of the function.
    """

    programs: list[Block]
    steps: list[Step]
    calls: list[LibraryCall]


@dataclass(frozen=True)
class _Context:
    program: int = 0
    executions: int = 1
    is_assumed: bool = False
    call: int = -1
    functions: tuple[int, ...] = ()
    path: str = ""


class _Lowering:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.calls: list[LibraryCall] = []
        self._stream: Step | None = None

    def add(self, kind: str, node: Program, name: str, at: _Context) -> Step:
        full = f"{at.path}/{name}" if at.path and not name.startswith(at.path) else name
        step = Step(len(self.steps), kind, node, full, at.executions, at.is_assumed, at.call, at.program)
        self.steps.append(step)
        if kind != "undef":
            step.joins_previous = self._stream is not None and self._stream.kind == kind
            self._stream = step if kind in ("stream_in", "stream_out") else None
        return step

    def lower_apart(self, node: Program, at: _Context) -> Step | Block:
        """What ``node`` becomes under control of its own: its stream copies join none outside."""
        self._stream = None
        lowered = self.lower(node, at)
        self._stream = None
        return lowered

    def lower(self, node: Program, at: _Context) -> Step | Block:
        """The step or block that ``node`` becomes."""
        match node:
            case Sequence():
                return Block("sequence", [self.lower(s, at) for s in node])
            case LibraryCall():
                self.calls.append(node)
                inside = replace(at, call=len(self.calls) - 1, path=node.debug.full_name)
                return self.lower(node.body, inside)
            case Repeat():
                inside = replace(at, executions=at.executions * node.count)
                return Block("repeat", [self.lower_apart(node.body, inside)], node.count)
            case RepeatWhile():
                return self._loop(node, at)
            case If():
                return self._branch(node, at)
            case Call():
                return self._called(node, at)
            case _:
                return self._leaf(node, at)

    def _leaf(self, node: Program, at: _Context) -> Step:
        match node:
            case Execute():
                return self.add("execute", node, node.compute_set.name, at)
            case Copy(source=Stream() as stream):
                return self.add("stream_in", node, stream.name, at)
            case Copy(destination=Stream() as stream):
                return self.add("stream_out", node, stream.name, at)
            case Copy():
                return self.add("copy", node, node.debug.full_name, at)
            case PrintTensor():
                return self.add("print", node, node.title, at)
            case WriteUndef():
                return self.add("undef", node, node.tensor.name, at)
        raise ControlProgramError(
            f"a {type(node).__name__} is no program step that can be compiled", remedy="use the steps of abele.graph"
        )

    def _loop(self, node: RepeatWhile, at: _Context) -> Block:
        inside = replace(at, executions=at.executions * ASSUMED_TRIPS, is_assumed=True)
        condition = self.lower_apart(node.condition, inside)
        decision = self.add("decide", node, node.debug.full_name, inside)
        return Block("while", [condition, decision, self.lower_apart(node.body, inside)])

    def _branch(self, node: If, at: _Context) -> Block:
        decision = self.add("decide", node, node.debug.full_name, at)
        taken = self.lower_apart(node.then, replace(at, is_assumed=True))
        other = self.lower_apart(node.otherwise, replace(at, executions=0, is_assumed=True))
        return Block("sequence", [decision, Block("if", [taken, other])])

    def _called(self, node: Call, at: _Context) -> Step | Block:
        function = node.function
        if id(function) in at.functions:
            raise ControlProgramError(
                f"function {function.debug.full_name!r} calls itself",
                at=node.debug.location or None,
                remedy="the machine has no call stack: write the recursion as a loop",
            )
        return self.lower_apart(function.body, replace(at, functions=(*at.functions, id(function))))


def lower(programs: list[Program]) -> Lowered:
    """The control programs of one executable as blocks and steps.

    Raises:
        ControlProgramError: A function calls itself, or a node is of an unknown kind.
    """
    lowering = _Lowering()
    blocks = []
    for number, program in enumerate(programs):
        item = lowering.lower_apart(program, _Context(program=number))
        blocks.append(item if isinstance(item, Block) else Block("sequence", [item]))
    return Lowered(blocks, lowering.steps, lowering.calls)
