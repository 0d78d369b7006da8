"""Lowering: from control programs to bytecode over leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from abele.errors import ControlProgramError
from abele.graph import (
    Call,
    ComputeSet,
    Copy,
    Execute,
    Function,
    If,
    LibraryCall,
    PrintTensor,
    Program,
    Repeat,
    RepeatWhile,
    Stream,
    Tensor,
    WriteUndef,
    walk,
)
from abele.graph import Sequence as Steps
from abele.runtime.arena import Arena
from abele.runtime.bytecode import Op
from abele.runtime.copies import contiguous, copy_leaf, copy_phases, paired
from abele.runtime.effects import EffectsOf, elements_of
from abele.runtime.emitter import Emitter
from abele.runtime.fusion import flattened
from abele.runtime.interval_set import IntervalSet
from abele.runtime.leaf import Phase, StreamUse
from abele.runtime.stops import Loop, step_scopes


class Supersteps(Protocol):
    """Emits compute sets: as native leaves, or as calls back to interpreted vertices."""

    def emit(self, compute_set: ComputeSet, emitter: Emitter) -> None:
        """Append what executes the compute set."""


@dataclass(frozen=True, eq=False)
class Fused:
    """A straight run of steps that host kernels carry out together.

    Attributes:
        steps: The steps that it replaces.
        uses: Stream copies among them.
        phases: The kernels' leaves in order.
        listing: The plan as text.
    """

    steps: tuple[Program, ...]
    uses: tuple[StreamUse, ...]
    phases: tuple[Phase, ...]
    listing: str


class Fuser(Protocol):
    """Finds the steps of a straight run that host kernels carry out."""

    def parts(self, steps: Sequence[Program]) -> Iterable[Program | Fused]:
        """The steps in order, some of them replaced."""


Printer = Callable[[PrintTensor], int]
"""Gives the number of a callback that prints a tensor."""


class Lowering:
    """Turns programs into one piece of bytecode.

    Args:
        arena: Where the variables are.
        supersteps: Emits compute sets.
        fuser: Replaces library calls by host kernels; None runs the body of each.
        printer: Gives the number of a callback that prints a tensor.
        effects: What steps touch.
        programs: All programs that will be lowered.
    """

    def __init__(
        self,
        arena: Arena,
        supersteps: Supersteps,
        fuser: Fuser | None,
        printer: Printer,
        effects: EffectsOf,
        programs: Sequence[Program],
    ) -> None:
        self.emitter = Emitter()
        self._arena = arena
        self._supersteps = supersteps
        self._fuser = fuser
        self._printer = printer
        self._effects = effects
        self._scopes: dict[Program, IntervalSet] = {}
        self._copies: dict[Copy, tuple[Phase, ...]] = {}
        self._functions: dict[Function, tuple[int, int]] = {}
        self._num_calls = Counter(c.function for c in {s for p in programs for s in walk(p)} if isinstance(c, Call))

    def program(self, program: Program) -> int:
        """Lower a program; returns the number of its first instruction."""
        entry = self.emitter.assembler.here
        self._scopes = step_scopes(program, self._effects)
        with self.emitter.step_scope(self._scopes[program]):
            self._step(program)
        self.emitter.fence()
        self.emitter.assembler.emit(Op.HALT)
        return entry

    def functions(self) -> None:
        """Lower the bodies of all functions called so far, and of those that they call."""
        self._scopes, done = {}, 0
        while done < len(self._functions):
            function, (label, register) = list(self._functions.items())[done]
            self.emitter.assembler.place(label)
            # The body is shared by all calls, so it cannot know whether a step has written state before it.
            self.emitter.dirty = True
            self._step(function.body)
            self.emitter.fence()
            self.emitter.assembler.emit(Op.RET, register)
            done += 1

    def _step(self, step: Program) -> None:
        match step:
            case Steps():
                self._sequence(step)
            case Execute():
                self._supersteps.emit(step.compute_set, self.emitter)
            case Copy():
                self._copy(step)
            case LibraryCall():
                self._parts((step,))
            case Repeat() | RepeatWhile():
                self._loop(step)
            case If():
                self._if(step)
            case Call():
                self._call(step.function)
            case PrintTensor():
                self.emitter.callback(self._printer(step))
            case WriteUndef():
                pass
            case _:
                raise ControlProgramError(f"the engine cannot run {step!r}", at=step.debug.location)

    # --- straight code -----------------------------------------------------------------------------------------------

    def _sequence(self, steps: Steps) -> None:
        self._parts(tuple(flattened(steps)))

    def _parts(self, steps: Sequence[Program]) -> None:
        for part in steps if self._fuser is None else self._fuser.parts(steps):
            match part:
                case Fused():
                    self._fused(part)
                case LibraryCall():
                    self._sequence(part.body)
                case _:
                    self._step(part)

    def _fused(self, fused: Fused) -> None:
        for use in fused.uses:
            self.emitter.fetch(use)
        self.emitter.phases(fused.phases)
        for use in fused.uses:
            self.emitter.drain(use)

    def _copy(self, copy: Copy) -> None:
        match copy.source, copy.destination:
            case Tensor() as source, Tensor() as destination:
                self._copy_on_device(copy, source, destination)
            case Stream() as source, Tensor() as destination:
                use = StreamUse(source)
                runs = paired(contiguous(0, source.bytes), self._arena.pieces_of(destination))
                self.emitter.fetch(use)
                self.emitter.phase((copy_leaf(f"from {source.name}", runs, elements_of(destination), source=use),))
                self.emitter.drain(use)
            case Tensor() as source, Stream() as destination:
                use = StreamUse(destination)
                runs = paired(self._arena.pieces_of(source), contiguous(0, destination.bytes))
                self.emitter.fetch(use)
                self.emitter.phase((copy_leaf(f"to {destination.name}", runs, destination=use),))
                self.emitter.drain(use)

    def _copy_on_device(self, copy: Copy, source: Tensor, destination: Tensor) -> None:
        if copy not in self._copies:
            pieces = self._arena.pieces_of(source), self._arena.pieces_of(destination)
            self._copies[copy] = copy_phases(copy.debug.full_name, *pieces, elements_of(destination))
        self.emitter.phases(self._copies[copy])

    # --- control -----------------------------------------------------------------------------------------------------

    def _loop(self, loop: Loop) -> None:
        if loop in self._scopes:
            with self.emitter.step_scope(self._scopes[loop]):
                self._rounds(loop)
        else:
            self.emitter.expect_writes(self._effects(loop).written)
            self._rounds(loop)

    def _rounds(self, loop: Loop) -> None:
        if isinstance(loop, Repeat):
            with self.emitter.repeat(loop.count):
                self._step(loop.body)
                self._end_round(loop)
            return
        emitter, assembler = self.emitter, self.emitter.assembler
        begin, after = assembler.label(), assembler.label()
        emitter.fence()
        assembler.place(begin)
        self._step(loop.condition)
        self._branch(loop.predicate, not loop.value, after)
        self._step(loop.body)
        self._end_round(loop)
        emitter.jump(begin)
        assembler.place(after)
        emitter.expect_barrier()

    def _end_round(self, loop: Loop) -> None:
        if loop in self._scopes:
            self.emitter.end_step()
        self.emitter.barrier()

    def _if(self, step: If) -> None:
        emitter, assembler = self.emitter, self.emitter.assembler
        otherwise, after = assembler.label(), assembler.label()
        self._branch(step.predicate, False, otherwise)
        before = emitter.dirty
        self._step(step.then)
        emitter.jump(after)
        assembler.place(otherwise)
        then_dirty, emitter.dirty = emitter.dirty, before
        emitter.expect_barrier()
        self._step(step.otherwise)
        assembler.place(after)
        emitter.dirty = emitter.dirty or then_dirty
        emitter.expect_barrier()

    def _branch(self, predicate: Tensor, value: bool, target: int) -> None:
        pieces = self._arena.pieces_of(predicate)
        mask = -1 if pieces.bytes[0] == 8 else (1 << 8 * int(pieces.bytes[0])) - 1
        self.emitter.branch(int(pieces.address[0]), mask, value, target)

    def _call(self, function: Function) -> None:
        if self._num_calls[function] == 1:
            self._step(function.body)
            return
        assembler = self.emitter.assembler
        if function not in self._functions:
            self._functions[function] = (assembler.label(), assembler.register())
        label, register = self._functions[function]
        self.emitter.fence()
        assembler.emit_jsr(label, register)
        self.emitter.expect_writes(self._effects(function.body).written)
