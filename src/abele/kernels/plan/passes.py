"""The planner as a list of passes: each takes a form of the program, and returns the next.

Four forms follow each other. :class:`BoundCalls` is what the caller hands in. :class:`TaskProgram` has tasks over
spaces: here loops are split and joined, tasks fused, and stages by blocks of samples found. :class:`LeafProgram`
divides the tasks into leaves, between barriers. :class:`FunctionProgram` has a loop nest, a schedule and at last code
for every task. Forms are values: a pass never changes what it is given, so any of them can be kept, printed or
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abele.errors import InvalidOptionError, nearest
from abele.kernels.nest.binding import BoundCalls, BoundKernel, Buffer, StoreRounding, bound_calls
from abele.kernels.nest.normalise import normalise
from abele.kernels.plan.assemble import assemble
from abele.kernels.plan.check import check_form
from abele.kernels.plan.functions import FunctionProgram
from abele.kernels.plan.lower_tasks import lower_tasks
from abele.kernels.plan.measure_products import measured_target
from abele.kernels.plan.native_plan import NativePlan
from abele.kernels.plan.schedule_functions import choose_schedules, generate_code, merge_dims, shift_arrays
from abele.kernels.plan.switches import checks_passes, dump_folder, new_folder
from abele.kernels.plan.text import calls_text, functions_text
from abele.kernels.target import HostTarget
from abele.kernels.tasks.block_samples import block_samples
from abele.kernels.tasks.choose_samples import choose_samples
from abele.kernels.tasks.copy_operands import copy_operands
from abele.kernels.tasks.divide_rows import divide_rows
from abele.kernels.tasks.drop_unread import drop_unread
from abele.kernels.tasks.fuse_outer_loops import fuse_outer_loops
from abele.kernels.tasks.fuse_tasks import fuse_tasks
from abele.kernels.tasks.group_leaves import group_leaves
from abele.kernels.tasks.group_rows import group_rows
from abele.kernels.tasks.inline_rows import inline_rows
from abele.kernels.tasks.join_dims import join_dims
from abele.kernels.tasks.join_samples import join_samples
from abele.kernels.tasks.lay_out_blocks import lay_out_blocks
from abele.kernels.tasks.leaves import LeafProgram
from abele.kernels.tasks.number_draws import number_draws
from abele.kernels.tasks.order_dims import order_dims
from abele.kernels.tasks.order_stages import order_stages
from abele.kernels.tasks.program import TaskProgram
from abele.kernels.tasks.read_unwidened import read_unwidened
from abele.kernels.tasks.rematerialise import rematerialise
from abele.kernels.tasks.round_stores import round_stores
from abele.kernels.tasks.skip_keys import skip_keys
from abele.kernels.tasks.split_dims import split_dims
from abele.kernels.tasks.split_reductions import split_reductions
from abele.kernels.tasks.split_sums import split_sums
from abele.kernels.tasks.stream_stores import stream_stores
from abele.kernels.tasks.text import leaf_program_text, program_text
from abele.kernels.tasks.widen_operands import widen_operands
from abele.writing import writing

Form = BoundCalls | TaskProgram | LeafProgram | FunctionProgram | NativePlan
"""Forms that passes take and return."""


@dataclass(frozen=True)
class PlannerPass:
    """A step of the planner.

    Attributes:
        run: From one form to the next; its name is the pass's, its docstring says what it does.
    """

    run: Callable[[Any], Form]

    @property
    def name(self) -> str:
        """The pass's name."""
        return self.run.__name__

    @property
    def about(self) -> str:
        """Effect of the pass, in a line."""
        return (self.run.__doc__ or "").partition("\n")[0]

    def __str__(self) -> str:
        return f"{self.name:<18} {self.about}"


PIPELINE = tuple(
    PlannerPass(run)
    for run in (
        normalise,
        split_dims,
        round_stores,
        join_dims,
        join_samples,
        fuse_tasks,
        read_unwidened,
        drop_unread,
        widen_operands,
        order_dims,
        number_draws,
        rematerialise,
        fuse_outer_loops,
        choose_samples,
        order_stages,
        group_rows,
        lay_out_blocks,
        block_samples,
        inline_rows,
        skip_keys,
        divide_rows,
        split_sums,
        copy_operands,
        split_reductions,
        group_leaves,
        stream_stores,
        lower_tasks,
        merge_dims,
        shift_arrays,
        choose_schedules,
        generate_code,
        assemble,
    )
)
"""The passes of :func:`abele.kernels.plan_native`, in order."""

Watch = Callable[[PlannerPass, Form], None]
"""Function to call with every pass and the form that it made."""


def run_passes(form: Form, *, after: str | None = None, check: bool | None = None, watch: Watch | None = None) -> Form:
    """``form`` after the passes of :data:`PIPELINE`.

    Args:
        form: Form that the first pass takes.
        after: Name of the last pass to run; None: all.
        check: True if each form is checked (:func:`abele.kernels.plan.check.check_form`); None: as the environment
            variable ``ABELE_CHECK_PASSES`` says.
        watch: Called after each pass.

    Raises:
        InvalidOptionError: No pass has the name ``after``.
        IllegalFormError: A check found that a pass made a form that means nothing.
    """
    check = checks_passes() if check is None else check
    for step in PIPELINE[: _number_of_passes(after)]:
        made = step.run(form)
        if check:
            check_form(made, form, step.name)
        form = made
        if watch is not None:
            watch(step, form)
    return form


def plan_native(
    buffers: Sequence[Buffer], calls: Sequence[BoundKernel], rounding: StoreRounding | None = None
) -> NativePlan:
    """Native leaves that carry out ``calls``, in order.

    Args:
        buffers: Every buffer that a call is bound to.
        calls: Kernels with their operands bound.
        rounding: Rounding of results to narrow floats; None for nearest, ties to even.

    Raises:
        TensorError: A binding names no buffer or reaches outside it.
        TypeMismatchError: A buffer holds another type than the kernel wants.
    """
    folder = dump_folder()
    calls_here = bound_calls(buffers, calls, measured_target(_planned), rounding)
    plan = run_passes(calls_here, watch=None if folder is None else _to_files(folder))
    assert isinstance(plan, NativePlan)
    return plan


def _planned(buffers: Sequence[Buffer], calls: Sequence[BoundKernel], target: HostTarget) -> NativePlan:
    plan = run_passes(bound_calls(buffers, calls, target), check=False)
    assert isinstance(plan, NativePlan)
    return plan


def dump_passes(
    buffers: Sequence[Buffer],
    calls: Sequence[BoundKernel],
    *,
    after: str | None = None,
    target: HostTarget | None = None,
    rounding: StoreRounding | None = None,
) -> str:
    """Forms of ``calls`` from pass to pass as text; a pass without changes has one line.

    Args:
        buffers: Every buffer that a call is bound to.
        calls: Kernels with their operands bound.
        after: Name of the last pass to run; None: all.
        target: The CPU that is planned for; None: this one.
        rounding: Rounding of results to narrow floats; None for nearest, ties to even.
    """
    parts: list[str] = []
    last = ""

    def watch(step: PlannerPass, form: Form) -> None:
        nonlocal last
        text = form_text(form)
        parts.append(f"=== {step.name}: {'nothing to do' if text == last else step.about}")
        parts.extend([] if text == last else [text, ""])
        last = text

    run_passes(bound_calls(buffers, calls, target, rounding), after=after, watch=watch)
    return "\n".join(parts)


def form_text(form: Form) -> str:
    """Any form as text."""
    match form:
        case BoundCalls():
            return calls_text(form)
        case TaskProgram():
            return program_text(form)
        case LeafProgram():
            return leaf_program_text(form)
        case FunctionProgram():
            return functions_text(form, addresses=True)
        case NativePlan():
            return str(form)


def _number_of_passes(after: str | None) -> int:
    """Number of passes that run if ``after`` is the last."""
    names = [step.name for step in PIPELINE]
    if after is None:
        return len(names)
    if after not in names:
        close = nearest(after, names)
        raise InvalidOptionError(
            f"the planner has no pass {after!r}", remedy=f"{close!r}" if close else ", ".join(names)
        )
    return names.index(after) + 1


def _to_files(folder: Path) -> Watch:
    """Writes every form to a file of its own, in a new folder for this plan."""
    with writing(folder):
        own = new_folder(folder)

    def watch(step: PlannerPass, form: Form) -> None:
        number = next(n for n, other in enumerate(PIPELINE, 1) if other is step)
        with writing(own):
            (own / f"{number:02}-{step.name}.txt").write_text(form_text(form) + "\n", encoding="utf-8")

    return watch
