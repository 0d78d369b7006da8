"""Control programs: the tree of steps that an engine runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from abele.errors import ConstantWriteError, ControlProgramError, TypeMismatchError
from abele.graph.debug import DebugInfo, caller
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor

if TYPE_CHECKING:
    from abele.graph.compute_set import ComputeSet
    from abele.kernels.ir import HostKernel


def _here(name: str) -> DebugInfo:
    file, line = caller()
    return DebugInfo(name, file=file, line=line)


class Program:
    """A step of the control program, possibly with steps inside."""

    debug: DebugInfo

    def children(self) -> tuple[Program, ...]:
        """The steps directly inside this one."""
        return ()


class Sequence(Program):
    """Steps one after the other."""

    def __init__(self, *steps: Program, name: str = "sequence") -> None:
        self.debug = _here(name)
        self.steps: list[Program] = []
        for step in steps:
            self.add(step)

    def add(self, step: Program) -> Sequence:
        """Append a step; returns the sequence."""
        if not isinstance(step, Program):
            raise ControlProgramError(
                f"a Sequence takes programs, not {type(step).__name__}",
                at=_here("add").location,
                remedy="wrap a compute set in Execute(…), a tensor pair in Copy(…)",
            )
        self.steps.append(step)
        return self

    def __iadd__(self, step: Program) -> Sequence:
        return self.add(step)

    def __iter__(self) -> Iterator[Program]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def children(self) -> tuple[Program, ...]:
        """The steps in order."""
        return tuple(self.steps)

    def __repr__(self) -> str:
        return f"Sequence({len(self.steps)} steps)"


class Execute(Program):
    """One superstep: exchange the inputs of a compute set's vertices, run them, send the outputs back."""

    def __init__(self, compute_set: ComputeSet) -> None:
        self.compute_set = compute_set
        self.debug = _here(compute_set.debug.name)

    def __repr__(self) -> str:
        return f"Execute({self.compute_set.name!r})"


class Copy(Program):
    """Copy elements between two views, or between a view and a host stream, in flattened order.

    All reads happen before the first write, so the views may overlap.

    Raises:
        ControlProgramError: The numbers of elements differ, or a stream runs the other way.
        TypeMismatchError: The element types differ.
        ConstantWriteError: The destination is constant or shows an element twice.
    """

    def __init__(self, source: Tensor | Stream, destination: Tensor | Stream, name: str = "copy") -> None:
        self.source = source
        self.destination = destination
        self.debug = _here(name)
        self._check()

    def _check(self) -> None:
        source, destination, at = self.source, self.destination, self.debug.location
        if isinstance(source, Stream) and isinstance(destination, Stream):
            raise ControlProgramError("a Copy between two streams moves nothing on the device", at=at)
        for stream, way in ((source, "in"), (destination, "out")):
            if isinstance(stream, Stream) and stream.direction != way:
                raise ControlProgramError(f"{stream!r} runs {stream.direction}, the Copy needs it to run {way}", at=at)
        if source.dtype != destination.dtype:
            raise TypeMismatchError(
                f"Copy from {source!r} to {destination!r}: the element types differ", at=at, remedy="cast first"
            )
        if source.size != destination.size:
            raise ControlProgramError(
                f"Copy from {source!r} to {destination!r}: {source.size} elements into {destination.size}", at=at
            )
        if isinstance(destination, Tensor) and not destination.writable:
            why = "is constant" if destination.contains_constant else "shows an element more than once"
            raise ConstantWriteError(f"Copy writes to {destination!r}, which {why}", at=at)

    def __repr__(self) -> str:
        return f"Copy({self.source!r} → {self.destination!r})"


class WriteUndef(Program):
    """Declare that a view's contents are no longer needed: its memory may be reused from here."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.debug = _here("write_undef")


class PrintTensor(Program):
    """Print a tensor from the running program."""

    def __init__(self, tensor: Tensor, title: str = "") -> None:
        self.tensor = tensor
        self.title = title or tensor.name
        self.debug = _here("print_tensor")


class Repeat(Program):
    """Run the body a fixed number of times."""

    def __init__(self, count: int, body: Program) -> None:
        self.count = count
        self.body = body
        self.debug = _here("repeat")
        if count < 0:
            raise ControlProgramError(f"a Repeat runs {count} times", at=self.debug.location, remedy="0 or more")

    def children(self) -> tuple[Program, ...]:
        """The body."""
        return (self.body,)

    def __repr__(self) -> str:
        return f"Repeat({self.count})"


class RepeatWhile(Program):
    """Run ``condition``, then leave unless the predicate equals ``value``, then run the body; again and again."""

    def __init__(self, condition: Program, predicate: Tensor, body: Program, *, value: bool) -> None:
        self.condition = condition
        self.predicate = predicate
        self.body = body
        self.value = value
        self.debug = _here("repeat_while")
        _check_predicate(predicate, self.debug)

    def children(self) -> tuple[Program, ...]:
        """The condition and the body."""
        return (self.condition, self.body)


def RepeatWhileTrue(condition: Program, predicate: Tensor, body: Program) -> RepeatWhile:
    """Run ``condition`` then ``body``, as long as the predicate is true after the condition."""
    return RepeatWhile(condition, predicate, body, value=True)


def RepeatWhileFalse(condition: Program, predicate: Tensor, body: Program) -> RepeatWhile:
    """Run ``condition`` then ``body``, as long as the predicate is false after the condition."""
    return RepeatWhile(condition, predicate, body, value=False)


class If(Program):
    """Run one of two programs, by a scalar predicate read at that moment."""

    def __init__(self, predicate: Tensor, then: Program, otherwise: Program | None = None) -> None:
        self.predicate = predicate
        self.then = then
        self.otherwise = otherwise if otherwise is not None else Sequence()
        self.debug = _here("if")
        _check_predicate(predicate, self.debug)

    def children(self) -> tuple[Program, ...]:
        """Both branches."""
        return (self.then, self.otherwise)


@dataclass(eq=False)
class Function:
    """A program body of which the machine holds one copy, however often it is called."""

    body: Program
    debug: DebugInfo


class Call(Program):
    """Run a function's body."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.debug = _here(function.debug.name)

    def children(self) -> tuple[Program, ...]:
        """The body of the function."""
        return (self.function.body,)


@dataclass(eq=False)
class LibraryCall(Program):
    """A library function as one node of the program.

    Attributes:
        name: The function, as in ``popops.map``.
        inputs: Views that it reads, in the order of the kernel's operands.
        outputs: Views that it writes; in-place results appear in both.
        body: The supersteps that the call means on the machine: the only source of cycles and memory.
        kernel: What it computes, as loop nests for the host; None when only the body can be run.
        flops: Floating-point operations of the call.
        debug: Name, scopes and source line of the call.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    body: Sequence
    kernel: HostKernel | None
    flops: int
    debug: DebugInfo
    attributes: dict[str, Any] = field(default_factory=dict)

    def children(self) -> tuple[Program, ...]:
        """The body."""
        return (self.body,)

    def __repr__(self) -> str:
        return f"LibraryCall({self.name}, {self.debug.full_name!r})"


def walk(program: Program) -> Iterator[Program]:
    """Every step of the tree, parents before children."""
    yield program
    for child in program.children():
        yield from walk(child)


def _check_predicate(predicate: Tensor, debug: DebugInfo) -> None:
    if predicate.size != 1 or predicate.dtype.is_float:
        raise ControlProgramError(
            f"the predicate {predicate!r} is not one bool or integer",
            at=debug.location,
            remedy="compare into a bool tensor of one element",
        )
