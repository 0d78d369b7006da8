"""Order tasks into stages: sweeps over the samples, and what runs between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from abele.kernels.sample import SampleDim, accesses
from abele.kernels.task import Program, Put, Ref, Task, plain

STATIONARY_LIMIT_BYTES = 1 << 18
"""A task that reads or writes more than this apart from the samples is kept out of sweeps: every block would pass
over it again, and it would drive the block's own values out of the second-level cache."""


@dataclass
class Stage:
    """A sweep, or tasks between sweeps.

    Attributes:
        sweep: Whether all tasks run block after block of samples.
        tasks: Numbers of the tasks, in order.
    """

    sweep: bool
    tasks: list[int] = field(default_factory=list)


def make_stages(program: Program, sample: SampleDim | None) -> list[Stage]:
    """The tasks of ``program`` in stages; every dependence goes forward, or along one sample inside a sweep."""
    before = Stage(False)
    levels: list[int] = []
    kinds = [_kind(program, sample, n) for n in range(len(program.tasks))]
    depends = dependences(program.tasks)
    for number, kind in enumerate(kinds):
        level = 0 if kind else -1
        for other in depends[number]:
            forward = kind != "" and kinds[other] != "S"
            level = max(level, levels[other] + int(forward))
        levels.append(level)
    stages = [before]
    for level in range(max(levels, default=-1) + 1):
        members = [n for n, at in enumerate(levels) if at == level]
        stages.append(Stage(True, [n for n in members if kinds[n]]))
        stages.append(Stage(False, [n for n in members if not kinds[n]]))
    before.tasks = [n for n, level in enumerate(levels) if level < 0]
    return [s for s in stages if s.tasks]


def dependences(tasks: Sequence[Task]) -> list[set[int]]:
    """For every task the earlier ones that it must follow."""
    writers: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    result = []
    for number, task in enumerate(tasks):
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


def _kind(program: Program, sample: SampleDim | None, number: int) -> str:
    """``S`` if the task is independent along the samples, ``R`` if it reduces them, else empty."""
    task = program.tasks[number]
    if sample is None or number not in sample.tasks:
        return ""
    dim = sample.tasks[number]
    for access in accesses(task):
        if access.space in sample.spaces and plain(access.index[sample.spaces[access.space]]) != dim:
            return ""
    if _stationary_bytes(program, sample, task, dim) > STATIONARY_LIMIT_BYTES:
        return ""
    if dim in dict(task.parallel):
        written = all(p.space in sample.spaces for p in task.puts)
        return "S" if written else ""
    return "R" if all(_can_split(p) for p in task.puts) else ""


def _stationary_bytes(program: Program, sample: SampleDim, task: Task, dim: str) -> int:
    """Bytes that the task passes over in every block: what it reads without samples, and reduces them into."""
    values = [r.value for r in task.reductions] or [*task.locals, *(p.value for p in task.puts)]
    spaces = {e.space for v in values for e in v.walk() if isinstance(e, Ref) and e.space not in sample.spaces}
    parts = math.prod(n for _, n in task.parallel) * sum(r.type.bytes for r in task.reductions)
    reduces = dim in dict(task.reduced)
    return sum(_bytes(program, s) for s in spaces) + (parts if reduces else 0)


def _can_split(put: Put) -> bool:
    """Whether a reduced store can first be made in parts."""
    return put.combine == "set"


def _bytes(program: Program, space: int) -> int:
    item = program.spaces[space]
    return math.prod(item.shape) * item.type.bytes
