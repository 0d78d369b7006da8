"""The planner as a list of passes: each takes a form of the program, and returns the next.

Four forms follow each other. :class:`BoundCalls` is what the caller hands in. :class:`TaskProgram` has tasks over
spaces: here loops are split and joined, tasks fused, and stages by blocks of samples found. :class:`LeafProgram`
divides the tasks into leaves, between barriers. :class:`FunctionProgram` has a loop nest, a schedule and at last code
for every task. Forms are values: a pass never changes what it is given, so any of them can be kept, printed or
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abele.errors import AbeleError, InvalidOptionError, nearest
from abele.kernels.illegal import IllegalFormError
from abele.kernels.nest.binding import BoundCalls, BoundKernel, Buffer, StoreRounding, bound_calls, check_bindings
from abele.kernels.nest.loop_nest import Bound, ElementAccess
from abele.kernels.nest.normalise import normalise
from abele.kernels.plan.assemble import assemble
from abele.kernels.plan.functions import FunctionProgram, LeafFunctions, TaskFunction
from abele.kernels.plan.lower_tasks import lower_tasks
from abele.kernels.plan.measure_products import measured_target
from abele.kernels.plan.native_plan import NativePlan, calls_text, functions_text
from abele.kernels.plan.schedule_functions import choose_schedules, generate_code, merge_dims, shift_arrays
from abele.kernels.plan.switches import checks_passes, dump_folder, new_folder
from abele.kernels.schedule.pack_panels import Panel
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.target import HostTarget
from abele.kernels.tasks.block_samples import block_samples
from abele.kernels.tasks.check import check_leaf_program, check_program, check_side_by_side, check_spaces
from abele.kernels.tasks.choose_samples import choose_samples
from abele.kernels.tasks.compute_once import compute_once
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
from abele.kernels.tasks.leaves import BlockLoop, LeafProgram
from abele.kernels.tasks.number_draws import number_draws
from abele.kernels.tasks.order_dims import order_dims
from abele.kernels.tasks.order_stages import order_stages
from abele.kernels.tasks.program import TaskProgram
from abele.kernels.tasks.read_unwidened import read_unwidened
from abele.kernels.tasks.rematerialise import rematerialise
from abele.kernels.tasks.round_stores import round_stores
from abele.kernels.tasks.set_once import set_once
from abele.kernels.tasks.skip_keys import skip_keys
from abele.kernels.tasks.split_dims import split_dims
from abele.kernels.tasks.split_reductions import split_reductions
from abele.kernels.tasks.split_sums import split_sums
from abele.kernels.tasks.stream_stores import stream_stores
from abele.kernels.tasks.text import leaf_program_text, program_text
from abele.kernels.tasks.widen_operands import widen_operands
from abele.writing import writing

# Checks of every form between two passes, where they are on.
#
# Tests run with checks on; otherwise they cost nothing, since nothing of this runs. Tasks have rules of their own
# (:mod:`abele.kernels.tasks.check`). Here are those of functions over flat memory, and the one that ties each form to
# the form before: a pass may not lose, or invent, a store into a buffer of the caller's.


def check_form(made: Form, before: Form, name: str) -> None:
    """Check the form that pass ``name`` made of the form ``before``.

    Raises:
        IllegalFormError: It is not legal; the message names the pass.
    """
    try:
        _check(made)
        lost, gained = (
            buffers_written(before) - buffers_written(made),
            buffers_written(made) - buffers_written(before),
        )
        if lost or gained:
            raise IllegalFormError(f"buffers {sorted(lost | gained)} of the caller are written before or after it only")
    except AbeleError as problem:
        raise IllegalFormError(
            f"pass {name}: {problem.message}", at=problem.at, remedy="report this, it is a defect of Abele"
        ) from problem


def buffers_written(form: Form) -> set[int]:
    """The pinned buffers that ``form`` writes."""
    match form:
        case BoundCalls():
            outputs = {call.bindings[n].buffer for call in form.calls for n in call.kernel.outputs}
            return {n for n in outputs if form.buffers[n].pinned}
        case TaskProgram():
            tasks = list(form.tasks)
        case LeafProgram():
            tasks = [task for leaf in form.leaves for task in leaf.tasks]
        case FunctionProgram():
            tasks = [function.task for leaf in form.leaves for function in leaf.functions]
        case NativePlan():
            return buffers_written(form.program) if form.program is not None else set()
    buffers = {form.spaces[number].buffer for task in tasks for number in task.writes}
    return {buffer for buffer in buffers if buffer is not None}


def _check(form: Form) -> None:
    match form:
        case BoundCalls():
            for call in form.calls:
                check_bindings(call, form.buffers)
        case TaskProgram():
            check_program(form)
        case LeafProgram():
            check_leaf_program(form)
        case FunctionProgram():
            _check_functions(form)
        case NativePlan():
            _check_plan(form)


def _check_functions(program: FunctionProgram) -> None:
    check_spaces(program.spaces)
    for leaf in program.leaves:
        if leaf.loop is None:
            check_side_by_side([function.task for function in leaf.functions])
        for function in leaf.functions:
            _check_accesses(program, leaf, function)
            if isinstance(function.schedule, NestSchedule):
                _check_schedule(function, function.schedule)


def _check_accesses(program: FunctionProgram, leaf: LeafFunctions, function: TaskFunction) -> None:
    """Accesses without guards stay inside their array: the space, one chunk of it, or the panel."""
    nest, extents = function.nest, function.nest.extents
    ranges: list[range] = []
    for array, number in enumerate(function.spaces):
        element = program.spaces[number].type.bytes
        in_parts = isinstance(leaf.loop, BlockLoop) and number in leaf.loop.partials
        chunks = leaf.loop.chunks if isinstance(leaf.loop, BlockLoop) and in_parts else 1
        before = function.starts[array] // element if function.starts else 0
        # A pointer that was moved may step back to the array's begin.
        ranges.append(range(-before, program.sizes[number] // element // chunks - before))
    if function.panel is not None:
        ranges.append(_panel_range(function, function.panel))
    if nest.num_arrays != len(ranges):
        raise IllegalFormError(f"{function.task.name} has {len(ranges)} arrays, its nest {nest.num_arrays}")
    for fetch in nest.fetches:
        _check_access(function, fetch.access, fetch.bounds, extents, ranges)
    for out in nest.outs:
        _check_access(function, out.access, out.guards, extents, ranges)


def _panel_range(function: TaskFunction, panel: Panel) -> range:
    """Range of the panel's address over all of its loops; it counts from the start of each tile."""
    low, high = panel.packed.address.bounds(function.nest.extents)
    return range(low, high + 1)


def _check_access(
    function: TaskFunction,
    access: ElementAccess,
    guards: tuple[Bound, ...],
    extents: Mapping[str, int],
    ranges: Sequence[range],
) -> None:
    unknown = [name for name in access.address.names if name not in extents]
    if unknown:
        raise IllegalFormError(f"{function.task.name}: {access} uses {', '.join(unknown)}, which is no dim of its nest")
    low, high = access.address.bounds(extents)
    allowed = ranges[access.array]
    if not guards and (low < allowed.start or high >= allowed.stop):
        where = f"the array from {allowed.start} to {allowed.stop - 1}"
        raise IllegalFormError(f"{function.task.name}: {access} runs from {low} to {high}, {where}")


def _check_schedule(function: TaskFunction, schedule: NestSchedule) -> None:
    """Every loop is run once; lanes and tiles are of loops that there are."""
    nest, name = function.nest, function.task.name
    if sorted(schedule.order) != sorted(d for d, _ in nest.parallel):
        raise IllegalFormError(f"{name}: the schedule runs over {', '.join(schedule.order)}")
    if sorted(schedule.reduced) != sorted(d for d, _ in nest.reduced):
        raise IllegalFormError(f"{name}: the schedule reduces over {', '.join(schedule.reduced)}")
    if any(d not in nest.extents or n < 1 for d, n in schedule.tile) or schedule.lanes < 1:
        raise IllegalFormError(f"{name}: the schedule has tile {schedule.tile}")
    if schedule.lane and schedule.lane not in nest.extents:
        raise IllegalFormError(f"{name}: the schedule has lanes of {schedule.lane}, which is no dim")
    if not 0 <= schedule.num_unit_dims <= len(schedule.order):
        raise IllegalFormError(f"{name}: the schedule has {schedule.num_unit_dims} dims of units")


def _check_plan(plan: NativePlan) -> None:
    for number, leaf in enumerate(plan.leaves):
        if leaf.units < 1 or not leaf.address:
            raise IllegalFormError(f"leaf {number} has {leaf.units} units at address {leaf.address:#x}")
        for argument in leaf.args:
            if argument.kind == "arena" and not 0 <= argument.value < max(1, plan.arena_bytes):
                raise IllegalFormError(f"leaf {number} points to byte {argument.value} of {plan.arena_bytes}")


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
        set_once,
        round_stores,
        compute_once,
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
        check: True if each form is checked (:func:`abele.kernels.plan.passes.check_form`); None: as the environment
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
    calls_here = bound_calls(buffers, calls, measured_target(run_passes), rounding)
    plan = run_passes(calls_here, watch=None if folder is None else _to_files(folder))
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
