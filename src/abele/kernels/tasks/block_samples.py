"""Run tasks block after block of samples, so that values between them stay in a thread's own cache.

Run task by task, a layer of a network writes its whole batch to memory before the next layer reads it back. All tasks
of one stage by blocks are independent along the samples, so they may as well run one after the other for a block of
samples, then for the next block (loop tiling and fusion over the batch). Spaces that only the stage touches then exist
for one block at a time, in scratch memory of the thread.

Values reduced over the samples, such as weight gradients, are first made in a fixed number of chunks, each by
consecutive blocks, and a task after the stage combines the chunks in order. The chunks depend on the batch alone, never
on the number of threads, so results have the same bits on any machine of the same vector width. With a chunk per
thread, bits would follow the number of threads; with one per block, the partial gradients of a wide layer would outgrow
the caches.

Example: 4,096 samples in blocks of 64 are 64 blocks. In 8 chunks, each runs 8 of these one after the other and makes
one partial gradient; a task afterwards adds up the 8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from abele.expr.operation import identity
from abele.kernels.nest.ir import Apply, Const, Expr, affine
from abele.kernels.nest.loop_nest import Acc
from abele.kernels.tasks.fuse_outer_loops import batch_dims, own_spaces
from abele.kernels.tasks.group_rows import reads_again
from abele.kernels.tasks.layout import SpaceLayout, lanes_innermost, one_point, rows_of_dims
from abele.kernels.tasks.leaves import BlockLoop, LeafProgram, LeafTasks, OuterLoop
from abele.kernels.tasks.program import (
    Put,
    Ref,
    RowDims,
    SampleDim,
    Space,
    SpaceTable,
    Task,
    TaskGroup,
    TaskProgram,
    TaskReduction,
    TaskStage,
    plain,
    substitute,
)
from abele.kernels.tasks.sample_dim import accesses

# Lay out spaces of one group of tasks: the elements of one point of its outer dims, in memory of the thread.
#
# Rows of scores are summed and scaled along, so the dims that a task of the group reduces, other than a product, lie
# innermost; the others as the first task that stores them loops.


def point_layouts(program: TaskProgram, group: TaskGroup) -> dict[int, SpaceLayout]:
    """Layouts of the spaces that only ``group`` touches."""
    tasks = [program.tasks[n] for n in group.tasks]
    own = own_spaces(program, group.tasks)
    return {space: _layout(program.spaces[space], tasks, group.dims) for space in sorted(own)}


def _layout(space: Space, tasks: Sequence[Task], dims: Sequence[tuple[str, ...]]) -> SpaceLayout:
    shape = space.shape
    outer: set[int] = set()
    rows: set[int] = set()
    order: list[int] = []
    for task, shared in zip(tasks, dims, strict=True):
        reduced = dict(task.reduced) if not batch_dims(task) else {}
        for access in accesses(task):
            if access.space != space.number:
                continue
            names = [plain(a) or "" for a in access.index]
            outer |= {p for p, name in enumerate(names) if name in shared}
            rows |= {p for p, name in enumerate(names) if name in reduced}
            loops = [name for name, _ in (*task.parallel, *task.reduced)]
            if not order and all(name in loops for name in names):
                order = sorted(range(len(shape)), key=lambda p: loops.index(names[p]))
    order = order or list(range(len(shape)))
    return one_point(shape, sorted(outer), sorted(order, key=lambda p: p in rows), space.type)


CHUNKS, MAX_CHUNKS = 8, 16
"""Parts in which values are reduced over the samples, and where these are few; also the threads that can be fed."""
FEW_PARTIALS = 1 << 12
"""Points of all tasks for a partial value, above which these are few: it takes the time of some 16 points."""
MAX_ROW_CHUNKS, MAX_ROW_UNITS = 16, 64
"""The same of rows, where there are more of them, and parts of rows over which nothing is summed."""
CHUNK = "chunk"


def block_samples(program: TaskProgram) -> LeafProgram:
    """Make each stage by blocks a leaf that loops over blocks; tasks between such stages run whole."""
    builder = _LeafBuilder(program)
    groups = {group.tasks[0]: group for group in program.groups}
    leaves: list[LeafTasks] = []
    after: list[Task] = []
    for stage in program.stages:
        if stage.by_blocks and program.samples is not None:
            leaves += _whole(after)
            leaf, after = builder.stage(program.samples, stage)
            leaves.append(leaf)
            continue
        if stage.rows is not None:
            leaves += _whole(after)
            leaf, after = builder.rows(stage.tasks, stage.rows)
            leaves.append(leaf)
            continue
        grouped: set[int] = set()
        for number in stage.tasks:
            if number in groups:
                leaves += [*_whole(after), builder.group(groups[number])]
                after = []
                grouped.update(groups[number].tasks)
            elif number not in grouped:
                after.append(program.tasks[number])
        leaves += _whole(after)
        after = []
    leaves += _whole(after)
    samples = program.samples and replace(program.samples, spaces=builder.places)
    return LeafProgram(
        spaces=builder.spaces.all(),
        leaves=tuple(leaves),
        target=program.target,
        samples=samples,
        block=program.block,
        layouts=builder.layouts,
        constants=program.constants,
    )


def _whole(tasks: list[Task]) -> list[LeafTasks]:
    return [LeafTasks(tuple(tasks))] if tasks else []


class _LeafBuilder:
    """The leaves of a program while they are made; it adds spaces, and lays them out."""

    def __init__(self, program: TaskProgram) -> None:
        self.program = program
        self.spaces = SpaceTable(program.spaces)
        self.layouts = dict(program.layouts)
        self.places = dict(program.samples.spaces) if program.samples is not None else {}

    def group(self, group: TaskGroup) -> LeafTasks:
        """Leaf of ``group``; spaces that only it touches exist for one point at a time."""
        self.layouts |= point_layouts(self.program, group)
        return LeafTasks(tuple(self.program.tasks[n] for n in group.tasks), OuterLoop(group.extents, group.dims))

    def rows(self, numbers: Sequence[int], rows: RowDims) -> tuple[LeafTasks, list[Task]]:
        """Leaf of tasks that run row by row, and tasks to combine the chunks of their sums afterwards."""
        tasks, after = [], []
        sums = [
            any(d in dict(self.program.tasks[n].reduced) for d in names)
            for n, names in zip(numbers, rows.dims, strict=True)
        ]
        chunks = _Chunks(self.spaces, rows.blocks, min(rows.blocks, MAX_ROW_CHUNKS if any(sums) else MAX_ROW_UNITS))
        for number, is_sum in zip(numbers, sums, strict=True):
            task = self.program.tasks[number]
            if is_sum:
                task, combined = chunks.split(task)
                after.append(combined)
            tasks.append(task)
        for space, places in rows.local.items():
            self.layouts[space] = rows_of_dims(self.spaces[space].shape, places, rows.block)
        loop = BlockLoop(
            rows.extents[-1],
            rows.block,
            chunks.count,
            tuple(names[-1] for names in rows.dims),
            starts=tuple(chunks.starts),
            partials=frozenset(chunks.partials),
            outer=rows.extents[:-1],
            outer_dims=tuple(names[:-1] for names in rows.dims),
            places={space: places[-1] for space, places in rows.local.items()},
        )
        return LeafTasks(tuple(tasks), loop), after

    def stage(self, samples: SampleDim, stage: TaskStage) -> tuple[LeafTasks, list[Task]]:
        """The leaf of ``stage``, and the tasks that combine its chunks afterwards."""
        blocks = -(-samples.extent // self.program.block)
        chunks = _Chunks(self.spaces, blocks, min(blocks, self._most_chunks(samples, stage)))
        tasks, after = [], []
        for number in stage.tasks:
            task, dim = self.program.tasks[number], samples.tasks[number]
            if dim in dict(task.reduced):
                task, combined = chunks.split(task)
                after.append(combined)
            tasks.append((task, dim))
        tasks = self._with_copies(samples, tasks)
        loop = BlockLoop(
            samples.extent,
            self.program.block,
            chunks.count,
            tuple(dim for _, dim in tasks),
            tuple(chunks.starts),
            frozenset(chunks.partials),
        )
        return LeafTasks(tuple(task for task, _ in tasks), loop), after

    def _most_chunks(self, samples: SampleDim, stage: TaskStage) -> int:
        """The most chunks of a stage: more where its partial values are nothing beside its work."""
        tasks = [(self.program.tasks[n], samples.tasks[n]) for n in stage.tasks]
        partials = sum(math.prod(n for _, n in task.parallel) for task, dim in tasks if dim in dict(task.reduced))
        return MAX_CHUNKS if FEW_PARTIALS * partials <= sum(task.points for task, _ in tasks) else CHUNKS

    def _with_copies(self, samples: SampleDim, tasks: Sequence[tuple[Task, str]]) -> list[tuple[Task, str]]:
        """``tasks`` reading copies by blocks of spaces that one reads again and that are not so yet."""
        # A copy holds until the space that it was made from is written.
        copies: dict[int, int] = {}
        changed: list[tuple[Task, str]] = []
        for task, dim in tasks:
            for ref in task.refs:
                outside = ref.space in self.places and ref.space not in self.layouts
                if outside and ref.space not in copies and reads_again(self.spaces[ref.space], [t for t, _ in tasks]):
                    copied, place = self._copy(ref.space)
                    copies[ref.space] = copied.puts[0].space
                    changed.append((copied, copied.parallel[place][0]))
            changed.append((_redirected(task, copies), dim))
            for space in task.writes:
                copies.pop(space, None)
        return changed

    def _copy(self, space: int) -> tuple[Task, int]:
        """Task for copies of one block of ``space``, and the place of the samples in it."""
        original, place = self.spaces[space], self.places[space]
        copy = self.spaces.add(original.shape, original.type, f"{original.name}.block")
        self.places[copy.number] = place
        self.layouts[copy.number] = lanes_innermost(copy.shape, place, self.program.block, blocks_apart=False)
        loops = tuple((f"d{n}", extent) for n, extent in enumerate(original.shape))
        index = tuple(affine(d) for d, _ in loops)
        return Task(copy.name, loops, (), (), (Put(copy.number, index, Ref(space, index)),)), place


class _Chunks:
    """Tasks that reduce over samples, split into one part per chunk of blocks and a task for the combination."""

    def __init__(self, spaces: SpaceTable, blocks: int, count: int) -> None:
        self.spaces, self.blocks, self.count = spaces, blocks, count
        self.starts: list[Task] = []
        self.partials: set[int] = set()

    def split(self, task: Task) -> tuple[Task, Task]:
        """``task`` storing the parts of its reductions, and the task that combines them and does its stores.

        A chunk of one block stores its part; one of several adds each block onto it, from a start value.
        """
        shape = (self.count, *(extent for _, extent in task.parallel))
        index = tuple(affine(d) for d, _ in task.parallel)
        puts, reductions = [], []
        for number, reduction in enumerate(task.reductions):
            part = self.spaces.add(shape, reduction.type, f"{task.name}.part{number}").number
            self.partials.add(part)
            value: Expr = Acc(number)
            # Several blocks per chunk: the part starts at the neutral value, and each block is combined onto it.
            if self.count < self.blocks:
                value = Apply(reduction.combine, (Ref(part, (affine(0), *index)), value))
                self.starts.append(_start(task, part, reduction))
            puts.append(Put(part, (affine(0), *index), value))
            reductions.append(TaskReduction(reduction.combine, Ref(part, (affine(CHUNK), *index)), reduction.type))
        over = ((CHUNK, self.count),) if self.count > 1 else ()
        combined = replace(task, name=f"{task.name}.combine", reduced=over, reductions=tuple(reductions), digits=())
        return replace(task, puts=tuple(puts), locals=()), combined if over else _of_one_chunk(combined)


def _of_one_chunk(task: Task) -> Task:
    """``task``, which combines chunks, where there is one: nothing to reduce."""
    zero = {CHUNK: affine(0)}
    parts = [substitute(r.value, zero) for r in task.reductions]
    return replace(task.rewritten(lambda part: parts[part.number] if isinstance(part, Acc) else None), reductions=())


def _start(task: Task, part: int, reduction: TaskReduction) -> Task:
    """Task that sets ``part`` of a chunk to the identity of its combine."""
    value = Const(identity(reduction.combine, reduction.type.np).item(), reduction.type)
    put = Put(part, (affine(0), *(affine(d) for d, _ in task.parallel)), value)
    return Task(f"{task.name}.start", task.parallel, (), (), (put,), origins=task.origins)


def _redirected(task: Task, copies: Mapping[int, int]) -> Task:
    """``task`` reading the copies of spaces that have one."""
    if not any(r.space in copies for r in task.refs):
        return task

    def change(part: Expr) -> Expr | None:
        return replace(part, space=copies[part.space]) if isinstance(part, Ref) and part.space in copies else None

    return task.rewritten(change)
