"""Group tasks that agree on the rows of their arrays, so that they run one after the other for a few rows at a time.

Norms, softmax and what comes with them (residuals, dropout, masks, scales) pass over arrays that hold many samples of
many tokens. Task by task, each pass reads its operands from memory and writes its results back. But all of them treat a
row (the features of one token) by itself, so they may as well run for a few rows, then for the next few: what passes
from one to another stays in the first-level cache, and what nothing else reads is never in memory at all. Sums over the
rows, such as the gradients of scales and biases, are made on the way in a fixed number of chunks, as in loops over
blocks of samples (:mod:`abele.kernels.tasks.block_samples`), and combined afterwards.

It is the loop over blocks again, with rows of several dims instead of one sample dim that has to run through the whole
program: each group has rows of its own. The rows of a group are the dims that all its tasks have, either as parallel
dims or, of a sum over rows, as reduced ones. Tasks that meet in an array must meet at the same row.

Tasks are taken in order and put into a list of steps. A task can join a step if all that it depends on is in that step
or before it; nothing yet depends on the task, so any later step will do, and the first that fits is taken. Otherwise it
becomes a step of its own at the end. So the list is in order at any time, whatever is joined.

Contractions are left alone: they use operands many times, and have better orders of their own.

Example: 8 samples of 512 tokens are 4,096 rows. In f32, a block of 8 rows of 768 features takes 24 KB of each array.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from abele.kernels.tasks.copy_operands import is_product
from abele.kernels.tasks.flatten import Blocked, flatten
from abele.kernels.tasks.layout import SpaceLayout, lanes_innermost, rows_of_block
from abele.kernels.tasks.order_stages import dependences
from abele.kernels.tasks.program import Put, Ref, RowDims, Space, Task, TaskProgram, TaskStage, plain
from abele.kernels.tasks.sample_dim import DimClasses, Node, accesses, dim_classes
from abele.layout import row_major

# Blocks whose tasks run along the rows of a sample: values between them lie in rows, too, in small blocks.
#
# Where samples are the rows of large arrays, each passed over once, vectors run along the rows and not across samples.
# A block is then no vector of samples but as many rows as stay in the first-level cache from one task to the next.
#
# Whether a task runs along rows depends on how the spaces that it touches are stored, and that depends on the tasks
# that touch them: :func:`spaces_in_rows` starts from all of them in rows and takes out, until nothing changes, what a
# task across samples touches. That is the largest set that agrees with itself.

BLOCK_BYTES = 3 << 13
"""Most bytes of a block of rows: most of a first-level cache of 32 KiB, the smallest that is common."""


def spaces_in_rows(program: TaskProgram, local: set[int]) -> set[int]:
    """Spaces of ``local``, which exist for one block at a time, touched by tasks along rows only."""
    rows = set(local)
    tasks = [(task, dim) for task, dim in _tasks_by_blocks(program) if local & (task.reads | task.writes)]
    # Taking out one space may make another task run across samples, so go on until none is taken out.
    while True:
        across = [t for t, dim in tasks if not _runs_along_rows(program, t, dim, local, rows)]
        left = rows.difference(*(t.reads | t.writes for t in across))
        if left == rows:
            return rows
        rows = left


def rows_in_block(program: TaskProgram, local: set[int], rows: set[int]) -> int:
    """Samples in a block: as many as before, or fewer where all tasks pass once along rows that take too much room."""
    samples, block = program.samples, program.block
    assert samples is not None
    by_blocks = list(_tasks_by_blocks(program))
    tasks = [task for task, _ in by_blocks]
    spaces = {space for task in tasks for space in task.reads | task.writes if space in samples.spaces}
    again = any(reads_again(program.spaces[s], tasks) for s in spaces - local)  # read from copies across samples
    # Smaller blocks would mean more copies, or more partial sums to combine.
    if again or any(dim in dict(task.reduced) for task, dim in by_blocks):
        return block
    if not all(_runs_along_rows(program, task, dim, local, rows) for task, dim in by_blocks):
        return block
    row = sum(program.spaces[s].bytes // samples.extent for s in spaces)
    while block > 1 and block * row > BLOCK_BYTES:
        block //= 2
    return block


def reads_again(space: Space, tasks: Collection[Task]) -> bool:
    """True if one of ``tasks`` reads elements of ``space`` more than once."""
    return any(t.points > space.size for t in tasks for r in t.refs if r.space == space.number)


def _tasks_by_blocks(program: TaskProgram) -> Iterator[tuple[Task, str]]:
    """Every task that runs by blocks, and its name of the sample dim."""
    samples = program.samples
    assert samples is not None
    return ((program.tasks[n], samples.tasks[n]) for s in program.stages if s.by_blocks for n in s.tasks)


def _runs_along_rows(program: TaskProgram, task: Task, dim: str, local: Collection[int], rows: set[int]) -> bool:
    samples, block = program.samples, program.block
    assert samples is not None
    places = samples.spaces

    def layout(space: int) -> SpaceLayout:
        shape = program.spaces[space].shape
        if space in rows:
            return rows_of_block(shape, places[space], block)
        if space in local:
            return lanes_innermost(shape, places[space], block, blocks_apart=False)
        return SpaceLayout(row_major(shape))

    nest, _ = flatten(task, program.spaces, layout, Blocked(dim, samples.extent, block, places))
    return not nest.lane


MIN_ROWS = 32
"""Rows of a group, so that threads share them evenly."""
MIN_ROW, MAX_ROW_BYTES = 64, 1 << 16
"""Least elements of a row for a loop of its own, and most bytes of an array that stays in a cache."""
MAX_SUMS_BYTES = 1 << 17
"""Most bytes of the sums of a task over the rows: every chunk has its own, which pass by with every few rows."""
MIN_REUSE = 16
"""Uses of each operand element from which a task is bound by arithmetic, not by memory."""


def group_rows(program: TaskProgram) -> TaskProgram:
    """Group tasks that agree on the rows of their arrays, to run together for a few rows at a time."""
    if any(stage.rows is not None for stage in program.stages):
        return program  # found on the way to the choice of samples
    finder = _Finder(program)
    stages = tuple(part for stage in program.stages for part in finder.parts(stage))
    return program if stages == program.stages else replace(program, stages=stages)


@dataclass(frozen=True)
class _Member:
    """A task as a member of a group.

    Attributes:
        number: Of the task.
        names: Its name of every dim that it has once, by what the dim is in the whole program.
        reduced: True if the rows are among its reduced dims.
    """

    number: int
    names: Mapping[Node, str]
    reduced: bool


@dataclass
class _Step:
    """Tasks that run together, or one by itself.

    Attributes:
        members: The tasks; empty where the step cannot be joined.
        rows: The dims of the rows, outermost first: those that all members have.
        tasks: Numbers of the tasks, in order.
    """

    tasks: list[int]
    members: list[_Member] = field(default_factory=list)
    rows: tuple[Node, ...] = ()


class _Finder:
    """Finds the groups of a program's stages."""

    def __init__(self, program: TaskProgram) -> None:
        self.program = program
        self.fixed = {n for group in program.groups for n in group.tasks}
        self.depends = dependences(program.tasks)
        self.classes: DimClasses | None = None

    def parts(self, stage: TaskStage) -> Iterator[TaskStage]:
        """``stage``, or the stages into which its groups divide it."""
        if stage.by_blocks or len(stage.tasks) < 2:
            yield stage
            return
        if self.classes is None:
            self.classes = dim_classes(self.program)
        whole: list[int] = []
        for step in self._steps(stage.tasks):
            rows = self._row_dims(step)
            if rows is None:
                whole += step.tasks
                continue
            if whole:
                yield TaskStage(False, tuple(whole))
            whole = []
            yield TaskStage(False, tuple(step.tasks), rows)
        if whole:
            yield TaskStage(False, tuple(whole))

    def _steps(self, numbers: Sequence[int]) -> list[_Step]:
        steps: list[_Step] = []
        place: dict[int, int] = {}
        groups = {n: group.tasks for group in self.program.groups for n in group.tasks}
        for number in numbers:
            if number in place:
                continue
            together = groups.get(number, (number,))
            first = max((place[d] for n in together for d in self.depends[n] if d in place), default=0)
            members = [] if len(together) > 1 else self._members(number)
            found = self._join(steps, first, number, members)
            if found is None:
                found = len(steps)
                step = _Step(list(together))
                if members and not members[0].reduced:
                    step.members, step.rows = members[:1], tuple(members[0].names)
                steps.append(step)
            # Sums over rows are there after the last row only, for a later step.
            late = any(m.number == number and m.reduced for m in steps[found].members)
            place |= dict.fromkeys(together, found + late)
        return steps

    def _members(self, number: int) -> list[_Member]:
        """The task in the roles that it can have in a group: row by row, or summing over rows."""
        task = self.program.tasks[number]
        if not _is_row_wise(self.program, task):
            return []
        found = []
        for dims, reduced in ((task.parallel, False), (task.reduced, True)):
            names = self._once(number, dims)
            if names and not (reduced and not _sums_are_small(task)):
                found.append(_Member(number, names, reduced))
        return found

    def _once(self, number: int, dims: Sequence[tuple[str, int]]) -> dict[Node, str]:
        """Dims of the task that no other of its dims is the same as."""
        assert self.classes is not None
        every = [self.classes.of_task(number, d) for d in self.program.tasks[number].extents]
        named = {self.classes.of_task(number, d): d for d, _ in dims}
        return {node: d for node, d in named.items() if every.count(node) == 1}

    def _join(self, steps: list[_Step], first: int, number: int, roles: Sequence[_Member]) -> int | None:
        """The first step that the task has joined; None if there is none that it fits."""
        large = self._large(number)
        for place in range(first, len(steps)):
            step = steps[place]
            if not any(large & self._large(m.number) for m in step.members):
                continue
            fits = [(self._count(self._shared(step, m), step), m) for m in roles if self._fits(step, m)]
            if fits:
                _, member = max(fits, key=lambda f: f[0])
                step.rows = self._shared(step, member)
                step.members.append(member)
                step.tasks.append(number)
                return place
        return None

    def _large(self, number: int) -> frozenset[int]:
        """Arrays of the task that are large enough to pass over them once instead of twice."""
        spaces = self.program.spaces
        return frozenset(s for s in self._touched(number) if spaces[s].size >= MIN_ROWS * MIN_ROW)

    def _touched(self, number: int) -> frozenset[int]:
        task = self.program.tasks[number]
        return task.reads | task.writes

    def _count(self, rows: Collection[Node], step: _Step) -> int:
        first = step.members[0]
        extents = self.program.tasks[first.number].extents
        return math.prod(extents[first.names[node]] for node in rows)

    def _shared(self, step: _Step, member: _Member) -> tuple[Node, ...]:
        """The rows of ``step`` that ``member`` has, too: no row starts inside another, so the outermost of them."""
        return tuple(takewhile(member.names.__contains__, step.rows))

    def _fits(self, step: _Step, member: _Member) -> bool:
        """True if ``member`` may join ``step``: enough rows are left, and all meet at the same ones."""
        rows = self._shared(step, member)
        if not rows or self._count(rows, step) < MIN_ROWS:
            return False
        members = [*step.members, member]
        if any(self._row_bytes(m, rows) > MAX_ROW_BYTES for m in members):
            return False
        return self._places(members, rows) is not None

    def _row_bytes(self, member: _Member, rows: Collection[Node]) -> int:
        """Bytes of one row of the largest array that the task touches along ``rows``."""
        task = self.program.tasks[member.number]
        names = {member.names[node] for node in rows}
        count = math.prod(task.extents[d] for d in names)
        along = (a for a in accesses(task) if names <= {d for p in a.index for d in p.names})
        return max((self.program.spaces[a.space].bytes for a in along), default=0) // count

    def _longest_row(self, step: _Step, rows: Collection[Node]) -> int:
        return max(self._row_bytes(m, rows) for m in step.members)

    def _places(self, members: Sequence[_Member], rows: Collection[Node]) -> dict[int, dict[Node, int]] | None:
        """The places of ``rows`` in every array in which tasks meet; None where they meet at different rows."""
        tasks = self.program.tasks
        written = {s for m in members if not m.reduced for s in tasks[m.number].writes}
        found: dict[int, dict[Node, int]] = {}
        for member in members:
            for access in accesses(tasks[member.number]):
                if access.space not in written or (member.reduced and isinstance(access, Put)):
                    continue
                places = _places_in(access, {node: member.names[node] for node in rows})
                if places is None or found.setdefault(access.space, places) != places:
                    return None
        return found

    def _row_dims(self, step: _Step) -> RowDims | None:
        """Dims along which the tasks of ``step`` run row by row; None where they do not."""
        if len(step.members) < 2:
            return None
        rows = self._outermost(step)
        if self._longest_row(step, rows) > MAX_ROW_BYTES:
            return None
        places = self._places(step.members, rows) if rows else None
        if not rows or places is None or self._count(rows, step) < MIN_ROWS:
            return None
        tasks = self.program.tasks
        first = step.members[0]
        extents = tuple(tasks[first.number].extents[first.names[node]] for node in rows)
        inside = set(step.tasks)
        others = frozenset().union(*(self._touched(n) for n in range(len(tasks)) if n not in inside))
        local = {s: tuple(at[node] for node in rows) for s, at in places.items()}
        local = {s: at for s, at in local.items() if s not in others and not self.program.spaces[s].pinned}
        dims = tuple(tuple(m.names[node] for node in rows) for m in step.members)
        return RowDims(extents, self._block(step, rows, extents), dims, local)

    def _outermost(self, step: _Step) -> list[Node]:
        """Rows, without dims of too short rows and dims along which large arrays lie."""
        longest = max(self.program.tasks[m.number].points for m in step.members)
        streams = {node for m in step.members for node in self._streams(m, longest)}
        rows = list(takewhile(lambda node: node not in streams, step.rows))
        while rows and longest < MIN_ROW * self._count(rows, step):
            rows.pop()
        return rows

    def _streams(self, member: _Member, size: int) -> Iterator[Node]:
        """Dims along which the arrays of ``size`` elements of a task lie in memory."""
        spaces, names = self.program.spaces, {name: node for node, name in member.names.items()}
        for access in accesses(self.program.tasks[member.number]):
            space = spaces[access.space]
            if space.size >= size:
                fastest = next(p for p in reversed(range(len(space.shape))) if space.shape[p] > 1)
                yield from (names[d] for d in access.index[fastest].names if d in names)

    def _block(self, step: _Step, rows: Sequence[Node], extents: Sequence[int]) -> int:
        """Rows at a time: as many as leave room in a first-level cache for all that one task touches."""
        points = math.prod(extents)
        most = 1
        for member in step.members:
            names = {member.names[node] for node in rows}
            task = self.program.tasks[member.number]
            along = {a.space for a in accesses(task) if names <= {d for p in a.index for d in p.names}}
            most = max(most, sum(self.program.spaces[s].bytes for s in along) // points)
        last = extents[-1]
        return max(n for n in range(1, last + 1) if last % n == 0 and (n == 1 or n * most <= BLOCK_BYTES))


def _places_in(access: Ref | Put, rows: Mapping[Node, str]) -> dict[Node, int] | None:
    """Places of the dims of ``rows`` in ``access``, each by itself in one place; None where it has them otherwise."""
    found: dict[Node, int] = {}
    for node, name in rows.items():
        at = [place for place, position in enumerate(access.index) if name in position.names]
        if len(at) != 1 or plain(access.index[at[0]]) != name:
            return None
        found[node] = at[0]
    return found


def _is_row_wise(program: TaskProgram, task: Task) -> bool:
    """True if the stores of ``task`` set values, and it reads nothing often."""
    if task.in_rows or not all(p.is_plain for p in task.puts) or any(r.guards for r in task.reductions):
        return False
    if not task.reads:
        return False
    largest = max(program.spaces[s].size for s in task.reads)
    return not (any(map(is_product, task.reductions)) and task.points >= MIN_REUSE * largest)


def _sums_are_small(task: Task) -> bool:
    results = math.prod(n for _, n in task.parallel)
    return bool(task.reductions) and results * sum(r.type.bytes for r in task.reductions) <= MAX_SUMS_BYTES
