"""Lowering: the control program as blocks of steps, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace

from abele.compiler.nodes.lookup import meaning_of
from abele.compiler.timeline import NEUTRAL, STREAMS
from abele.graph.control import Block, CycleCount
from abele.graph.debug import DebugRecord
from abele.graph.flow import InOrder, OneOf, Rounds, While
from abele.graph.program import (
    Call,
    Copy,
    Execute,
    HostLoop,
    HostOrder,
    LibraryCall,
    Program,
    Sequence,
    StashCopy,
    check_nesting,
)

ASSUMED_TRIPS = 1

Meeting = Callable[[Program], Hashable]
"""Function that gives the machine's parts at a stream copy; copies of different parts share no
rendezvous.
"""


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One step of the lowered program: a superstep, a copy, a host transfer or a decision.

    Attributes:
        index: Position in program order.
        kind: Kind of step; one of ``step_kinds.KINDS``.
        node: The program node that it came from; a called function's nodes appear once per call.
        name: Name, with scopes.
        executions: Times that it runs in one run of the program.
        is_assumed: True if that number depends on data: a while loop counts as one trip, an If takes its first branch,
            a Switch its first case.
        call: Position of the library call that it belongs to, or −1.
        program: Position of the program that it belongs to.
        superstep: Number of the superstep that it runs: steps that do the same thing run one, which is analysed once.
        joins_previous: True if it is a stream copy that shares the host rendezvous of the one right before it.
        block: Names of the Blocks around it, joined by ``/``.
    """

    index: int
    kind: str
    node: Program
    name: str
    executions: int
    is_assumed: bool
    call: int
    program: int
    superstep: int
    joins_previous: bool = False
    block: str = ""


@dataclass(frozen=True, eq=False)
class StepBlock:
    """Steps and blocks under one rule of control.

    Attributes:
        kind: ``sequence``, ``repeat``, ``while`` or ``if``; of the items of an ``if`` one runs.
        items: Its parts in order; a ``while`` has the condition, its decision, and the body.
        count: Trips of a ``repeat``.
        node: The program node behind a ``while`` or ``if``: a RepeatWhile, an If or a Switch.
    """

    kind: str
    items: tuple[Step | StepBlock, ...] = ()
    count: int = 1
    node: Program | None = None

    def steps(self) -> Iterator[Step]:
        """All steps inside, in program order."""
        for item in self.items:
            if isinstance(item, StepBlock):
                yield from item.steps()
            else:
                yield item


@dataclass(frozen=True, eq=False)
class Lowered:
    """A lowered control program.

    Attributes:
        programs: One block per program.
        steps: All steps in program order.
        calls: The library calls that steps refer to; a call inside a function appears once per call of the function.
        distinct: The first step of each superstep, by its number.
    """

    programs: tuple[StepBlock, ...]
    steps: tuple[Step, ...]
    calls: tuple[LibraryCall, ...]
    distinct: tuple[Step, ...]


@dataclass(frozen=True)
class _LoweringState:
    program: int = 0
    executions: int = 1
    is_assumed: bool = False
    call: int = -1
    path: str = ""
    block: str = ""


class _Lowering:
    def __init__(self, meeting: Meeting) -> None:
        self.steps: list[Step] = []
        self.calls: list[LibraryCall] = []
        self.distinct: list[Step] = []
        self._meeting = meeting
        self._stream: Hashable = None
        self._numbers: dict[Hashable, int] = {}

    def add(self, kind: str, node: Program, origin: DebugRecord, at: _LoweringState) -> Step:
        # What was made inside of scopes has those of the library call in its name already.
        name = f"{at.path}/{origin.name}" if at.path and not origin.path else origin.full_name
        joins = self._joins_previous(kind, node)
        # Steps of one compute set do the same however many Execute nodes it has; joining changes the rendezvous, so it
        # is part of the key.
        work = node.compute_set if isinstance(node, Execute) else node
        number = self._numbers.setdefault((kind, id(work), joins), len(self.distinct))
        step = Step(
            index=len(self.steps),
            kind=kind,
            node=node,
            name=name,
            executions=at.executions,
            is_assumed=at.is_assumed,
            call=at.call,
            program=at.program,
            superstep=number,
            joins_previous=joins,
            block=at.block,
        )
        self.steps.append(step)
        if number == len(self.distinct):
            self.distinct.append(step)
        return step

    def _joins_previous(self, kind: str, node: Program) -> bool:
        """True if a step shares the rendezvous of the stream copy right before it: same direction, same meeting."""
        # These neither need a rendezvous nor end one.
        if kind in NEUTRAL:
            return False
        before, self._stream = self._stream, (kind, self._meeting(node)) if kind in STREAMS else None
        return self._stream is not None and self._stream == before

    def lower_apart(self, node: Program, at: _LoweringState) -> Step | StepBlock:
        """Steps of ``node`` under control of its own: its stream copies join none outside."""
        self._stream = None
        lowered = self.lower(node, at)
        self._stream = None
        return lowered

    def lower(self, node: Program, at: _LoweringState) -> Step | StepBlock:
        """The step or block that ``node`` becomes."""
        # Nearly all nodes are of these two, and none of the cases below.
        if type(node) in (Execute, Copy):
            return self._leaf(node, at)
        match node:
            case LibraryCall():
                self.calls.append(node)
                inside = replace(at, call=len(self.calls) - 1, path=node.debug.full_name)
                return self.lower(node.body, inside)
            case Call():
                return self._called(node, at)
            case Block():
                name = node.debug.name
                return self.lower(node.body, replace(at, block=f"{at.block}/{name}" if at.block else name))
            case CycleCount():
                return self._timed(node, at)
            case HostLoop() | HostOrder() | StashCopy():
                meaning_of(node)  # It has none on the machine, which is told as of any such step.
        match node.flow():
            case Rounds(count, body):
                inside = replace(at, executions=at.executions * count)
                return StepBlock("repeat", (self.lower_apart(body, inside),), count)
            case While() as loop:
                return self._loop(node, loop, at)
            case OneOf() as branch:
                return self._branch(node, branch, at)
            case InOrder(steps) if steps or type(node) in (Sequence, Program):
                return StepBlock("sequence", tuple([self.lower(s, at) for s in steps]))
        return self._leaf(node, at)

    def _leaf(self, node: Program, at: _LoweringState) -> Step:
        meaning = meaning_of(node)
        return self.add(meaning.kind(node), node, meaning.origin(node), at)

    def _loop(self, node: Program, loop: While, at: _LoweringState) -> StepBlock:
        inside = replace(at, executions=at.executions * ASSUMED_TRIPS, is_assumed=True)
        condition = self.lower_apart(loop.condition, inside)
        decision = self.add("decide", node, node.debug, inside)
        return StepBlock("while", (condition, decision, self.lower_apart(loop.body, inside)), node=node)

    def _branch(self, node: Program, branch: OneOf, at: _LoweringState) -> StepBlock:
        decision = self.add("decide", node, node.debug, at)
        ways = []
        for way, body in enumerate(branch.ways):
            # Only one way is taken in a run, and which is not known: the first counts, so that totals are those of a
            # possible run.
            inside = replace(at, executions=at.executions if way == 0 else 0, is_assumed=True)
            ways.append(self.lower_apart(body, inside))
        return StepBlock("sequence", (decision, StepBlock("if", tuple(ways), node=node)))

    def _called(self, node: Call, at: _LoweringState) -> Step | StepBlock:
        function = node.function
        before = [self.lower(c, at) for c in node.copies_in]
        # A function has one copy of its code, so a copy in it cannot share a rendezvous with what differs from call to
        # call.
        body = self.lower_apart(function.body, at)
        after = [self.lower(c, at) for c in node.copies_out]
        return StepBlock("sequence", (*before, body, *after)) if before or after else body

    def _timed(self, node: CycleCount, at: _LoweringState) -> StepBlock:
        start = self.add("timer_start", node, node.debug, at)
        body = self.lower_apart(node.body, at)
        return StepBlock("sequence", (start, body, self.add("timer_read", node, node.debug, at)))


def _all_meet(node: Program) -> Hashable:
    """The whole machine meets at every stream copy."""
    return None


def lower(programs: list[Program], meeting: Meeting = _all_meet) -> Lowered:
    """The control programs of one executable as blocks and steps.

    Args:
        programs: The control programs.
        meeting: Gives what meets at a stream copy, on machines where that is not always the whole.

    Raises:
        GraphRecursionError: A function calls itself, or a program is inside itself.
        ControlProgramError: A node is of an unknown kind.
    """
    lowering = _Lowering(meeting)
    blocks = []
    for number, program in enumerate(programs):
        check_nesting(program)
        item = lowering.lower_apart(program, _LoweringState(program=number))
        blocks.append(item if isinstance(item, StepBlock) else StepBlock("sequence", (item,)))
    return Lowered(tuple(blocks), tuple(lowering.steps), tuple(lowering.calls), tuple(lowering.distinct))
