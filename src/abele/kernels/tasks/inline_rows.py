"""Compute cheap values in the tasks of a group of rows that read them, instead of passing them on.

Tasks that run together for a few rows at a time (:mod:`abele.kernels.tasks.group_rows`) pass each other values in the
first-level cache. That is cheap, but a pass over the rows and a call are not nothing: a task that only copies its rows,
scales them or adds two takes as long as one that does ten times the arithmetic. Its readers have all that it reads
near, too, so they may as well work the value out themselves: a norm after a residual reads both addends, and its input
is never copied. (Loop fusion with recomputation, as compilers of stencils do it.)

It is right where nothing changes between the task and its readers: no task from there to the last reader writes what
the value is made of. Values have the same bits, since each is rounded as it would have been stored. It pays where each
reader reads every element once, and where the value is cheap, or has one reader alone. The dims of the task become
those at which the reader reads, so rows stay rows.

Example: in norm(a + b) over rows of 768, each pass of the norm adds ``a`` and ``b`` itself, and the 768 sums of a row
are never stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from abele.kernels.nest.ir import Apply, Expr, Index
from abele.kernels.nest.loop_nest import Hash, NestLocal
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.fuse_tasks import as_stored
from abele.kernels.tasks.leaves import BlockLoop, LeafProgram, LeafTasks
from abele.kernels.tasks.program import Put, Ref, Task, plain, substitute

MAX_WORK = 4
"""Operations and loads of a value that several tasks work out, each for itself: storing it and loading it again would
take two of them, and a pass over the rows."""
CHEAP = frozenset({"add", "sub", "mul", "neg", "max", "min", "select", "lt", "le", "gt", "ge", "eq", "ne"})
"""Operations of one instruction, or two."""


def inline_rows(program: LeafProgram) -> LeafProgram:
    """Compute cheap values of a group of rows where its tasks read them, instead of passing them on."""
    leaves = tuple(_inlined(program, leaf) for leaf in program.leaves)
    return program if leaves == program.leaves else replace(program, leaves=leaves)


def _inlined(program: LeafProgram, leaf: LeafTasks) -> LeafTasks:
    loop = leaf.loop
    if not isinstance(loop, BlockLoop) or not loop.outer_dims:
        return leaf
    tasks, kept = list(leaf.tasks), list(range(len(leaf.tasks)))
    number = 0
    while number < len(tasks):
        made = _value(program, loop, tasks, number)
        if made is None:
            number += 1
            continue
        # Without the task, the next one has its number.
        tasks = [_reading(task, made) for n, task in enumerate(tasks) if n != number]
        del kept[number]
    if len(kept) == len(leaf.tasks):
        return leaf
    dims, outer = tuple(loop.dims[n] for n in kept), tuple(loop.outer_dims[n] for n in kept)
    return LeafTasks(tuple(tasks), replace(loop, dims=dims, outer_dims=outer))


@dataclass(frozen=True)
class _Value:
    """Result of a task for every element of a space: ``expression`` at the dims ``names``, place by place."""

    space: int
    names: tuple[str | None, ...]
    expression: Expr


def _value(program: LeafProgram, loop: BlockLoop, tasks: Sequence[Task], number: int) -> _Value | None:
    """Result of task ``number``, if its readers can compute it themselves, and should."""
    task = tasks[number]
    if task.reductions or len(task.puts) != 1:
        return None
    put = task.puts[0]
    names = _names(program, task, put)
    layout = program.layouts.get(put.space)
    if names is None or layout is None or not layout.is_per_thread:
        return None
    if any(put.space in t.writes for t in (*tasks[:number], *tasks[number + 1 :], *loop.starts)):
        return None
    readers = [n for n, t in enumerate(tasks) if put.space in t.reads]
    expression = _whole(program, task, put)
    if not readers or readers[0] < number or not _pays(program, put, expression, [tasks[n] for n in readers]):
        return None
    sources = task.reads
    if any(sources & t.writes for t in tasks[number + 1 : readers[-1] + 1]):
        return None
    return _Value(put.space, names, expression)


def _names(program: LeafProgram, task: Task, put: Put) -> tuple[str | None, ...] | None:
    """The dim at every place of ``put``, if it sets all of its space, one element per point; else None."""
    if not put.is_plain:
        return None
    extents, shape = dict(task.parallel), program.spaces[put.space].shape
    names = tuple(plain(position) for position in put.index)
    known = [name for name in names if name is not None]
    whole = all(extents.get(name, 0) == n for name, n in zip(names, shape, strict=True) if name is not None)
    single = all(n == 1 and not a.terms for name, a, n in zip(names, put.index, shape, strict=True) if name is None)
    return names if whole and single and sorted(known) == sorted(extents) else None


def _whole(program: LeafProgram, task: Task, put: Put) -> Expr:
    """Value that a load would give after ``put``, with locals put in."""
    values: list[Expr] = []

    def change(part: Expr) -> Expr | None:
        return values[part.number] if isinstance(part, NestLocal) else None

    for value in task.locals:
        values.append(rewrite(value, change))
    return rewrite(as_stored(program.spaces, put), change)


def _pays(program: LeafProgram, put: Put, expression: Expr, readers: Sequence[Task]) -> bool:
    """True if working ``expression`` out costs its readers less than a pass over the rows."""
    size = program.spaces[put.space].size
    for reader in readers:
        refs = [r for r in reader.refs if r.space == put.space]
        seeds = any(isinstance(e, Hash) and e.seed.array == put.space for e in reader.expressions())
        if seeds or reader.points > size or len(refs) > 1 or any(r.bounds for r in refs):
            return False
    parts = set(expression.walk())
    if any(isinstance(part, Hash | Index) for part in parts):
        return False
    loads = [part for part in parts if isinstance(part, Ref)]
    fastest = plain(put.index[-1])
    # A copy that turns rows is read along them; what it was made from is not.
    if any(program.spaces[r.space].size >= size and plain(r.index[-1]) != fastest for r in loads):
        return False
    if len(readers) == 1:
        return True
    work = [part.op for part in parts if isinstance(part, Apply)]
    return CHEAP.issuperset(work) and len(work) + len(loads) <= MAX_WORK


def _reading(task: Task, made: _Value) -> Task:
    """``task`` with ``made`` worked out where it is read."""
    if made.space not in task.reads:
        return task

    def change(part: Expr) -> Expr | None:
        if not isinstance(part, Ref) or part.space != made.space:
            return None
        dims = {name: at for name, at in zip(made.names, part.index, strict=True) if name is not None}
        return substitute(made.expression, dims)

    return task.rewritten(change)
