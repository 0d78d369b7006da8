"""Lower tasks to loop nests over flat memory: every access becomes an address, linear in the loop dims."""

from __future__ import annotations

from dataclasses import replace

from abele.kernels.plan.functions import FunctionProgram, LeafFunctions, TaskFunction
from abele.kernels.tasks.flatten import Blocked, Moving, flatten
from abele.kernels.tasks.layout import SpaceLayout
from abele.kernels.tasks.leaves import LeafProgram, LeafTasks, OuterLoop
from abele.kernels.tasks.program import Task, layout_of


def lower_tasks(program: LeafProgram) -> FunctionProgram:
    """Turn every index into an address in its space's layout; the sample dim of a block loop into block and lane."""
    layouts = [layout_of(program.layouts, space) for space in program.spaces]
    return FunctionProgram(
        program.spaces,
        tuple(_functions(program, leaf, layouts) for leaf in program.leaves),
        tuple(map(program.bytes_of, program.spaces)),
        frozenset(number for number, layout in program.layouts.items() if layout.is_per_thread),
        program.target,
    )


def _functions(program: LeafProgram, leaf: LeafTasks, layouts: list[SpaceLayout]) -> LeafFunctions:
    def function(
        task: Task, blocked: Blocked | None = None, moving: Moving | None = None, *, is_start: bool = False
    ) -> TaskFunction:
        nest, arrays = flatten(task, program.spaces, layouts.__getitem__, blocked, moving)
        moves = tuple(
            tuple(elements * program.spaces[a.space].type.bytes for elements in a.moves) for a in arrays if a.moves
        )
        return TaskFunction(task, nest, tuple(a.space for a in arrays), is_start, moves=moves)

    if isinstance(leaf.loop, OuterLoop):
        seen = leaf.loop.seen
        moving = [None] * len(leaf.tasks) if seen is None else [
            Moving(dims, seen.local) for dims in zip(seen.row_dims, seen.key_dims, strict=True)
        ]
        whole = (function(task, moving=own) for task, own in zip(leaf.tasks, moving, strict=True))
        at_points = (replace(f, nest=replace(f.nest, unit=d)) for f, d in zip(whole, leaf.loop.dims, strict=True))
        return LeafFunctions(tuple(at_points), leaf.loop)
    if leaf.loop is None:
        return LeafFunctions(tuple(map(function, leaf.tasks)))
    loop, places = leaf.loop, leaf.loop.places
    if places is None:
        assert program.samples is not None
        places = program.samples.spaces
    starts = [function(task, is_start=True) for task in loop.starts]
    inside = [
        function(task, Blocked(dim, loop.samples, loop.block, places, loop.outer_dims[n] if loop.outer_dims else None))
        for n, (task, dim) in enumerate(zip(leaf.tasks, loop.dims, strict=True))
    ]
    return LeafFunctions((*starts, *inside), loop)
