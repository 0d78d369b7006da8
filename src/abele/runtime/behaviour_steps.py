"""Compute sets under the floating-point behaviour that is on when they run, and the steps that change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from abele.errors import ControlProgramError
from abele.graph import Execute, Program, SetFloatingPointBehaviour
from abele.runtime.behaviour import CHECKS, bits_of
from abele.runtime.bytecode import Op
from abele.runtime.float_checks import FloatChecks

if TYPE_CHECKING:
    from abele.runtime.lower import Lowering


def lower_execute(lowering: Lowering, step: Execute) -> None:
    """One superstep, in as many forms as there are modes that it may run under."""
    around, emitter = lowering.around, lowering.emitter
    checks = around.behaviour.possible & CHECKS
    if not checks:
        around.supersteps.emit(step.compute_set, emitter)
        return
    assembler = emitter.assembler
    checked, after = assembler.label(), assembler.label()
    before = emitter.dirty
    around.behaviour.branch(emitter, checks, checked)
    around.supersteps.emit(step.compute_set, emitter)
    emitter.jump(after)
    assembler.place(checked)
    emitter.dirty = before
    emitter.expect_barrier()
    watch = FloatChecks(step, around.behaviour, around.callbacks, around.threads)
    around.supersteps.emit(step.compute_set, emitter, watch)
    assembler.place(after)
    emitter.expect_barrier()


def lower_switch_behaviour(lowering: Lowering, step: SetFloatingPointBehaviour) -> None:
    """New bits in the word that says what is on."""
    if step.fields.get("nan_on_overflow") is False:
        raise ControlProgramError(
            "f16 numbers that overflow cannot be held at the largest one on the host",
            at=step.debug.location,
            remedy="leave nan_on_overflow out",
        )
    touched, on = bits_of(step)
    emitter = lowering.emitter
    emitter.fence()
    emitter.assembler.emit(Op.MODE, lowering.around.behaviour.address, ~touched, on)
    emitter.expect_barrier()


STEPS: dict[type[Program], Callable[[Lowering, Any], None]] = {SetFloatingPointBehaviour: lower_switch_behaviour}
