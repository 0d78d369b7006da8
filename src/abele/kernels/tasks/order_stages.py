"""Order tasks into stages: those that run block after block of samples, and what runs between them.

A task can run by blocks if it is independent along the samples, or reduces over them, and if what it touches of a block
stays in a cache. What depends on a reduction over the samples has to wait until all blocks are done, so it belongs to a
later stage; everything else may share one. The number of the stage is the longest chain of such waits, which no order
can beat. A forward pass over the tasks gives each the first stage that it can run in, a backward pass the last; tasks
by blocks take the last, next to those that read what they make, since a value lives in cache only within a stage; the
others then run as early as they can.

Every dependence goes to an earlier stage, to an earlier task outside of loops over blocks, or along one sample inside
of one.

Example: a network's layers and gradients, sample by sample, are stage 0. The norm of its weight gradients is ready
after the last block, so tasks by blocks that use it are stage 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum

from abele.kernels.tasks.program import Ref, SampleDim, Task, TaskProgram, TaskStage, plain
from abele.kernels.tasks.sample_dim import accesses

STATIONARY_LIMIT_BYTES = 1 << 18
"""A task that reads or writes more than this apart from the samples does not run by blocks: every block would pass
over it again, and it would drive the block's own values out of the second-level cache."""


BLOCK_LIMIT_BYTES = 1 << 19
"""A task with an operand or result of which one block of samples takes more than this does not run by blocks: beside
another, nothing of it would still be in a second-level cache of 1 MiB when the next task reads it."""


class _Role(Enum):
    """Role of a task in stages that run block by block."""

    WHOLE = "runs whole, between them"
    PER_SAMPLE = "runs by blocks, each sample by itself"
    REDUCES = "runs by blocks, and reduces over the samples: its results are there after the last block"


def order_stages(program: TaskProgram) -> TaskProgram:
    """Order tasks into stages: those that run block after block of samples, and what runs between them."""
    if program.stages:
        return program  # found on the way to the choice of samples
    steps = _steps(program)
    tasks = range(len(steps))
    roles = [_role(program, program.samples, step[0]) if len(step) == 1 else _Role.WHOLE for step in steps]
    depends = _dependences_of_steps(program, steps)
    # Earliest gives the number of stages, latest moves tasks by blocks to their readers, and the last pass settles the
    # rest.
    levels = _latest(roles, depends, _earliest(roles, depends, {}))
    levels = _earliest(roles, depends, {n: levels[n] for n in tasks if roles[n] is not _Role.WHOLE})

    def stage(chosen: Iterable[int], *, by_blocks: bool) -> TaskStage:
        return TaskStage(by_blocks, tuple(task for n in chosen for task in steps[n]))

    stages = [stage((n for n in tasks if levels[n] < 0), by_blocks=False)]
    for level in range(max(levels, default=-1) + 1):
        members = [n for n in tasks if levels[n] == level]
        stages.append(stage((n for n in members if roles[n] is not _Role.WHOLE), by_blocks=True))
        stages.append(stage((n for n in members if roles[n] is _Role.WHOLE), by_blocks=False))
    return replace(program, stages=tuple(s for s in stages if s.tasks))


def reduces_by_blocks(program: TaskProgram, number: int) -> bool:
    """True if task ``number`` reduces over the program's samples, block after block."""
    return _role(program, program.samples, number) is _Role.REDUCES


def _steps(program: TaskProgram) -> list[tuple[int, ...]]:
    """The tasks in order, those of a group as one step."""
    groups = {group.tasks[0]: group.tasks for group in program.groups}
    inside = {n for tasks in groups.values() for n in tasks}
    return [groups.get(n, (n,)) for n in range(len(program.tasks)) if n in groups or n not in inside]


def _dependences_of_steps(program: TaskProgram, steps: Sequence[tuple[int, ...]]) -> list[set[int]]:
    """For every step the earlier ones that it must follow."""
    step_of = {task: n for n, tasks in enumerate(steps) for task in tasks}
    depends = dependences(program.tasks)
    return [{step_of[d] for task in tasks for d in depends[task]} - {n} for n, tasks in enumerate(steps)]


def _earliest(roles: Sequence[_Role], depends: Sequence[set[int]], fixed: dict[int, int]) -> list[int]:
    """The first stage by blocks that each task can run in, or after (-1: before all); ``fixed`` ones stay."""
    levels: list[int] = []
    for number, role in enumerate(roles):
        least = max((levels[o] + _gap(roles[o], role) for o in depends[number]), default=-1)
        levels.append(fixed.get(number, max(least, -1 if role is _Role.WHOLE else 0)))
    return levels


def _latest(roles: Sequence[_Role], depends: Sequence[set[int]], earliest: list[int]) -> list[int]:
    """The last stage by blocks that each task can run in, or after, without a further one."""
    levels = [max(earliest, default=-1)] * len(roles)
    for number in reversed(range(len(roles))):
        for other in depends[number]:
            levels[other] = min(levels[other], levels[number] - _gap(roles[other], roles[number]))
    return levels


def _gap(before: _Role, after: _Role) -> int:
    """Number of stages by blocks that ``after`` must run later than ``before``, its dependence."""
    return int(after is not _Role.WHOLE and before is not _Role.PER_SAMPLE)


def dependences(tasks: Sequence[Task]) -> list[set[int]]:
    """For every task the earlier ones that it must follow."""
    writers: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    result = []
    for number, task in enumerate(tasks):
        # True and output dependences: on the last writer of all that it touches. Anti-dependences: on readers since
        # then.
        needed = {writers[s] for s in task.reads | task.writes if s in writers}
        for space in task.writes:
            needed |= readers.get(space, set())
        result.append(needed - {number})
        for space in task.reads:
            readers.setdefault(space, set()).add(number)
        for space in task.writes:
            writers[space] = number
            readers[space] = set()
    return result


def _role(program: TaskProgram, sample: SampleDim | None, number: int) -> _Role:
    """The role of task ``number``, whose accesses all have to be at one sample."""
    task = program.tasks[number]
    if sample is None or number not in sample.tasks or task.in_rows:
        return _Role.WHOLE
    dim = sample.tasks[number]
    for access in accesses(task):
        if access.space in sample.spaces and plain(access.index[sample.spaces[access.space]]) != dim:
            return _Role.WHOLE
    if _stationary_bytes(program, sample, task, dim) > STATIONARY_LIMIT_BYTES:
        return _Role.WHOLE
    if _block_bytes(program, sample, task) > BLOCK_LIMIT_BYTES:
        return _Role.WHOLE
    if dim in dict(task.parallel):
        written = all(p.space in sample.spaces for p in task.puts)
        return _Role.PER_SAMPLE if written else _Role.WHOLE
    return _Role.REDUCES if all(p.combine == "set" for p in task.puts) else _Role.WHOLE


def _block_bytes(program: TaskProgram, sample: SampleDim, task: Task) -> int:
    """Bytes of one block of samples of the largest space that the task touches."""
    touched = (program.spaces[s].bytes for s in task.reads | task.writes if s in sample.spaces)
    return max(touched, default=0) // sample.extent * program.block


def _stationary_bytes(program: TaskProgram, sample: SampleDim, task: Task, dim: str) -> int:
    """Bytes that the task passes over in every block: operands without samples, and reduced results."""
    values = [r.value for r in task.reductions] or [*task.locals, *(p.value for p in task.puts)]
    spaces = {e.space for v in values for e in v.walk() if isinstance(e, Ref) and e.space not in sample.spaces}
    parts = math.prod(n for _, n in task.parallel) * sum(r.type.bytes for r in task.reductions)
    reduces = dim in dict(task.reduced)
    return sum(program.spaces[s].bytes for s in spaces) + (parts if reduces else 0)
