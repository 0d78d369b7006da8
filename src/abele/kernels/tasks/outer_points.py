"""Lay out spaces of one group of tasks: the elements of one point of its outer dims, in memory of the thread.

Rows of scores are summed and scaled along, so the dims that a task of the group reduces, other than a product, lie
innermost; the others as the first task that stores them loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from abele.kernels.tasks.fuse_outer_loops import batch_dims, own_spaces
from abele.kernels.tasks.layout import SpaceLayout, one_point
from abele.kernels.tasks.program import Task, TaskGroup, TaskProgram, plain
from abele.kernels.tasks.sample_dim import accesses


def point_layouts(program: TaskProgram, group: TaskGroup) -> dict[int, SpaceLayout]:
    """Layouts of the spaces that only ``group`` touches."""
    tasks = [program.tasks[n] for n in group.tasks]
    own = own_spaces(program, group.tasks)
    return {space: _layout(program.spaces[space].shape, space, tasks, group.dims) for space in sorted(own)}


def _layout(shape: Sequence[int], space: int, tasks: Sequence[Task], dims: Sequence[tuple[str, ...]]) -> SpaceLayout:
    outer: set[int] = set()
    rows: set[int] = set()
    order: list[int] = []
    for task, shared in zip(tasks, dims, strict=True):
        reduced = dict(task.reduced) if not batch_dims(task) else {}
        for access in accesses(task):
            if access.space != space:
                continue
            names = [plain(a) or "" for a in access.index]
            outer |= {p for p, name in enumerate(names) if name in shared}
            rows |= {p for p, name in enumerate(names) if name in reduced}
            loops = [name for name, _ in (*task.parallel, *task.reduced)]
            if not order and all(name in loops for name in names):
                order = sorted(range(len(shape)), key=lambda p: loops.index(names[p]))
    order = order or list(range(len(shape)))
    return one_point(shape, sorted(outer), sorted(order, key=lambda p: p in rows))
