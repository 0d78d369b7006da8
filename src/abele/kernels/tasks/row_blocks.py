"""Sweeps whose tasks run along the rows of a sample: what passes between them lies in rows, too, in small blocks.

Where samples are the rows of large arrays, each passed over once, vectors run along the rows and not across samples. A
block is then no vector of samples but as many rows as stay in the first-level cache from one task to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from abele.kernels.tasks.blocks import block_layout, blocked, reads_again
from abele.kernels.tasks.flatten import Layout, flatten, row_major
from abele.kernels.tasks.program import Program, Task
from abele.kernels.tasks.sample_dim import SampleDim
from abele.kernels.tasks.stages import Stage

BLOCK_BYTES = 3 << 13
"""What a block of rows may take: most of a first-level cache of 32 KiB, the smallest that is common."""


def spaces_in_rows(
    program: Program, sample: SampleDim, stages: Sequence[Stage], lanes: int, local: set[int]
) -> set[int]:
    """Those of ``local``, which exist for one block at a time, that only tasks along rows touch."""
    rows = set(local)
    tasks = [(task, dim) for task, dim in _swept(program, sample, stages) if local & (task.reads | task.writes)]
    while True:
        across = [t for t, dim in tasks if not _runs_along_rows(program, sample, t, dim, lanes, local, rows)]
        left = rows.difference(*(t.reads | t.writes for t in across))
        if left == rows:
            return rows
        rows = left


def rows_in_block(
    program: Program, sample: SampleDim, stages: Sequence[Stage], lanes: int, local: set[int], rows: set[int]
) -> int:
    """Samples in a block: ``lanes``, or fewer where all tasks pass once along rows that take too much room."""
    swept = list(_swept(program, sample, stages))
    tasks = [task for task, _ in swept]
    spaces = {space for task in tasks for space in task.reads | task.writes if space in sample.spaces}
    again = any(reads_again(program, tasks, s) for s in spaces - local)  # read from copies across samples
    if again or any(dim in dict(task.reduced) for task, dim in swept):
        return lanes
    if not all(_runs_along_rows(program, sample, task, dim, lanes, local, rows) for task, dim in swept):
        return lanes
    row = sum(program.spaces[s].size // sample.extent * program.spaces[s].type.bytes for s in spaces)
    while lanes > 1 and lanes * row > BLOCK_BYTES:
        lanes //= 2
    return lanes


def rows_layout(shape: Sequence[int], place: int, lanes: int) -> Layout:
    """The layout of one block at a time whose samples step as in the whole space."""
    return Layout(row_major([lanes if n == place else extent for n, extent in enumerate(shape)]), 0)


def _swept(program: Program, sample: SampleDim, stages: Sequence[Stage]) -> Iterator[tuple[Task, str]]:
    """Every task that a sweep runs, and its name of the sample dim."""
    return ((program.tasks[n], sample.tasks[n]) for stage in stages if stage.sweep for n in stage.tasks)


def _runs_along_rows(
    program: Program, sample: SampleDim, task: Task, dim: str, lanes: int, local: Collection[int], rows: set[int]
) -> bool:
    def layout(space: int) -> Layout:
        shape = program.spaces[space].shape
        if space in rows:
            return rows_layout(shape, sample.spaces[space], lanes)
        return block_layout(shape, sample.spaces[space], lanes, False) if space in local else Layout(row_major(shape))

    nest, _ = flatten(task, program.spaces, layout, blocked(sample, dim, lanes))
    return not nest.lane
