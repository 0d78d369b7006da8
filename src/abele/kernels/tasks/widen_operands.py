"""Keep operands of products in f32 where they hold 16-bit floats: widened once, and not for every use.

A product reads each element of its operands many times, and a 16-bit float is converted each time, which takes longer
than the multiply-add. What only the plan sees is therefore stored in f32, if some product reads it: the value is
rounded to 16 bits where it is made, as before, so that no bit changes, and takes the memory that it has in a program of
f32. Of the caller's arrays, such as weights, a copy in f32 is made before the first product that reads them, and again
after they were written. Then whatever is good for products of f32 is good for these, libraries included. Where an
element is used a few times only, the product is bound by memory, and reads its operands as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from abele.kernels.nest.ir import Expr, affine
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.copy_operands import MIN_REUSE, is_product
from abele.kernels.tasks.fuse_tasks import as_stored
from abele.kernels.tasks.program import Put, Ref, Space, SpaceTable, Task, TaskProgram
from abele.numerics import bf16, f16, f32


def widen_operands(program: TaskProgram) -> TaskProgram:
    """Keep 16-bit operands of products in f32, rounded as before: widened once, and not for every use."""
    fixed = _fixed(program)
    wanted = {number for task in program.tasks for number in _operands(program, task, fixed)}
    if not wanted:
        return program
    own = {n for n in wanted if not program.spaces[n].pinned}
    tasks = tuple(_storing(task, program.spaces, own) for task in program.tasks)
    spaces = SpaceTable(replace(s, type=f32) if s.number in own else s for s in program.spaces)
    made = list(_with_copies(tasks, spaces, wanted - own))
    return replace(program, tasks=tuple(made), spaces=spaces.all())


def _operands(program: TaskProgram, task: Task, fixed: frozenset[int]) -> Iterator[int]:
    """The 16-bit spaces whose elements a task multiplies many times each."""
    pairs = program.target.products is not None and program.target.products.pairs is not None
    narrow = {f16} if pairs else {f16, bf16}
    for reduction in task.reductions:
        if not is_product(reduction):
            continue
        for ref in reduction.value.args:
            assert isinstance(ref, Ref)
            space = program.spaces[ref.space]
            is_free = ref.space not in fixed and ref.space not in (task.writes if space.pinned else ())
            if space.type in narrow and is_free and task.points >= MIN_REUSE * _touched(task, ref, space):
                yield ref.space


def _fixed(program: TaskProgram) -> frozenset[int]:
    """Spaces whose type has to stay: those of rows named by values, and of stores that combine."""
    rows = frozenset[int]().union(*(task.in_rows for task in program.tasks))
    return rows | {p.space for task in program.tasks for p in task.puts if p.combine != "set"}


def _touched(task: Task, ref: Ref, space: Space) -> int:
    """Elements of ``ref`` that a task reads, or all where it names them in more complicated ways."""
    extents = task.extents
    return min(space.size, math.prod(extents[d] for d in {d for position in ref.index for d in position.names}))


def _storing(task: Task, spaces: tuple[Space, ...], widened: set[int]) -> Task:
    """``task`` with its stores to ``widened`` rounded to the former type."""
    if not task.writes & widened:
        return task
    puts = (replace(p, value=as_stored(spaces, p)) if p.space in widened else p for p in task.puts)
    return replace(task, puts=tuple(puts))


def _with_copies(tasks: tuple[Task, ...], spaces: SpaceTable, wanted: set[int]) -> Iterator[Task]:
    """``tasks`` whose products read copies of the caller's arrays ``wanted``, amid the copying tasks."""
    copies: dict[int, int] = {}
    for task in tasks:
        read = {
            ref.space
            for reduction in task.reductions
            if is_product(reduction)
            for ref in reduction.value.args
            if isinstance(ref, Ref) and ref.space in wanted and ref.space not in task.writes
        }
        for number in sorted(read - copies.keys()):
            yield _copy(spaces, number, copies)
        yield _reading(task, copies) if read else task
        for number in task.writes:
            copies.pop(number, None)


def _copy(spaces: SpaceTable, number: int, copies: dict[int, int]) -> Task:
    """Task that makes a copy of a space in f32, noted in ``copies``."""
    space = spaces[number]
    names = [f"d{n}" for n in range(len(space.shape))]
    copy = spaces.add(space.shape, f32, f"{space.name}.wide")
    copies[number] = copy.number
    index = tuple(map(affine, names))
    put = Put(copy.number, index, Ref(number, index))
    return Task("widen", tuple(zip(names, space.shape, strict=True)), (), (), (put,))


def _reading(task: Task, copies: dict[int, int]) -> Task:
    """``task`` whose products read the copies."""

    def change(part: Expr) -> Expr | None:
        if not isinstance(part, Ref) or part.space not in copies:
            return None
        return replace(part, space=copies[part.space])

    return replace(
        task,
        reductions=tuple(replace(r, value=rewrite(r.value, change)) if is_product(r) else r for r in task.reductions),
    )
