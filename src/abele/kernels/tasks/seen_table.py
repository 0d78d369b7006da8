"""Tasks that find, while a program runs, the keys seen by each block of rows: the table of :class:`SeenKeys`.

First the *gap* of every block of rows and point of the keys' dim: the least distance of its elements of the mask below
the largest in their rows; zero of truth values that hide nothing, infinity where all are hidden. It depends on the mask
alone, and is made once for all layers. Then the first key, and the last, whose gap is not too wide. A gap is too wide
if it is infinite or, where scores are bounded, exceeds twice the bound plus the distance that makes exp zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from abele.kernels.nest.ir import Affine, Apply, Cast, Const, Expr, Index, affine
from abele.kernels.nest.loop_nest import Acc
from abele.kernels.tasks.hiding_masks import Mask, ScoreBound
from abele.kernels.tasks.program import Put, Ref, Space, SpaceTable, Task, TaskReduction
from abele.numerics import bool_, f32

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
