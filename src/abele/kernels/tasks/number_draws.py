"""Number the random words of each task by its points, in the order of results in memory.

A word belongs to an element. Any numbering will do, as long as no two elements of a store have the same number and runs
agree on it: threads and the order of units must not decide it. Numbers in the order of the caller's buffers were tried.
They keep loops apart that run over the plan's own order as one: loops join where everything counts through both. The
digits of samples were not joined at all, and convolutions ran at half their rate. So words are numbered once arrays are
laid out, as the largest result of their task lies. That follows from the calls and from the CPU that the plan is made
for, as the order of sums does.

Before this pass a program rounds all elements of a store by one word. It comes before passes that make a value twice:
both get the same word.

Example: a store to y[4, 8], laid out in rows, numbers its words from 0 to 31; element [2, 3] has word 19.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from abele.kernels.nest.ir import Affine, Expr, affine
from abele.kernels.nest.loop_nest import Hash
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.program import Put, Task, TaskProgram, layout_of, plain
from abele.layout import row_major


def number_draws(program: TaskProgram) -> TaskProgram:
    """Number the random words of rounded results in the order in which tasks store."""
    if program.rounding is None or program.rounding.seed is None:
        return program
    return replace(program, tasks=tuple(_numbered(program, task) for task in program.tasks))


def _numbered(program: TaskProgram, task: Task) -> Task:
    extents, outside = task.extents, _store_order(program, task)
    results = _count(outside, extents)
    terms = _count([*outside, *(d for d, _ in task.reduced)], extents)
    numbered = task.rewritten(lambda part: _at(part, results))
    # Conversions inside of a sum have a word for each of its points.
    reductions = (replace(r, value=rewrite(r.value, lambda part: _at(part, terms))) for r in task.reductions)
    return replace(numbered, reductions=tuple(reductions))


def _at(part: Expr, number: Affine) -> Expr | None:
    return replace(part, index=number) if isinstance(part, Hash) and part.quick else None


def _store_order(program: TaskProgram, task: Task) -> list[str]:
    """The dims of a task's points, those along which the elements of its largest result lie farthest apart first."""
    names = [d for d, _ in task.parallel]
    puts = [p for p in task.puts if p.is_plain and set(_strides(program, p)) == set(names)]
    if not puts:
        return names
    strides = _strides(program, max(puts, key=lambda p: program.spaces[p.space].size))
    return sorted(names, key=lambda d: -strides[d])


def _strides(program: TaskProgram, put: Put) -> dict[str, int]:
    layout = layout_of(program.layouts, program.spaces[put.space])
    pairs = zip(put.index, layout.strides, strict=True)
    return {name: stride for position, stride in pairs if (name := plain(position)) is not None}


def _count(names: Sequence[str], extents: dict[str, int]) -> Affine:
    """The number of a point of some dims, the last one fastest."""
    return affine(*zip(names, row_major([extents[d] for d in names]), strict=True))
