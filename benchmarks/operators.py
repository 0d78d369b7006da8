"""Predicted against published cycles and memory, operator by operator.

Takes a CSV file of operator benchmarks (``name,tool,params`` and, for ``mk1`` and ``mk2``, cycles and bytes), builds
each operator as its parameters say, compiles it for GC2 and GC200 and prints both figures with their relative errors;
then median, 90th percentile and worst error by kind of operator. With --json one object is printed: {"rows": [...]}
with ``name``, ``tool``, ``chip``, ``predicted_cycles``, ``reference_cycles``, ``predicted_bytes``, ``reference_bytes``
(references are null where none is published) and ``left_out``, the names of parameters that are not known; and
"failures", why rows have no figures. The exit status is 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from rich.console import Console
from rich.table import Table

from abele.validation.measure import RowResult, read_rows
from abele.validation.operators import compare_rows
from abele.validation.summary import Errors, errors_by_tool


def main() -> int:
    """Parse arguments, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv", help="rows to compare with")
    parser.add_argument("--only", default="", help="kinds of operators, or parts of names, separated by commas")
    parser.add_argument("--chip", default="gc2,gc200", help="systems, separated by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    wanted = [word for word in args.only.split(",") if word]
    rows = [r for r in read_rows(args.csv) if not wanted or any(w == r.tool or w in r.name for w in wanted)]
    progress = None if args.json else Console(stderr=True)
    found = compare_rows(rows, args.chip.split(","), jobs=args.jobs, console=progress)
    results, failures = list(found.results), found.failures
    if args.json:
        print(json.dumps({"rows": [r.to_json() for r in results], "failures": list(failures)}))
    else:
        console = Console(width=None if sys.stdout.isatty() else 140)
        console.print(rows_table(results))
        console.print(errors_table(errors_by_tool(results)))
    for remark in found.remarks:
        print(remark, file=sys.stderr)
    for failure in failures:
        print(f"not compared: {failure}", file=sys.stderr)
    return 1 if failures else 0


def rows_table(results: list[RowResult]) -> Table:
    """Every figure."""
    table = Table(title="predicted and published")
    for name in ("operator", "chip"):
        table.add_column(name)
    for name in ("cycles", "published", "error", "MB", "published", "error"):
        table.add_column(name, justify="right")
    for r in results:
        cycles = f"{r.predicted_cycles:,}", shown(r.reference_cycles, ","), shown(r.cycles_error, "+.1%")
        published = None if r.reference_bytes is None else r.reference_bytes / 1e6
        held = f"{r.predicted_bytes / 1e6:,.2f}", shown(published, ",.2f"), shown(r.bytes_error, "+.1%")
        table.add_row(r.name, r.chip, *cycles, *held)
    return table


def shown(value: float | None, form: str) -> str:
    """A figure, or a dash where none is published."""
    return "–" if value is None else format(value, form)


def errors_table(errors: list[Errors]) -> Table:
    """Errors by kind of operator."""
    table = Table(title="relative error, size")
    table.add_column("kind")
    for name in ("rows", "cycles: median", "90 %", "worst", "memory: median", "90 %", "worst"):
        table.add_column(name, justify="right")
    for e in errors:
        table.add_row(e.tool, str(e.rows), *(f"{x:.1%}" for x in (*e.cycles, *e.bytes)))
    return table


if __name__ == "__main__":
    sys.exit(main())
