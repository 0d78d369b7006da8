"""Join the digits of loops that were split for nothing.

A loop dim is split wherever some view of a buffer splits it. How a buffer is stored that only the plan sees is the
plan's own choice, so where the same two digits run side by side through everything that has them, and no caller's
buffer keeps them apart, they are one dim: samples that one layer stores in blocks of 16 stay whole samples.

It is right because a pair is joined everywhere or nowhere. From two digits of one loop, :func:`pairs_of_digits` follows
accesses to the places of these digits in spaces, and from there to the loops of every other task, until nothing is
added. The pair can be one dim where both digits are found together each time, next to each other in the caller's
buffers, and where every other position (a window, a guard, a loop index) steps through the slower as through one count
of the faster. A task or a space may have the pair several times: scores of queries by keys have the tokens twice.

Where views of a buffer agree on no digits, a place of its space is indexed by address, and the next faster place may
have a digit that both happen to share. Such a place takes the faster one in, and the digits of either view are free.

Splitting less in the first place is no way out: a digit is needed until the last view has been seen, and only then is
it known that nothing did.

Example: 8 sequences of 100 tokens are 800 rows, which products store in groups of 16. A copy between the two has a
space [2, 100, 4] at ``[s1, 25*s0 + t1, t0]``, for sequence ``4*s1 + s0`` and token ``4*t1 + t0``, and at ``[g1, 4*g0 +
r1, r0]``, for row ``4*r1 + r0`` of group ``25*g1 + g0``. It becomes [2, 400], at ``[s1, 100*s0 + t]`` and ``[g1, 16*g0
+ r]``: attention has its 100 tokens and products their 16 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from abele.kernels.nest.ir import Affine, Expr, Index
from abele.kernels.nest.loop_nest import Bound, Dims, Hash, RowFetch
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.program import Put, Ref, Space, Task, TaskProgram, plain
from abele.kernels.tasks.sample_dim import accesses

D = TypeVar("D", str, int)


@dataclass(frozen=True)
class DigitPair:
    """Two digits, a slower and a faster one, that can become one dim.

    Attributes:
        tasks: By the number of a task, the name of the faster digit for that of the slower one.
        spaces: By the number of a space, the place of the faster digit for that of the slower one.
        apart: The caller's spaces in which something lies between the two.
    """

    tasks: Mapping[int, Mapping[str, str]]
    spaces: Mapping[int, Mapping[int, int]]
    apart: frozenset[int] = frozenset()

    @property
    def members(self) -> set[tuple[str, int, str | int]]:
        """The loops and places that it joins."""
        found: set[tuple[str, int, str | int]] = set()
        for kind, numbers in (("task", self.tasks), ("space", self.spaces)):
            found |= {(kind, n, d) for n, pairs in numbers.items() for pair in pairs.items() for d in pair}
        return found


def join_dims(program: TaskProgram) -> TaskProgram:
    """Join the digits of split loops that nothing keeps apart."""
    # Joining may bring further digits together: of three, two are joined in the first round and the third in the
    # second.
    while pairs := _apart_from_each_other(pair for pair in pairs_of_digits(program) if not pair.apart):
        program = join_pairs(program, pairs)
    return program


def _apart_from_each_other(pairs: Iterator[DigitPair]) -> list[DigitPair]:
    """Pairs that can be joined at once, of ``pairs``: no loop or place is in two of them."""
    chosen, taken = list[DigitPair](), set[tuple[str, int, str | int]]()
    for pair in pairs:
        members = pair.members
        if not members & taken:
            taken |= members
            chosen.append(pair)
    return chosen


def pairs_of_digits(program: TaskProgram) -> Iterator[DigitPair]:
    """Every two digits that are next to each other in a split loop, and that no task keeps apart."""
    search = _Search(program)
    for number, following in enumerate(search.following):
        for slow, fast in following.items():
            if (pair := search.pair(number, slow, fast)) is not None:
                yield pair


def _add(pairs: dict[D, D], slow: D, fast: D) -> bool:
    """Add a pair to ``pairs``; False if one of the two is in another pair."""
    if pairs.get(slow) == fast:
        return True
    known = {*pairs, *pairs.values()}
    pairs[slow] = fast
    return slow not in known and fast not in known


_Member = tuple[str, int, str, str] | tuple[str, int, int, int]
"""Kind (``task``, ``space`` or ``address``), number, and the slower and the faster loop or place."""


@dataclass(frozen=True)
class _IndexedUse:
    """A load or store.

    Attributes:
        task: Number of the task.
        space: Number of the space.
        index: Positions in the space.
        loops: The loop that runs over all of each place, and nothing else; None where none does.
        names: The loops in the index.
    """

    task: int
    space: int
    index: tuple[Affine, ...]
    loops: tuple[str | None, ...]
    names: frozenset[str]


class _Search:
    """Follows pairs of digits through a program."""

    def __init__(self, program: TaskProgram) -> None:
        self.program = program
        self.seen = set[_Member]()
        self.apart = set[_Member]()
        # Rows that values name, and seeds, are found by address.
        self.fixed = set[int]().union(*(task.in_rows for task in program.tasks))
        self.by_task: list[list[_IndexedUse]] = []
        self.by_space: dict[int, list[_IndexedUse]] = {}
        self.positions: list[list[Affine]] = []
        # By task, the next faster digit of a loop for each but the last.
        self.following: list[dict[str, str]] = []
        for number, task in enumerate(program.tasks):
            self.by_task.append([self._use(number, access) for access in accesses(task)])
            for use in self.by_task[-1]:
                self.by_space.setdefault(use.space, []).append(use)
            self.positions.append(list(dict.fromkeys(_positions(task))))
            kept = ([d for d in digits if d in task.extents] for digits in task.digits)
            self.following.append({slow: fast for digits in kept for slow, fast in pairwise(digits)})
            self.fixed |= {part.seed.array for part in task.expressions() if isinstance(part, Hash)}

    def _use(self, number: int, access: Ref | Put) -> _IndexedUse:
        shape, extents = self.program.spaces[access.space].shape, self.program.tasks[number].extents
        found = zip(map(plain, access.index), shape, strict=True)
        loops = tuple(name if name is not None and extents[name] == extent else None for name, extent in found)
        names = frozenset(name for position in access.index for name in position.names)
        return _IndexedUse(number, access.space, access.index, loops, names)

    def pair(self, task: int, slow: str, fast: str) -> DigitPair | None:
        """All of the pair that ``slow`` and ``fast`` of ``task`` are part of; None if it must stay two, or was seen."""
        first: _Member = ("task", task, slow, fast)
        if first in self.seen or first in self.apart:
            return None
        # Members by whether they lead back to the first: addresses lead on to loops, but these not back.
        left, found = [first], {first: True}
        while left:
            member = left.pop()
            leads_back = found[member] and member[0] != "address"
            for linked in self._linked(member):
                if linked is None or linked in self.apart:
                    self.apart |= {m for m, leads in found.items() if leads}
                    return None
                if linked not in found:
                    found[linked] = leads_back
                    left.append(linked)
        self.seen |= {m for m, leads in found.items() if leads}
        return self._pair_of(found)

    def _pair_of(self, found: Iterable[_Member]) -> DigitPair | None:
        """The pair with the parts ``found``; None if a loop or place would be joined with two others."""
        tasks: dict[int, dict[str, str]] = {}
        spaces: dict[int, dict[int, int]] = {}
        for member in found:
            match member:
                case ("task", number, str(slow), str(fast)):
                    is_new = _add(tasks.setdefault(number, {}), slow, fast)
                case (_, number, int(slow), int(fast)):
                    is_new = _add(spaces.setdefault(number, {}), slow, fast)
            if not is_new:
                return None
        pinned = (n for n in spaces if self.program.spaces[n].pinned)
        return DigitPair(tasks, spaces, frozenset(n for n in pinned if any(q != p + 1 for p, q in spaces[n].items())))

    def _linked(self, member: _Member) -> Iterator[_Member | None]:
        """Members that are joined if ``member`` is; None among them if it cannot be."""
        match member:
            case ("task", number, str(slow), str(fast)):
                yield from self._places(number, slow, fast)
            case ("space", number, int(slow), int(fast)):
                yield from self._loops(number, slow, fast)
            case ("address", number, int(slow), int(fast)):
                yield from self._addresses(number, slow, fast)

    def _places(self, number: int, slow: str, fast: str) -> Iterator[_Member | None]:
        """Places of two loops of a task."""
        task = self.program.tasks[number]
        parallel, following = dict(task.parallel), self.following[number]
        # Tasks written with a loop for each digit, as copies of views are, go from one loop to the next.
        goes_on = slow not in following and fast not in following.values()
        if not (goes_on or following.get(slow) == fast) or (slow in parallel) != (fast in parallel):
            yield None
        count = task.extents[fast]

        def follows(position: Affine) -> bool:
            return position.coefficient(slow) == count * position.coefficient(fast)

        # A window or guard that steps otherwise needs the two apart.
        if not all(map(follows, self.positions[number])):
            yield None
        for use in self.by_task[number]:
            if slow not in use.names and fast not in use.names:
                continue
            slower = [p for p, loop in enumerate(use.loops) if loop == slow]
            faster = [p for p, loop in enumerate(use.loops) if loop == fast]
            both = list(zip(slower, faster, strict=True)) if len(slower) == len(faster) else []
            yield from (("space", use.space, p, q) for p, q in both)
            for place, position in enumerate(use.index):
                if not follows(position) and not any(place in pair for pair in both):
                    yield self._addressed(use, place if slow in position.names else place - 1, follows)

    def _addressed(self, use: _IndexedUse, place: int, follows: Callable[[Affine], bool]) -> _Member | None:
        """The place of an address that takes in the next one, if that counts through both loops."""
        if not 0 <= place < len(use.index) - 1:
            return None
        both = use.index[place] * self.program.spaces[use.space].shape[place + 1] + use.index[place + 1]
        return ("address", use.space, place, place + 1) if follows(both) else None

    def _loops(self, number: int, slow: int, fast: int) -> Iterator[_Member | None]:
        """Loops over two places of a space."""
        if number in self.fixed:
            yield None
        for use in self.by_space[number]:
            slower, faster = use.loops[slow], use.loops[fast]
            if slower is not None and faster is not None:
                yield "task", use.task, slower, faster
            else:
                yield ("address", number, slow, fast) if fast == slow + 1 else None

    def _addresses(self, number: int, slow: int, fast: int) -> Iterator[_Member | None]:
        """Loops over a place that becomes an address with the next one."""
        uses = self.by_space[number]
        # A slice or a part of a place leaves the others whole dims; only a sum of loops does not.
        if number in self.fixed or not any(len(use.index[slow].names) > 1 for use in uses):
            yield None
        for use in uses:
            slower, faster = use.loops[slow], use.loops[fast]
            if slower is not None and faster is not None:
                yield "task", use.task, slower, faster
            elif use.index[slow].names and not self._goes_on(use, slow, plain(use.index[fast])):
                yield None

    def _goes_on(self, use: _IndexedUse, slow: int, fast: str | None) -> bool:
        """True if ``fast`` is the next digit of a loop that place ``slow`` counts by ones."""
        slower = [d for d, factor in use.index[slow].terms if factor == 1]
        return fast is not None and any(self.following[use.task].get(d) == fast for d in slower)


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


def join_pairs(program: TaskProgram, pairs: Sequence[DigitPair]) -> TaskProgram:
    """``program`` with each of ``pairs`` as one dim; nothing may keep them apart, and nothing be in two of them."""
    spaces, tasks = list(program.spaces), list(program.tasks)
    faster: dict[int, dict[str, str]] = {}
    places: dict[int, dict[int, int]] = {}
    for pair in pairs:
        for number, names in pair.tasks.items():
            faster.setdefault(number, {}).update(names)
        for number, here in pair.spaces.items():
            places.setdefault(number, {}).update(here)
    for number, task in enumerate(tasks):
        if number in faster or places.keys() & (task.reads | task.writes):
            tasks[number] = _Joining(task, faster.get(number, {}), places, program.spaces).task()
    for number, here in places.items():
        shape, gone = spaces[number].shape, set(here.values())
        joined = (n * shape[here[p]] if p in here else n for p, n in enumerate(shape) if p not in gone)
        spaces[number] = replace(spaces[number], shape=tuple(joined))
    return replace(program, spaces=tuple(spaces), tasks=tuple(tasks))


class _Joining:
    """One task on the way to fewer dims; the former slower digit counts through both."""

    def __init__(
        self, task: Task, faster: Mapping[str, str], places: Mapping[int, Mapping[int, int]], spaces: Sequence[Space]
    ) -> None:
        self.old, self.faster, self.places, self.spaces = task, faster, places, spaces
        self.joined = {*faster, *faster.values()}

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
        """The digits of every loop; where one goes on in another, those of both."""
        loops = {d: digits for digits in self.old.digits for d in digits}
        for slow, fast in self.faster.items():
            both = tuple(dict.fromkeys(loops.get(slow, (slow,)) + loops.get(fast, (fast,))))
            loops |= dict.fromkeys(both, both)
        gone = set(self.faster.values())
        return tuple(tuple(d for d in digits if d not in gone) for digits in dict.fromkeys(loops.values()))

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
        """``index`` without the places of faster digits: those of the slower ones count through both."""
        here, shape = self.places.get(space, {}), self.spaces[space].shape
        gone = set(here.values())
        both = (a * shape[here[p]] + index[here[p]] if p in here else a for p, a in enumerate(index) if p not in gone)
        return tuple(map(self._position, both))

    def _position(self, position: Affine) -> Affine:
        if self.joined.isdisjoint(position.names):
            return position
        terms = dict(position.terms)
        for slow, fast in self.faster.items():
            terms[slow] = terms.pop(fast, 0)
        return Affine(tuple(terms.items()), position.const)
