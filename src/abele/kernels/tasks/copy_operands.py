"""Copy operands of contractions before them: with the zeros around them, or widened.

Where a window reaches over the edge of an operand, each of its loads is guarded, and neither lanes nor register tiles
can run along the dims in the guards. A copy with the zeros in place needs no guards. Elements of 16 bits are widened on
the way, which changes no value, instead of once for every use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from abele.kernels.nest.ir import Affine, Apply, Expr, affine, compute_type
from abele.kernels.nest.loop_nest import Bound
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.leaves import LeafProgram, LeafTasks
from abele.kernels.tasks.product_tasks import runs_as_product
from abele.kernels.tasks.program import Put, Ref, SpaceTable, Task, TaskReduction

MIN_REUSE = 32
"""Uses of each copied element that make the copy worth its time."""
MIN_GUARDED_REUSE, NEAR_BYTES = 6, 1 << 21
"""The same where loads are guarded, and the copy's bytes stay in caches: no lanes or tiles run along a guarded dim,
which costs more than a load that is near."""


@dataclass(frozen=True)
class _Range:
    """Positions of one dim of an operand that a task touches: from ``low``, so many."""

    low: int
    extent: int


def copy_operands(program: LeafProgram) -> LeafProgram:
    """Copy operands of contractions with the zeros around them, or widened, before the contraction."""
    spaces = SpaceTable(program.spaces)

    def changed(leaf: LeafTasks) -> LeafTasks:
        if leaf.loop is not None:
            return leaf
        return LeafTasks(tuple(part for task in leaf.tasks for part in parts(task)))

    def parts(task: Task) -> list[Task]:
        # What packs its operands widens them on the way.
        is_packed = runs_as_product(task, spaces, program.layouts, program.target)
        return [task] if is_packed else _with_copies(spaces, task)

    leaves = tuple(map(changed, program.leaves))
    return replace(program, spaces=spaces.all(), leaves=leaves)


def _with_copies(spaces: SpaceTable, task: Task) -> list[Task]:
    """``task`` after the copies of its operands that pay."""
    if len(task.reductions) != 1 or any(p.combine != "set" for p in task.puts):
        return [task]
    reduction = task.reductions[0]
    if not is_product(reduction):
        return [task]
    copies: list[Task] = []
    for ref in dict.fromkeys(a for a in reduction.value.args if isinstance(a, Ref)):
        changed = _copied(spaces, task, reduction, ref, copies)
        reduction = changed or reduction
    return [*copies, replace(task, reductions=(reduction,))]


def is_product(reduction: TaskReduction) -> bool:
    """True if it adds up products of two loads, in f32."""
    value = reduction.value
    product = isinstance(value, Apply) and value.op == "mul" and all(isinstance(a, Ref) for a in value.args)
    return product and reduction.combine == "add" and reduction.type.is_float


def _copied(
    spaces: SpaceTable, task: Task, reduction: TaskReduction, ref: Ref, copies: list[Task]
) -> TaskReduction | None:
    """``reduction`` reading a copy of ``ref``, whose task is added to ``copies``; None where none pays."""
    space = spaces[ref.space]
    guards = ref.bounds
    # With a fill of its own or a guard over two dims, the values around the operand are not simply zeros in a box.
    if ref.fill is not None or any(_place(g, ref, space.shape) is None or g not in reduction.guards for g in guards):
        return None
    if (not guards and space.type.bits != 16) or ref.space in task.writes:
        return None
    guarded = {_place(g, ref, space.shape) for g in guards}
    ranges = [
        _touched(position, task) if place in guarded else _Range(0, extent)
        for place, (position, extent) in enumerate(zip(ref.index, space.shape, strict=True))
    ]
    shape = tuple(r.extent for r in ranges)
    size, type_ = math.prod(shape), compute_type(space.type)
    is_cheap = guards and size * type_.bytes <= NEAR_BYTES
    if task.points < (MIN_GUARDED_REUSE if is_cheap else MIN_REUSE) * size:
        return None
    copy = spaces.add(shape, type_, f"{space.name}.padded")
    copies.append(_copy_task(ref, copy.number, ranges, space.shape, guarded))
    moved = Ref(copy.number, tuple(p - r.low for p, r in zip(ref.index, ranges, strict=True)))
    value = rewrite(reduction.value, lambda part: moved if part == ref else None)
    # What other loads need stays.
    needed = {b for part in value.walk() if isinstance(part, Ref) for b in part.bounds}
    return replace(reduction, value=value, guards=tuple(g for g in reduction.guards if g not in guards or g in needed))


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
