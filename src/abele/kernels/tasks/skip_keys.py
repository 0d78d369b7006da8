"""Leave out, block by block of rows, the keys hidden by masks that a program makes while it runs.

Packed sequences see only themselves, and padding is seen by nobody; the arrays that say so are known only when the
program runs. So a group of batched products (:mod:`abele.kernels.tasks.divide_rows`) that reads such a mask runs its
blocks of rows in a loop. Each block has the keys from the first that one of its rows sees to the last. A table made
from the mask before the group runs has these ranges (:mod:`abele.kernels.tasks.skip_keys`). Its tasks exist once for
each of a few numbers of keys, and are called at the row and the key at which the block's range begins. Nothing is
computed in other blocks of scores, forward and backward; where a mask hides nothing, all is, in the same blocks.

That results stay what they are is proven beforehand of elements of the mask, whatever they will be
(:mod:`abele.kernels.tasks.hiding_masks`). Values by rows and keys that a group keeps for a later one (shares, for the
backward pass) exist in its ranges alone. So all groups that read them must run over the same ranges; otherwise none is
divided.

Ranges are hulls: sequences whose tokens are scattered cost as much as all between their first and last.

Example: 512 rows of two sequences of 300 and 212 tokens, in blocks of 128. The first two blocks see keys 0 to 299, the
third, which has rows of both sequences, all 512, the last keys 300 to 511.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from abele.kernels.nest.ir import Affine, Apply, Cast, Const, Expr, Index, affine
from abele.kernels.nest.loop_nest import Acc
from abele.kernels.tasks.divide_rows import (
    FEW_ROWS,
    MIN_ROWS,
    MOST_KINDS,
    CarriedSums,
    DividedSpaces,
    relocated,
    rows_of_scores,
)
from abele.kernels.tasks.hiding_masks import (
    HeldCells,
    Mask,
    ProgramFacts,
    ScoreBound,
    all_tasks,
    masks_of,
    runs_by_points,
    score_bound,
    tells_of_hiding,
)
from abele.kernels.tasks.leaves import LeafProgram, LeafTasks, OuterLoop, SeenKeys
from abele.kernels.tasks.program import Put, Ref, Space, SpaceTable, Task, TaskReduction, over_points
from abele.kernels.tasks.row_table import RowTable, row_tables
from abele.numerics import bool_, f32

# Tasks that find, while a program runs, the keys seen by each block of rows: the table of :class:`SeenKeys`.
#
# First the *gap* of every block of rows and point of the keys' dim: the least distance of its elements of the mask
# below the largest in their rows; zero of truth values that hide nothing, infinity where all are hidden. It depends on
# the mask alone, and is made once for all layers. Then the first key, and the last, whose gap is not too wide. A gap
# is too wide if it is infinite or, where scores are bounded, exceeds twice the bound plus the distance that makes exp
# zero.

LARGEST = 3.4028234663852886e38
"""The largest number of f32: wider gaps are infinite, and less than minus it is minus infinity."""
EXPONENT, SLACK = 104.0, 1.02
"""Exponent below which exp is zero in f32, negated; and factor by which gaps must be wider for rounding, of f16 too."""


@dataclass(frozen=True)
class ScoreBlocks:
    """Sizes of the blocks of rows, and of keys.

    Attributes:
        rows: Points of the rows' dim in a block.
        count: Blocks of rows.
        keys: Points of the keys' dim.
    """

    rows: int
    count: int
    keys: int


@dataclass(frozen=True)
class TableSpaces:
    """The spaces of a table, and which outer dims it has, in order."""

    first: int
    last: int
    outer: tuple[int, ...]


class TableWriter:
    """Writes the tasks of tables; equal ones once."""

    def __init__(self, spaces: SpaceTable) -> None:
        self.spaces = spaces
        self._tables: dict[object, TableSpaces] = {}
        self._spaces: dict[object, int] = {}

    def table(
        self, mask: Mask, bound: ScoreBound | None, blocks: ScoreBlocks, extents: Sequence[int]
    ) -> tuple[TableSpaces, list[Task]]:
        """The table of ``mask``, and the tasks that make it and are not yet there.

        Args:
            mask: The mask.
            bound: Bound of the scores; None: only keys that no score can bring back are hidden.
            blocks: Blocks of rows and keys.
            extents: Extents of the outer dims.
        """
        key = (mask, None if bound is None else (bound.operands, bound.factor), blocks)
        if key in self._tables:
            return self._tables[key], []
        tasks: list[Task] = []
        gap, gap_outer = self._gap(mask, bound is not None, blocks, tasks)
        limit, limit_outer = (None, ()) if bound is None else self._limit(bound, tasks)
        outer = tuple(sorted({*gap_outer, *limit_outer}))
        count = blocks.count if mask.row is not None else 1
        shape = (*(extents[o] for o in outer), count)
        first, last = (self.spaces.add(shape, f32, f"keys seen.{end}").number for end in ("first", "last"))
        at_gap = (*(affine(f"o{o}") for o in gap_outer), affine("r"), affine("k"))
        wide: Expr = Const(LARGEST)
        if limit is not None:
            wide = Ref(limit, tuple(affine(f"o{o}") for o in limit_outer) or (Affine(()),))
        key_number = Cast(f32, Index(affine("k")))
        hidden = Apply("gt", (Ref(gap, at_gap), wide))
        index = (*(affine(f"o{o}") for o in outer), affine("r"))
        tasks.append(
            Task(
                "keys seen",
                (*((f"o{o}", extents[o]) for o in outer), ("r", count)),
                (("k", blocks.keys),),
                (
                    TaskReduction("min", Apply("select", (hidden, Const(float(blocks.keys)), key_number)), f32),
                    TaskReduction("max", Apply("select", (hidden, Const(0.0), key_number + 1.0)), f32),
                ),
                (Put(first, index, Acc(0)), Put(last, index, Acc(1))),
            )
        )
        made = TableSpaces(first, last, outer)
        self._tables[key] = made
        return made, tasks

    def _gap(
        self, mask: Mask, is_relative: bool, blocks: ScoreBlocks, tasks: list[Task]
    ) -> tuple[int, tuple[int, ...]]:
        """The space of gaps, and which outer dims it has."""
        outer = tuple(mask.outer.values())
        key = ("gap", mask, is_relative, blocks)
        if key in self._spaces:
            return self._spaces[key], outer
        space = self.spaces[mask.space]
        count = blocks.count if mask.row is not None else 1
        index = tuple(self._position(mask, place, blocks) for place in range(len(space.shape)))
        value: Expr = Ref(mask.space, index)
        if space.type == bool_:
            ends = (0.0, math.inf) if mask.hidden == 0.0 else (math.inf, 0.0)
            value = Apply("select", (value, Const(ends[0]), Const(ends[1])))
        elif is_relative:
            top, places = self._largest(mask, space, tasks)
            rest = Ref(top, tuple(index[place] for place in places) or (Affine(()),)) - value
            value = Apply("select", (Apply("lt", (value, Const(-LARGEST))), Const(math.inf), rest))
        else:
            value = Apply("select", (Apply("lt", (value, Const(-LARGEST))), Const(math.inf), Const(0.0)))
        extents = {f"x{place}": n for place, n in enumerate(space.shape) if mask.index[place] == f"x{place}"}
        rest_dims = tuple((d, n) for d, n in extents.items() if d not in (f"x{mask.row}", f"x{mask.key}"))
        rows = (("i", blocks.rows),) if mask.row is not None else ()
        named = tuple((f"o{o}", space.shape[place]) for place, o in mask.outer.items())
        gap = self.spaces.add((*(n for _, n in named), count, blocks.keys), f32, "keys seen.gap").number
        put = Put(gap, (*(affine(d) for d, _ in named), affine("r"), affine("k")), Acc(0))
        tasks.append(
            Task(
                "keys seen.gap",
                (*named, ("r", count), ("k", blocks.keys)),
                (*rows, *rest_dims),
                (TaskReduction("min", value, f32),),
                (put,),
            )
        )
        self._spaces[key] = gap
        return gap, outer

    def _position(self, mask: Mask, place: int, blocks: ScoreBlocks) -> Affine:
        at = mask.index[place]
        if place == mask.row:
            return affine(("r", blocks.rows), "i")
        if place == mask.key:
            return affine("k")
        return Affine((), at) if isinstance(at, int) else affine(at)

    def _largest(self, mask: Mask, space: Space, tasks: list[Task]) -> tuple[int, tuple[int, ...]]:
        """Space of the largest elements in each row of a mask, and the places of the mask that it has."""
        every = [p for p, at in enumerate(mask.index) if isinstance(at, str)]
        reduced = tuple(p for p in every if p == mask.key or p in mask.inner_keys)
        places = tuple(p for p in every if p not in reduced)
        key = ("largest", mask)
        if key in self._spaces:
            return self._spaces[key], places
        index = tuple(Affine((), at) if isinstance(at, int) else affine(f"x{p}") for p, at in enumerate(mask.index))
        top = self.spaces.add(tuple(space.shape[p] for p in places) or (1,), f32, "keys seen.largest").number
        put = Put(top, tuple(index[p] for p in places) or (Affine(()),), Acc(0))
        tasks.append(
            Task(
                "keys seen.largest",
                tuple((f"x{p}", space.shape[p]) for p in places),
                tuple((f"x{p}", space.shape[p]) for p in reduced),
                (TaskReduction("max", Ref(mask.space, index), f32),),
                (put,),
            )
        )
        self._spaces[key] = top
        return top, places

    def _limit(self, bound: ScoreBound, tasks: list[Task]) -> tuple[int, tuple[int, ...]]:
        """Space of gaps from which on keys are hidden, and its outer dims."""
        squares = [self._longest(bound, ref, tasks) for ref in bound.operands]
        outer = tuple(sorted({o for _, own in squares for o in own}))
        extents = bound.task.extents
        named = tuple((f"o{o}", extents[bound.outer[o]]) for o in outer)
        limit = self.spaces.add(tuple(n for _, n in named) or (1,), f32, "keys seen.limit").number
        one, other = (Ref(s, tuple(affine(f"o{o}") for o in own) or (Affine(()),)) for s, own in squares)
        size = Apply("sqrt", (one,)) * Apply("sqrt", (other,)) * abs(2 * SLACK * bound.factor)
        index = tuple(affine(d) for d, _ in named) or (Affine(()),)
        tasks.append(Task("keys seen.limit", named, (), (), (Put(limit, index, size + SLACK * EXPONENT),)))
        return limit, outer

    def _longest(self, bound: ScoreBound, ref: Ref, tasks: list[Task]) -> tuple[int, tuple[int, ...]]:
        """The space of the largest squared length of an operand's vectors, and which outer dims it has."""
        task = bound.task
        names = {name for position in ref.index for name in position.names}
        reduced = tuple(d for d in task.reduced if d[0] in names)
        kept = tuple(d for d in task.parallel if d[0] in names)
        outer = tuple(o for o, name in enumerate(bound.outer) if name in names)
        lengths = self.spaces.add(tuple(n for _, n in kept), f32, "keys seen.lengths").number
        put = Put(lengths, tuple(affine(d) for d, _ in kept), Acc(0))
        tasks.append(Task("keys seen.lengths", kept, reduced, (TaskReduction("add", ref * ref, f32),), (put,)))
        mine = tuple(d for name in (bound.outer[o] for o in outer) for d in kept if d[0] == name)
        rest = tuple(d for d in kept if d not in mine)
        longest = self.spaces.add(tuple(n for _, n in mine) or (1,), f32, "keys seen.longest").number
        whole = Ref(lengths, tuple(affine(d) for d, _ in kept))
        put = Put(longest, tuple(affine(d) for d, _ in mine) or (Affine(()),), Acc(0))
        tasks.append(Task("keys seen.longest", mine, rest, (TaskReduction("max", whole, f32),), (put,)))
        return longest, outer


def skip_keys(program: LeafProgram) -> LeafProgram:
    """Run groups of batched products with the keys alone that masks show, where these are made as the program runs."""
    if not any(map(runs_by_points, program.leaves)):
        return program
    plans = _SkipFinder(program).plans()
    if not any(plans):
        return program
    spaces = DividedSpaces(program)
    tables = TableWriter(spaces.table)
    leaves: list[LeafTasks] = []
    for leaf, plan in zip(program.leaves, plans, strict=True):
        leaves += [leaf] if plan is None else _written(leaf, plan, spaces, tables)
    return replace(program, spaces=spaces.table.all(), leaves=tuple(leaves), layouts=spaces.layouts)


@dataclass(frozen=True)
class _Plan:
    """Plan by which a group runs with a mask.

    Attributes:
        dims: Rows and keys of its tasks.
        mask: Mask that hides keys.
        bound: Bound of the scores, where the mask is of numbers that are added to them; None: it hides by infinity.
        blocks: Blocks of rows and keys.
    """

    dims: RowTable
    mask: Mask
    bound: ScoreBound | None
    blocks: ScoreBlocks

    @property
    def ranges(self) -> object:
        """Key that is equal for groups of the same ranges."""
        bound = self.bound and (self.bound.operands, self.bound.factor)
        return self.mask, bound, self.blocks, self.dims.table


class _SkipFinder:
    """Finds the groups that masks divide."""

    def __init__(self, program: LeafProgram) -> None:
        self.program = program
        self.facts = ProgramFacts.of(program)
        self.groups = [leaf for leaf in program.leaves if runs_by_points(leaf)]
        written = {s for leaf in self.groups for task in leaf.tasks for s in task.writes}
        self.passed = written & {s for leaf in self.groups for task in leaf.tasks for s in task.reads}
        self.writers: dict[int, list[Task]] = {}
        self.last_write: dict[int, int] = {}
        for number, leaf in enumerate(program.leaves):
            for task in all_tasks(leaf):
                for space in task.writes:
                    self.writers.setdefault(space, []).append(task)
                    self.last_write[space] = number
        # Of groups that are planned: how, and what is known of the spaces that they write.
        self.found: list[tuple[_Plan, dict[int, HeldCells]]] = []

    def plans(self) -> list[_Plan | None]:
        """Plan of every leaf; None for leaves without one."""
        plans = [self._plan(n) if runs_by_points(leaf) else None for n, leaf in enumerate(self.program.leaves)]
        while True:
            kept = [p if p is None or self._is_read_alike(n, p, plans) else None for n, p in enumerate(plans)]
            if kept == plans:
                return plans
            plans = kept

    def _plan(self, number: int) -> _Plan | None:
        leaf = self.program.leaves[number]
        if any(task.in_rows for task in leaf.tasks):
            return None
        reads = {s for task in leaf.tasks for s in task.reads}
        for dims in self._tables(leaf):
            if dims.table.keys.count < 2 or not _can_move(leaf, dims):
                continue
            blocks = _blocks(leaf, dims)
            for plan, held in reversed(self.found):
                same = plan.blocks == blocks and plan.dims.table == dims.table
                if same and (held.keys() - {plan.mask.space}) & reads and self._is_hidden(leaf, dims, held):
                    return replace(plan, dims=dims)
            for mask in masks_of(leaf, dims, self.program.spaces, self.facts):
                held = {mask.space: mask.hypothesis(dims)}
                if self._is_settled(mask, number) and self._is_hidden(leaf, dims, held):
                    known, _ = self.facts.evaluated(leaf, dims, held)
                    is_bool = self.program.spaces[mask.space].type == bool_
                    bound = None if is_bool else self._bound(leaf, mask, known, number)
                    plan = _Plan(dims, mask, bound, blocks)
                    self.found.append((plan, known))
                    return plan
        return None

    def _tables(self, leaf: LeafTasks) -> list[RowTable]:
        """Choices of rows and keys of ``leaf``; with other groups' knowledge of spaces if its own is too little."""
        tables = list(row_tables(leaf, self.program.spaces, self.passed))
        if not any(any(dims.keys) for dims in tables):
            others = [other for other in self.groups if other is not leaf]
            tables = list(row_tables(leaf, self.program.spaces, self.passed, others))
        return tables

    def _is_hidden(self, leaf: LeafTasks, dims: RowTable, held: dict[int, HeldCells]) -> bool:
        """True if no sum or maximum needs the cells that the mask hides by hypothesis."""
        _, needed = self.facts.evaluated(leaf, dims, held)
        return not needed[:, 1:].any()

    def _is_settled(self, mask: Mask, number: int) -> bool:
        """True if a mask is whole before leaf ``number``, and stays so; of numbers, if it is one and no bias."""
        writers = self.writers.get(mask.space, ())
        if len(writers) > 1 or self.last_write.get(mask.space, -1) >= number:
            return False
        return self.program.spaces[mask.space].type == bool_ or tells_of_hiding(mask.space, self.writers)

    def _bound(self, leaf: LeafTasks, mask: Mask, known: dict[int, HeldCells], number: int) -> ScoreBound | None:
        """The bound of scores whose operands are whole before leaf ``number``."""
        bound = score_bound(leaf, mask, known)
        if bound is None or any(self.last_write.get(ref.space, -1) >= number for ref in bound.operands):
            return None
        return bound

    def _is_read_alike(self, number: int, plan: _Plan, plans: Sequence[_Plan | None]) -> bool:
        """True if the values by rows and keys that a group keeps are read over the same ranges alone."""
        for space in self._kept(self.program.leaves[number], plan.dims):
            if self.program.spaces[space].pinned:
                return False
            for other, leaf in enumerate(self.program.leaves):
                if other == number or not any(space in task.reads for task in all_tasks(leaf)):
                    continue
                reader = plans[other]
                if reader is None or reader.ranges != plan.ranges:
                    return False
                if space not in reader.dims.row_places or space not in reader.dims.key_places:
                    return False
        return True

    def _kept(self, leaf: LeafTasks, dims: RowTable) -> Iterator[int]:
        """Spaces that ``leaf`` stores at rows and keys, for others than its own tasks."""
        for task, row, key in zip(leaf.tasks, dims.rows, dims.keys, strict=True):
            if key and not {row, key} & dict(task.reduced).keys():
                for space in task.writes:
                    layout = self.program.layouts.get(space)
                    if layout is None or not layout.is_one_point:
                        yield space


def _can_move(leaf: LeafTasks, dims: RowTable) -> bool:
    """True if tasks can run from any row and key on: these appear in addresses and random numbers alone."""
    for task, row, key in zip(leaf.tasks, dims.rows, dims.keys, strict=True):
        guards = [g for r in task.reductions for g in r.guards] + [g for p in task.puts for g in p.guards]
        guards += [bound for ref in task.refs for bound in ref.bounds]
        if any({row, key} & set(guard.position.names) for guard in guards):
            return False
        for part in task.expressions():
            if isinstance(part, Index) and {row, key} & set(part.affine.names):
                return False
    return any(dims.keys)


def _blocks(leaf: LeafTasks, dims: RowTable) -> ScoreBlocks:
    """Blocks of as many rows as fill register tiles and leave out most, of equal size."""
    points = dims.table.rows.extent
    rows = rows_of_scores(leaf, dims)
    wanted = FEW_ROWS if rows < 4 * MIN_ROWS else MIN_ROWS
    sizes = [n for n in range(1, points + 1) if points % n == 0]
    fitting = [n for n in sizes if n * rows <= wanted * points]
    best = max(fitting, default=1)
    if 2 * best * rows < wanted * points:  # no divisor is near; rather too many rows than too few
        best = min(n for n in sizes if 2 * n * rows >= wanted * points or n == points)
    return ScoreBlocks(best, points // best, dims.table.keys.extent)


def _written(leaf: LeafTasks, plan: _Plan, spaces: DividedSpaces, tables: TableWriter) -> list[LeafTasks]:
    """``leaf`` under ``plan``, after the tasks that make its table."""
    assert isinstance(leaf.loop, OuterLoop)
    dims, blocks = plan.dims, plan.blocks
    table, before = tables.table(plan.mask, plan.bound, blocks, leaf.loop.extents)
    step, grain = _steps(leaf, plan, spaces.program.target.lanes)
    sums = {
        n: CarriedSums(spaces, task, leaf.loop.dims[n])
        for n, task in enumerate(leaf.tasks)
        if dims.rows[n] in dict(task.reduced)
    }
    made: list[tuple[Task, int, int]] = [(carried.start(), n, -1) for n, carried in sums.items()]
    local: set[int] = set()
    counts = (*range(step, blocks.keys, step), blocks.keys)
    for kind, count in enumerate(counts):
        own = spaces.of_block(dims, (0, blocks.rows), (0, count))
        local |= {part.space for part in own.values()}
        for number, task in enumerate(leaf.tasks):
            part = over_points(task, dims.rows[number], 0, blocks.rows)
            part = over_points(part, dims.keys[number], 0, count) if dims.keys[number] else part
            part = relocated(part, own)
            parts = sums[number].parts(part, {}, first=False, last=False) if number in sums else [part]
            made += ((p, number, kind) for p in parts)
    made += ((carried.end(), n, len(counts)) for n, carried in sums.items())
    seen = SeenKeys(
        rows=blocks.rows,
        blocks=blocks.count,
        keys=blocks.keys,
        step=step,
        grain=grain,
        table=(table.first, table.last),
        outer=table.outer,
        row_dims=tuple(dims.rows[n] for _, n, _ in made),
        key_dims=tuple(dims.keys[n] for _, n, _ in made),
        kinds=tuple(kind for _, _, kind in made),
        local=frozenset(local),
    )
    loop = replace(leaf.loop, dims=tuple(leaf.loop.dims[n] for _, n, _ in made), seen=seen)
    group = LeafTasks(tuple(task for task, _, _ in made), loop)
    return [LeafTasks(tuple(before)), group] if before else [group]


def _steps(leaf: LeafTasks, plan: _Plan, lanes: int) -> tuple[int, int]:
    """Factors of numbers of keys and of starts of ranges: whole vectors where points are single keys."""
    keys = plan.blocks.keys
    step = -(-keys // MOST_KINDS)
    is_single = all(
        not any(key in digits for digits in task.digits) for task, key in zip(leaf.tasks, plan.dims.keys, strict=True)
    )
    if is_single and keys >= 4 * lanes:
        return math.ceil(step / lanes) * lanes, lanes
    return step, 1
