"""Spaces and sums of groups of tasks that run for some rows, and some keys, at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from abele.kernels.nest.ir import Affine, Apply, Const, Expr, affine
from abele.kernels.nest.loop_nest import Acc
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.layout import one_point
from abele.kernels.tasks.leaves import LeafProgram
from abele.kernels.tasks.program import Put, Ref, SpaceTable, Task
from abele.kernels.tasks.row_table import RowTable


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
            self.layouts[made.number] = one_point(shape, outer, order)
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
        self.spaces = [spaces.table.add(shape, r.type, f"{task.name}.sums").number for r in task.reductions]
        for number in self.spaces:
            spaces.layouts[number] = one_point(shape, places, range(len(shape)))

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
