"""Checks ``abele.poptorch`` against PyTorch's own samples of its operators and modules; prints a line for each.

python tests/operators/check.py --entries 'index_*,gather' --dtype f32,f16
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from operators import page
from operators.running import Limits, Row
from operators.samples import DTYPES, entries
from operators.workers import run_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 if something failed."""
    asked = _parser().parse_args(arguments)
    limits = Limits(asked.samples, not asked.no_grad, asked.seconds)
    kept = _kept(asked)
    passed = {key for key, row in kept.items() if row["status"] == "pass"} if asked.again else set()
    tasks = [
        (entry, dtype)
        for entry in entries(asked.entries.split(","))
        for dtype in asked.dtype.split(",")
        if entry.takes(DTYPES[dtype]) and asked.kind in ("", entry.kind)
        if (entry.kind, entry.name, dtype) not in passed
    ]
    start, rows = time.perf_counter(), []
    for row in run_all(tasks, limits, asked.jobs):
        rows.append(row)
        if asked.json and len(rows) % 20 == 0:
            write(asked, kept, rows)
        if not (asked.failures and row.status != "fail"):
            print(line(row, asked.all_failures), flush=True)
    print(totals(rows))
    print(f"{len(rows)} rows in {time.perf_counter() - start:.0f} s, {sum(r.seconds for r in rows):.0f} s of processor")
    if asked.json:
        write(asked, kept, rows)
    if asked.page:
        page.PAGE.write_text(page.page(page.read_results(Path(asked.json or page.RESULTS))))
    return int(any(row.status == "fail" for row in rows))


def write(asked: argparse.Namespace, kept: dict[tuple[str, str, str], dict[str, Any]], rows: Sequence[Row]) -> None:
    """Write the file: the rows so far, and those kept of an earlier run."""
    made = {(row.kind, row.entry, row.dtype): row.as_json() for row in rows}
    page.write_results(Path(asked.json), torch.__version__, asked.samples, {**kept, **made}.values())


def _kept(asked: argparse.Namespace) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The rows of an earlier run that this one brings up to date."""
    if not ((asked.update or asked.again) and asked.json and Path(asked.json).exists()):
        return {}
    return {(r["kind"], r["entry"], r["dtype"]): r for r in page.read_results(Path(asked.json))["rows"]}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", default="*", metavar="GLOB[,GLOB]", help="names, with or without :variant")
    parser.add_argument("--dtype", default="f32", metavar="TYPE[,TYPE]", help="f32, f16, i32, bool (default f32)")
    parser.add_argument("--kind", default="", choices=["", "operator", "module"], help="only one of the two databases")
    parser.add_argument("--samples", type=int, default=4, help="samples of an entry and type (default 4)")
    parser.add_argument("--no-grad", action="store_true", help="leave gradients out")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--seconds", type=float, default=20.0, help="most time for a case (default 20)")
    parser.add_argument("--json", metavar="FILE", help="write the rows here as well")
    parser.add_argument("--update", action="store_true", help="keep the file's other rows")
    parser.add_argument("--again", action="store_true", help="as --update, and run only what does not pass in the file")
    parser.add_argument("--page", action="store_true", help="write docs/operators.md from the file")
    parser.add_argument("--failures", action="store_true", help="print only what fails")
    parser.add_argument("--all-failures", action="store_true", help="print every failing case, not only the first")
    return parser


def line(row: Row, every: bool = False) -> str:
    """A row as text."""
    head = f"{row.status:8s} {row.entry:44s} {row.dtype:4s} {row.cases:2d} cases {row.gradients:2d} gradients"
    if row.status == "pass":
        return f"{head}  error {row.error:.1e}"
    more = [f"\n           {failure}" for failure in row.failures[1:]] if every else []
    return f"{head}  {row.reason}{''.join(more)}"


def totals(rows: Sequence[Row]) -> str:
    """Passed, failed and excluded entries by type."""
    lines = []
    for dtype in dict.fromkeys(row.dtype for row in rows):
        for kind in ("operator", "module"):
            count = Counter(row.status for row in rows if (row.dtype, row.kind) == (dtype, kind))
            inside = count["pass"] + count["fail"]
            if count:
                share = f"{100 * count['pass'] / inside:.1f} %" if inside else "none in scope"
                lines.append(
                    f"{dtype:4s} {kind:8s}  {count['pass']} pass, {count['fail']} fail, {count['excluded']} excluded:"
                    f" {share}"
                )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
