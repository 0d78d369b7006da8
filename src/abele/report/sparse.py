"""Sparse operands of a program: buckets and imbalance by tile, and what a run's patterns cost against the worst.

A report counts how often each step ran, so also how many passes spilt buckets took: the step ``next_pass_of_19`` ran
once for each pass, of 19 at most. Steps between the first look at the overflow info and that one are the loop's.

Example: a product of 8,000 cycles with a loop of 900 cycles a trip and 19 trips at most takes 8,000 + 2 · 900 for a
pattern whose farthest bucket is two passes away, and 25,100 at worst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, nearest
from abele.report.relations import rows_of
from abele.report.schema_sparse import SPARSE_PASSES
from abele.report.table import Table
from abele.report.text import aligned_lines, count_text, percent_text
from abele.report.tiles import by_tile
from abele.words import counted, visible

if TYPE_CHECKING:
    from abele.report.report import Report

_LOOK = re.compile(r"(.*)/next_pass_of_(\d+)$")
TOP = 25
"""Operands that the text lists."""
_BAR, _SHADES = 48, " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class PassCost:
    """Passes of one product, in one run of its program.

    Attributes:
        name: Its path in the program.
        passes: Passes that the pattern took, over all times that the product was made.
        worst_passes: Passes of the worst pattern.
        cycles: Cycles that the passes took.
        worst_cycles: Cycles of the worst pattern's passes.
        products: Times that the product was made.
        program: Index of the program.
    """

    name: str
    passes: int
    worst_passes: int
    cycles: int
    worst_cycles: int
    products: int = 1
    program: int = 0


def pass_costs(run: Report, compiled: Report) -> list[PassCost]:
    """The passes of each dynamic sparse product.

    Args:
        run: ``engine.report`` after a run.
        compiled: ``engine.executable.report``, which assumes one trip.
    """
    steps, assumed = run.steps, compiled.steps
    names = [str(name) for name in steps["name"].tolist()]
    looks = [(row, found) for row, name in enumerate(names) if (found := _LOOK.match(name))]
    costs = []
    # Each product looks twice: before its loop and at the end of each trip.
    for (first, found), (last, _) in zip(looks[::2], looks[1::2], strict=True):
        rows = slice(first + 1, last + 1)
        each, times, once = steps["cycles"][rows], steps["executions"][rows], assumed["executions"]
        trip = int((each * once[rows]).sum()) // max(int(once[first]), 1)
        products, passes = int(steps["executions"][first]), int(steps["executions"][last])
        worst = int(found.group(2)) * products
        cycles = int((each * times).sum())
        program = int(steps["program"][first])
        costs.append(PassCost(found.group(1), passes, worst, cycles, trip * worst, products=products, program=program))
    return costs


def passes_table(run: Report, compiled: Report) -> Table:
    """The table of passes; see :func:`pass_costs`."""
    costs = pass_costs(run, compiled)
    return SPARSE_PASSES.table(**{name: [getattr(c, name) for c in costs] for name in SPARSE_PASSES.columns})


class SparseOperands:
    """Sparse operands of a report.

    Args:
        report: The report.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self.operands, self.passes = report.sparse_operands, report.sparse_passes

    def __len__(self) -> int:
        return len(self.operands)

    def values_by_tile(self, operand: int | str) -> Int64:
        """Values that each tile works on, or has in its bucket, int64[tiles].

        Args:
            operand: Row in the table of sparse operands, or the name of the first of that name.

        Raises:
            InvalidOptionError: There is no such operand.
        """
        row, table = self._row(operand), self.report.sparse_tiles
        return by_tile(self.report, table, rows_of(table, "operand", row), "values")

    def _row(self, operand: int | str) -> int:
        names: list[str] = self.operands["name"].tolist()
        if isinstance(operand, str):
            if operand in names:
                return int(names.index(operand))
            close = nearest(operand, names)
            raise InvalidOptionError(
                f"the report has no sparse operand {operand!r}",
                because=None if names else "its program has none",
                remedy=f"did you mean {close!r}?" if close else None,
            )
        if not 0 <= operand < len(names):
            raise InvalidOptionError(f"no sparse operand {operand}: the report has {counted(len(names), 'one')}")
        return operand

    @property
    def extra_cycles(self) -> int:
        """Cycles that the passes of a run of program 0 took."""
        return int(self._of_first("cycles"))

    @property
    def worst_cycles(self) -> int:
        """Cycles of a run of program 0 with the worst patterns."""
        return self.report.total_cycles - self.extra_cycles + int(self._of_first("worst_cycles"))

    def _of_first(self, column: str) -> int:
        return int(self.passes[column][np.asarray(self.passes["program"]) == 0].sum())

    def to_json(self) -> dict[str, Any]:
        """Operands and passes as plain data."""
        return {
            "operands": list(self.operands.rows()),
            "passes": list(self.passes.rows()),
            "cycles": self.report.total_cycles,
            "worst_cycles": self.worst_cycles,
        }

    def facts(self) -> Iterator[tuple[str, str]]:
        """Labels and texts of the summary's lines; none without sparse operands."""
        if not len(self):
            return
        kinds = self.operands["library"].tolist()
        of = " · ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        most = int(np.argmax(self.operands["imbalance"]))
        row = next(iter(self.operands.select(np.array([most])).rows()))
        yield (
            "sparse",
            f"{counted(len(self), 'operand')} ({of}); least even: {row['name']}, "
            f"whose fullest tile has {row['imbalance']:.3g} times the mean",
        )
        if len(self.passes):
            yield "its passes", self.passes_text()

    def passes_text(self) -> str:
        """Passes of the runs, and cycles of a run against the worst, in words."""
        taken, worst = (self._of_first(name) for name in ("passes", "worst_passes"))
        cycles, most = self.report.total_cycles, self.worst_cycles
        return (
            f"{taken:,} of {worst:,} at worst; {count_text(cycles)} cycles of {count_text(most)} "
            f"({percent_text(cycles / max(most, 1))})"
        )

    def text(self, top: int = TOP) -> str:
        """A line for each operand, one for each product that makes passes, and values over tiles."""
        if not len(self):
            return "the program has no sparse operand"
        lines = aligned_lines(self._lines(top), "<<>>>>>>>>>")
        if len(self.operands) > top:
            lines.append(f"and {len(self.operands) - top} more")
        lines += ["", "values by tile, up to the fullest"]
        for row in range(min(len(self.operands), top)):
            lines.append(f"|{bar(self.values_by_tile(row))}| {visible(str(self.operands['name'][row]))}")
        if len(self.passes):
            lines += [
                "",
                *aligned_lines(self._pass_lines(top), ">>>><"),
                "",
                f"passes {self.passes_text()}",
            ]
        return "\n".join(line.rstrip() for line in lines)

    def _lines(self, top: int) -> Iterator[tuple[str, ...]]:
        yield (
            *("operand", "library", "shape", "block", "density", "blocks", "tiles"),
            *("mean", "fullest", "room", "imbalance"),
        )
        for r in list(self.operands.rows())[:top]:
            groups = f"{r['groups']} x " if r["groups"] > 1 else ""
            yield (
                visible(r["name"]),
                r["library"] + (", assumed" if r["basis"] == "assumed" else ""),
                f"{groups}{r['rows']} x {r['columns']}",
                f"{r['block_rows']} x {r['block_columns']}",
                percent_text(r["density"]),
                f"{r['blocks']:,}",
                f"{r['tiles']:,}",
                count_text(r["mean_values"]),
                f"{r['most_values']:,}",
                f"{r['capacity']:,}" if r["capacity"] else "–",
                f"{r['imbalance']:.2f}",
            )

    def _pass_lines(self, top: int) -> Iterator[tuple[str, ...]]:
        yield "passes", "worst", "cycles", "worst", "product"
        for r in list(self.passes.rows())[:top]:
            counts = (r["passes"], r["worst_passes"], r["cycles"], r["worst_cycles"])
            yield *(f"{n:,}" for n in counts), visible(r["name"])

    def __str__(self) -> str:
        return self.text()


def bar(values: Int64) -> str:
    """Values of tiles as characters; those that share one show the most."""
    columns = min(_BAR, len(values))
    edges = np.linspace(0, len(values), columns + 1).astype(np.int64)[:-1]
    most = np.maximum.reduceat(values, edges) if columns else values
    levels = np.ceil(most * (len(_SHADES) - 1) / max(int(values.max(initial=0)), 1)).astype(np.int64)
    return "".join(_SHADES[k] for k in levels.tolist())
