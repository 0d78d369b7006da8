"""Compute sets under the present floating-point behaviour, and the steps that change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from abele.codelet import Rounding
from abele.errors import ControlProgramError
from abele.graph import ComputeSet, Execute, GetHwSeeds, Program, SetFloatingPointBehaviour, SetHwSeeds, Tensor
from abele.graph.elements import elements_of
from abele.runtime.control.bytecode import Opcode
from abele.runtime.supersteps.float_behaviour import CHECKS, ROUNDING, bits_of, rounding_of
from abele.runtime.supersteps.float_exceptions import FloatChecks
from abele.runtime.supersteps.placed_groups import SuperstepWatch

if TYPE_CHECKING:
    from abele.runtime.lowering.lower import ProgramLowering


def lower_execute(lowering: ProgramLowering, step: Execute) -> None:
    """One superstep, in as many forms as there are modes that it may run under."""
    context, compute_set = lowering.context, step.compute_set
    checks = context.behaviour.possible & CHECKS
    if not checks:
        _rounded(lowering, compute_set)
        return
    watch = FloatChecks(step, context.behaviour, context.callbacks, context.threads)
    either(lowering, checks, lambda: _rounded(lowering, compute_set, watch), lambda: _rounded(lowering, compute_set))


def _rounded(lowering: ProgramLowering, compute_set: ComputeSet, watch: SuperstepWatch | None = None) -> None:
    """The compute set with results rounded as the behaviour says."""
    context, emitter = lowering.context, lowering.emitter

    possible = context.behaviour.possible & ROUNDING if stores_narrow(compute_set) else 0
    each_rounding(
        lowering,
        possible,
        lambda rounding: context.supersteps.emit(compute_set, emitter, watch, rounding, context.seeds),
    )


def each_rounding(lowering: ProgramLowering, bits: int, emit: Callable[[Rounding], None], on: int = 0) -> None:
    """Code in as many forms as bits are left to decide how results are rounded, given those that are on."""
    bit = bits & -bits
    if not bit:
        emit(rounding_of(on))
        return

    def when_on() -> None:
        each_rounding(lowering, bits & ~bit, emit, on | bit)

    if bit & lowering.context.behaviour.certain:
        when_on()
    else:
        either(lowering, bit, when_on, lambda: each_rounding(lowering, bits & ~bit, emit, on))


def stores_narrow(compute_set: ComputeSet) -> bool:
    """True if some vertex has an output in a float of fewer than 32 bits."""
    fields = (f for group in compute_set.groups for f in group.codelet.fields)
    return any(f.direction in ("out", "inout") and f.type.is_narrow for f in fields)


def either(lowering: ProgramLowering, bits: int, on: Callable[[], None], off: Callable[[], None]) -> None:
    """Code for when one of some bits of the behaviour is on, and code for when none is."""
    emitter, assembler = lowering.emitter, lowering.emitter.assembler
    there, after = assembler.label(), assembler.label()
    emitter.branch(lowering.context.behaviour.address, bits, True, there)
    before = emitter.dirty
    off()
    emitter.jump(after)
    assembler.place(there)
    dirty, emitter.dirty = emitter.dirty, before
    emitter.expect_barrier()
    on()
    assembler.place(after)
    emitter.dirty = emitter.dirty or dirty
    emitter.expect_barrier()


@contextmanager
def drawing(lowering: ProgramLowering, words: Sequence[int], offset: int) -> Iterator[None]:
    """Code of host kernels that round at random: each replica's word is set before it, and its state moves on after.

    Args:
        lowering: Lowering that the code is added to.
        words: Address of each replica's word; none for kernels that do not round at random.
        offset: Number that tells their random numbers from those of others.
    """
    emitter, seeds = lowering.emitter, lowering.context.seeds
    if words:
        # Thread 0 sets the words: all must be past the last use of them, and must not begin before they are set.
        emitter.fence()
        for replica, word in enumerate(words):
            emitter.assembler.emit(Opcode.ELAPSED, word, seeds.address(replica), seeds.zero, offset)
        emitter.expect_barrier()
    yield
    for replica in range(len(words)):
        emitter.tally(seeds.address(replica), seeds.step)


def lower_behaviour(lowering: ProgramLowering, step: SetFloatingPointBehaviour) -> None:
    """Set new bits in the word of the behaviour."""
    touched, on = bits_of(step)
    emitter = lowering.emitter
    emitter.fence()
    emitter.assembler.emit(Opcode.MODE, lowering.context.behaviour.address, ~touched, on)
    emitter.expect_barrier()


def lower_get_seeds(lowering: ProgramLowering, step: GetHwSeeds) -> None:
    """The seeds of each replica into a view."""
    context = lowering.context
    _check_seeds(lowering, step, step.result)

    def store() -> None:
        for replica in range(context.arena.replicas):
            context.arena.write(step.result, context.seeds.get(replica).reshape(step.result.shape), replica)

    lowering.emitter.callback(context.callbacks.add(store))
    lowering.emitter.expect_writes(elements_of(step.result))


def lower_set_seeds(lowering: ProgramLowering, step: SetHwSeeds) -> None:
    """The seeds of each replica from a view."""
    context = lowering.context
    _check_seeds(lowering, step, step.seeds)

    def load() -> None:
        for replica in range(context.arena.replicas):
            context.seeds.set(context.arena.read(step.seeds, replica), replica)

    lowering.emitter.callback(context.callbacks.add(load))


def _check_seeds(lowering: ProgramLowering, step: Program, seeds: Tensor) -> None:
    shape = list(lowering.context.seeds.shape)
    size = shape[0] * shape[1] * shape[2]
    if seeds.dtype.name != "u32" or seeds.size != size:
        raise ControlProgramError(
            f"{type(step).__name__} needs u32{shape} (tiles, workers, 4), not {seeds!r}", at=step.debug.location
        )


STEPS: dict[type[Program], Callable[[ProgramLowering, Any], None]] = {
    Execute: lower_execute,
    SetFloatingPointBehaviour: lower_behaviour,
    GetHwSeeds: lower_get_seeds,
    SetHwSeeds: lower_set_seeds,
}
