"""The page of operators: what the databases' entries do here, entry by entry and type by type.

The figures are in a JSON file beside the tests, which ``check.py --json`` writes and ``--update`` brings up to date;
the page is made of it, and holds nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from operators.samples import DTYPES, entries

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results.json"
PAGE = ROOT / "docs" / "operators.md"

Rows = Sequence[dict[str, Any]]

_HEAD = """# Operators

What `abele.poptorch` does with PyTorch's own databases of samples, `op_db` and `module_db` of `torch.testing._internal`
(torch {torch}). For each entry and type up to {samples} samples, spread over all that the entry has, are captured,
compiled and run, and held against PyTorch; where the entry has a gradient, a step of training is as well. In f32
in-place and `out=` forms are tried once each. Modules run in evaluation and in training mode. Arguments that are
tensors are inputs of the model, so that nothing is computed beforehand. Results may differ from PyTorch's by 1e-4 of
their value in f32 and 4e-3 in f16, and by 1e-5 and 2e-3 of the largest value of their tensor, or of 1.

`make operators` runs all of it, `make test-all` a sample that changes with the commit. The page and the results that it
is made of are written by `python tests/operators/check.py --dtype f32,f16,i32,bool --jobs 2 --samples 2 --json
tests/operators/results.json --page`; with `--again` only what has not passed before is run.
"""


def read_results(path: Path = RESULTS) -> dict[str, Any]:
    """The kept results: ``torch``, ``samples``, ``entries`` (how many there are) and ``rows``."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def write_results(path: Path, torch_version: str, samples: int, rows: Iterable[dict[str, Any]]) -> None:
    """Keep results, a row to a line, in an order that does not depend on how they were run."""
    kept = sorted(({k: v for k, v in row.items() if k not in ("seconds", "skipped")} for row in rows), key=_place)
    lines = ",\n".join(json.dumps(row) for row in kept)
    head = f'"torch": "{torch_version}", "samples": {samples}, "entries": {json.dumps(_entries())}'
    path.write_text(f'{{{head}, "rows": [\n{lines}\n]}}\n')


def _entries() -> dict[str, int]:
    """Number of entries that take each type, by type and kind."""
    found = Counter(f"{name} {e.kind}" for e in entries() for name, dtype in DTYPES.items() if e.takes(dtype))
    return {f"{name} {kind}": found[f"{name} {kind}"] for kind in ("operator", "module") for name in DTYPES}


def _place(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["kind"], row["entry"], list(DTYPES).index(row["dtype"])


def page(results: dict[str, Any]) -> str:
    """The page's text."""
    rows: Rows = results["rows"]
    parts = [
        _HEAD.format(torch=results["torch"].split("+")[0], samples=results["samples"]),
        "## Totals\n",
        _totals(rows, results["entries"]),
    ]
    parts += ["\n## Why entries are out of scope\n", _exclusions(rows)]
    parts += ["\n## What does not pass\n", _failures(rows)]
    parts += ["\n## Operators\n", _table([r for r in rows if r["kind"] == "operator"])]
    parts += ["\n## Modules\n", _table([r for r in rows if r["kind"] == "module"])]
    return "\n".join(parts)


def counts(rows: Rows) -> dict[tuple[str, str], Counter[str]]:
    """Number of rows with each status, by type and kind."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        found.setdefault((row["dtype"], row["kind"]), Counter())[row["status"]] += 1
    return found


def share(count: Counter[str]) -> float:
    """The share of the entries in scope that pass, in per cent."""
    inside = count["pass"] + count["fail"]
    return 100 * count["pass"] / inside if inside else 100.0


def _totals(rows: Rows, entries_of: dict[str, int]) -> str:
    lines = [
        "| type | of | pass | do not | out of scope | not run yet | of those in scope that were run |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for (dtype, kind), count in counts(rows).items():
        left = entries_of[f"{dtype} {kind}"] - count.total()
        lines.append(
            f"| {dtype} | {kind}s | {count['pass']} | {count['fail']} | {count['excluded']} | {left} "
            f"| {share(count):.1f} % |"
        )
    return "\n".join(lines) + "\n"


def _exclusions(rows: Rows) -> str:
    by_reason: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if row["status"] == "excluded":
            names = by_reason.setdefault(_reason(row), {})
            names.setdefault(row["entry"], []).append(row["dtype"])
    lines = []
    for reason, names in sorted(by_reason.items()):
        shown = ", ".join(f"`{name}` ({' '.join(dtypes)})" for name, dtypes in sorted(names.items()))
        lines.append(f"- **{reason}** — {shown}")
    return "\n".join(lines) + "\n"


def _reason(row: dict[str, Any]) -> str:
    """Why a row is out of scope, without what only this one says."""
    words = str(row["reason"]).split(": ")
    return _escaped(
        ": ".join(words[:2]) if words[0] != "not exportable" else words[0] + ": torch.export itself refuses"
    )


def _failures(rows: Rows) -> str:
    lines = ["| entry | type | why |", "|---|---|---|"]
    lines += [f"| `{r['entry']}` | {r['dtype']} | {_escaped(r['reason'])} |" for r in rows if r["status"] == "fail"]
    return "\n".join(lines) + "\n"


def _table(rows: Rows) -> str:
    """A line for each entry: its mark in each type, gradients with a check of their own."""
    by_entry: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_entry.setdefault(row["entry"], {})[row["dtype"]] = row
    lines = [f"| entry | {' | '.join(DTYPES)} | largest error in f32 |", f"|---|{'---|' * len(DTYPES)}---:|"]
    for name, by_dtype in sorted(by_entry.items()):
        marks = [_mark(by_dtype.get(dtype)) for dtype in DTYPES]
        first = by_dtype.get("f32")
        error = f"{first['error']:.0e}" if first and first["status"] == "pass" and first["error"] else ""
        lines.append(f"| `{name}` | {' | '.join(marks)} | {error} |")
    return "\n".join(lines) + "\n"


def _mark(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["status"] == "pass":
        return "yes, with gradient" if row["gradients"] else "yes"
    return {"fail": "**no**", "excluded": "out of scope"}[row["status"]]


def _escaped(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").replace("'poptorch_py_error': ", "")[:240]
