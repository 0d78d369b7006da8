"""Lay out spaces of stages by blocks: block after block, and one block at a time where none leaves its stage.

Such spaces are the plan's own, so how they are stored is the plan's choice. Samples lie innermost, one per vector
lane, so that every access is a whole vector whatever a task does with the other dims; or samples keep their rows, where
tasks run along rows (:mod:`abele.kernels.tasks.group_rows`).
"""

from __future__ import annotations

from dataclasses import replace

from abele.kernels.tasks.group_rows import rows_in_block, spaces_in_rows
from abele.kernels.tasks.layout import lanes_innermost, rows_of_block
from abele.kernels.tasks.program import TaskProgram


def lay_out_blocks(program: TaskProgram) -> TaskProgram:
    """Store by blocks what only stages by blocks touch; what one stage alone touches exists a block at a time."""
    samples = program.samples
    if samples is None:
        return program
    users = _stages_of_spaces(program)
    free = [s for s in users if s in samples.spaces and not program.spaces[s].pinned]
    inside = [s for s in free if all(program.stages[n].by_blocks for n in users[s])]
    local = {s for s in inside if len(users[s]) == 1}
    rows = spaces_in_rows(program, local)
    block = rows_in_block(program, local, rows)
    layouts = dict(program.layouts)
    for space in inside:
        shape, place = program.spaces[space].shape, samples.spaces[space]
        if space in rows:
            layouts[space] = rows_of_block(shape, place, block)
        else:
            layouts[space] = lanes_innermost(shape, place, block, blocks_apart=space not in local)
    return replace(program, block=block, layouts=layouts)


def _stages_of_spaces(program: TaskProgram) -> dict[int, set[int]]:
    """The stages that touch each space."""
    users: dict[int, set[int]] = {}
    for number, stage in enumerate(program.stages):
        for task in (program.tasks[n] for n in stage.tasks):
            for space in task.reads | task.writes:
                users.setdefault(space, set()).add(number)
    return users
