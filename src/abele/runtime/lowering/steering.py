"""Steering: loops, branches, switches and aborts. All replicas take the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.compiler.scopes import ENTRY, TRIP
from abele.errors import ApplicationRuntimeError, ReplicaDivergenceError
from abele.graph import Abort, If, Program, Repeat, RepeatWhile, Switch, Tensor
from abele.runtime.control.bytecode import Opcode

if TYPE_CHECKING:
    from abele.runtime.lowering.lower import ProgramLowering


def words_of(lowering: ProgramLowering, scalar: Tensor) -> list[tuple[int, int]]:
    """Address and mask of a scalar in each replica, for instructions that test it."""
    pieces = lowering.context.arena.all_pieces_of(scalar)
    return [
        (int(address), -1 if size == 8 else (1 << 8 * int(size)) - 1)
        for address, size in zip(pieces.address, pieces.bytes, strict=True)
    ]


def fail(lowering: ProgramLowering, error: Callable[[], BaseException]) -> None:
    """End the run with an error here."""
    lowering.emitter.callback(lowering.context.callbacks.add_failure(error))


def branch(lowering: ProgramLowering, step: Program, predicate: Tensor, value: bool, target: int) -> None:
    """Go to ``target`` when the predicate of a step equals ``value``; end the run when replicas do not agree."""
    emitter = lowering.emitter
    words = words_of(lowering, predicate)
    agree_on(lowering, step, predicate)
    emitter.fence()
    if len(words) > 1:
        _check_truth(lowering, step, predicate, words)
    emitter.branch(*words[0], value, target)


def agree_on(lowering: ProgramLowering, step: Program, scalar: Tensor) -> None:
    """End the run when processes disagree on the scalar that steers a step."""
    if lowering.meetings is None:
        return

    def ask() -> None:
        assert lowering.meetings is not None
        own = lowering.context.arena.read_all(scalar).reshape(-1).astype(np.int64)
        every = np.frombuffer(b"".join(lowering.meetings.every(own.tobytes(), step)), np.int64)
        same = every if isinstance(step, Switch) else every != 0
        if (same != same[0]).any():
            raise _divergence_of(step, scalar, every)

    lowering.emitter.callback(lowering.context.callbacks.add(ask))


def _check_truth(lowering: ProgramLowering, step: Program, predicate: Tensor, words: list[tuple[int, int]]) -> None:
    assembler = lowering.emitter.assembler
    true, differ, agree = assembler.label(), assembler.label(), assembler.label()
    assembler.emit(Opcode.BRANCH, *words[0], 1, target=true)
    for word in words[1:]:
        assembler.emit(Opcode.BRANCH, *word, 1, target=differ)
    assembler.emit(Opcode.JUMP, target=agree)
    assembler.place(true)
    for word in words[1:]:
        assembler.emit(Opcode.BRANCH, *word, 0, target=differ)
    assembler.emit(Opcode.JUMP, target=agree)
    assembler.place(differ)
    fail(lowering, lambda: _divergence(lowering, step, predicate))
    assembler.place(agree)


def _divergence(lowering: ProgramLowering, step: Program, scalar: Tensor) -> ReplicaDivergenceError:
    return _divergence_of(step, scalar, lowering.context.arena.read_all(scalar).reshape(-1))


def _divergence_of(step: Program, scalar: Tensor, values: npt.NDArray[Any]) -> ReplicaDivergenceError:
    shown = ", ".join(f"replica {r}: {int(v)}" for r, v in enumerate(values[:8]))
    return ReplicaDivergenceError(
        f"the replicas disagree about {scalar!r}, which steers a {type(step).__name__}",
        at=step.debug.location,
        because=shown + (", …" if len(values) > 8 else ""),
        remedy="combine it over the replicas first, so that it is the same in all",
    )


def lower_if(lowering: ProgramLowering, step: If) -> None:
    """One of two programs."""
    emitter, assembler = lowering.emitter, lowering.emitter.assembler
    otherwise, after = assembler.label(), assembler.label()
    lowering.tick(step)
    branch(lowering, step, step.predicate, False, otherwise)
    lowering.tallies.count(emitter, step, 0)
    before = emitter.dirty
    lowering.step(step.then)
    emitter.jump(after)
    assembler.place(otherwise)
    then_dirty, emitter.dirty = emitter.dirty, before
    emitter.expect_barrier()
    lowering.tallies.count(emitter, step, 1)
    lowering.step(step.otherwise)
    assembler.place(after)
    emitter.dirty = emitter.dirty or then_dirty
    emitter.expect_barrier()


def lower_switch(lowering: ProgramLowering, step: Switch) -> None:
    """One of many programs."""
    emitter, assembler = lowering.emitter, lowering.emitter.assembler
    words = words_of(lowering, step.control)
    labels = {value: assembler.label() for value in step.cases}
    after, differ = assembler.label(), assembler.label()
    lowering.tick(step)
    agree_on(lowering, step, step.control)
    emitter.fence()
    for value, label in labels.items():
        assembler.emit(Opcode.CASE, *words[0], _bits(value, step.control), target=label)
    for word in words[1:]:
        for value in step.cases:
            assembler.emit(Opcode.CASE, *word, _bits(value, step.control), target=differ)
    before, dirty = emitter.dirty, False
    emitter.expect_barrier()
    if step.unreachable_default:
        fail(lowering, lambda: _unreachable(lowering, step))
    else:
        lowering.tallies.count(emitter, step, len(step.cases))
        lowering.step(step.default)
    emitter.jump(after)
    for number, (value, body) in enumerate(step.cases.items()):
        assembler.place(labels[value])
        dirty, emitter.dirty = dirty or emitter.dirty, before
        for word in words[1:]:
            same = assembler.label()
            assembler.emit(Opcode.CASE, *word, _bits(value, step.control), target=same)
            emitter.jump(differ)
            assembler.place(same)
        emitter.expect_barrier()
        lowering.tallies.count(emitter, step, number)
        lowering.step(body)
        emitter.jump(after)
    assembler.place(differ)
    if len(words) > 1:
        fail(lowering, lambda: _divergence(lowering, step, step.control))
    assembler.place(after)
    emitter.dirty = emitter.dirty or dirty
    emitter.expect_barrier()


def _bits(value: int, control: Tensor) -> int:
    """Bits of the control's word for a value; a number that no word holds when it cannot have it."""
    limits = np.iinfo(control.dtype.np)
    return value & 0xFFFFFFFF if limits.min <= value <= limits.max else -1


def _unreachable(lowering: ProgramLowering, step: Switch) -> ApplicationRuntimeError:
    values = lowering.context.arena.read_all(step.control).reshape(-1)
    return ApplicationRuntimeError(
        f"a Switch reached its unreachable default: {step.control!r} is {', '.join(str(int(v)) for v in values[:8])}",
        at=step.debug.location,
        because="it has cases for " + ", ".join(map(str, list(step.cases)[:16])),
        remedy="add a case, or a default without unreachable_default",
    )


def lower_loop(lowering: ProgramLowering, loop: Repeat | RepeatWhile) -> None:
    """Rounds of a body."""
    if loop in lowering.scopes:
        with lowering.emitter.step_scope(lowering.scopes[loop]):
            _rounds(lowering, loop)
    else:
        lowering.emitter.expect_writes(lowering.context.effects(loop).written)
        _rounds(lowering, loop)


def _rounds(lowering: ProgramLowering, loop: Repeat | RepeatWhile) -> None:
    emitter, assembler = lowering.emitter, lowering.emitter.assembler
    if isinstance(loop, Repeat):
        with emitter.repeat(loop.count):
            lowering.step(loop.body)
            _end_round(lowering, loop)
        return
    with emitter.span(None):
        begin, after = assembler.label(), assembler.label()
        lowering.tallies.count(emitter, loop, ENTRY)
        assembler.place(begin)
        lowering.step(loop.condition)
        lowering.tick(loop)
        branch(lowering, loop, loop.predicate, not loop.value, after)
        lowering.tallies.count(emitter, loop, TRIP)
        lowering.step(loop.body)
        _end_round(lowering, loop)
        emitter.jump(begin)
        assembler.place(after)
    # The predicate must not be overwritten before every thread has read it.
    emitter.expect_barrier()


def _end_round(lowering: ProgramLowering, loop: Repeat | RepeatWhile) -> None:
    if loop in lowering.scopes:
        lowering.emitter.end_step()
    lowering.emitter.barrier()


def lower_abort(lowering: ProgramLowering, step: Abort) -> None:
    """The end of the run, always or when a predicate is true in any replica."""
    if step.condition is None:
        fail(lowering, lambda: _aborted(lowering, step))
        return
    emitter, assembler = lowering.emitter, lowering.emitter.assembler
    stop, after = assembler.label(), assembler.label()
    emitter.fence()
    for word in words_of(lowering, step.condition):
        assembler.emit(Opcode.BRANCH, *word, 1, target=stop)
    assembler.emit(Opcode.JUMP, target=after)
    assembler.place(stop)
    fail(lowering, lambda: _aborted(lowering, step))
    assembler.place(after)
    emitter.expect_barrier()


def _aborted(lowering: ProgramLowering, step: Abort) -> ApplicationRuntimeError:
    because = None
    if step.condition is not None:
        because = f"{step.condition!r} is true"
        arena = lowering.context.arena
        if not arena.alone:
            replicas = arena.first_replica + np.flatnonzero(arena.read_all(step.condition).reshape(-1))
            because += f" in replica {', '.join(map(str, replicas[:8]))}"
    return ApplicationRuntimeError(step.message or "the program aborted", at=step.debug.location, because=because)


STEPS: dict[type[Program], Callable[[ProgramLowering, Any], None]] = {
    If: lower_if,
    Switch: lower_switch,
    Repeat: lower_loop,
    RepeatWhile: lower_loop,
    Abort: lower_abort,
}
