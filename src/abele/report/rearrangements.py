"""Rearrangements: costs of bringing data into another order or to other tiles for its next reader.

A program computes on data as it lies, or first moves it. Moved are: what a copy of the program copies; inputs of
vertices that lie in pieces, put together on their tile; operands of products that are written anew in the order in
which vertices read them, and results in the order in which they are wanted. What vertices receive in one piece is no
rearrangement: that is how the machine works.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.arrays import Array, Bool, Int64
from abele.report.relations import summed_by
from abele.report.text import aligned_lines, count_text, full_name, percent_text, source_text

if TYPE_CHECKING:
    from abele.report.report import Report

WRITTEN_ANEW = ("rewrite", "arrange", "arrange_output")
"""Last part of the names of compute sets that write operands or results of products in another order."""
TOP = 25
"""Operations that the text lists."""


@dataclass(frozen=True)
class Rearrangement:
    """Cycles of one operation for rearranging data in one run.

    Attributes:
        operation: Its name with its path.
        kind: Library call, or ``copy``.
        source: The user's line.
        cycles: All cycles.
        copied: Of them, those of copies of the program.
        gathered: Of them, those of inputs that are put together on their tile.
        written: Of them, those of operands and results that are rewritten in another order.
        bytes: Bytes that go to other tiles for that.
    """

    operation: str
    kind: str
    source: str
    cycles: int
    copied: int
    gathered: int
    written: int
    bytes: int


@dataclass(frozen=True)
class Rearrangements:
    """All of a run, most cycles first.

    Attributes:
        rows: Operations that rearrange something.
        run_cycles: Cycles of the run, without what streams to and from the host take.
    """

    rows: tuple[Rearrangement, ...]
    run_cycles: int

    @property
    def cycles(self) -> int:
        """Cycles of all."""
        return sum(row.cycles for row in self.rows)

    @property
    def share(self) -> float:
        """Their part of the run."""
        return self.cycles / self.run_cycles if self.run_cycles else 0.0

    def to_json(self) -> dict[str, Any]:
        """All as plain data."""
        return {"cycles": self.cycles, "run_cycles": self.run_cycles, "rows": [asdict(row) for row in self.rows]}

    def text(self, count: int = TOP) -> str:
        """A line for each of the ``count`` most expensive, and one for all."""
        total = f"{count_text(self.cycles)} cycles, {percent_text(self.share)} of a run without streams"
        if not self.rows:
            return "nothing is rearranged"
        return "\n".join([f"rearranged in {total}", "", *aligned_lines(self._lines(count), ">>>>><<<")])

    def _lines(self, count: int) -> Iterator[tuple[str, ...]]:
        yield "cycles", "copied", "gathered", "written", "bytes", "kind", "operation", "source"
        for r in self.rows[:count]:
            counts = (r.cycles, r.copied, r.gathered, r.written, r.bytes)
            yield *map(count_text, counts), r.kind, r.operation, r.source
        if len(self.rows) > count:
            yield *[""] * 6, f"and {len(self.rows) - count} more", ""


def rearrangements(report: Report) -> Rearrangements:
    """Cycles and bytes that program 0 spends on rearranging data in one run."""
    steps, ops = report.steps.where("program", 0), report.ops
    op, kind = np.asarray(steps["op"]), np.asarray(steps["kind"].tolist())
    cycles = np.asarray(steps["cycles"]) * np.asarray(steps["executions"])
    names = [name.split(":", 1)[0].rsplit("/", 1)[-1] for name in steps["name"].tolist()]
    plain = np.asarray([k == "copy" for k in ops["kind"].tolist()] + [False])[op]
    written = np.isin(names, WRITTEN_ANEW) & (kind != "copy") & ~plain
    copied = plain & (kind != "stream")
    gathered = (kind == "copy") & ~copied
    moves = copied | gathered | written
    sent = np.asarray(steps["exchanged_bytes"]) * np.asarray(steps["executions"]) * (moves & (kind == "exchange"))

    def by_op(chosen: Bool, values: Array) -> Int64:
        return summed_by(op[chosen], values[chosen], len(ops)).astype(np.int64)

    sums = [by_op(chosen, cycles) for chosen in (moves, copied, gathered, written)]
    sent_bytes = by_op(moves, sent)
    order = [int(n) for n in np.argsort(-sums[0], kind="stable") if sums[0][n]]
    listed = list(ops.rows())
    rows = []
    for n in order:
        operation, call, source = _named(listed[n])
        counts = (int(s[n]) for s in (*sums, sent_bytes))
        rows.append(Rearrangement(operation, call, source, *counts))
    return Rearrangements(tuple(rows), int(cycles[kind != "stream"].sum()))


def _named(row: dict[str, Any]) -> tuple[str, str, str]:
    path, name = str(row["path"]), str(row["name"])
    source = source_text(str(row["file"]), int(row["line"]))
    return full_name(path, name), str(row["kind"]), source
