"""Split long contractions into several shorter ones, one after the other, that add onto what is there.

A register tile reads a panel of one operand over the whole reduction. Of a long reduction the panel, and the rows of
the other operand beside it, no longer stay near: parts of the reduction whose panels fit run at full speed, and the
results are read and written once more per part, which is little. Windows of convolutions stay whole: they read the same
elements again as they move, wherever the reduction ends.
"""

from __future__ import annotations

import math
from dataclasses import replace

from abele.kernels.nest.ir import Apply, Expr, affine
from abele.kernels.nest.loop_nest import Acc
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.products.matrix_product import is_apart
from abele.kernels.tasks.copy_operands import MIN_REUSE, is_product, without_products
from abele.kernels.tasks.leaves import LeafProgram
from abele.kernels.tasks.program import Put, Ref, SpaceTable, Task, move, substitute
from abele.kernels.tasks.program import plain as plain_index
from abele.numerics import f32

WHOLE_POINTS = 768
"""Points of a reduction that loops run whole; of longer ones they run parts, one after the other. Measured: from 512 to
1,024 points rates fall by a quarter."""
PART_POINTS = 512
"""Points of a part's reduction."""
MIN_FIELD, NEAR_BYTES = 1 << 15, 1 << 22
"""Points that are reduced into a result where operands are cut by samples, and what an operand of a part may take: the
few channels of it that are worked on at a time then fit into a second-level cache of 1 MiB."""
MAX_PARTS = 16
"""Parts in which a reduction runs; longer ones, over a batch of fields, have few results and other orders."""


def split_reductions(program: LeafProgram) -> LeafProgram:
    """Run long contractions in parts, one after the other, that add onto what is there."""
    # Matrix products cut sums by themselves.
    return without_products(program, _in_parts)


def _in_parts(spaces: SpaceTable, task: Task) -> list[Task]:
    """``task``, or its parts in order; there is a space for sums of 32 bits where results have fewer."""
    dim, size = _cut(spaces, task)
    if not dim:
        return [task]
    onto = _sums(spaces, task)
    extent = task.extents[dim]
    starts = range(0, extent, size)
    return [_part(task, onto, dim, low, min(size, extent - low), last=low == starts[-1]) for low in starts]


def _cut(spaces: SpaceTable, task: Task) -> tuple[str, int]:
    """The reduced dim that is cut, and the extent of its parts; an empty name where the task stays whole."""
    whole = "", 0
    plain = len(task.reductions) == 1 and is_product(task.reductions[0])
    if not plain or not all(p.is_plain for p in task.puts):
        return whole
    largest = max(spaces[r.space].size for r in task.refs)
    # With little reuse the task is bound by memory, and reading the results once more per part would only add to that.
    if task.points < MIN_REUSE * largest:
        return whole
    # Digits of a longer dim are no window either.
    if all(is_apart(a, task.extents) for r in task.refs for a in r.index):
        return _cut_panels(task) or whole
    return _cut_samples(spaces, task) or whole


def _cut_panels(task: Task) -> tuple[str, int] | None:
    """Parts whose panels fit into the second-level cache beside their rows."""
    length = math.prod(extent for _, extent in task.reduced)
    if not WHOLE_POINTS < length <= PART_POINTS * MAX_PARTS:
        return None
    for dim, extent in outermost_first(task):
        rest = length // extent
        sizes = [n for n in range(1, extent) if extent % n == 0 and PART_POINTS // 2 <= n * rest <= WHOLE_POINTS]
        if sizes:
            return dim, min(sizes, key=lambda n: abs(n * rest - PART_POINTS))
        if rest <= PART_POINTS // 2:
            # The last part is shorter, and has code of its own. Parts of a dim further in would be scattered.
            return (dim, -(-extent // round(length / PART_POINTS))) if length >= 2 * PART_POINTS else None
    return None


def outermost_first(task: Task) -> list[tuple[str, int]]:
    """The reduced dims of ``task`` with their extents, in the order in which they index its operands.

    Parts of the first lie next to each other in memory, and are streamed; parts of the last are scattered.
    """
    places = {d: [n for r in task.refs for n, a in enumerate(r.index) if d in a.names] for d, _ in task.reduced}
    return sorted(task.reduced, key=lambda d: (sum(places[d[0]]) / max(1, len(places[d[0]])), -d[1]))


def _cut_samples(spaces: SpaceTable, task: Task) -> tuple[str, int] | None:
    """Parts of a reduction over many fields whose larger operand, read once for every few results, stays near."""
    guarded = {name for guard in task.reductions[0].guards for name in guard.position.names}
    dims = [d for d in task.reduced if all(any(plain_index(a) == d[0] for a in r.index) for r in task.refs)]
    dims = [d for d in dims if d[0] not in guarded]
    results = math.prod(extent for _, extent in task.parallel)
    if not dims or task.points < MIN_FIELD * results:
        return None
    dim, extent = dims[0]
    bytes_ = max(spaces[r.space].bytes for r in task.refs)
    sizes = [n for n in range(1, extent) if extent % n == 0 and bytes_ // extent * n <= NEAR_BYTES]
    return (dim, max(sizes)) if sizes and bytes_ > NEAR_BYTES else None


def _sums(spaces: SpaceTable, task: Task) -> Put:
    """Store of the running sum: the results themselves if they hold nothing but the sums."""
    own = task.puts[0]
    names = {name for position in own.index for name in position.names}
    # The results can hold the running sum themselves if nothing else happens to them and they keep all 32 bits.
    bare = len(task.puts) == 1 and own.value == Acc(0) and spaces[own.space].type == f32
    if bare and own.space not in task.reads and names == set(dict(task.parallel)):
        return own
    dims = _stored_order(task)
    space = spaces.add(tuple(task.extents[d] for d in dims), f32, f"{task.name}.sums")
    return Put(space.number, tuple(map(affine, dims)), Acc(0))


def _stored_order(task: Task) -> list[str]:
    """The parallel dims of ``task`` in the order in which they index its results: its last part reads sums so."""
    stored = [name for put in task.puts for position in put.index for name in position.names]
    return list(dict.fromkeys([*(d for d in stored if d in dict(task.parallel)), *(d for d, _ in task.parallel)]))


def _part(task: Task, onto: Put, dim: str, low: int, extent: int, *, last: bool) -> Task:
    """The part that reduces ``extent`` points of ``dim`` from ``low``, and does the task's stores if it is the last."""
    (reduction,), moved = task.reductions, {dim: affine(dim) + low}
    reduced = tuple((d, extent if d == dim else n) for d, n in task.reduced)
    part = replace(
        task,
        reduced=reduced,
        reductions=(
            replace(
                reduction,
                value=substitute(reduction.value, moved),
                guards=tuple(move(g, moved) for g in reduction.guards),
            ),
        ),
    )
    # Parts add up in order, whatever the threads do, so the bits depend on the cut alone.
    total: Expr = Acc(0) if low == 0 else Apply("add", (Ref(onto.space, onto.index), Acc(0)))
    if not last:
        return replace(part, puts=(replace(onto, value=total),), locals=())

    def change(value: Expr) -> Expr | None:
        return total if value == Acc(0) else None

    return replace(
        part,
        puts=tuple(replace(p, value=rewrite(p.value, change)) for p in part.puts),
        locals=tuple(rewrite(value, change) for value in part.locals),
    )
