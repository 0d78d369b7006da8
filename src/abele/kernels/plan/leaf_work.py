"""Work of a leaf: its arithmetic, and the distinct bytes that it reads and writes, counted from its tasks.

Arithmetic is counted per point of a task's dims: each operation of its expressions once, however often its value is
used, and one for each combination into an accumulator, so that a multiply-add counts two. Comparisons, selections and
changes of sign count nothing. Points outside the bounds of an access (padding) are counted as if they were inside.

Bytes are those of the distinct elements that all accesses of the leaf touch, as if it had a cache for all of them:
what a loop reads again counts once. An access is linear in its loop dims. In the order of their strides, a dim either
goes on where the dims before it end or overlap, and so makes a stretch of addresses longer, or it repeats the stretch
further away. Of several accesses to one array the elements are added up, but no more than the array has, since where
they meet is not worth the time to find out. What lives only in a thread's scratch memory is no traffic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from abele.expr import Apply
from abele.expr.operation import TABLE
from abele.kernels.nest.ir import Affine, Expr
from abele.kernels.plan.functions import FunctionProgram
from abele.kernels.tasks.layout import row_major
from abele.kernels.tasks.program import Space, Task

_FREE = frozenset({"neg", "abs", "select"})


@dataclass(frozen=True, slots=True)
class LeafWork:
    """What one execution of a leaf does.

    Attributes:
        flops: Arithmetic operations.
        read_bytes: Distinct bytes that it reads.
        written_bytes: Distinct bytes that it writes.
    """

    flops: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


def leaf_work(program: FunctionProgram, number: int) -> LeafWork:
    """The work of leaf ``number`` of a program."""
    tasks = [f.task for f in program.leaves[number].functions]
    spaces = program.spaces
    loads: dict[int, set[tuple[Affine, ...]]] = {}
    stores: dict[int, set[tuple[Affine, ...]]] = {}
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    for task in tasks:
        loads.clear()
        stores.clear()
        for ref in task.refs:
            loads.setdefault(ref.space, set()).add(ref.index)
        for put in task.puts:
            stores.setdefault(put.space, set()).add(put.index)
            if put.combine != "set":
                loads.setdefault(put.space, set()).add(put.index)
        _add(read, loads, task, spaces)
        _add(written, stores, task, spaces)
    return LeafWork(
        sum(map(task_flops, tasks)),
        _bytes(read, spaces, program.per_thread),
        _bytes(written, spaces, program.per_thread),
    )


def heaviest_origins(program: FunctionProgram, number: int) -> frozenset[int]:
    """The caller's numbers of the calls behind the task of a leaf that has most to do."""
    tasks = [f.task for f in program.leaves[number].functions if f.task.origins]
    return max(tasks, key=lambda task: task_flops(task) + task.points).origins if tasks else frozenset()


def task_flops(task: Task) -> int:
    """Arithmetic operations of a task."""
    combining = len(task.reductions) + _operations(r.value for r in task.reductions)
    storing = sum(put.combine != "set" for put in task.puts)
    outside = storing + _operations((*task.locals, *(put.value for put in task.puts)))
    each = math.prod(n for _, n in task.parallel)
    return combining * task.points + outside * each


def _operations(values: Iterable[Expr]) -> int:
    """Arithmetic operations of some expressions, equal parts counted once."""
    parts = {part for value in values for part in value.walk() if isinstance(part, Apply)}
    return sum(2 if part.op == "fma" else 1 for part in parts if _is_arithmetic(part.op))


def _is_arithmetic(op: str) -> bool:
    operation = TABLE[op]
    takes_floats = operation.code is not None and operation.code.f32 is not None
    return takes_floats and not operation.gives_bool and op not in _FREE


def _add(
    counts: dict[int, int], accesses: dict[int, set[tuple[Affine, ...]]], task: Task, spaces: tuple[Space, ...]
) -> None:
    """Add the elements that accesses of a task touch to those of each space."""
    for number, indices in accesses.items():
        found = sum(distinct_elements(index, spaces[number].shape, task.extents) for index in indices)
        counts[number] = counts.get(number, 0) + found


def _bytes(counts: dict[int, int], spaces: tuple[Space, ...], per_thread: frozenset[int]) -> int:
    held = {number: spaces[number] for number in counts if number not in per_thread}
    return sum(min(counts[number], space.size) * space.type.bytes for number, space in held.items())


def distinct_elements(index: tuple[Affine, ...], shape: tuple[int, ...], extents: dict[str, int]) -> int:
    """Elements of an array of ``shape`` that ``index`` reaches as its loop dims go through their extents."""
    strides: dict[str, int] = {}
    for position, step in zip(index, row_major(shape), strict=True):
        for dim, coefficient in position.terms:
            strides[dim] = strides.get(dim, 0) + coefficient * step
    moving = sorted((abs(stride), extents[dim]) for dim, stride in strides.items() if stride and extents[dim] > 1)
    # `stretch` addresses, `step` apart, follow each other; there are `stretches` of these in different places.
    stretches, step, stretch = 1, 1, 1
    for stride, extent in moving:
        if stride % step == 0 and stride // step <= stretch:
            stretch += stride // step * (extent - 1)
        else:
            stretches, step, stretch = stretches * stretch, stride, extent
    return min(stretches * stretch, math.prod(shape))
