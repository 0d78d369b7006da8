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

Entries of PyTorch's own databases of samples, `op_db` and `module_db` of `torch.testing._internal` (torch {torch}), and
how `abele.poptorch` does with them. Of each entry and type up to {samples} samples, spread over all of them, are
captured, compiled, run and held against PyTorch, with a step of training where there is a gradient. In-place and `out=`
forms are tried once in f32; modules in evaluation and training mode. Tensor arguments are inputs of the model. Results
may differ by 1e-4 of their value in f32 and 4e-3 in f16, and by 1e-5 and 2e-3 of their tensor's largest value, or of 1.

`make operators` runs all of it, `make test-all` a sample that changes with the commit. This page and its figures,
`tests/operators/results.json`, are written by `python tests/operators/check.py --dtype f32,f16,i32,bool --jobs 2
--samples 2 --json tests/operators/results.json --page`; `--again` leaves out what has passed before.
"""

_LARGE_ERROR = 1e-6
"""Errors above this stand on the page: rounding alone makes errors of up to some 1e-7."""


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
    parts += [
        "\n## Operators that pass\n",
        f"Largest errors in f32 above {_LARGE_ERROR:.0e} stand behind the names.\n",
        _passing([r for r in rows if r["kind"] == "operator"]),
    ]
    parts += ["\n## Modules that pass\n", _passing([r for r in rows if r["kind"] == "module"])]
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
    lines = ["| type | of | pass | do not | out of scope | not run | in scope |", f"|---|---|{'---:|' * 5}"]
    for (dtype, kind), count in counts(rows).items():
        left = entries_of[f"{dtype} {kind}"] - count.total()
        numbers = f"{count['pass']} | {count['fail']} | {count['excluded']} | {left} | {share(count):.1f} %"
        lines.append(f"| {dtype} | {kind}s | {numbers} |")
    return "\n".join(lines) + "\n"


def _exclusions(rows: Rows) -> str:
    by_reason: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if row["status"] == "excluded":
            names = by_reason.setdefault(_reason(row), {})
            names.setdefault(row["entry"], []).append(row["dtype"])
    lines = []
    for reason, names in sorted(by_reason.items()):
        by_types: dict[str, list[str]] = {}
        for name, dtypes in sorted(names.items()):
            by_types.setdefault(" ".join(dtypes), []).append(f"`{name}`")
        shown = "; ".join(f"{types}: {', '.join(entries)}" for types, entries in by_types.items())
        lines.append(f"- **{reason}** — {shown}")
    return "\n".join(lines) + "\n"


def _reason(row: dict[str, Any]) -> str:
    """Why a row is out of scope, without what only this one says."""
    words = str(row["reason"]).split(": ")
    return _escaped(
        ": ".join(words[:2]) if words[0] != "not exportable" else words[0] + ": torch.export itself refuses"
    )


def _failures(rows: Rows) -> str:
    by_entry: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        if row["status"] == "fail":
            by_entry.setdefault(row["entry"], []).append((row["dtype"], _escaped(row["reason"])))
    lines = ["| entry | types | why, in the first |", "|---|---|---|"]
    lines += [f"| `{n}` | {', '.join(t for t, _ in found)} | {found[0][1]} |" for n, found in by_entry.items()]
    return "\n".join(lines) + "\n"


def _passing(rows: Rows) -> str:
    """Names that pass, grouped by their marks in every type, with errors above rounding."""
    by_entry: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_entry.setdefault(row["entry"], {})[row["dtype"]] = row
    groups: dict[tuple[str, str], list[str]] = {}
    for name, by_dtype in sorted(by_entry.items()):
        passed = {dtype: row["gradients"] for dtype, row in by_dtype.items() if row["status"] == "pass"}
        if passed:
            trained = ", ".join(dtype for dtype in DTYPES if passed.get(dtype))
            forward = ", ".join(dtype for dtype in DTYPES if dtype in passed and not passed[dtype])
            error = by_dtype["f32"].get("error") if "f32" in passed else None
            large = f" ({error:.0e})" if error and error > _LARGE_ERROR else ""
            groups.setdefault((trained, forward), []).append(f"`{name}`{large}")
    lines = []
    for (trained, forward), names in sorted(groups.items(), key=lambda group: -len(group[1])):
        marks = "; ".join(text for text in (trained and f"{trained} with gradient", forward) if text)
        lines.append(f"- **{marks}** ({len(names)}): {', '.join(names)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").replace("'poptorch_py_error': ", "")[:240]
