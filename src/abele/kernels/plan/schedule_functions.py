"""The passes over functions: their loops merged, arrays shifted, schedules chosen, and code made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from abele.kernels.code.build import build_all, nest_source, product_source
from abele.kernels.nest.merge_dims import merged_dims
from abele.kernels.plan.functions import FunctionProgram, LeafFunctions, TaskFunction
from abele.kernels.products.choose import choose_product
from abele.kernels.products.epilogue import epilogues
from abele.kernels.products.schedule import ProductSchedule
from abele.kernels.routines.blocking import Blocking
from abele.kernels.routines.costs import ProductCosts
from abele.kernels.routines.multiply import packed_routine, packed_source
from abele.kernels.schedule.choose_schedule import choose_packed_schedule, choose_schedule
from abele.kernels.schedule.lift_integers import lifted_integers
from abele.kernels.schedule.pack_panels import packed_nest
from abele.kernels.schedule.shift_arrays import shifted_arrays
from abele.kernels.tasks.leaves import BlockLoop
from abele.llvm.jit import ModuleSource


def merge_dims(program: FunctionProgram) -> FunctionProgram:
    """Merge loop dims that step through memory as one."""
    return _changed(program, lambda f, _: replace(f, nest=merged_dims(f.nest)))


def shift_arrays(program: FunctionProgram) -> FunctionProgram:
    """Let arrays of reductions start where they are first touched, and streams be arguments: equal parts share code."""

    def changed(function: TaskFunction, leaf: LeafFunctions) -> TaskFunction:
        nest, integers = lifted_integers(function.nest)
        function = replace(function, nest=nest, integers=(*function.integers, *integers))
        # In a loop over blocks the driver already moves the pointers; without reductions nothing was split, but in a
        # group of products any task may be one of several over parts of the rows.
        if isinstance(leaf.loop, BlockLoop) or (leaf.loop is None and not function.task.reductions):
            return function
        nest, offsets = shifted_arrays(function.nest)
        starts = tuple(offsets.get(n, 0) for n in range(len(function.spaces))) if offsets else ()
        return replace(function, nest=nest, starts=starts)

    return _changed(program, changed)


def choose_schedules(program: FunctionProgram) -> FunctionProgram:
    """Choose how every function runs: as a matrix product, or in which loop order, lanes, register tile and units."""

    def changed(function: TaskFunction, leaf: LeafFunctions) -> TaskFunction:
        if leaf.loop is not None:
            return replace(function, schedule=choose_schedule(function.nest, program.target))
        product = choose_product(function.nest, program.target)
        if product is not None:
            parts = epilogues(function.nest, product)
            after = tuple((e, choose_schedule(e.nest, program.target)) for e in parts)
            return replace(function, schedule=product, epilogues=after)
        schedule, panel = choose_packed_schedule(function.nest, program.target)
        nest = packed_nest(function.nest, panel) if panel is not None else function.nest
        return replace(function, nest=nest, schedule=schedule, panel=panel)

    return _changed(program, changed)


def generate_code(program: FunctionProgram) -> FunctionProgram:
    """Make native code of every function; functions with equal loops and schedules share it."""
    built = iter(build_all(_own_modules(program), beside=_routines(program)))
    keep: list[object] = []

    def changed(function: TaskFunction, _: LeafFunctions) -> TaskFunction:
        after = [next(built) for _ in function.epilogues]
        native, address = next(built)
        keep.extend([native, *(n for n, _ in after)])
        callees = tuple(place for _, place in after)
        if isinstance(function.schedule, ProductSchedule):
            assert program.target.products is not None
            callees = (*_routine(function.schedule, program.target.products, keep), *callees)
        return replace(function, address=address, callees=callees)

    return replace(_changed(program, changed), keep=tuple(keep))


def modules_of(program: FunctionProgram) -> list[ModuleSource]:
    """All modules that the code of the functions is in."""
    return [*_routines(program), *_own_modules(program)]


def _own_modules(program: FunctionProgram) -> list[ModuleSource]:
    """Modules of every function in order: those of the epilogues, then its own."""
    return [source for leaf in program.leaves for function in leaf.functions for source in _sources(function)]


def _routines(program: FunctionProgram) -> list[ModuleSource]:
    """Modules of what products call to multiply."""
    schedules = [f.schedule for leaf in program.leaves for f in leaf.functions]
    products = [s for s in schedules if isinstance(s, ProductSchedule) and s.library is None]
    return [packed_source(*_routine_of(product)) for product in products]


def _sources(function: TaskFunction) -> list[ModuleSource]:
    assert function.schedule is not None
    if not isinstance(function.schedule, ProductSchedule):
        return [nest_source(function.nest, function.schedule, function.panel)]
    after = [nest_source(e.nest, own) for e, own in function.epilogues]
    return [*after, product_source(function.schedule, [e for e, _ in function.epilogues], function.nest)]


def _routine_of(schedule: ProductSchedule) -> tuple[Blocking, str, str]:
    product = schedule.product
    return schedule.sizes, product.left.type.name, product.right.type.name


def _routine(schedule: ProductSchedule, costs: ProductCosts, keep: list[object]) -> tuple[int, int]:
    """Addresses of what a product calls to multiply; their owners are added to ``keep``."""
    if schedule.library is not None:
        assert costs.library is not None
        return costs.library.sgemm, costs.library.set_threads
    routine, multiply = packed_routine(*_routine_of(schedule))
    places = schedule.places()
    keep += [routine, places]
    return multiply, places.address


def _changed(
    program: FunctionProgram, change: Callable[[TaskFunction, LeafFunctions], TaskFunction]
) -> FunctionProgram:
    """``program`` with ``change`` applied to every function and its leaf."""
    leaves = (replace(leaf, functions=tuple(change(f, leaf) for f in leaf.functions)) for leaf in program.leaves)
    return replace(program, leaves=tuple(leaves))
