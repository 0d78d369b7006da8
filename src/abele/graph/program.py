"""Control programs: the tree of steps that an engine runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from abele.errors import ConstantWriteError, ControlProgramError, GraphRecursionError, TypeMismatchError
from abele.graph.debug import DebugRecord, here
from abele.graph.expect import expect_step, whole_number
from abele.graph.flow import Flow, InOrder, OneOf, Rounds, While
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.compute_set import ComputeSet
    from abele.graph.variable import Variable
    from abele.kernels.nest.ir import HostKernel


class Program:
    """A step of the control program, possibly with steps inside."""

    debug: DebugRecord

    def children(self) -> tuple[Program, ...]:
        """The steps directly inside this one."""
        return ()

    def flow(self) -> Flow:
        """Order of the steps directly inside."""
        return InOrder(self.children())

    def reads(self) -> tuple[Tensor, ...]:
        """Views that the step itself reads; without those of its vertices or inner steps."""
        return ()

    def writes(self) -> tuple[Tensor, ...]:
        """Views that the step itself writes as a whole; without those of its vertices or inner steps."""
        return ()

    def touches(self) -> tuple[Tensor, ...]:
        """Views that the step reads, writes or names."""
        return (*self.reads(), *self.writes())


class Sequence(Program):
    """Steps one after the other.

    Attributes:
        steps: The steps.
        host_body: Program that computes the same on the host, where that runs library calls by their kernels: the
            machine knows nothing of it.
    """

    def __init__(self, *steps: Program, name: str = "sequence") -> None:
        self.debug = here(name)
        self.steps: list[Program] = []
        self.host_body: Sequence | None = None
        for step in steps:
            self.add(step)

    def add(self, step: Program) -> Sequence:
        """Append a step; returns the sequence.

        Raises:
            ControlProgramError: ``step`` is no program step.
            GraphRecursionError: It is this sequence itself.
        """
        if not isinstance(step, Program):
            raise ControlProgramError(
                f"a Sequence takes programs, not {type(step).__name__}",
                at=here("add").location,
                remedy="wrap a compute set in Execute(…), a tensor pair in Copy(…)",
            )
        if step is self:
            raise GraphRecursionError(
                f"{self!r} is added to itself", at=here("add").location, remedy="write a loop: Repeat(n, sequence)"
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


Steps = Sequence
"""``Sequence`` where collections.abc has one too."""


class Execute(Program):
    """One superstep: exchange the inputs of a compute set's vertices, run them, send the outputs back."""

    def __init__(self, compute_set: ComputeSet) -> None:
        if not hasattr(compute_set, "debug"):
            expect_step(compute_set, (), "an Execute runs a compute set")
        self.compute_set = compute_set
        self.debug = here(compute_set.debug.name)

    def __repr__(self) -> str:
        return f"Execute({self.compute_set.name!r})"


End = Tensor | Stream | RemoteBuffer


class Copy(Program):
    """Copy elements between two views, or between a view and a host stream or remote buffer, in flattened order.

    All reads happen before the first write, so the views may overlap.

    Args:
        source: View, stream or buffer that elements come from.
        destination: View, stream or buffer that elements go to.
        name: Name of the step.
        offset: Rows of the remote buffer: u32 (or i32), one row number or one per row copied; row 0 when left out.

    Raises:
        ControlProgramError: The numbers of elements differ, a stream runs the other way, or neither end is a view.
        TypeMismatchError: The element types differ.
        ConstantWriteError: The destination is constant or shows an element twice.
    """

    def __init__(self, source: End, destination: End, name: str = "copy", *, offset: Tensor | None = None) -> None:
        self.source = source
        self.destination = destination
        self.offset = offset
        self.debug = here(name)
        self._check()

    def reads(self) -> tuple[Tensor, ...]:
        """The source and the rows, where they are views."""
        return tuple(t for t in (self.source, self.offset) if isinstance(t, Tensor))

    def writes(self) -> tuple[Tensor, ...]:
        """The destination, where it is a view."""
        return (self.destination,) if isinstance(self.destination, Tensor) else ()

    @property
    def remote(self) -> RemoteBuffer | None:
        """The remote buffer at one of the ends, if there is one."""
        ends = (self.source, self.destination)
        return next((e for e in ends if isinstance(e, RemoteBuffer)), None)

    def _check(self) -> None:
        source, destination, at = self.source, self.destination, self.debug.location
        for end in (source, destination):
            expect_step(end, (Tensor, Stream, RemoteBuffer), "a Copy is between views, streams and remote buffers")
        if not isinstance(source, Tensor) and not isinstance(destination, Tensor):
            raise ControlProgramError(
                f"a Copy between two streams moves nothing on the device: {source!r} to {destination!r}",
                at=at,
                remedy="copy to a tensor first",
            )
        for stream, way in ((source, "in"), (destination, "out")):
            if isinstance(stream, Stream) and stream.direction != way:
                raise ControlProgramError(f"{stream!r} runs {stream.direction}, the Copy needs it to run {way}", at=at)
        if source.dtype != destination.dtype:
            raise TypeMismatchError(
                f"Copy from {source!r} to {destination!r}: the element types differ", at=at, remedy="cast first"
            )
        rows = self._rows()
        sizes = [e.num_elements * rows if isinstance(e, RemoteBuffer) else e.size for e in (source, destination)]
        if sizes[0] != sizes[1]:
            raise ControlProgramError(
                f"Copy from {source!r} to {destination!r}: {counted(sizes[0], 'element')} into {sizes[1]}", at=at
            )
        if isinstance(destination, Tensor) and not destination.writable:
            why = "is constant" if destination.contains_constant else "shows an element more than once"
            raise ConstantWriteError(f"Copy writes to {destination!r}, which {why}", at=at)

    def _rows(self) -> int:
        """Rows of a remote buffer that the copy moves."""
        offset, at = self.offset, self.debug.location
        if offset is None:
            return 1
        if self.remote is None:
            raise ControlProgramError("only a Copy with a remote buffer has an offset", at=at)
        if offset.dtype.kind not in ("uint", "int") or offset.dtype.bits != 32 or offset.ndim > 1:
            raise ControlProgramError(f"the offset {offset!r} is not one or a vector of u32 or i32", at=at)
        return offset.size

    def __repr__(self) -> str:
        return f"Copy({self.source!r} → {self.destination!r})"


class WriteUndef(Program):
    """Declare that a view's contents are no longer needed: its memory may be reused from here."""

    def __init__(self, tensor: Tensor) -> None:
        expect_step(tensor, Tensor, "a WriteUndef is of a tensor")
        self.tensor = tensor
        self.debug = here("write_undef")

    def touches(self) -> tuple[Tensor, ...]:
        """The view."""
        return (self.tensor,)


@dataclass(frozen=True, slots=True)
class PrintTensorFmt:
    """Format of PrintTensor; names and defaults are Poplar's.

    Attributes:
        summarise_threshold: More elements than this are summarised by their edges.
        edge_items: Elements shown at each edge of a summarised dimension.
        max_line_width: Characters of a line.
        digits: Digits of a float, on both sides of the point, as many as the largest element leaves, but one after it.
        float_format: ``auto``, ``fixed``, ``scientific`` or ``none``.
        separator: Between elements.
        open_bracket: Before each dimension.
        close_bracket: After each dimension.
    """

    summarise_threshold: int = 1000
    edge_items: int = 3
    max_line_width: int = 75
    digits: int = 8
    float_format: str = "auto"
    separator: str = " "
    open_bracket: str = "["
    close_bracket: str = "]"


class PrintTensor(Program):
    """Print a tensor from the running program: ``PrintTensor(t)``, ``PrintTensor(t, "title")`` or, in Poplar's order,
    ``PrintTensor("title", t)``."""

    def __init__(self, tensor: Tensor | str, title: str | Tensor = "", fmt: PrintTensorFmt | None = None) -> None:
        if isinstance(tensor, str):
            tensor, title = title, tensor
        expect_step(tensor, Tensor, "a PrintTensor prints a tensor")
        assert isinstance(tensor, Tensor)
        self.tensor = tensor
        self.title = str(title) or tensor.name
        self.fmt = fmt
        self.debug = here("print_tensor")

    def reads(self) -> tuple[Tensor, ...]:
        """The tensor."""
        return (self.tensor,)


class Repeat(Program):
    """Run the body a fixed number of times."""

    def __init__(self, count: int, body: Program) -> None:
        self.count = count = whole_number(count, "a Repeat runs a number of times", error=ControlProgramError)
        expect_step(body, Program, "the body of a Repeat is a program")
        self.body = body
        self.debug = here("repeat")
        if count < 0:
            raise ControlProgramError(
                f"a Repeat runs {counted(count, 'time')}", at=self.debug.location, remedy="0 or more"
            )

    def children(self) -> tuple[Program, ...]:
        """The body."""
        return (self.body,)

    def flow(self) -> Flow:
        """``count`` rounds of the body."""
        return Rounds(self.count, self.body)

    def __repr__(self) -> str:
        return f"Repeat({self.count})"


class HostLoop(Program):
    """Trips of library calls that only hosts run: part of a host body there.

    Calls say what the first trip does. In every further one the views of some variables lie further on, so that a trip
    reads and writes its own step of a sequence where it is, and nothing is sliced.

    Args:
        count: Trips.
        body: Library calls with kernels, and copies.
        strides: Elements by which the views of variables move on with every trip; negative: back.

    Raises:
        ControlProgramError: A view leaves its variable in a later trip.
    """

    def __init__(self, count: int, body: Sequence, strides: Mapping[Variable, int]) -> None:
        self.count = whole_number(count, "a HostLoop runs a number of times", error=ControlProgramError)
        expect_step(body, Sequence, "the body of a HostLoop is a Sequence")
        self.body = body
        self.strides = dict(strides)
        self.debug = here("host_loop")
        for step in walk(body):
            operands = (*step.inputs, *step.outputs) if isinstance(step, LibraryCall) else ()
            for tensor in (*step.reads(), *step.writes(), *operands):
                self._expect_inside(tensor)

    def children(self) -> tuple[Program, ...]:
        """The body."""
        return (self.body,)

    def flow(self) -> Flow:
        """``count`` rounds of the body."""
        return Rounds(self.count, self.body)

    def _expect_inside(self, tensor: Tensor) -> None:
        for variable in tensor.variables:
            if not self.strides.get(variable):
                continue
            begin, length = tensor.intervals()
            own = (begin >= variable.base) & (begin < variable.base + variable.size)
            first, end = begin[own].min(), (begin + length)[own].max()
            moved = (max(self.count, 1) - 1) * self.strides[variable]
            if min(first, first + moved) < variable.base or max(end, end + moved) > variable.base + variable.size:
                raise ControlProgramError(
                    f"a view of {variable.name} leaves it in the {counted(self.count, 'trip')} of a loop",
                    because=f"it moves on by {counted(self.strides[variable], 'element')} with every trip",
                    remedy="give fewer trips, or a stride that keeps every trip within the variable",
                )


class HostOrder(Program):
    """Reorder the elements of a variable, in steps that only hosts run.

    One such step stands before the host bodies that use the variable in that order, and one after them. Where nothing
    else uses the variable, the order need not change, and the host leaves both out.

    Args:
        before: The elements in the order so far.
        after: The same in the new order, of the same variable, which they fill.
        between: Memory of the elements meanwhile.

    Raises:
        ControlProgramError: The elements are of several variables.
    """

    def __init__(self, before: Tensor, after: Tensor, between: Tensor) -> None:
        if len(after.variables) != 1:
            raise ControlProgramError(
                f"{after!r} has elements of {counted(len(after.variables), 'variable')}",
                because="a HostOrder is the order of the elements of one variable",
                remedy="give one for each variable",
            )
        (self.variable,) = after.variables
        self.steps = Copy(before, between), Copy(between, after)
        self.debug = here("host_order")

    def children(self) -> tuple[Program, ...]:
        """The copies there and back."""
        return self.steps


class StashCopy(Program):
    """Copy a tensor to or from a row of a stash, in steps that only hosts run.

    Stages of a pipeline work on other micro-batches at any time. What one makes and a later one reads waits in a row of
    its own: the one that the stage's index names when the steps around the copy begin. Copies of a stash by other
    indices are in other functions.

    Args:
        tensor: Elements that are kept.
        stash: Memory of the host, [rows, elements].
        row: Index of the row, u32[1], which the steps around the copy do not change before it; None for the first row.
        saves: True from the tensor to the stash, False back.

    Raises:
        ControlProgramError: The stash is no whole variable with rows for the tensor's elements.
    """

    def __init__(self, tensor: Tensor, stash: Tensor, row: Tensor | None, *, saves: bool) -> None:
        self.tensor, self.stash, self.row, self.saves = tensor, stash, row, saves
        self.debug = here("save" if saves else "restore")
        whole = stash.strided()
        if whole is None or whole.variable.size != stash.size or stash.ndim != 2 or stash.shape[1] < tensor.size:
            raise ControlProgramError(
                f"{stash!r} is no stash of {tensor!r}",
                because="a stash is a variable with a row for the tensor's elements of each micro-batch",
                remedy=f"give a variable of shape [rows, {tensor.size}], or longer rows",
            )

    @property
    def variable(self) -> Variable:
        """Memory of the stash."""
        return self.stash.variables[0]

    def reads(self) -> tuple[Tensor, ...]:
        """The side that is read, and the index; a stash keeps its other rows."""
        sides = (self.tensor, self.stash) if self.saves else (self.stash,)
        return sides if self.row is None else (*sides, self.row)

    def writes(self) -> tuple[Tensor, ...]:
        """The side that is written."""
        return (self.stash if self.saves else self.tensor,)


class RepeatWhile(Program):
    """Run ``condition``, then leave unless the predicate equals ``value``, then run the body; again and again."""

    def __init__(self, condition: Program, predicate: Tensor, body: Program, *, value: bool) -> None:
        self.condition = condition
        self.predicate = predicate
        self.body = body
        self.value = value
        for part in (condition, body):
            expect_step(part, Program, "condition and body of a RepeatWhile are programs")
        self.debug = here("repeat_while")
        check_predicate(predicate, self.debug)

    def reads(self) -> tuple[Tensor, ...]:
        """The predicate."""
        return (self.predicate,)

    def children(self) -> tuple[Program, ...]:
        """The condition and the body."""
        return (self.condition, self.body)

    def flow(self) -> Flow:
        """Rounds while the predicate has the value."""
        return While(self.condition, self.predicate, self.value, self.body)


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
        for part in self.children():
            expect_step(part, Program, "the branches of an If are programs")
        self.debug = here("if")
        check_predicate(predicate, self.debug)

    def reads(self) -> tuple[Tensor, ...]:
        """The predicate."""
        return (self.predicate,)

    def children(self) -> tuple[Program, ...]:
        """Both branches."""
        return (self.then, self.otherwise)

    def flow(self) -> Flow:
        """The first branch where the predicate is true, the other where it is not."""
        return OneOf(self.predicate, self.children(), ("then", "else"), lambda value: 0 if value else 1)


@dataclass(eq=False)
class Function:
    """A program body of which the machine holds one copy, however often it is called.

    Attributes:
        body: Program that a call runs.
        debug: Source line at which the user made it.
        parameters: Views that a call with arguments fills before the body.
        results: Views that such a call reads after it.
    """

    body: Program
    debug: DebugRecord
    parameters: tuple[Tensor, ...] = ()
    results: tuple[Tensor, ...] = ()


class Call(Program):
    """Run a function's body; with arguments, copy them to its parameters before and its results out after.

    Attributes:
        function: Function to call.
        copies_in: Copies of arguments to parameters, before the body.
        copies_out: Copies of results, after it.

    Raises:
        ControlProgramError: The number or sizes of arguments differ from the function's.
        TypeMismatchError: Their types do.
    """

    def __init__(self, function: Function, arguments: Iterable[Tensor] = (), results: Iterable[Tensor] = ()) -> None:
        expect_step(function, Function, "a Call is of a function", "graph.addFunction(program) makes one")
        self.function = function
        self.debug = here(function.debug.name)
        self.copies_in = self._copies("arguments", tuple(arguments), function.parameters)
        self.copies_out = self._copies("results", function.results, tuple(results))

    def _copies(self, what: str, sources: tuple[Tensor, ...], destinations: tuple[Tensor, ...]) -> tuple[Copy, ...]:
        if len(sources) != len(destinations):
            raise ControlProgramError(
                f"function {self.function.debug.full_name!r}: {len(sources)} {what} for {len(destinations)}",
                at=self.debug.location,
                because=f"it was made at {self.function.debug.location}" if self.function.debug.file else None,
            )
        return tuple(Copy(s, d, f"{self.debug.name} {what}") for s, d in zip(sources, destinations, strict=True))

    def children(self) -> tuple[Program, ...]:
        """The copies in, the body of the function, the copies out."""
        return (*self.copies_in, self.function.body, *self.copies_out)


@dataclass(eq=False)
class LibraryCall(Program):
    """A library function as one node of the program.

    Attributes:
        name: The function, as in ``popops.map``.
        inputs: Views that it reads, in the order of the kernel's operands.
        outputs: Views that it writes; in-place results appear in both.
        body: The supersteps that the call means on the machine: the only source of cycles and memory.
        kernel: Computation as loop nests for the host; None when only the body can be run.
        flops: Floating-point operations of the call.
        debug: Name, scopes and source line of the call.
        attributes: Further facts about the call, such as its plan.
        host_body: Supersteps that compute the same in fewer, larger vertices, and cost nothing on the machine. The host
            may run them in place of the body where there is no kernel.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    body: Sequence
    kernel: HostKernel | None
    flops: int
    debug: DebugRecord
    attributes: dict[str, Any] = field(default_factory=dict)
    host_body: Sequence | None = None

    def children(self) -> tuple[Program, ...]:
        """The body."""
        return (self.body,)

    def __repr__(self) -> str:
        return f"LibraryCall({self.name}, {self.debug.full_name!r})"


def walk(program: Program) -> Iterator[Program]:
    """Every step of the tree, parents before children."""
    # One list rather than nested generators, which would pass each step on through all programs that it is in.
    found: list[Program] = []
    waiting = [program]
    while waiting:
        step = waiting.pop()
        found.append(step)
        waiting.extend(reversed(step.children()))
    return iter(found)


MOST_NESTED = 120
"""Most programs inside each other, more than any program needs: tools walk them by recursion."""


def check_nesting(program: Program) -> None:
    """Raise unless the steps of a program form a tree, of a depth that can be walked.

    Raises:
        GraphRecursionError: A program is inside itself, or programs are nested too deep.
    """
    open_: dict[int, Program] = {}
    done: dict[int, int] = {}
    waiting: list[tuple[Program, tuple[Program, ...] | None]] = [(program, None)]
    while waiting:
        step, inner = waiting.pop()
        if inner is not None:
            del open_[id(step)]
            done[id(step)] = 1 + max(done[id(c)] for c in inner)
        elif id(step) in open_:
            raise _inside_itself(step, list(open_.values()))
        elif id(step) not in done:
            inner = step.children()
            if not inner:
                done[id(step)] = 1
                continue
            open_[id(step)] = step
            waiting.append((step, inner))
            waiting.extend((c, None) for c in inner)
    if done[id(program)] > MOST_NESTED:
        raise GraphRecursionError(
            f"programs are nested {done[id(program)]:,} deep, at most {MOST_NESTED} are taken",
            at=program.debug.location or None,
            remedy="add steps to one Sequence rather than wrapping sequences, and loop with Repeat",
        )


def _inside_itself(step: Program, around: list[Program]) -> GraphRecursionError:
    calls = [s for s in around[around.index(step) :] if isinstance(s, Call)]
    if calls:
        function = calls[-1].function
        return GraphRecursionError(
            f"function {function.debug.full_name!r} calls itself",
            at=calls[-1].debug.location or None,
            because=f"the function was made at {function.debug.location}" if function.debug.file else None,
            remedy="the machine has no call stack: write the recursion as a loop",
        )
    return GraphRecursionError(
        f"{step!r} is inside itself",
        at=step.debug.location or None,
        because="programs are trees: what is added to a program must not hold that program",
        remedy="write a loop: Repeat(n, body), RepeatWhileTrue(condition, predicate, body)",
    )


def check_predicate(predicate: Tensor, debug: DebugRecord) -> None:
    """Raise unless a tensor can steer the program: one bool or integer.

    Raises:
        ControlProgramError: It is something else.
    """
    expect_step(predicate, Tensor, "a predicate is a tensor")
    if predicate.size != 1 or predicate.dtype.is_float:
        raise ControlProgramError(
            f"the predicate {predicate!r} is not one bool or integer",
            at=debug.location,
            remedy="compare into a bool tensor of one element",
        )
