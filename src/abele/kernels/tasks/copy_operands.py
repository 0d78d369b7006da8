"""Copy operands of contractions before them: with the zeros around them, or widened.

Where a window reaches over the edge of an operand, each of its loads is guarded, and neither lanes nor register tiles
can run along the dims in the guards. A copy with the zeros in place needs no guards. But a guard costs nothing where it
only shortens a loop of the reduction, and then saves the products with zeros: on a field of 7 × 7 points one in eleven
of a window of three rows. So zeros are copied around the columns of a field, say, while rows keep their guards:
whichever the model of schedules expects to be fastest. Elements of 16 bits are widened on the way, which changes no
value, instead of once for every use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from abele.kernels.nest.ir import Affine, Expr, affine, compute_type
from abele.kernels.nest.loop_nest import Bound
from abele.kernels.nest.merge_dims import merged_dims
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.products.choose import choose_product
from abele.kernels.schedule.choose_schedule import schedule_cost
from abele.kernels.target import HostTarget
from abele.kernels.tasks.flatten import flatten
from abele.kernels.tasks.layout import SpaceLayout
from abele.kernels.tasks.leaves import LeafProgram, LeafTasks
from abele.kernels.tasks.program import Put, Ref, SpaceTable, Task, TaskReduction, layout_of

# Tasks that run as matrix products: those need no copies of operands, and no parts of long sums.


def runs_as_product(task: Task, spaces: SpaceTable, layouts: Mapping[int, SpaceLayout], target: HostTarget) -> bool:
    """True if ``task``, run whole, is a matrix product that runs as one."""
    if target.products is None or len(task.reductions) != 1 or not task.reduced:
        return False
    nest, _ = flatten(task, spaces.all(), lambda number: layout_of(layouts, spaces[number]))
    return choose_product(merged_dims(nest), target) is not None


MIN_REUSE = 32
"""Uses of each copied element that make the copy worth its time."""
MIN_GUARDED_REUSE, NEAR_BYTES = 6, 1 << 21
"""The same where loads are guarded, and the copy's bytes stay in caches. No lanes or tiles run along a guarded dim,
which costs more than a near load.
"""
COPY_COST, NEAR_COPY_COST = 1.0, 0.25
"""Cost of each copied element, read and written, in vector operations: from memory, and where copies stay in caches."""


@dataclass(frozen=True)
class _Range:
    """Positions of one dim of an operand that a task touches: ``size`` of them from ``low`` on."""

    low: int
    extent: int


def copy_operands(program: LeafProgram) -> LeafProgram:
    """Copy operands of contractions with the zeros around them, where tiles need these, or widened."""
    # Products that pack their operands widen them on the way.
    return without_products(
        program, lambda spaces, task: _with_copies(_Copying(spaces, program.layouts, program.target), task)
    )


def without_products(program: LeafProgram, parts: Callable[[SpaceTable, Task], list[Task]]) -> LeafProgram:
    """The program with each task as its ``parts``, in order; those that run as products, or in loops, stay whole."""
    spaces = SpaceTable(program.spaces)

    def changed(leaf: LeafTasks) -> LeafTasks:
        if leaf.loop is not None:
            return leaf
        return LeafTasks(tuple(part for task in leaf.tasks for part in replaced(task)))

    def replaced(task: Task) -> list[Task]:
        is_product = runs_as_product(task, spaces, program.layouts, program.target)
        return [task] if is_product else parts(spaces, task)

    leaves = tuple(map(changed, program.leaves))
    return replace(program, spaces=spaces.all(), leaves=leaves)


@dataclass(frozen=True)
class _Copying:
    """Spaces so far, their layouts, and the CPU, for making copies."""

    spaces: SpaceTable
    layouts: Mapping[int, SpaceLayout]
    target: HostTarget

    def apart(self) -> _Copying:
        """The same with spaces of its own, for trials."""
        return replace(self, spaces=SpaceTable(self.spaces.all()))

    def cost(self, tasks: Sequence[Task]) -> float:
        """Expected cost of the last of ``tasks`` and of the copies before it, in vector operations."""
        nest, _ = flatten(tasks[-1], self.spaces.all(), lambda number: layout_of(self.layouts, self.spaces[number]))
        total = schedule_cost(merged_dims(nest), self.target)
        for copy in tasks[:-1]:
            (put,) = copy.puts
            is_near = self.spaces[put.space].bytes <= NEAR_BYTES
            total += copy.points * (NEAR_COPY_COST if is_near else COPY_COST)
        return total


def _with_copies(around: _Copying, task: Task) -> list[Task]:
    """``task`` after the copies of its operands that pay."""
    if (
        len(task.reductions) != 1
        or any(p.combine != "set" or p.place is not None for p in task.puts)
        or not is_product(task.reductions[0])
    ):
        return [task]
    tasks = [task]
    for ref in dict.fromkeys(a for a in task.reductions[0].value.args if isinstance(a, Ref)):
        choices = list(_kept_guards(around.spaces, tasks[-1], ref))
        if len(choices) > 1:
            choices = [min(choices, key=lambda kept: _tried(around, tasks, ref, kept))]
        for kept in choices:
            tasks = [*tasks[:-1], *_copied(around.spaces, tasks[-1], ref, kept)]
    return tasks


def _tried(around: _Copying, tasks: Sequence[Task], ref: Ref, kept: tuple[Bound, ...]) -> float:
    """Expected cost of ``tasks`` with a copy of ``ref`` that keeps some guards."""
    apart = around.apart()
    return apart.cost([*tasks[:-1], *_copied(apart.spaces, tasks[-1], ref, kept)])


def is_product(reduction: TaskReduction) -> bool:
    """True if it adds up products of two loads, in f32."""
    return reduction.is_multiply_add and all(isinstance(a, Ref) for a in reduction.value.args)


def _kept_guards(spaces: SpaceTable, task: Task, ref: Ref) -> Iterator[tuple[Bound, ...]]:
    """The guards that may stay beside a copy of ``ref``; nothing where none pays."""
    space, (reduction,) = spaces[ref.space], task.reductions
    guards = ref.bounds
    places = [_place(g, ref, space.shape) for g in guards]
    # With a fill of its own or a guard over two dims, the values around the operand are not simply zeros in a box.
    if ref.fill is not None or None in places or any(g not in reduction.guards for g in guards):
        return
    if (not guards and space.type.bits != 16) or ref.space in task.writes:
        return
    shape = tuple(r.extent for r in _ranges(task, ref, space.shape, guards))
    size, type_ = math.prod(shape), compute_type(space.type)
    is_cheap = guards and size * type_.bytes <= NEAR_BYTES
    if task.points < (MIN_GUARDED_REUSE if is_cheap else MIN_REUSE) * size:
        return
    reduced = dict(task.reduced)
    # The outermost dims first: inner ones are those along which tiles and lanes gain most.
    outwards = [g for _, g in sorted(zip(places, guards, strict=True), key=lambda pair: pair[0] or 0)]
    for count in range(len(outwards) + 1):
        kept = tuple(outwards[:count])
        if all(any(d in reduced for d in g.position.names) for g in kept):
            yield kept


def _copied(spaces: SpaceTable, task: Task, ref: Ref, kept: tuple[Bound, ...]) -> list[Task]:
    """``task`` reading a copy of ``ref`` with the zeros of all guards but ``kept``, after the copy if there is any."""
    space, (reduction,) = spaces[ref.space], task.reductions
    guards = tuple(g for g in ref.bounds if g not in kept)
    if not guards and space.type.bits != 16:
        return [task]
    guarded = {_place(g, ref, space.shape) for g in guards}
    ranges = _ranges(task, ref, space.shape, guards)
    copy = spaces.add(tuple(r.extent for r in ranges), compute_type(space.type), f"{space.name}.padded")
    moved = Ref(copy.number, tuple(p - r.low for p, r in zip(ref.index, ranges, strict=True)), None, kept)
    value = rewrite(reduction.value, lambda part: moved if part == ref else None)
    # What other loads need stays.
    needed = {b for part in value.walk() if isinstance(part, Ref) for b in part.bounds}
    reduction = replace(
        reduction, value=value, guards=tuple(g for g in reduction.guards if g not in guards or g in needed)
    )
    return [_copy_task(ref, copy.number, ranges, space.shape, guarded), replace(task, reductions=(reduction,))]


def _ranges(task: Task, ref: Ref, shape: Sequence[int], guards: Sequence[Bound]) -> list[_Range]:
    """Positions of every dim of ``ref`` in a copy that puts zeros in place of ``guards``."""
    guarded = {_place(g, ref, shape) for g in guards}
    return [
        _touched(position, task) if place in guarded else _Range(0, extent)
        for place, (position, extent) in enumerate(zip(ref.index, shape, strict=True))
    ]


def _copy_task(ref: Ref, number: int, ranges: Sequence[_Range], shape: Sequence[int], guarded: set[int | None]) -> Task:
    dims = [f"d{n}" for n in range(len(ranges))]
    source = tuple(affine(d) + r.low for d, r in zip(dims, ranges, strict=True))
    bounds = tuple(Bound(source[n], shape[n]) for n in range(len(dims)) if n in guarded)
    value: Expr = Ref(ref.space, source, 0.0 if bounds else None, bounds)
    extents = tuple((d, r.extent) for d, r in zip(dims, ranges, strict=True))
    return Task("copy", extents, (), (), (Put(number, tuple(map(affine, dims)), value),))


def _place(guard: Bound, ref: Ref, shape: Sequence[int]) -> int | None:
    """The dim of ``ref`` that ``guard`` keeps inside."""
    for place, (position, extent) in enumerate(zip(ref.index, shape, strict=True)):
        if position == guard.position and extent == guard.extent:
            return place
    return None


def _touched(position: Affine, task: Task) -> _Range:
    low, high = position.bounds(task.extents)
    return _Range(low, high - low + 1)
