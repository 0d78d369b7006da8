"""Compute shares of attention again in the backward pass, where keeping them from the forward pass costs too much.

A network keeps the shares of all its layers until their gradients are made, and these grow with the square of the
sequence: 400 MB per layer for 8 samples of 1,024 tokens under 12 heads. As long as all of them stay in the last cache,
reading them back is cheaper than anything else. Beyond that, a value that the backward group of a chain reads from the
forward group is made again in the backward group, from queries, keys and what each row had for its maximum and sum;
nothing but these then goes to memory.

It is right because a task that is copied reads what the original read: spaces that nothing writes in between. It gives
the same bits, since the copy is the same arithmetic, masks from random numbers included: they are hashes of a counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from abele.kernels.nest.ir import Expr
from abele.kernels.tasks.drop_unread import drop_unread
from abele.kernels.tasks.fuse_outer_loops import chains_by_level
from abele.kernels.tasks.program import Ref, SpaceTable, Task, TaskProgram

NARROW = 8
"""Ratio to the largest value of a chain below which values are kept all the same, such as row sums."""


def rematerialise(program: TaskProgram) -> TaskProgram:
    """Compute large values between batched products again where they are read late, if keeping all outgrows caches."""
    history = _History(program)
    wanted = [w for levels in chains_by_level(program) for w in _read_late(program, levels, history)]
    kept = {space for item in wanted for space in item.spaces}
    if sum(program.spaces[s].bytes for s in kept) <= program.target.far_bytes:
        return program
    spaces = SpaceTable(program.spaces)
    before: dict[int, list[Task]] = {}
    tasks = list(program.tasks)
    for item in wanted:
        copies = _LateCopies(program, history, item, spaces)
        for space in sorted(item.spaces):
            copies.make(space)
        before.setdefault(min(item.readers), []).extend(copies.tasks)
        for number in item.readers:
            tasks[number] = _reading(tasks[number], copies.made)
    ordered = [t for number, task in enumerate(tasks) for t in (*before.get(number, ()), task)]
    return drop_unread(replace(program, spaces=spaces.all(), tasks=tuple(ordered)))


@dataclass(frozen=True)
class _ReadLate:
    """Earlier values that one level of a chain reads.

    Attributes:
        spaces: The spaces.
        readers: Tasks of the level that read them.
        chain: Every task of the chain.
        largest: Bytes of the largest value in the chain.
    """

    spaces: frozenset[int]
    readers: tuple[int, ...]
    chain: frozenset[int]
    largest: int


class _History:
    """Tasks that write each space, in order."""

    def __init__(self, program: TaskProgram) -> None:
        self.writers: dict[int, list[int]] = {}
        for number, task in enumerate(program.tasks):
            for space in task.writes:
                self.writers.setdefault(space, []).append(number)

    def only_writer(self, space: int) -> int | None:
        """The task that writes ``space``, if it is one alone."""
        writers = self.writers.get(space, [])
        return writers[0] if len(writers) == 1 else None

    def is_written(self, space: int, after: int, before: int) -> bool:
        """True if a task writes ``space`` from task ``after`` on and before task ``before``."""
        return any(after <= n < before for n in self.writers.get(space, []))


def _read_late(program: TaskProgram, levels: Sequence[Sequence[int]], history: _History) -> list[_ReadLate]:
    """For each level the large spaces that it reads and could make again."""
    chain = frozenset(n for level in levels for n in level)
    level_of = {n: place for place, level in enumerate(levels) for n in level}
    written = {s for n in chain for s in program.tasks[n].writes}
    largest = max(program.spaces[s].bytes for s in written)
    found = []
    for place, level in enumerate(levels):
        first = min(level)
        spaces: set[int] = set()
        for space in {s for n in level for s in program.tasks[n].reads & written}:
            writer = history.only_writer(space)
            early = writer is not None and level_of.get(writer, place) < place
            if early and _can_be_made_again(program, history, space, chain, largest, first):
                spaces.add(space)
        if spaces:
            readers = tuple(n for n in level if program.tasks[n].reads & spaces)
            found.append(_ReadLate(frozenset(spaces), readers, chain, largest))
    return found


def _is_large(program: TaskProgram, space: int, largest: int) -> bool:
    item = program.spaces[space]
    return not item.pinned and item.bytes * NARROW > largest


def _can_be_made_again(
    program: TaskProgram, history: _History, space: int, chain: Iterable[int], largest: int, first: int
) -> bool:
    """True if ``space`` is large, and its operands still have their values for task ``first``."""
    writer = history.only_writer(space)
    if writer is None or writer not in set(chain) or not _is_large(program, space, largest):
        return False
    for source in program.tasks[writer].reads:
        again = history.only_writer(source) in set(chain) and _is_large(program, source, largest)
        if again and _can_be_made_again(program, history, source, chain, largest, first):
            continue
        if history.is_written(source, writer, first):
            return False
    return True


class _LateCopies:
    """Tasks that make again, in order, values for late readers, and their spaces by the original."""

    def __init__(self, program: TaskProgram, history: _History, item: _ReadLate, spaces: SpaceTable) -> None:
        self.program, self.history, self.item, self.spaces = program, history, item, spaces
        self.tasks: list[Task] = []
        self.made: dict[int, int] = {}

    def make(self, space: int) -> None:
        """Make ``space`` again, after its operands; another space of the same task is made on the way."""
        if space in self.made:
            return
        writer = self.history.only_writer(space)
        assert writer is not None
        original = self.program.tasks[writer]
        for source in sorted(original.reads):
            if self._is_large(source) and self.history.only_writer(source) in self.item.chain:
                self.make(source)
        wanted = {p.space for p in original.puts if p.space == space or p.space in self.item.spaces}
        for number in sorted(wanted):
            old = self.program.spaces[number]
            self.made[number] = self.spaces.add(old.shape, old.type, f"{old.name}.again").number
        kept = replace(original, puts=tuple(p for p in original.puts if p.space in wanted))
        copy = _reading(kept, self.made)
        puts = tuple(replace(p, space=self.made[p.space]) for p in copy.puts)
        self.tasks.append(replace(copy, name=f"{original.name}.again", puts=puts))

    def _is_large(self, space: int) -> bool:
        return _is_large(self.program, space, self.item.largest)


def _reading(task: Task, made: Mapping[int, int]) -> Task:
    """``task`` reading the values that were made again."""

    def change(part: Expr) -> Expr | None:
        return replace(part, space=made[part.space]) if isinstance(part, Ref) and part.space in made else None

    return task.rewritten(change)
