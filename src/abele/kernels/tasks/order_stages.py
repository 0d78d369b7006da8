"""Order tasks into stages: those that run block after block of samples, and what runs between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from abele.kernels.tasks.program import Program, Put, Ref, SampleDim, Stage, Task, plain
from abele.kernels.tasks.sample_dim import accesses

STATIONARY_LIMIT_BYTES = 1 << 18
"""A task that reads or writes more than this apart from the samples does not run by blocks: every block would pass
over it again, and it would drive the block's own values out of the second-level cache."""


def order_stages(program: Program) -> Program:
    """Order tasks into stages: those that run block after block of samples, and what runs between them."""
    tasks = range(len(program.tasks))
    kinds = [_kind(program, program.samples, n) for n in tasks]
    depends = dependences(program.tasks)
    levels = _latest(kinds, depends, _earliest(kinds, depends, {}))
    levels = _earliest(kinds, depends, {n: levels[n] for n in tasks if kinds[n]})
    stages = [Stage(False, tuple(n for n in tasks if levels[n] < 0))]
    for level in range(max(levels, default=-1) + 1):
        members = [n for n in tasks if levels[n] == level]
        stages.append(Stage(True, tuple(n for n in members if kinds[n])))
        stages.append(Stage(False, tuple(n for n in members if not kinds[n])))
    return replace(program, stages=tuple(s for s in stages if s.tasks))


def _earliest(kinds: Sequence[str], depends: Sequence[set[int]], fixed: dict[int, int]) -> list[int]:
    """For every task the first sweep that it can run in, or after (-1: before all); ``fixed`` ones stay."""
    levels: list[int] = []
    for number, kind in enumerate(kinds):
        least = max((levels[o] + _gap(kinds[o], kind) for o in depends[number]), default=-1)
        levels.append(fixed.get(number, max(least, 0 if kind else -1)))
    return levels


def _latest(kinds: Sequence[str], depends: Sequence[set[int]], earliest: list[int]) -> list[int]:
    """For every task the last sweep that it can run in, or after, without a further one."""
    levels = [max(earliest, default=-1)] * len(kinds)
    for number in reversed(range(len(kinds))):
        for other in depends[number]:
            levels[other] = min(levels[other], levels[number] - _gap(kinds[other], kinds[number]))
    return levels


def _gap(before: str, after: str) -> int:
    """How many sweeps later ``after`` must run than ``before``, on which it depends."""
    return int(after != "" and before != "S")


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
