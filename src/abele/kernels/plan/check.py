"""Checks of every form between two passes, where they are on.

Tests run with checks on; otherwise they cost nothing, since nothing of this runs. Tasks have rules of their own
(:mod:`abele.kernels.tasks.check`). Here are those of functions over flat memory, and the one that ties each form to the
form before: a pass may not lose, or invent, a store into a buffer of the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from abele.errors import AbeleError
from abele.kernels.illegal import IllegalFormError
from abele.kernels.nest.binding import BoundCalls, check_bindings
from abele.kernels.nest.loop_nest import Bound, ElementAccess
from abele.kernels.plan.functions import FunctionProgram, LeafFunctions, TaskFunction
from abele.kernels.plan.native_plan import NativePlan
from abele.kernels.schedule.pack_panels import Panel
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.tasks.check import check_leaf_program, check_program, check_side_by_side, check_spaces
from abele.kernels.tasks.leaves import BlockLoop, LeafProgram
from abele.kernels.tasks.program import TaskProgram

if TYPE_CHECKING:
    from abele.kernels.plan.passes import Form


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
