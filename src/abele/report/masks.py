"""Masks: costs of selecting the keys of an attention, apart from the attention itself.

A mask is made from little (numbers of sequences, lengths, a triangle) and is then met with the scores of every layer.
Which operations these are is read from the graph of operations, not from their names: scores are what lies between a
product and a softmax, element by element; an operation there that also reads what has never been near a product, norm
or softmax applies a mask, and what that was made by, makes it. Gradients of scores may meet the mask again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.arrays import Bool, Int64
from abele.report.relations import summed_by
from abele.report.text import aligned_lines, count_text, full_name, percent_text, source_text
from abele.report.uses import op_edges

if TYPE_CHECKING:
    from abele.report.report import Report


PRODUCTS = ("poplin.matmul", "poplin.matmul_grouped", "poplin.convolution")
"""Library calls that make scores."""
BY_ELEMENT = ("copy", "popops.map", "popops.cast", "popops.select", "popops.reduce", "popops.fill")
"""Library calls, and copies, that may lie between a product and a softmax, and that masks are made by."""
TOP = 25
"""Operations that the text lists."""


@dataclass(frozen=True)
class MaskStep:
    """Cycles of one operation for a mask in one run.

    Attributes:
        operation: Its name with its path.
        kind: Library call, or ``copy``.
        source: The user's line.
        role: ``made`` or ``applied``.
        cycles: All cycles.
        compute: Of them, those in which vertices run.
        exchange: Of them, those in which data moves between tiles.
    """

    operation: str
    kind: str
    source: str
    role: str
    cycles: int
    compute: int
    exchange: int


@dataclass(frozen=True)
class Masks:
    """All of a run, most cycles first.

    Attributes:
        rows: Operations that make a mask or apply one.
        run_cycles: Cycles of the run, without what streams to and from the host take.
    """

    rows: tuple[MaskStep, ...]
    run_cycles: int

    def cycles_of(self, role: str) -> int:
        """Cycles of the operations that have a role."""
        return sum(row.cycles for row in self.rows if row.role == role)

    @property
    def cycles(self) -> int:
        """Cycles of all."""
        return sum(row.cycles for row in self.rows)

    @property
    def overhead(self) -> float:
        """Overhead of masks: their cycles as a part of those of all other steps."""
        rest = self.run_cycles - self.cycles
        return self.cycles / rest if rest > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """All as plain data."""
        rows = [asdict(row) for row in self.rows]
        return {"cycles": self.cycles, "run_cycles": self.run_cycles, "overhead": self.overhead, "rows": rows}

    def text(self, count: int = TOP) -> str:
        """A line for each of the ``count`` most expensive, and one for all."""
        if not self.rows:
            return "no attention has a mask"
        parts = " · ".join(f"{role} {count_text(self.cycles_of(role))}" for role in ("made", "applied"))
        total = f"masks take {count_text(self.cycles)} cycles ({parts}), {percent_text(self.overhead)} on top of a run"
        return "\n".join([f"{total} without masks and streams", "", *aligned_lines(self._lines(count), ">>>><<<")])

    def _lines(self, count: int) -> Iterator[tuple[str, ...]]:
        yield "cycles", "compute", "exchange", "role", "kind", "operation", "source"
        for r in self.rows[:count]:
            yield *map(count_text, (r.cycles, r.compute, r.exchange)), r.role, r.kind, r.operation, r.source
        if len(self.rows) > count:
            yield *[""] * 5, f"and {len(self.rows) - count} more", ""


def masks(report: Report, program: int = 0) -> Masks:
    """Cycles that a program spends on masks of attention in one run.

    Raises:
        InvalidOptionError: Steps touch more than can be followed.
    """
    steps, ops = report.steps.where("program", program), report.ops
    cycles = np.asarray(steps["cycles"]) * np.asarray(steps["executions"])
    kinds = np.asarray(steps["kind"].tolist())
    made, applied = _roles(report, program)
    op = np.asarray(steps["op"])

    def by_op(chosen: Bool) -> Int64:
        return summed_by(op[chosen], cycles[chosen], len(ops)).astype(np.int64)

    streams = kinds == "stream"
    total, compute, exchange = by_op(~streams), by_op(kinds == "compute"), by_op(kinds == "exchange")
    rows = []
    listed = list(ops.rows())
    for n in np.argsort(-total, kind="stable").tolist():
        if total[n] and (made[n] or applied[n]):
            row = listed[n]
            path, name = str(row["path"]), str(row["name"])
            rows.append(
                MaskStep(
                    operation=full_name(path, name),
                    kind=str(row["kind"]),
                    source=source_text(str(row["file"]), int(row["line"])),
                    role="made" if made[n] else "applied",
                    cycles=int(total[n]),
                    compute=int(compute[n]),
                    exchange=int(exchange[n]),
                )
            )
    return Masks(tuple(rows), int(cycles[~streams].sum()))


def _roles(report: Report, program: int) -> tuple[Bool, Bool]:
    """Operations that make masks, and operations for applying them, by row of the ops table."""
    kinds = np.asarray(report.ops["kind"].tolist())
    edges = op_edges(report, program)
    writer, reader = (np.asarray(edges[name], np.int64) for name in ("writer", "reader"))
    by_element = np.isin(kinds, BY_ELEMENT)
    softmax = np.char.find(kinds.astype(str), "softmax") >= 0
    scores = _reached(np.isin(kinds, PRODUCTS), by_element, writer, reader)
    before = _reached(softmax, by_element, reader, writer)
    gradients = _reached(softmax, by_element, writer, reader)
    heavy = ~by_element
    far = heavy | _reached(heavy, np.ones_like(heavy), writer, reader)
    # Masks are made by what nothing else than such operations comes before, and meet what is by the softmax.
    meets = ~far[writer] & (scores & before & by_element)[reader]
    made = np.zeros_like(heavy)
    made[writer[meets]] = True
    made |= _reached(made, ~far, reader, writer)
    made &= ~far
    applied = np.zeros_like(heavy)
    applied[reader[meets]] = True
    applied[reader[made[writer] & (gradients & by_element & far)[reader]]] = True
    return made, applied


def _reached(start: Bool, through: Bool, source: Int64, target: Int64) -> Bool:
    """Operations that ``start`` leads to along edges, over operations in ``through`` alone."""
    found = np.zeros_like(start)
    front = start
    while True:
        reached = np.zeros_like(start)
        reached[target[front[source]]] = True
        front = reached & through & ~found
        if not front.any():
            return found
        found |= front
