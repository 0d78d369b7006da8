"""A sweep: tasks that run block after block of samples, their values in a thread's own cache-resident scratch.

A block holds one sample in each vector lane. Spaces that only the sweep touches exist for one block at a time, samples
innermost. Values reduced over the samples are first made in a fixed number of parts, each by consecutive blocks, which
a task after the sweep combines in order; so results do not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from abele.kernels.nest.ir import Apply, Const, Expr, affine
from abele.kernels.nest.loop_nest import Acc
from abele.kernels.nest.ops import identity
from abele.kernels.tasks.flatten import Blocked, Layout, row_major
from abele.kernels.tasks.program import Program, Put, Reduction, Ref, Task
from abele.kernels.tasks.sample_dim import SampleDim
from abele.kernels.tasks.stages import Stage

MAX_CHUNKS = 8
"""Parts in which values are reduced over the samples; also the threads that a sweep can feed."""
MIN_BLOCKS = 2
"""Blocks wanted, if the batch allows it, so that two threads share a sweep."""
CHUNK = "chunk"


@dataclass
class Sweep:
    """A sweep ready for layout.

    Attributes:
        tasks: In order; each runs for every block, those of ``starts`` once a chunk.
        starts: Tasks that set parts to their identity at the start of a chunk.
        dims: The sample dim's name in every task of ``tasks``.
        partials: Spaces whose first dim is the chunk.
        blocks: Blocks of samples.
        chunks: Parts; the sweep's parallel units.
    """

    tasks: list[Task] = field(default_factory=list)
    starts: list[Task] = field(default_factory=list)
    dims: list[str] = field(default_factory=list)
    partials: set[int] = field(default_factory=set)
    blocks: int = 1
    chunks: int = 1


def lanes_for(samples: int, widest: int) -> int:
    """Samples in a block: as many as a vector holds, fewer where there would be no second block."""
    lanes = widest
    while lanes > 4 and samples < MIN_BLOCKS * lanes:
        lanes //= 2
    return lanes


def make_sweep(program: Program, sample: SampleDim, stage: Stage, lanes: int) -> tuple[Sweep, list[Task]]:
    """The sweep of ``stage``, and the tasks that combine its parts afterwards."""
    sweep, after = Sweep(), []
    sweep.blocks = -(-sample.extent // lanes)
    sweep.chunks = min(sweep.blocks, MAX_CHUNKS)
    for number in stage.tasks:
        task, dim = program.tasks[number], sample.tasks[number]
        if dim in dict(task.reduced):
            task, combined = _in_parts(program, sweep, task)
            after.append(combined)
        sweep.tasks.append(task)
        sweep.dims.append(dim)
    return sweep, after


def _in_parts(program: Program, sweep: Sweep, task: Task) -> tuple[Task, Task]:
    """``task`` storing the parts of its reductions, and the task that combines them and does its stores."""
    shape = (sweep.chunks, *(extent for _, extent in task.parallel))
    index = tuple(affine(d) for d, _ in task.parallel)
    puts, reductions = [], []
    for number, reduction in enumerate(task.reductions):
        part = program.new_space(shape, reduction.type, f"{task.name}.part{number}")
        sweep.partials.add(part.number)
        here = Ref(part.number, (affine(0), *index))
        value: Expr = Acc(number)
        if sweep.chunks < sweep.blocks:
            value = Apply(reduction.combine, (here, value))
            sweep.starts.append(_start(task, part.number, reduction))
        puts.append(Put(part.number, (affine(0), *index), value))
        reductions.append(Reduction(reduction.combine, Ref(part.number, (affine(CHUNK), *index)), reduction.type))
    inside = replace(task, puts=tuple(puts), locals=())
    reduced = ((CHUNK, sweep.chunks),) if sweep.chunks > 1 else ()
    combined = Task(f"{task.name}.combine", task.parallel, reduced, tuple(reductions), task.puts, task.locals)
    return inside, combined if reduced else _without_chunk(combined)


def _without_chunk(task: Task) -> Task:
    """``task`` for a single chunk: nothing to reduce."""
    zero = {CHUNK: affine(0)}
    parts = [r.value for r in task.reductions]

    def change(part: Expr) -> Expr | None:
        if not isinstance(part, Acc):
            return None
        ref = parts[part.number]
        assert isinstance(ref, Ref)
        return replace(ref, index=tuple(a.substitute(zero) for a in ref.index))

    return replace(task.rewritten(change), reductions=())


def _start(task: Task, part: int, reduction: Reduction) -> Task:
    value = Const(identity(reduction.combine, reduction.type.np).item(), reduction.type)
    put = Put(part, (affine(0), *(affine(d) for d, _ in task.parallel)), value)
    return Task(f"{task.name}.start", task.parallel, (), (), (put,))


def localise(program: Program, sample: SampleDim, sweep: Sweep, blocked: set[int]) -> list[int]:
    """Give the sweep a block-wise copy of every space that is not ``blocked`` and of which a task reads values again.

    Returns:
        The copies.
    """
    copies: dict[int, int] = {}
    made: list[int] = []
    tasks: list[Task] = []
    dims: list[str] = []
    for task, dim in zip(sweep.tasks, sweep.dims, strict=True):
        for ref in task.refs:
            outside = ref.space in sample.spaces and ref.space not in blocked
            if outside and ref.space not in copies and reads_again(program, sweep.tasks, ref.space):
                copies[ref.space] = _copy(program, sample, ref.space, tasks, dims)
                made.append(copies[ref.space])
        tasks.append(_redirected(task, copies))
        dims.append(dim)
        for space in task.writes:
            copies.pop(space, None)
    sweep.tasks, sweep.dims = tasks, dims
    return made


def reads_again(program: Program, tasks: Sequence[Task], space: int) -> bool:
    """Whether one of ``tasks`` reads elements of ``space`` more than once."""
    size = program.spaces[space].size
    return any(t.points > size for t in tasks for r in t.refs if r.space == space)


def _copy(program: Program, sample: SampleDim, space: int, tasks: list[Task], dims: list[str]) -> int:
    original = program.spaces[space]
    copy = program.new_space(original.shape, original.type, f"{original.name}.block")
    names = tuple(f"d{n}" for n in range(len(original.shape)))
    index = tuple(map(affine, names))
    put = Put(copy.number, index, Ref(space, index))
    loops = tuple(zip(names, original.shape, strict=True))
    tasks.append(Task(f"{original.name}.block", loops, (), (), (put,)))
    dims.append(names[sample.spaces[space]])
    sample.spaces[copy.number] = sample.spaces[space]
    return copy.number


def _redirected(task: Task, copies: dict[int, int]) -> Task:
    if not any(r.space in copies for r in task.refs):
        return task

    def change(part: Expr) -> Expr | None:
        return replace(part, space=copies[part.space]) if isinstance(part, Ref) and part.space in copies else None

    return task.rewritten(change)


def block_layout(shape: Sequence[int], place: int, lanes: int, blocks_apart: bool) -> Layout:
    """The layout with the samples of a block innermost; blocks one after the other, or all in the same place."""
    others = [n for n in range(len(shape)) if n != place]
    strides = dict(zip(others, row_major([*(shape[n] for n in others), lanes])[:-1], strict=True))
    size = lanes
    for n in others:
        size *= shape[n]
    return Layout(tuple(strides.get(n, 1) for n in range(len(shape))), size if blocks_apart else 0)


def blocked(sample: SampleDim, dim: str, lanes: int) -> Blocked:
    """How a task's sample dim ``dim`` splits."""
    return Blocked(dim, sample.extent, lanes, sample.spaces)
