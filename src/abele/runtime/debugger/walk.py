"""Walking a control program: which step comes next, decided by the data as it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from abele.errors import ApplicationRuntimeError
from abele.graph import Call, CycleCount, Program, Sequence, Tensor
from abele.graph.flow import InOrder, OneOf, Rounds, While

Reader = Callable[[Tensor], int]
"""Gives the number that a scalar tensor holds."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A step that is under way, because steps inside it are.

    Attributes:
        node: The step.
        at: Steps inside that were begun (rounds of a loop; two per round where a condition is tested).
        mark: Cycles when it was entered.
        serial: A number of its own each time that it is entered.
    """

    node: Program
    at: int = 0
    mark: int = 0
    serial: int = 0

    @property
    def text(self) -> str:
        """The step in words, with how far it is."""
        match self.node.flow():
            case Rounds(count):
                return f"repeat {self.at} of {count}"
            case While():
                return f"while, round {(self.at + 1) // 2}"
        if isinstance(self.node, Call):
            return f"call of {self.node.function.debug.full_name}"
        return self.node.debug.full_name or type(self.node).__name__


Stack = tuple[Frame, ...]


class Walker:
    """Goes through a program one leaf at a time: steps that do something themselves.

    Args:
        program: The program.
        read: Gives the number in a scalar, at the time when a decision is due.

    Attributes:
        stack: The steps under way, outermost first; a snapshot of it is a place to come back to.
    """

    def __init__(self, program: Program, read: Reader) -> None:
        self._program = program
        self._read = read
        self.stack: Stack = ()
        self._started = False
        self._entered = 0

    def next_leaf(self, cycles: int) -> Program | None:
        """Move on to the next leaf; None at the end. A timed program comes as a leaf after its body.

        Args:
            cycles: Cycles at this time, which steps that are entered keep.
        """
        if not self._started:
            self._started = True
            return self._enter(self._program, cycles)
        return self._advance(cycles)

    def _enter(self, node: Program, cycles: int) -> Program | None:
        if not _has_parts(node):
            return node
        self._push(node, cycles)
        return self._advance(cycles)

    def _push(self, node: Program, cycles: int) -> None:
        self._entered += 1
        self.stack = (*self.stack, Frame(node, 0, cycles, self._entered))

    def _advance(self, cycles: int) -> Program | None:
        while self.stack:
            frame = self.stack[-1]
            part = self._part(frame)
            if part is not None:
                self.stack = (*self.stack[:-1], replace(frame, at=frame.at + 1))
                if not _has_parts(part):
                    return part
                self._push(part, cycles)
            elif isinstance(frame.node, CycleCount) and frame.at == 1:
                self.stack = (*self.stack[:-1], replace(frame, at=2))
                return frame.node
            else:
                self.stack = self.stack[:-1]
        return None

    def _part(self, frame: Frame) -> Program | None:
        """Child of a step that runs next; None when it is done."""
        node, at = frame.node, frame.at
        match node.flow():
            case Rounds(count, body):
                return body if at < count else None
            case While(condition, predicate, value, body):
                if at % 2 == 0:
                    return condition
                return body if bool(self._read(predicate)) == value else None
            case OneOf() as branch:
                return self._way(node, branch) if at == 0 else None
            case InOrder(steps):
                return steps[at] if at < len(steps) else None

    def _way(self, node: Program, branch: OneOf) -> Program:
        value = self._read(branch.selector)
        way = branch.pick(value)
        if way is None:
            raise ApplicationRuntimeError(
                f"a {type(node).__name__} met {value}, which none of its cases has, "
                "and its default was said to be unreachable",
                at=node.debug.location or None,
            )
        return branch.ways[way]


def _has_parts(node: Program) -> bool:
    return bool(node.children()) or isinstance(node, Sequence)
