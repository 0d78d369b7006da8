"""Set elements that a single task adds to, instead of adding to a stored start value.

A kernel whose points fall into classes, such as the input gradient of a convolution two apart, adds each class onto an
output that starts from zeros. No two classes meet in an element. So each may set its own, and zeros are stored only
where there are elements that no class reaches. That saves three of four passes over the output, and leaves products
whose results are set, which pack operands in panels.

Example: with ``z[i] = 0.0`` before them, ``z[2*i] = z[2*i] + a[i]`` and ``z[2*i + 1] = z[2*i + 1] + b[i]`` become
``z[2*i] = a[i]`` and ``z[2*i + 1] = b[i]``, and the zeros are gone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from abele.expr.operation import COMBINES, identity
from abele.kernels.nest.ir import Affine, Apply, Const, compute_type
from abele.kernels.nest.normalise import injective
from abele.kernels.tasks.program import Ref, Space, Task, TaskProgram


def set_once(program: TaskProgram) -> TaskProgram:
    """Set elements that one task alone adds to a start value, and store start values only where others are left."""
    tasks = list(program.tasks)
    for number in range(len(tasks)):
        _set_after(tasks, number, program.spaces)
    kept = tuple(task for task in tasks if task.puts)
    return program if kept == program.tasks else replace(program, tasks=kept)


def _set_after(tasks: list[Task], number: int, spaces: Sequence[Space]) -> None:
    """Let tasks after ``number`` set what they would add to the start values that it stores, if they are apart."""
    start = tasks[number]
    value = start.puts[0].value if len(start.puts) == 1 else None
    if not isinstance(value, Const) or start.reductions or not start.puts[0].is_plain:
        return
    space = spaces[start.puts[0].space]
    if _stored(start) != space.size:
        return
    classes: dict[int, Task] = {}
    for later in range(number + 1, len(tasks)):
        task = tasks[later]
        if space.number not in task.reads | task.writes:
            continue
        made = _setting(task, space, value)
        if made is None:
            break
        classes[later] = made
    places = {n: (task.puts[0].index, task.extents) for n, task in classes.items()}
    if not classes or not all(_are_apart(*places[a], *places[b]) for a, b in combinations(classes, 2)):
        return
    for later, made in classes.items():
        tasks[later] = made
    if sum(map(_stored, classes.values())) == space.size:
        tasks[number] = replace(start, puts=())


def _setting(task: Task, space: Space, start: Const) -> Task | None:
    """``task`` setting what it combines with elements of ``space``; None if it does more, or something else."""
    (put, *others) = task.puts
    before = Ref(space.number, put.index)
    if others or put.space != space.number or not put.is_plain or not injective(put.index, task.extents):
        return None
    if {d for position in put.index for d in position.names} != {d for d, _ in task.parallel}:
        return None
    match put.value:
        case Apply(op=op, args=(first, value)) if first == before and op in COMBINES:
            if start.value != identity(op, compute_type(space.type).np).item():
                return None
            made = replace(task, puts=(replace(put, value=value),))
            return None if space.number in made.reads else made
    return None


def _stored(task: Task) -> int:
    """Elements that a task stores where every point sets its own."""
    return math.prod(extent for _, extent in task.parallel)


def _are_apart(
    a: Sequence[Affine], sizes_a: Mapping[str, int], b: Sequence[Affine], sizes_b: Mapping[str, int]
) -> bool:
    """True if no point of one index is one of the other: in some dim they have other rests, or other ranges."""
    for one, other in zip(a, b, strict=True):
        step = math.gcd(*(factor for _, factor in (*one.terms, *other.terms)))
        (low, high), (least, most) = one.bounds(sizes_a), other.bounds(sizes_b)
        if high < least or most < low or (step > 1 and (one.const - other.const) % step):
            return True
    return False
