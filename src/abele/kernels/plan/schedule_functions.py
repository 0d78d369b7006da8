"""The passes over functions: their loops merged, arrays shifted, schedules chosen, and code made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from abele.kernels.code.build import build_nest
from abele.kernels.plan.functions import FunctionProgram, LeafFunctions, TaskFunction
from abele.kernels.schedule.choose_schedule import choose_packed_schedule, choose_schedule
from abele.kernels.schedule.lift_integers import lifted_integers
from abele.kernels.schedule.merge_dims import merged_dims
from abele.kernels.schedule.pack_panels import packed_nest
from abele.kernels.schedule.shift_arrays import shifted_arrays


def merge_dims(program: FunctionProgram) -> FunctionProgram:
    """Merge loop dims that step through memory as one."""
    return _changed(program, lambda f, _: replace(f, nest=merged_dims(f.nest)))


def shift_arrays(program: FunctionProgram) -> FunctionProgram:
    """Let arrays of reductions start where they are first touched, and streams be arguments: equal parts share code."""

    def changed(function: TaskFunction, leaf: LeafFunctions) -> TaskFunction:
        nest, integers = lifted_integers(function.nest)
        function = replace(function, nest=nest, integers=integers)
        # In a loop over blocks the driver already moves the pointers; without reductions nothing was split.
        if leaf.loop is not None or not function.task.reductions:
            return function
        nest, offsets = shifted_arrays(function.nest)
        starts = tuple(offsets.get(n, 0) for n in range(len(function.spaces))) if offsets else ()
        return replace(function, nest=nest, starts=starts)

    return _changed(program, changed)


def choose_schedules(program: FunctionProgram) -> FunctionProgram:
    """Choose loop order, vector lanes, register tile and units of every function, and the operand that it packs."""

    def changed(function: TaskFunction, leaf: LeafFunctions) -> TaskFunction:
        if leaf.loop is not None:
            return replace(function, schedule=choose_schedule(function.nest, program.target))
        schedule, panel = choose_packed_schedule(function.nest, program.target)
        nest = packed_nest(function.nest, panel) if panel is not None else function.nest
        return replace(function, nest=nest, schedule=schedule, panel=panel)

    return _changed(program, changed)


def generate_code(program: FunctionProgram) -> FunctionProgram:
    """Make native code of every function; functions with equal loops and schedules share it."""
    keep: list[object] = []

    def changed(function: TaskFunction, _: LeafFunctions) -> TaskFunction:
        assert function.schedule is not None
        native, address = build_nest(function.nest, function.schedule, function.panel)
        keep.append(native)
        return replace(function, address=address)

    return replace(_changed(program, changed), keep=tuple(keep))


def _changed(
    program: FunctionProgram, change: Callable[[TaskFunction, LeafFunctions], TaskFunction]
) -> FunctionProgram:
    """``program`` with ``change`` applied to every function; it is told the leaf that the function is of."""
    leaves = (replace(leaf, functions=tuple(change(f, leaf) for f in leaf.functions)) for leaf in program.leaves)
    return replace(program, leaves=tuple(leaves))
