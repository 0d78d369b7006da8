"""Cells of rows by keys that a group of tasks needs, as far as value bounds tell before a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from abele.arrays import Array
from abele.kernels.tasks.known_values import ANY, Evaluation, Known, adds_nothing
from abele.kernels.tasks.leaves import BlockLoop, LeafProgram, LeafTasks, OuterLoop
from abele.kernels.tasks.program import Ref, Task, plain
from abele.kernels.tasks.row_table import RowTable
from abele.numerics import bool_


@dataclass(frozen=True)
class HeldCells:
    """Bounds of a space in each cell, and its places of rows and keys.

    Attributes:
        known: The bounds.
        row: The place of the rows; None where all rows are alike.
        key: The place of the keys.
    """

    known: Known
    row: int | None
    key: int


@dataclass(frozen=True)
class ProgramFacts:
    """Facts about a program that evaluation needs.

    Attributes:
        constants: Spaces whose elements never change.
        truths: Spaces of truth values.
        written_once: Spaces that one task alone writes.
    """

    constants: Mapping[int, Array]
    truths: Collection[int]
    written_once: Collection[int]

    @staticmethod
    def of(program: LeafProgram) -> ProgramFacts:
        """Those of ``program``."""
        writers = Counter(s for leaf in program.leaves for task in all_tasks(leaf) for s in task.writes)
        constants = {
            s.number: np.asarray(program.constants[s.buffer]).reshape(s.shape)
            for s in program.spaces
            if s.buffer is not None and s.buffer in program.constants
        }
        truths = {s.number for s in program.spaces if s.type == bool_}
        return ProgramFacts(constants, truths, {s for s, count in writers.items() if count == 1})

    def evaluated(
        self, leaf: LeafTasks, dims: RowTable, held: Mapping[int, HeldCells]
    ) -> tuple[dict[int, HeldCells], Array]:
        """Bounds of the spaces that ``leaf`` writes, given those ``held``; and the cells that its reductions need."""
        known, table, needed = dict(held), dims.table, np.zeros(dims.table.shape, np.bool_)
        for task, row, key in zip(leaf.tasks, dims.rows, dims.keys, strict=True):
            if not key:
                continue

            def of_space(ref: Ref, row: str = row, key: str = key) -> Known:
                cells = known.get(ref.space)
                if cells is None or cells.known.low.shape not in ((1, 1), table.shape):
                    return ANY
                at_row = row if cells.row is None else plain(ref.index[cells.row])
                return cells.known if (at_row, plain(ref.index[cells.key])) == (row, key) else ANY

            evaluation = Evaluation(task, (row, key), table, of_space, self.constants, self.truths)
            if {row, key} & dict(task.reduced).keys():
                for reduction, terms in zip(task.reductions, evaluation.terms(), strict=True):
                    needed |= ~adds_nothing(reduction, terms, table)
                continue
            for put, value in zip(task.puts, evaluation.stores(), strict=True):
                at_row, at_key = dims.row_places.get(put.space), dims.key_places.get(put.space)
                if at_row is not None and at_key is not None and put.space in self.written_once:
                    known[put.space] = HeldCells(value, at_row, at_key)
        return known, needed


def all_tasks(leaf: LeafTasks) -> tuple[Task, ...]:
    """Every task of ``leaf``."""
    return (*(leaf.loop.starts if isinstance(leaf.loop, BlockLoop) else ()), *leaf.tasks)


def runs_by_points(leaf: LeafTasks) -> bool:
    """True if ``leaf`` runs point after point of outer dims, and each task whole at each."""
    return isinstance(leaf.loop, OuterLoop) and leaf.loop.seen is None
