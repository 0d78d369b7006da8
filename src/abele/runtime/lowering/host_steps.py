"""Steps that end on the host: printed tensors, errors and host functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from abele.errors import ApplicationRuntimeError
from abele.graph import ErrorProgram, HostCall, PrintTensor, Program
from abele.graph.elements import elements_of
from abele.graph.interval_set import IntervalSet
from abele.runtime.host.tensor_prints import print_lines
from abele.runtime.lowering.steering import fail

if TYPE_CHECKING:
    from abele.runtime.lowering.lower import ProgramLowering


def lower_print(lowering: ProgramLowering, step: PrintTensor) -> None:
    """A tensor as text, from every replica."""
    context = lowering.context

    def show() -> None:
        for line in print_lines(step.title, context.arena, step.tensor, step.fmt):
            context.print_text(line)

    lowering.emitter.callback(context.callbacks.add(show))


def lower_error(lowering: ProgramLowering, step: ErrorProgram) -> None:
    """A tensor as text, and the end of the run."""
    context = lowering.context

    def error() -> BaseException:
        for line in print_lines(step.tensor.name, context.arena, step.tensor, None):
            context.print_text(line)
        return ApplicationRuntimeError(step.message or "an error program ran", at=step.debug.location)

    fail(lowering, error)


def lower_host_call(lowering: ProgramLowering, step: HostCall) -> None:
    """Wait for a function on the host."""
    context = lowering.context
    lowering.emitter.callback(context.callbacks.add(lambda: context.functions.call(step, context.arena)))
    lowering.emitter.expect_writes(IntervalSet.union(map(elements_of, step.outputs)))


STEPS: dict[type[Program], Callable[[ProgramLowering, Any], None]] = {
    PrintTensor: lower_print,
    ErrorProgram: lower_error,
    HostCall: lower_host_call,
}
