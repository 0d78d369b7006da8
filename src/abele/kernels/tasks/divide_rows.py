"""Run a group of batched products for a few rows of its scores at a time, without the scores that masks leave out.

Scores of a head are as many as the square of a sequence. Done whole, one after the other, the tasks of an attention
read and write all of them a dozen times, out of a second-level cache that they soon outgrow. But each row of scores is
by itself: its maximum, its sum and its shares, and what its shares or their gradients add to the results. So the tasks
run for some rows, with all keys of these, and then for the next rows; what they pass on exists for these rows alone.
Rows are whole, so a softmax needs no running maximum. Sums over rows (gradients of keys and values) are carried on from
one block of rows to the next, in memory of the thread.

Masks that are known beforehand make it shorter: a block of rows needs the keys from the first that one of its rows sees
to the last. Causal attention does half of its work then, a sliding window a narrow band. What can be left out follows
from bounds of values (:mod:`abele.kernels.tasks.known_values`): terms that add nothing to a sum, or to a maximum; then,
from the last task back to the first, what nobody reads. Nothing in it knows of attention.

Each block of rows is tasks of its own, over a part of the dims, so every pass after this one sees ordinary tasks.
Blocks that have as many keys share code; so that there are few kinds, numbers of keys are rounded up.

Example: causal attention over 1,024 tokens in blocks of 128 rows needs 128 keys for the first block, 256 for the
second, and so on: 36 of the 64 squares of scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from abele.arrays import Array
from abele.kernels.nest.ir import Affine, Apply, Const, Expr, Index, affine
from abele.kernels.nest.loop_nest import Acc
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.fuse_outer_loops import operand_dims
from abele.kernels.tasks.hiding_masks import HeldCells, ProgramFacts, all_tasks, runs_by_points
from abele.kernels.tasks.known_values import DimCells
from abele.kernels.tasks.layout import one_point
from abele.kernels.tasks.leaves import LeafProgram, LeafTasks, OuterLoop
from abele.kernels.tasks.program import Put, Ref, SpaceTable, Task, over_points
from abele.kernels.tasks.row_table import RowTable, row_tables

# Spaces and sums of groups of tasks that run for some rows, and some keys, at a time.


class DividedSpaces:
    """The spaces of a program while groups are divided: some are added, and laid out."""

    def __init__(self, program: LeafProgram) -> None:
        self.program = program
        self.table = SpaceTable(program.spaces)
        self.layouts = dict(program.layouts)

    def of_block(self, dims: RowTable, rows: tuple[int, int], keys: tuple[int, int]) -> dict[int, SpacePart]:
        """Parts of the group's own spaces for the rows and keys of a block.

        Args:
            dims: Rows and keys of the group.
            rows: Points of the rows' dim: the first, and the one after the last.
            keys: Points of the keys' dim.
        """
        found = {}
        for number, row in dims.row_places.items():
            space, layout = self.program.spaces[number], self.program.layouts.get(number)
            if layout is None or not layout.is_one_point:
                continue
            starts, shape = [0] * len(space.shape), list(space.shape)
            starts[row], shape[row] = rows[0], rows[1] - rows[0]
            if number in dims.key_places:
                key = dims.key_places[number]
                starts[key], shape[key] = keys[0], keys[1] - keys[0]
            made = self.table.add(tuple(shape), space.type, space.name)
            inner = [place for place, stride in enumerate(layout.strides) if stride]
            outer = [place for place, stride in enumerate(layout.strides) if not stride]
            order = sorted(inner, key=lambda place: -layout.strides[place])
            self.layouts[made.number] = one_point(shape, outer, order, space.type)
            found[number] = SpacePart(made.number, tuple(starts))
        return found


@dataclass(frozen=True)
class SpacePart:
    """A space for a part of another, and where the part starts in it."""

    space: int
    starts: tuple[int, ...]

    def index(self, whole: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """Index in the part for an index ``whole`` in the space."""
        return tuple(position - start for position, start in zip(whole, self.starts, strict=True))


def relocated(task: Task, parts: Mapping[int, SpacePart]) -> Task:
    """``task`` with parts of spaces in place of the spaces."""

    def change(value: Expr) -> Expr | None:
        if isinstance(value, Ref) and value.space in parts:
            part = parts[value.space]
            return replace(value, space=part.space, index=part.index(value.index))
        return None

    changed = task.rewritten(change)
    puts = (
        replace(p, space=parts[p.space].space, index=parts[p.space].index(p.index)) if p.space in parts else p
        for p in changed.puts
    )
    return replace(changed, puts=tuple(puts))


class CarriedSums:
    """Sums over rows of a task, carried on from block to block of rows.

    They start from zero, or from the terms of the first block if it has all of them, and are stored where they belong
    by the last block, if it has all, or after it.
    """

    def __init__(self, spaces: DividedSpaces, task: Task, outer: Sequence[str]) -> None:
        self.task = task
        shape = tuple(extent for _, extent in task.parallel)
        places = [n for n, (dim, _) in enumerate(task.parallel) if dim in outer]
        made = [spaces.table.add(shape, r.type, f"{task.name}.sums") for r in task.reductions]
        for space in made:
            spaces.layouts[space.number] = one_point(shape, places, range(len(shape)), space.type)
        self.spaces = [space.number for space in made]

    def parts(self, part: Task, offsets: Mapping[str, int], *, first: bool, last: bool) -> list[Task]:
        """``part`` adding its terms, at ``offsets`` of parallel dims, and the tasks before and after it."""
        has_all = part.parallel == self.task.parallel
        index = tuple(affine(d, const=offsets.get(d, 0)) for d, _ in part.parallel)
        totals: list[Expr] = [Acc(n) for n in range(len(self.spaces))]
        if not (first and has_all):
            totals = [Apply("add", (Ref(s, index), total)) for s, total in zip(self.spaces, totals, strict=True)]
        if last and has_all:
            return [with_totals(part, totals)]
        puts = tuple(Put(s, index, total) for s, total in zip(self.spaces, totals, strict=True))
        tasks = [replace(part, puts=puts, locals=())]
        if first and not has_all:
            tasks.insert(0, self.start())
        if last:
            tasks.append(self.end())
        return tasks

    def start(self) -> Task:
        """Sets the sums to zero."""
        index = tuple(affine(d) for d, _ in self.task.parallel)
        puts = tuple(Put(s, index, Const(0.0)) for s in self.spaces)
        return replace(self.task, reduced=(), reductions=(), locals=(), puts=puts)

    def end(self) -> Task:
        """Stores the sums where they belong."""
        index = tuple(affine(d) for d, _ in self.task.parallel)
        whole = replace(self.task, reduced=(), reductions=())
        return with_totals(whole, [Ref(s, index) for s in self.spaces])


def with_totals(task: Task, totals: Sequence[Expr]) -> Task:
    """``task`` with ``totals`` in place of its accumulators in its stores."""

    def change(value: Expr) -> Expr | None:
        return totals[value.number] if isinstance(value, Acc) else None

    return replace(
        task,
        locals=tuple(rewrite(value, change) for value in task.locals),
        puts=tuple(replace(p, value=rewrite(p.value, change)) for p in task.puts),
    )


BLOCK_BYTES = 1 << 19
"""Most bytes that a task touches for a block of rows, to stay in a second-level cache."""
MIN_ROWS, FEW_ROWS = 64, 32
"""Rows of a block: of fewer, register tiles are not filled and keys are read too often. Where there are few rows
altogether, blocks of half as many leave out more. Measured with 256 to 2,048 tokens."""
MOST_KINDS = 8
"""Numbers of keys that blocks have, where masks leave some out: each is code of its own."""
MIN_GAIN = 0.9
"""Part of the work up to which leaving out keys pays."""


def divide_rows(program: LeafProgram) -> LeafProgram:
    """Run groups of batched products for some rows of their scores at a time, without what masks leave out."""
    if not any(map(runs_by_points, program.leaves)):
        return program
    divisions = _Divisions(program).of_leaves()
    writer = _Writer(program)
    leaves = [
        leaf if division is None else writer.leaf(leaf, division)
        for leaf, division in zip(program.leaves, divisions, strict=True)
    ]
    return replace(program, spaces=writer.spaces.table.all(), leaves=tuple(leaves), layouts=writer.spaces.layouts)


@dataclass(frozen=True)
class _Block:
    """Rows that a group runs for at a time, and their keys: from one point to before another."""

    rows: tuple[int, int]
    keys: tuple[int, int]

    def part(self, task: Task, row: str, key: str) -> Task:
        """``task`` over the points of the block, where ``row`` and ``key`` are the dims of the two."""
        part = over_points(task, row, *self.rows)
        return over_points(part, key, *self.keys) if key else part

    def offsets(self, task: Task, key: str) -> dict[str, int]:
        """Starts of the parallel dims of ``task`` in the block."""
        return {key: self.keys[0]} if key in dict(task.parallel) else {}


@dataclass(frozen=True)
class _Division:
    """Blocks that a group is divided into.

    Attributes:
        dims: Rows and keys of its tasks.
        blocks: Blocks in the order in which they run.
    """

    dims: RowTable
    blocks: tuple[_Block, ...]


@dataclass(frozen=True)
class _Masked:
    """A group with the dims along which it may be divided.

    Attributes:
        dims: Rows and keys of its tasks.
        needed: Cells that a sum or a maximum of the group needs.
    """

    dims: RowTable
    needed: Array


_Reading = tuple[int, int, Array] | None
"""Cells of a space that are read, by its places of rows and keys; None: all of it may be."""


class _Divisions:
    """Decides for every leaf how it is divided."""

    def __init__(self, program: LeafProgram) -> None:
        self.program = program
        groups = [leaf for leaf in program.leaves if runs_by_points(leaf)]
        written = {s for leaf in groups for task in leaf.tasks for s in task.writes}
        self.passed = written & {s for leaf in groups for task in leaf.tasks for s in task.reads}
        self.facts = ProgramFacts.of(program)
        self.known: dict[int, HeldCells] = {}
        self.read: dict[int, _Reading] = {s.number: None for s in program.spaces if s.pinned}

    def of_leaves(self) -> list[_Division | None]:
        """Division of every leaf; None for leaves that are not divided."""
        leaves = self.program.leaves
        found = [self._masked(leaf) if runs_by_points(leaf) else None for leaf in leaves]
        # From the last leaf to the first, since what is needed of a leaf is what later ones read.
        divisions = [self._division(*pair) for pair in reversed(list(zip(leaves, found, strict=True)))]
        return divisions[::-1]

    def _masked(self, leaf: LeafTasks) -> _Masked | None:
        """The dims of ``leaf``: those along which masks leave cells out, otherwise the slowest rows alone."""
        tables = list(row_tables(leaf, self.program.spaces, self.passed))
        if not tables:
            return None
        if any(_may_mask(task, self.facts.constants) for task in leaf.tasks):
            for dims in (t for t in tables if any(t.keys)):
                known, needed = self.facts.evaluated(leaf, dims, self.known)
                if not needed.all():
                    self.known |= known
                    return _Masked(dims, needed)
        dims = next(t for t in tables if not any(t.keys))
        return _Masked(dims, np.ones(dims.table.shape, np.bool_))

    def _division(self, leaf: LeafTasks, masked: _Masked | None) -> _Division | None:
        division = self._divided(leaf, masked) if masked is not None else None
        reads = {s for task in all_tasks(leaf) for s in task.reads}
        if division is None:
            self.read |= dict.fromkeys(reads)
            return None
        dims, cells = division.dims, np.zeros(division.dims.table.shape, np.bool_)
        for block in division.blocks:
            cells[dims.table.rows.within(block.rows), dims.table.keys.within(block.keys)] = True
        for space in reads:
            self.read[space] = self._joined(space, dims, cells)
        return division

    def _joined(self, space: int, dims: RowTable, cells: Array) -> _Reading:
        """Cells of ``space`` that later leaves read, together with ``cells``."""
        if space not in dims.row_places or space not in dims.key_places:
            return None
        own = dims.row_places[space], dims.key_places[space], cells
        later = self.read.get(space, own)
        if later is None or later[:2] != own[:2] or later[2].shape != cells.shape:
            return None
        return (*own[:2], cells | later[2])

    def _divided(self, leaf: LeafTasks, masked: _Masked) -> _Division | None:
        dims, table = masked.dims, masked.dims.table
        needed = masked.needed | self._read_later(leaf, dims)
        for is_masked in (True, False) if not needed.all() else (False,):
            rows = self._rows_at_a_time(leaf, dims, is_masked)
            if rows >= table.rows.extent:
                continue
            starts = range(0, table.rows.extent, rows)
            blocks = [(low, min(low + rows, table.rows.extent)) for low in starts]
            keys = [(0, table.keys.extent)] * len(blocks)
            if is_masked:
                hulls = [_hull(needed[table.rows.within(b)], table.keys) for b in blocks]
                keys = _few_kinds(hulls, table.keys.extent, self.program.target.lanes)
                work = sum((r[1] - r[0]) * (k[1] - k[0]) for r, k in zip(blocks, keys, strict=True))
                if work > MIN_GAIN * table.rows.extent * table.keys.extent:
                    continue
            made = [_Block(r, k) for r, k in zip(blocks, keys, strict=True)]
            # Widest first: sums over rows then start from terms of all keys, mostly.
            return _Division(dims, tuple(sorted(made, key=lambda b: b.keys[0] - b.keys[1])))
        return None

    def _read_later(self, leaf: LeafTasks, dims: RowTable) -> Array:
        """Cells that ``leaf`` stores for others than its own tasks."""
        cells = np.zeros(dims.table.shape, np.bool_)
        for task, row, key in zip(leaf.tasks, dims.rows, dims.keys, strict=True):
            if not key or {row, key} & dict(task.reduced).keys():
                continue
            for put in task.puts:
                if self._is_local(put.space):
                    continue
                at = dims.row_places.get(put.space), dims.key_places.get(put.space)
                later = self.read.get(put.space, (*at, cells))
                if later is None or None in at or later[:2] != at or later[2].shape != cells.shape:
                    return np.ones_like(cells)
                cells = cells | later[2]
        return cells

    def _is_local(self, space: int) -> bool:
        layout = self.program.layouts.get(space)
        return layout is not None and layout.is_one_point

    def _rows_at_a_time(self, leaf: LeafTasks, dims: RowTable, is_masked: bool) -> int:
        """Points of the rows' dim in a block."""
        points, cell = dims.table.rows.extent, dims.table.rows.size
        local = {s for s in dims.row_places if self._is_local(s)}
        sizes = {s: self.program.bytes_of(self.program.spaces[s]) for s in local}
        touched = max(sum(sizes[s] for s in local & (task.reads | task.writes)) for task in leaf.tasks)
        most = max(1, points * BLOCK_BYTES // max(1, touched))
        if is_masked:
            most = min(most, -(-points // MOST_KINDS))
        rows = rows_of_scores(leaf, dims)
        least = -(-points * (FEW_ROWS if rows < 4 * MIN_ROWS else MIN_ROWS) // rows)
        count = -(-points // max(most, least))
        even = -(-points // count)
        return -(-even // cell) * cell


def rows_of_scores(leaf: LeafTasks, dims: RowTable) -> int:
    """Rows of the first product of ``leaf``, for one point of its outer dims."""
    assert isinstance(leaf.loop, OuterLoop)
    for task, row, outer in zip(leaf.tasks, dims.rows, leaf.loop.dims, strict=True):
        for side in operand_dims(task) or ():
            own = [d for d, _ in task.parallel if d in side and d not in outer]
            if row in own:
                return math.prod(task.extents[d] for d in own)
    return dims.table.rows.extent


def _may_mask(task: Task, constants: Mapping[int, Array]) -> bool:
    """True if something of the values of ``task`` may be known beforehand."""
    return not constants.keys().isdisjoint(task.reads) or any(isinstance(e, Index) for e in task.expressions())


def _hull(needed: Array, keys: DimCells) -> tuple[int, int]:
    """The points from the first cell of keys that one of some rows needs to the last; one cell where none is needed."""
    found = np.flatnonzero(needed.any(axis=0))
    first, last = (found[0], found[-1]) if found.size else (0, 0)
    return int(keys.starts[first]), int(keys.ends[last])


def _few_kinds(ranges: Sequence[tuple[int, int]], extent: int, lanes: int) -> list[tuple[int, int]]:
    """``ranges`` of ``extent`` keys, made longer so that there are few lengths, and long ones fill vectors."""
    step = -(-max(high - low for low, high in ranges) // MOST_KINDS)
    step = -(-step // lanes) * lanes if step > 2 * lanes else step
    made = []
    for low, high in ranges:
        length = min(extent, -(-(high - low) // step) * step)
        start = min(low, extent - length)
        made.append((start, start + length))
    return made


class _Writer:
    """Writes the tasks of divided groups."""

    def __init__(self, program: LeafProgram) -> None:
        self.spaces = DividedSpaces(program)

    def leaf(self, leaf: LeafTasks, division: _Division) -> LeafTasks:
        """The tasks of ``leaf``, once for every block of rows."""
        assert isinstance(leaf.loop, OuterLoop)
        names = list(zip(division.dims.rows, division.dims.keys, strict=True))
        sums = {
            n: CarriedSums(self.spaces, task, leaf.loop.dims[n])
            for n, task in enumerate(leaf.tasks)
            if names[n][0] in dict(task.reduced)
        }
        tasks: list[Task] = []
        dims: list[tuple[str, ...]] = []
        for block in division.blocks:
            own = self.spaces.of_block(division.dims, block.rows, block.keys)
            for number, task in enumerate(leaf.tasks):
                part = relocated(block.part(task, *names[number]), own)
                if number in sums:
                    first, last = (block is division.blocks[at] for at in (0, -1))
                    parts = sums[number].parts(part, block.offsets(task, names[number][1]), first=first, last=last)
                else:
                    parts = [part]
                tasks += parts
                dims += [leaf.loop.dims[number]] * len(parts)
        return LeafTasks(tuple(tasks), replace(leaf.loop, dims=tuple(dims)))
