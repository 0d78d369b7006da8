"""Tables of reports beside each other: operations, steps, variables and memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.report.compare.model import ComparedColumn, ComparedRow, ComparedTable
from abele.report.cycles import PARTS
from abele.report.insights.program_steps import ProgramSteps
from abele.report.relations import summed_by
from abele.report.report import Report
from abele.words import visible

# Matching: equal rows of the tables of several reports.
#
# Rows are matched by the words of some columns, such as name, path and kind; of several that are called the same, the
# first of one table is matched with the first of the other, and so on. What is left on both sides is matched once more
# with numbers left out, so that ``layer3/matmul_12`` finds ``layer3/matmul_14`` after something was put before it.
# Each table is matched against all rows of those before it, so that what two later reports both added is one row.

Words = Sequence[str] | npt.NDArray[np.object_]
"""One string for each row."""

_NUMBERS = re.compile(r"\d+")


class Codes:
    """Numbers for strings, the same for equal ones."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, words: Words) -> Int64:
        """A number for each string, int64[n]."""
        known = self._known
        return np.fromiter((known.setdefault(word, len(known)) for word in words), np.int64, len(words))


def without_numbers(words: Words) -> list[str]:
    """The strings with each number as ``#``."""
    return [_NUMBERS.sub("#", word) for word in words]


def occurrences(codes: Int64) -> Int64:
    """For each entry how many equal ones come before it, int64[n]."""
    order = np.argsort(codes, kind="stable")
    sorted_ = codes[order]
    first = np.ones(len(codes), dtype=bool)
    first[1:] = sorted_[1:] != sorted_[:-1]
    starts = np.maximum.accumulate(np.where(first, np.arange(len(codes)), 0)) if len(codes) else order
    found = np.empty(len(codes), dtype=np.int64)
    found[order] = np.arange(len(codes)) - starts
    return found


def _pairs(left: Int64, right: Int64) -> tuple[Int64, Int64]:
    """Places of entries that are equal and of equal occurrence, int64[pairs] in each."""
    size = int(max(left.max(initial=-1), right.max(initial=-1))) + 1
    one, two = (occurrences(codes) * size + codes for codes in (left, right))
    _, at_left, at_right = np.intersect1d(one, two, assume_unique=True, return_indices=True)
    return at_left.astype(np.int64), at_right.astype(np.int64)


def match(tables: Sequence[Words]) -> Int64:
    """Match rows of the same name.

    Args:
        tables: For each table, the words that each of its rows is known by.

    Returns:
        The row of each thing in each table, -1 where it has none, int64[things, tables]: in the order of the first
        table, then what each later one adds.
    """
    exact = Codes()
    codes = [exact.of(words) for words in tables]
    things, things_words = codes[0], np.array(tables[0], dtype=object)
    found = np.arange(len(things), dtype=np.int64)[:, None]
    for mine, words in zip(codes[1:], tables[1:], strict=True):
        own_words = np.array(words, dtype=object)
        column = np.full(len(things), -1, dtype=np.int64)
        at, row = _pairs(things, mine)
        column[at] = row
        is_free = np.ones(len(mine), dtype=bool)
        is_free[row] = False
        left, free = np.flatnonzero(column < 0), np.flatnonzero(is_free)
        loose = Codes()
        plain = [loose.of(without_numbers(part)) for part in (things_words[left], own_words[free])]
        again, others = _pairs(*plain)
        column[left[again]] = free[others]
        is_free[free[others]] = False
        added = np.flatnonzero(is_free)
        more = np.full((len(added), found.shape[1]), -1, dtype=np.int64)
        found = np.concatenate([np.concatenate([found, more]), np.concatenate([column, added])[:, None]], axis=1)
        things = np.concatenate([things, mine[added]])
        things_words = np.concatenate([things_words, own_words[added]])
    return found


OP_COLUMNS = (
    ComparedColumn("cycles", "cycles"),
    *(ComparedColumn(f"{part}_cycles", "cycles") for part in PARTS),
    ComparedColumn("tile_balance", "proportion", "more"),
    ComparedColumn("exchanged_bytes", "bytes"),
    ComparedColumn("executions", "count", ""),
    ComparedColumn("supersteps", "count"),
    ComparedColumn("active_tiles", "count", ""),
    ComparedColumn("flops", "count", ""),
    ComparedColumn("code_bytes", "bytes"),
)
STEP_COLUMNS = (
    ComparedColumn("cycles", "cycles"),
    *(ComparedColumn(f"{part}_cycles", "cycles") for part in PARTS),
    ComparedColumn("tile_balance", "proportion", "more"),
    ComparedColumn("exchanged_bytes", "bytes"),
    ComparedColumn("executions", "count", ""),
    ComparedColumn("num_vertices", "count", ""),
    ComparedColumn("active_tiles", "count", ""),
)
VARIABLE_COLUMNS = (
    ComparedColumn("bytes", "bytes"),
    ComparedColumn("max_tile_bytes", "bytes"),
    ComparedColumn("tiles", "count", ""),
)
MEMORY_COLUMNS = (
    ComparedColumn("fullest_tile_bytes", "bytes"),
    ComparedColumn("max_tile_bytes", "bytes"),
    ComparedColumn("bytes", "bytes"),
)


@dataclass(frozen=True, eq=False)
class Side:
    """One report of a comparison, seen as columns.

    Attributes:
        report: The report.
        program: Index of the program.
    """

    report: Report
    program: int

    @cached_property
    def steps(self) -> ProgramSteps:
        """Steps of the program."""
        return ProgramSteps(self.report, self.program)

    @property
    def steps_per_run(self) -> int:
        """Steps (updates) of one run."""
        return self.report.steps_per_run if self.program == 0 else 1

    @cached_property
    def op_rows(self) -> Int64:
        """Rows of operations that have a step in the program, int64[n]."""
        return np.unique(self.steps.op[self.steps.op >= 0])

    @cached_property
    def op_words(self) -> list[str]:
        """Path, name and kind of each of them."""
        ops = self.report.ops.select(self.op_rows)
        return _joined(ops["path"].tolist(), ops["name"].tolist(), ops["kind"].tolist())

    @cached_property
    def step_words(self) -> list[str]:
        """Name and kind of each step."""
        return _joined(self.steps.column("name").tolist(), self.steps.column("kind").tolist())

    @cached_property
    def ops(self) -> dict[str, Float64]:
        """Columns of ``OP_COLUMNS``, cycles and bytes of one step of the program, float64[n] each."""
        steps, times = self.steps, self.steps.executions / self.steps_per_run

        def by_op(values: npt.NDArray[Any], weight: Float64) -> Float64:
            return summed_by(steps.op, values * weight, len(self.report.ops))[self.op_rows]

        known = steps.op >= 0
        op = steps.op[known]
        names = ("cycles", *(f"{part}_cycles" for part in PARTS), "exchanged_bytes")
        found = {name: by_op(steps.column(name), times) for name in names}
        compute = found["compute_cycles"]
        even = by_op(steps.column("compute_cycles") * steps.balance, times)
        found["tile_balance"] = np.divide(even, compute, out=np.ones_like(even), where=compute > 0)
        found["supersteps"] = by_op(steps.column("sync_cycles") > 0, times)
        # Of the step that computes most: of several values for one place, the last stays.
        active = np.zeros(len(self.report.ops))
        order = np.argsort((steps.column("compute_cycles") * times)[known], kind="stable")
        active[op[order]] = steps.active_tiles[known][order]
        found["active_tiles"] = active[self.op_rows]
        for name in ("executions", "flops", "code_bytes"):
            whole = self.report.ops[name][self.op_rows].astype(np.float64)
            found[name] = whole if name == "code_bytes" else whole / self.steps_per_run
        return found

    @cached_property
    def step_columns(self) -> dict[str, Float64]:
        """Columns of ``STEP_COLUMNS``, cycles and bytes of all executions in one step of the program."""
        steps, times = self.steps, self.steps.executions / self.steps_per_run
        summed = ("cycles", *(f"{part}_cycles" for part in PARTS), "exchanged_bytes")
        found = {name: np.asarray(steps.column(name) * times, dtype=np.float64) for name in summed}
        found["tile_balance"] = steps.balance
        found["executions"] = times
        for name in ("num_vertices", "active_tiles"):
            found[name] = steps.column(name).astype(np.float64)
        return found

    @cached_property
    def variables(self) -> dict[str, Float64]:
        """Columns of ``VARIABLE_COLUMNS``."""
        table, held = self.report.variables, self.report.variable_tiles
        most = np.zeros(len(table))
        # Rows of one variable follow each other: their largest first, then the largest of such runs of rows.
        owner, size = held["variable"], held["bytes"]
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        if len(starts):
            np.maximum.at(most, owner[starts], np.maximum.reduceat(size, starts))
        whole = {name: table[name].astype(np.float64) for name in ("bytes", "tiles")}
        return {**whole, "max_tile_bytes": most}

    @cached_property
    def memory(self) -> dict[str, Float64]:
        """Columns of ``MEMORY_COLUMNS``, for each category."""
        memory = self.report.memory
        if not memory.num_tiles:
            return {column.name: np.zeros(len(memory.categories)) for column in MEMORY_COLUMNS}
        return {
            "bytes": np.array(list(memory.totals().values()), dtype=np.float64),
            "max_tile_bytes": memory.run_bytes.max(axis=1).astype(np.float64),
            "fullest_tile_bytes": np.array(list(memory.of_tile(memory.fullest_tile).values()), dtype=np.float64),
        }


def _joined(*columns: Sequence[str]) -> list[str]:
    """Words of rows that columns of text make together; names may hold anything but this separator."""
    return ["\x1f".join(row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, eq=False)
class Matched:
    """Rows of one table of all reports, matched.

    Attributes:
        keys: Columns that rows are matched by.
        columns: Columns that are compared.
        rows: The row of each thing in each report's columns, -1 for none, int64[things, reports].
        words: Key of each row of each report, joined.
        values: The columns of each report.
        numbers: Rows of the report's own table, for each report.
    """

    keys: tuple[str, ...]
    columns: tuple[ComparedColumn, ...]
    rows: Int64
    words: Sequence[Sequence[str]]
    values: Sequence[dict[str, Float64]]
    numbers: Sequence[Int64]

    def column(self, name: str) -> Float64:
        """Column of all reports, NaN where there is no row, float64[rows, reports]."""
        found = np.full(self.rows.shape, np.nan)
        for n, values in enumerate(self.values):
            there = self.rows[:, n] >= 0
            found[there, n] = values[name][self.rows[there, n]]
        return found

    @cached_property
    def differs(self) -> npt.NDArray[np.bool_]:
        """True for rows with some difference, bool[rows]."""
        found = np.zeros(len(self.rows), dtype=bool)
        for column in self.columns:
            values = self.column(column.name)
            found |= ~np.isclose(values, values[:, :1], rtol=1e-9, atol=1e-9, equal_nan=True).all(axis=1)
        return found

    def table(self, most: int) -> ComparedTable:
        """The rows that changed most, at most ``most`` of them."""
        leading = np.nan_to_num(self.column(self.columns[0].name))
        change = np.abs(leading - leading[:, :1]).max(axis=1, initial=0)
        # Rows that changed come first, then those that are large.
        order = np.lexsort((np.arange(len(change)), -leading.max(axis=1, initial=0), ~self.differs, -change))[:most]
        columns = {column.name: self.column(column.name)[order] for column in self.columns}
        rows = [self._row(int(thing), n, columns) for n, thing in enumerate(order)]
        return ComparedTable(self.keys, self.columns, tuple(rows), max(len(self.rows) - most, 0))

    def _row(self, thing: int, at: int, columns: dict[str, Float64]) -> ComparedRow:
        of = [int(row) for row in self.rows[thing]]
        first = next(n for n, row in enumerate(of) if row >= 0)
        words = map(visible, self.words[first][of[first]].split("\x1f"))
        status = "added" if of[0] < 0 else "removed" if min(of) < 0 else "changed" if self.differs[thing] else "same"
        values = {name: tuple(None if np.isnan(v) else float(v) for v in each[at]) for name, each in columns.items()}
        own = tuple(int(self.numbers[n][row]) if row >= 0 else -1 for n, row in enumerate(of))
        return ComparedRow(dict(zip(self.keys, words, strict=False)), own, status, values)


def matched_ops(sides: Sequence[Side]) -> Matched:
    """Operations, by path, name and kind."""
    words = [side.op_words for side in sides]
    values, numbers = [side.ops for side in sides], [side.op_rows for side in sides]
    return Matched(("path", "name", "kind"), OP_COLUMNS, match(words), words, values, numbers)


def matched_steps(sides: Sequence[Side]) -> Matched:
    """Steps, by name and kind."""
    words = [side.step_words for side in sides]
    values, numbers = [side.step_columns for side in sides], [side.steps.rows for side in sides]
    return Matched(("name", "kind"), STEP_COLUMNS, match(words), words, values, numbers)


def matched_variables(sides: Sequence[Side]) -> Matched:
    """Variables, by name and type."""
    words = [_joined(side.report.variables["name"].tolist(), side.report.variables["type"].tolist()) for side in sides]
    numbers = [np.arange(len(each), dtype=np.int64) for each in words]
    values = [side.variables for side in sides]
    return Matched(("name", "type"), VARIABLE_COLUMNS, match(words), words, values, numbers)


def matched_memory(sides: Sequence[Side]) -> Matched:
    """Categories of memory."""
    words = [list(side.report.memory.categories) for side in sides]
    numbers = [np.arange(len(each), dtype=np.int64) for each in words]
    values = [side.memory for side in sides]
    return Matched(("category",), MEMORY_COLUMNS, match(words), words, values, numbers)
