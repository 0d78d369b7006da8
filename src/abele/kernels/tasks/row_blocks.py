"""Blocks whose tasks run along the rows of a sample: values between them lie in rows, too, in small blocks.

Where samples are the rows of large arrays, each passed over once, vectors run along the rows and not across samples. A
block is then no vector of samples but as many rows as stay in the first-level cache from one task to the next.

Whether a task runs along rows depends on how the spaces that it touches are stored, and that depends on the tasks that
touch them: :func:`spaces_in_rows` starts from all of them in rows and takes out, until nothing changes, what a task
across samples touches. That is the largest set that agrees with itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from abele.kernels.tasks.flatten import Blocked, flatten
from abele.kernels.tasks.layout import SpaceLayout, lanes_innermost, rows_of_block
from abele.kernels.tasks.program import Space, Task, TaskProgram
from abele.layout import row_major

BLOCK_BYTES = 3 << 13
"""Most bytes of a block of rows: most of a first-level cache of 32 KiB, the smallest that is common."""


def spaces_in_rows(program: TaskProgram, local: set[int]) -> set[int]:
    """Spaces of ``local``, which exist for one block at a time, touched by tasks along rows only."""
    rows = set(local)
    tasks = [(task, dim) for task, dim in _tasks_by_blocks(program) if local & (task.reads | task.writes)]
    # Taking out one space may make another task run across samples, so go on until none is taken out.
    while True:
        across = [t for t, dim in tasks if not _runs_along_rows(program, t, dim, local, rows)]
        left = rows.difference(*(t.reads | t.writes for t in across))
        if left == rows:
            return rows
        rows = left


def rows_in_block(program: TaskProgram, local: set[int], rows: set[int]) -> int:
    """Samples in a block: as many as before, or fewer where all tasks pass once along rows that take too much room."""
    samples, block = program.samples, program.block
    assert samples is not None
    by_blocks = list(_tasks_by_blocks(program))
    tasks = [task for task, _ in by_blocks]
    spaces = {space for task in tasks for space in task.reads | task.writes if space in samples.spaces}
    again = any(reads_again(program.spaces[s], tasks) for s in spaces - local)  # read from copies across samples
    # Smaller blocks would mean more copies, or more partial sums to combine.
    if again or any(dim in dict(task.reduced) for task, dim in by_blocks):
        return block
    if not all(_runs_along_rows(program, task, dim, local, rows) for task, dim in by_blocks):
        return block
    row = sum(program.spaces[s].bytes // samples.extent for s in spaces)
    while block > 1 and block * row > BLOCK_BYTES:
        block //= 2
    return block


def reads_again(space: Space, tasks: Collection[Task]) -> bool:
    """True if one of ``tasks`` reads elements of ``space`` more than once."""
    return any(t.points > space.size for t in tasks for r in t.refs if r.space == space.number)


def _tasks_by_blocks(program: TaskProgram) -> Iterator[tuple[Task, str]]:
    """Every task that runs by blocks, and its name of the sample dim."""
    samples = program.samples
    assert samples is not None
    return ((program.tasks[n], samples.tasks[n]) for s in program.stages if s.by_blocks for n in s.tasks)


def _runs_along_rows(program: TaskProgram, task: Task, dim: str, local: Collection[int], rows: set[int]) -> bool:
    samples, block = program.samples, program.block
    assert samples is not None
    places = samples.spaces

    def layout(space: int) -> SpaceLayout:
        shape = program.spaces[space].shape
        if space in rows:
            return rows_of_block(shape, places[space], block)
        if space in local:
            return lanes_innermost(shape, places[space], block, blocks_apart=False)
        return SpaceLayout(row_major(shape))

    nest, _ = flatten(task, program.spaces, layout, Blocked(dim, samples.extent, block, places))
    return not nest.lane
