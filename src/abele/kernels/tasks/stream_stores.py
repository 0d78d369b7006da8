"""Mark stores whose elements would have left the caches before anything reads them: they go to memory directly.

An ordinary store brings the line that it writes into the cache first, so an array that is written and then leaves the
caches moves through memory twice: once to be overwritten, once to be written back. Where a task writes much more than
the last cache holds, nothing finds the lines there anyway, and a store past the caches (a *non-temporal* one) saves the
first of the two, and the room that they would take from what is still needed. On a Zen 4, passing over an array of
64 MB into another then runs at 28 GB/s where it ran at 19.

It pays by the distance in bytes between the write of an element and its next use. Both leaves run through the array in
the same order, so what is touched between the two is half of what each touches, and all that the leaves between them
do. Beyond the size of the last cache, the element is gone. What follows the plan is not known: the array's own size
stands for what its first reader touches. Arrays that a leaf reads as well are in the caches already.

Tasks that reduce are left alone: a contraction writes its results few at a time, and comes back to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from abele.kernels.tasks.leaves import BlockLoop, LeafProgram, LeafTasks
from abele.kernels.tasks.program import Put, Task

MAX_STREAMS = 4
"""Arrays that one task writes past the caches: lines on their way are gathered in few buffers of a core."""


def stream_stores(program: LeafProgram) -> LeafProgram:
    """Store past the caches what would have left them before anything reads it."""
    uses = [_Use.of(program, leaf) for leaf in program.leaves]
    # No distance is longer than all that the plan touches.
    if sum(use.bytes for use in uses) <= program.target.far_bytes:
        return program
    leaves = tuple(_streaming(program, uses, number) for number in range(len(uses)))
    return program if leaves == program.leaves else replace(program, leaves=leaves)


@dataclass(frozen=True)
class _Use:
    """Memory that a leaf reads and touches.

    Attributes:
        reads: Spaces that it reads.
        touched: Bytes of every space that it touches; spaces of which one block exists at a time are none.
    """

    reads: frozenset[int]
    touched: dict[int, int]

    @property
    def bytes(self) -> int:
        """Of all that it touches."""
        return sum(self.touched.values())

    @staticmethod
    def of(program: LeafProgram, leaf: LeafTasks) -> _Use:
        """The use of ``leaf``."""
        tasks = [*leaf.tasks, *(leaf.loop.starts if isinstance(leaf.loop, BlockLoop) else ())]
        reads = frozenset[int]().union(*(t.reads for t in tasks))
        spaces = reads.union(*(t.writes for t in tasks))
        layouts = program.layouts
        in_memory = [s for s in spaces if s not in layouts or not layouts[s].is_per_thread]
        return _Use(reads, {s: program.bytes_of(program.spaces[s]) for s in in_memory})


def _streaming(program: LeafProgram, uses: Sequence[_Use], number: int) -> LeafTasks:
    """Leaf ``number`` with its stores marked."""
    leaf = program.leaves[number]
    if all(task.reductions for task in leaf.tasks):
        return leaf
    use, written = uses[number], frozenset[int]().union(*(t.writes for t in leaf.tasks))
    # Arrays in blocks of samples, or of which a part exists at a time, have layouts of their own.
    free = [s for s in written if s in use.touched and s not in use.reads and s not in program.layouts]
    far = {s for s in free if _distance(uses, number, s) > program.target.far_bytes}
    return replace(leaf, tasks=tuple(_marked(task, far) for task in leaf.tasks)) if far else leaf


def _distance(uses: Sequence[_Use], number: int, space: int) -> int:
    """Bytes that are touched between the write of an element of ``space`` in a leaf and its next use."""
    own = uses[number]
    after = next((n for n in range(number + 1, len(uses)) if space in uses[n].touched), len(uses))
    between: dict[int, int] = {}
    for use in uses[number + 1 : after]:
        between |= use.touched
    reader = uses[after].bytes if after < len(uses) else own.touched[space]
    return (own.bytes + reader) // 2 + sum(between.values())


def _marked(task: Task, far: set[int]) -> Task:
    chosen = [put for put in task.puts if put.space in far and put.is_plain]
    if task.reductions or not chosen or len(chosen) > MAX_STREAMS:
        return task

    def mark(put: Put) -> Put:
        return replace(put, streams=True) if put in chosen else put

    return replace(task, puts=tuple(map(mark, task.puts)))
