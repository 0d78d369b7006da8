"""Split long sums of products with few results into parts that threads make side by side.

A product whose results are a few register tiles has work for a few threads only, however long its sum is: weight
gradients of narrow layers, Gram matrices. So its sum is cut into parts, each summed into results of its own, and these
are added up in order. Sums too long to be cut into parts one after the other
(:mod:`abele.kernels.tasks.split_reductions`) are first cut like that, too. How many parts there are depends on the
extents alone, never on the threads at hand, and with it the bits. A thread by itself loses little: a part is so long
that writing its results, and reading them again, is a small share of its work.
"""

from __future__ import annotations

import math
from dataclasses import replace

from abele.kernels.nest.ir import affine
from abele.kernels.nest.loop_nest import Acc
from abele.kernels.products.matrix_product import is_apart
from abele.kernels.tasks.copy_operands import is_product, runs_as_product
from abele.kernels.tasks.leaves import LeafProgram, LeafTasks
from abele.kernels.tasks.program import Put, Ref, SpaceTable, Task, TaskReduction, substitute
from abele.kernels.tasks.split_reductions import MAX_PARTS, PART_POINTS, outermost_first
from abele.numerics import f32

THREADS = 16
"""Threads that should have something to do."""
MIN_PART = 1024
"""Points of a part's sum. Written and read once, a result takes the time of some 16 of them."""
LONGEST = PART_POINTS * MAX_PARTS
"""Points of the longest sum that is cut into parts one after the other."""
MIN_POINTS = 1 << 21
"""Points of a product that is worth a second barrier: some 20 microseconds of a thread."""


def split_sums(program: LeafProgram) -> LeafProgram:
    """Split long sums of products with few results into parts for threads."""
    spaces = SpaceTable(program.spaces)
    tile = program.target.accumulators * program.target.lanes

    def changed(leaf: LeafTasks) -> LeafTasks:
        if leaf.loop is not None:
            return leaf
        return LeafTasks(tuple(part for task in leaf.tasks for part in _in_parts(spaces, task, wanted(task))))

    def wanted(task: Task) -> int:
        if not _is_plain_product(task):
            return 1
        # The packed routine cuts sums by itself.
        long = 1 if runs_as_product(task, spaces, program.layouts, program.target) else -(-_length(task) // LONGEST)
        return max(num_parts(task, tile), long)

    leaves = tuple(map(changed, program.leaves))
    return replace(program, spaces=spaces.all(), leaves=leaves)


def num_parts(task: Task, tile: int) -> int:
    """Parts of ``task`` that give threads enough to do, for ``tile`` results per register tile."""
    if task.points < MIN_POINTS:
        return 1
    tiles = -(-math.prod(n for _, n in task.parallel) // tile)
    return max(1, min(THREADS // tiles, _length(task) // MIN_PART))


def _length(task: Task) -> int:
    return math.prod(n for _, n in task.reduced)


def _is_plain_product(task: Task) -> bool:
    """True if ``task`` stores sums of products of loads, none of them through windows."""
    if len(task.reductions) != 1 or not is_product(task.reductions[0]) or task.reductions[0].guards:
        return False
    stores = all(p.is_plain for p in task.puts)
    return stores and all(is_apart(a, task.extents) for r in task.refs for a in r.index)


def _in_parts(spaces: SpaceTable, task: Task, wanted: int) -> list[Task]:
    """``task``, or the tasks of about ``wanted`` parts and the one that adds them up."""
    if wanted < 2:
        return [task]
    # The outermost dim that is long enough, so that a part streams through memory.
    dims = outermost_first(task)
    dim, extent = next((d for d in dims if d[1] >= wanted), max(dims, key=lambda d: d[1]))
    # A shorter last part would have code of its own.
    parts = next((n for n in range(wanted, 2 * wanted) if extent % n == 0), min(wanted, extent))
    size = -(-extent // parts)
    whole, rest = divmod(extent, size)
    names = [f"{task.name}.part", *(d for d, _ in task.parallel)]
    count = whole + (rest > 0)
    space = spaces.add((count, *(n for _, n in task.parallel)), f32, f"{task.name}.sums")
    made = [_part(task, space.number, names, (dim, size), range(whole))]
    if rest:
        made.append(_part(task, space.number, names, (dim, size), range(whole, count), rest=rest))
    total = TaskReduction("add", Ref(space.number, tuple(map(affine, names))), task.reductions[0].type)
    combine = replace(task, name=f"{task.name}.combine", reduced=((names[0], count),), reductions=(total,))
    return [*made, combine]


def _part(
    task: Task, space: int, names: list[str], cut: tuple[str, int], numbers: range, *, rest: int | None = None
) -> Task:
    """The sums of the parts ``numbers``, each over ``cut[1]`` points of dim ``cut[0]``, or over ``rest``."""
    (reduction,), (dim, size) = task.reductions, cut
    part = affine(names[0], const=numbers[0])
    moved = {dim: affine((names[0], size), dim, const=numbers[0] * size)}
    return replace(
        task,
        parallel=((names[0], len(numbers)), *task.parallel),
        reduced=tuple((d, (rest or size) if d == dim else n) for d, n in task.reduced),
        reductions=(replace(reduction, value=substitute(reduction.value, moved)),),
        puts=(Put(space, (part, *map(affine, names[1:])), Acc(0)),),
        locals=(),
        digits=(),
    )
