"""Compute once what does not depend on a dim of the results, and read it along that dim.

The gradient of a mean over tokens is one vector for all tokens of a sequence. A product with it, written over every
token, gives as many equal rows. Here a task none of whose values depend on a dim loses it, and so does the plan's own
array that it makes; whatever reads the array reads one element for the whole dim, and may then lose the dim, too. Where
somebody sees the array, or other values of the task do depend on the dim, sums alone are made once, in an array of
their own, and the task becomes one that stores them everywhere.

It is right because equal operands in equal order give equal sums. The order of a sum never depends on which of the
results it is for. Sums *over* such a dim stay as they are: 128 equal addends are not 128 times one, in the last bit.
Results that are rounded at random differ from element to element, so their tasks are left alone.

Example: with g[s, n] for 4 sequences of 128 tokens, d[s, t, m] = sum over n of w[m, n] * g[s, n] becomes d[s, m], of
1/128 of the multiply-adds, and y[s, t, m] = d[s, t, m] * u[s, t, m] reads d[s, m].
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from abele.kernels.nest.ir import Affine, Expr, affine
from abele.kernels.nest.loop_nest import Acc, Bound, Dims, Hash, affine_dims
from abele.kernels.tasks.program import Put, Ref, SpaceTable, Task, TaskProgram, plain

MIN_SUM = 16
"""Points of a sum worth an array of its own: storing a result and loading it again takes the time of so many."""


def compute_once(program: TaskProgram) -> TaskProgram:
    """Compute once what does not depend on a dim of the results, and read it along that dim."""
    spaces, tasks = SpaceTable(program.spaces), list(program.tasks)
    narrowed: set[int] = set()
    number = 0
    while number < len(tasks):
        task = tasks[number]
        if task.reductions or task.reads & narrowed:
            for dim in _unused(task, _of_values(task)):
                places = _places(spaces, tasks, number, dim)
                if places is not None:
                    tasks = [_without(other, places) for other in tasks]
                    tasks[number] = _less(tasks[number], dim)
                    spaces = _narrowed(spaces, places)
                    narrowed |= places.keys()
            parts = _in_two(spaces, tasks[number])
            tasks[number : number + 1] = parts
            number += len(parts) - 1
        number += 1
    return replace(program, spaces=spaces.all(), tasks=tuple(tasks))


def _unused(task: Task, names: frozenset[str]) -> list[str]:
    """Dims of the results that are not among ``names``; none where results are rounded at random, or go to rows."""
    if task.stores_in_rows or any(isinstance(e, Hash) for e in task.expressions()):
        return []
    return [d for d, extent in task.parallel if extent > 1 and d not in names]


def _of_values(task: Task) -> frozenset[str]:
    """Dims on which values, or whether they count, depend."""
    guards = [*(g for r in task.reductions for g in r.guards), *(g for p in task.puts for g in p.guards)]
    return frozenset(_names(task.expressions())) | {name for g in guards for name in g.position.names}


def _names(parts: Iterator[Expr]) -> Iterator[str]:
    for part in parts:
        match part:
            case Ref():
                positions = (*part.index, *(b.position for b in part.bounds))
                yield from (name for position in positions for name in position.names)
            case _:
                yield from affine_dims(part)


def _places(spaces: SpaceTable, tasks: list[Task], number: int, dim: str) -> dict[int, int] | None:
    """Place of ``dim`` in every space that task ``number`` makes; None where one of them has to keep it."""
    found: dict[int, int] = {}
    task = tasks[number]
    for put in task.puts:
        places = [n for n, position in enumerate(put.index) if dim in position.names]
        space = spaces[put.space]
        if len(places) != 1 or space.pinned or put.combine != "set" or put.space in found or put.space in task.reads:
            return None
        (place,) = places
        if plain(put.index[place]) != dim or task.extents[dim] != space.shape[place]:
            return None
        if any(put.space in other.in_rows or (other is not task and put.space in other.writes) for other in tasks):
            return None
        found[put.space] = place
    return found


def _less(task: Task, dim: str) -> Task:
    """``task`` without ``dim``."""
    digits = tuple(tuple(d for d in names if d != dim) for names in task.digits)
    return replace(task, parallel=_but(task.parallel, dim), digits=digits)


def _but(dims: Dims, dim: str) -> Dims:
    return tuple(pair for pair in dims if pair[0] != dim)


def _without(task: Task, places: dict[int, int]) -> Task:
    """``task`` with spaces that have a place less."""
    if not places.keys() & (task.reads | task.writes):
        return task

    def index(space: int, positions: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return tuple(a for n, a in enumerate(positions) if n != places[space])

    def change(part: Expr) -> Expr | None:
        if isinstance(part, Ref) and part.space in places:
            return replace(part, index=index(part.space, part.index))
        return None

    task = task.rewritten(change)
    return replace(
        task, puts=tuple(replace(p, index=index(p.space, p.index)) if p.space in places else p for p in task.puts)
    )


def _narrowed(spaces: SpaceTable, places: dict[int, int]) -> SpaceTable:
    """``spaces`` without the places that were left out."""
    return SpaceTable(
        replace(space, shape=tuple(n for place, n in enumerate(space.shape) if place != places.get(space.number)))
        for space in spaces.all()
    )


def _in_two(spaces: SpaceTable, task: Task) -> list[Task]:
    """``task``, or two in its place: its sums alone, and its stores along the dims that these do not know."""
    guards: list[Bound] = [g for r in task.reductions for g in r.guards]
    names = frozenset(_names(e for r in task.reductions for e in r.value.walk()))
    dims = _unused(task, names | {name for g in guards for name in g.position.names})
    own = tuple(pair for pair in task.parallel if pair[0] not in dims)
    stored = {p.space for p in task.puts}
    # What a point stores must not reach the sums of a later one.
    if not dims or not own or math.prod(n for _, n in task.reduced) < MIN_SUM or stored & _read(task):
        return [task]
    index = tuple(affine(d) for d, _ in own)
    made = [spaces.add(tuple(n for _, n in own), r.type, f"{task.name}.once").number for r in task.reductions]
    sums = tuple(Put(space, index, Acc(number)) for number, space in enumerate(made))
    first = replace(task, name=f"{task.name}.once", parallel=own, puts=sums, locals=(), digits=())

    def change(part: Expr) -> Expr | None:
        return Ref(made[part.number], index) if isinstance(part, Acc) else None

    return [first, replace(task, reduced=(), reductions=()).rewritten(change)]


def _read(task: Task) -> set[int]:
    return {e.space for r in task.reductions for e in r.value.walk() if isinstance(e, Ref)}
