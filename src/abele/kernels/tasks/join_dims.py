"""Join the digits of loops that were split for nothing.

A loop dim is split wherever some view of a buffer splits it. How a buffer is stored that only the plan sees is the
plan's own choice, so where the same two digits run side by side through everything that has them, and no caller's
buffer keeps them apart, they are one dim: samples that one layer stores in blocks of 16 stay whole samples.

It is right because a pair is joined everywhere or nowhere. The union of all dims that loops tie together
(:func:`abele.kernels.tasks.sample_dim.common_dims`) says what a digit is in every space and task; two of them can be
one where they appear in the same ones, next to each other in the caller's buffers, and where every other position (a
window, a guard, a loop index) steps through the slower as through one count of the faster. Splitting less in the first
place is no way out: a digit is needed until the last view has been seen, and only then is it known that nothing did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from abele.kernels.nest.ir import Affine, Expr, Index
from abele.kernels.nest.loop_nest import Bound, Dims, Hash, RowFetch
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.program import Put, Ref, SampleDim, Space, Task, TaskProgram, plain
from abele.kernels.tasks.sample_dim import accesses, common_dims

Pair = tuple[SampleDim, SampleDim]
"""Two dims that become one, the slower first."""


def join_dims(program: TaskProgram) -> TaskProgram:
    """Join the digits of split loops that nothing keeps apart."""
    # Joining may bring further digits together: of three, two are joined in the first round and the third in the
    # second.
    while pairs := _pairs(program):
        program = join_pairs(program, pairs)
    return program


def join_pairs(program: TaskProgram, pairs: list[Pair]) -> TaskProgram:
    """``program`` with each of ``pairs`` as one dim; nothing may keep them apart, and no dim be in two of them."""
    return replace(program, spaces=_join_spaces(program, pairs), tasks=_join_tasks(program, pairs))


def users_of_spaces(program: TaskProgram) -> dict[int, set[int]]:
    """The numbers of the tasks that touch each space."""
    users: dict[int, set[int]] = {}
    for number, task in enumerate(program.tasks):
        for space in task.reads | task.writes:
            users.setdefault(space, set()).add(number)
    return users


def _pairs(program: TaskProgram) -> list[Pair]:
    """Pairs of digits that can be joined, no dim in more than one."""
    users = users_of_spaces(program)
    # Only dims that run through the same spaces and tasks can be joined, so only they are compared.
    alike: dict[tuple[frozenset[int], frozenset[int]], list[SampleDim]] = {}
    # Rows that values name are found by address.
    in_rows = frozenset[int]().union(*(task.in_rows for task in program.tasks))
    for dim in (d for d in common_dims(program) if not in_rows & d.spaces.keys()):
        alike.setdefault((frozenset(dim.spaces), frozenset(dim.tasks)), []).append(dim)
    pairs: list[Pair] = []
    for dims in alike.values():
        joined: set[int] = set()
        for pair in neighbours(program, dims):
            if not joined & {id(d) for d in pair} and kept_apart_by(program, pair, users) == frozenset():
                joined |= {id(d) for d in pair}
                pairs.append(pair)
    return pairs


def neighbours(program: TaskProgram, dims: list[SampleDim]) -> Iterator[Pair]:
    """Pairs of ``dims`` that are digits of one loop, one right after the other, in every task with a split loop.

    Tasks written with a loop for each digit, as copies of views are, have no split; but some task has one.
    """
    for outer in dims if len(dims) > 1 else []:
        faster = {n: _next_digit(program.tasks[n], name) for n, name in outer.tasks.items()}
        for inner in dims:
            names = [(n, (name, inner.tasks[n])) for n, name in outer.tasks.items()]
            split = [n for n, both in names if any(d in digits for digits in program.tasks[n].digits for d in both)]
            if split and all(faster[n] == inner.tasks[n] for n in split):
                yield outer, inner


def _next_digit(task: Task, name: str) -> str | None:
    """The next faster digit of the loop dim that ``name`` is a digit of."""
    digits = next((d for d in task.digits if name in d), ())
    return next((d for d in digits[digits.index(name) + 1 :] if d in task.extents), None) if digits else None


def kept_apart_by(program: TaskProgram, pair: Pair, users: dict[int, set[int]]) -> frozenset[int] | None:
    """The caller's buffers in which something lies between the digits of ``pair``; None if tasks keep them apart.

    Args:
        program: The tasks, and what they run over.
        pair: Two digits that run through the same spaces and tasks.
        users: See :func:`users_of_spaces`.
    """
    outer, inner = pair
    # Somebody touches a space without running over the digit (through a window, say): its address would change.
    if any(not users[number] <= outer.tasks.keys() for number in outer.spaces):
        return None
    if not all(_runs_whole(program.tasks[n], pair, name, inner.tasks[n]) for n, name in outer.tasks.items()):
        return None
    pinned = {n: place for n, place in outer.spaces.items() if program.spaces[n].pinned}
    return frozenset(n for n, place in pinned.items() if inner.spaces[n] != place + 1)


def _runs_whole(task: Task, pair: Pair, slow: str, fast: str) -> bool:
    """True if ``task`` runs over both digits as over one."""
    parallel = dict(task.parallel)
    if (slow in parallel) != (fast in parallel):
        return False
    places = [dim.spaces for dim in pair]
    positions = list(_positions(task))
    for access in accesses(task):
        index = access.index
        if access.space in places[0]:
            here = [places[n][access.space] for n in (0, 1)]
            if [plain(index[p]) for p in here] != [slow, fast]:
                return False
            index = tuple(a for p, a in enumerate(index) if p not in here)
        positions += index
    count = task.extents[fast]
    # A window or guard that steps otherwise needs the two apart.
    return all(a.coefficient(slow) == count * a.coefficient(fast) for a in positions)


def _positions(task: Task) -> Iterator[Affine]:
    """Every position in ``task`` that is not an index into a space."""
    conditions = [r.guards for r in task.reductions] + [p.guards for p in task.puts] + [r.bounds for r in task.refs]
    yield from (bound.position for bounds in conditions for bound in bounds)
    for part in task.expressions():
        match part:
            case Index():
                yield part.affine
            case Hash():
                yield part.index
            case RowFetch():
                yield part.access.address
    yield from (put.index[0] for put in task.puts if put.place is not None)


def _join_spaces(program: TaskProgram, pairs: list[Pair]) -> tuple[Space, ...]:
    spaces = list(program.spaces)
    for number, space in enumerate(spaces):
        here = {a.spaces[number]: b.spaces[number] for a, b in pairs if number in a.spaces}
        if here:
            extents = enumerate(space.shape)
            joined = (n * space.shape[here[p]] if p in here else n for p, n in extents if p not in here.values())
            spaces[number] = replace(space, shape=tuple(joined))
    return tuple(spaces)


def _join_tasks(program: TaskProgram, pairs: list[Pair]) -> tuple[Task, ...]:
    tasks = list(program.tasks)
    for number, task in enumerate(tasks):
        here = [pair for pair in pairs if number in pair[0].tasks]
        if here:
            tasks[number] = _Joining(task, number, here).task()
    return tuple(tasks)


class _Joining:
    """One task on the way to fewer dims; the former slower digit counts through both."""

    def __init__(self, task: Task, number: int, pairs: list[Pair]) -> None:
        self.old, self.pairs = task, pairs
        self.faster = {slow.tasks[number]: fast.tasks[number] for slow, fast in pairs}

    def task(self) -> Task:
        """The task with its digits joined."""
        changed = self.old.rewritten(self._part)
        reductions = (replace(r, guards=self._bounds(r.guards)) for r in changed.reductions)
        return replace(
            changed,
            parallel=self._dims(self.old.parallel),
            reduced=self._dims(self.old.reduced),
            reductions=tuple(reductions),
            puts=tuple(self._put(p) for p in changed.puts),
            digits=self._digits(),
        )

    def _dims(self, dims: Dims) -> Dims:
        extents, gone = self.old.extents, set(self.faster.values())
        return tuple((d, n * extents[self.faster[d]] if d in self.faster else n) for d, n in dims if d not in gone)

    def _digits(self) -> tuple[tuple[str, ...], ...]:
        gone = set(self.faster.values())
        return tuple(tuple(d for d in digits if d not in gone) for digits in self.old.digits)

    def _part(self, part: Expr) -> Expr | None:
        match part:
            case Ref():
                return replace(part, index=self._index(part.space, part.index), bounds=self._bounds(part.bounds))
            case RowFetch():
                return part.moved(self._position, lambda row: rewrite(row, self._part))
            case Index():
                return Index(self._position(part.affine))
            case Hash():
                return replace(part, index=self._position(part.index))
        return None

    def _put(self, put: Put) -> Put:
        if put.place is not None:
            return replace(put, index=(self._position(put.index[0]),), guards=self._bounds(put.guards))
        return replace(put, index=self._index(put.space, put.index), guards=self._bounds(put.guards))

    def _bounds(self, bounds: tuple[Bound, ...]) -> tuple[Bound, ...]:
        return tuple(Bound(self._position(b.position), b.extent) for b in bounds)

    def _index(self, space: int, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """``index`` without the places of faster digits; the slower ones are whole dims before and after."""
        here = {a.spaces[space]: b.spaces[space] for a, b in self.pairs if space in a.spaces}
        kept = ((p, a) for p, a in enumerate(index) if p not in here.values())
        return tuple(a if p in here else self._position(a) for p, a in kept)

    def _position(self, position: Affine) -> Affine:
        terms = dict(position.terms)
        for slow, fast in self.faster.items():
            terms[slow] = terms.pop(fast, 0)
        return Affine(tuple(terms.items()), position.const)
