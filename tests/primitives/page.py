"""The page of primitives: what each of JAX's does here, type by type, and the functions of its public modules.

The figures are in a JSON file beside the tests, which ``check.py`` writes; the page is made of it and of the census.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from primitives.census import OUT_OF_SCOPE, RENAMED, primitives
from primitives.samples import TYPES

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results.json"
PAGE = ROOT / "docs" / "primitives.md"

Rows = Sequence[dict[str, Any]]

_HEAD = """# Primitives

Every primitive of the installed JAX ({jax}), found by a walk through its modules, and what `abele.jax` does with it.
Functions that have the primitive in their trace are read into networks in each type, interpreted, and held against
`jax.jit` on the CPU, with `jax.grad` where there is a gradient; one sample in {native} is compiled and run as well.
Results may differ by 2e-5 of their value in f32, 1e-2 in f16 and 4e-2 in bf16, and by a fifth of that of their array's
largest value, or of 1; in 16 bits also where they are nearer to the values in f32 than JAX's own. Integers and bools
are equal.

`python tests/primitives/check.py --types {types} --page` runs all of it and writes this page and its figures,
`tests/primitives/results.json`.
"""


def read_results() -> dict[str, Any]:
    """The kept results: ``jax``, ``native`` (one sample in so many is compiled) and ``rows``."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def write_results(jax: str, native: int, rows: Iterable[dict[str, Any]]) -> None:
    """Keep results, a row to a line, in an order that does not depend on how they were run."""
    ordered = sorted(rows, key=lambda r: (r["name"], r["label"].zfill(3), list(TYPES).index(r["dtype"])))
    kept = [{k: v for k, v in row.items() if v or k in ("label", "name")} for row in ordered]
    lines = ",\n".join(json.dumps(row) for row in kept)
    RESULTS.write_text(f'{{"jax": "{jax}", "native": {native}, "rows": [\n{lines}\n]}}\n')


def of_primitives(rows: Rows) -> Rows:
    """Rows of primitives."""
    return [r for r in rows if _known(r["name"])]


def _known(name: str) -> bool:
    return name in primitives() or name in RENAMED.values()


def page(results: dict[str, Any]) -> str:
    """The page's text."""
    rows: Rows = results["rows"]
    own = of_primitives(rows)
    functions = [r for r in rows if not _known(r["name"])]
    head = _HEAD.format(jax=results["jax"], native=results["native"], types=",".join(TYPES))
    parts = [head, "## Totals\n", _totals(own, functions)]
    parts += ["\n## Primitives that work\n", _passing(own)]
    parts += ["\n## What does not pass\n", _failures(rows)]
    parts += ["\n## Out of scope\n", _exclusions()]
    parts += [
        "\n## Functions that work\n",
        "Functions of `jax.numpy`, `jax.nn`, `jax.scipy`, `jax.random` and others that are made of them.\n",
        _passing(functions),
    ]
    return "\n".join(parts)


def share(rows: Rows) -> float:
    """The share of primitives in scope all of whose samples pass, in per cent."""
    names = {r["name"] for r in of_primitives(rows)}
    wrong = {r["name"] for r in of_primitives(rows) if r["status"] == "fail"} | set(unsampled(rows))
    return 100.0 * (1 - len(wrong) / len(names | wrong))


def unsampled(rows: Rows) -> list[str]:
    """Primitives in scope that no sample has."""
    names = {r["name"] for r in rows}
    return sorted(n for n in primitives() if n not in names | set(OUT_OF_SCOPE) and RENAMED.get(n) not in names)


def _totals(own: Rows, functions: Rows) -> str:
    lines = ["| of | type | samples | pass | do not | with gradient |", f"|---|---|{'---:|' * 4}"]
    for what, rows in (("primitives", own), ("functions", functions)):
        for dtype in TYPES:
            found = [r for r in rows if r["dtype"] == dtype and r["status"] != "excluded"]
            count = Counter(r["status"] for r in found)
            trained = sum(bool(r.get("gradient")) for r in found)
            if found:
                lines.append(f"| {what} | {dtype} | {len(found)} | {count['pass']} | {count['fail']} | {trained} |")
    names = {r["name"] for r in own}
    out = len([n for n in primitives() if n in OUT_OF_SCOPE])
    summary = (
        f"\nOf {len(primitives())} primitives {out} are out of scope; of the others {share(own):.1f} % pass every "
        f"sample ({len(names)} have some)."
    )
    return "\n".join([*lines, summary]) + "\n"


def _passing(rows: Rows) -> str:
    """Names that pass, grouped by their types."""
    by_name: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        if row["status"] != "excluded":
            by_name.setdefault(row["name"], {}).setdefault(row["dtype"], []).append(row)
    groups: dict[tuple[str, str], list[str]] = {}
    for name, by_type in sorted(by_name.items()):
        right = {t: found for t, found in by_type.items() if all(r["status"] == "pass" for r in found)}
        if right:
            trained = " ".join(t for t in TYPES if any(r.get("gradient") for r in right.get(t, ())))
            forward = " ".join(t for t in TYPES if t in right and t not in trained.split())
            groups.setdefault((trained, forward), []).append(f"`{name}`")
    lines = []
    for (trained, forward), names in sorted(groups.items(), key=lambda group: -len(group[1])):
        marks = "; ".join(text for text in (trained and f"{trained} with gradient", forward) if text)
        lines.append(f"- **{marks}** ({len(names)}): {', '.join(names)}")
    return "\n".join(lines) + "\n"


def _failures(rows: Rows) -> str:
    found: dict[str, tuple[list[str], str]] = {}
    for row in rows:
        if row["status"] == "fail":
            found.setdefault(row["name"], ([], str(row["reason"])))[0].append(row["dtype"])
    missing = unsampled(rows)
    if not found and not missing:
        return "Nothing.\n"
    lines = ["| name | types | why, in the first |", "|---|---|---|"]
    lines += [f"| `{n}` | {', '.join(dict.fromkeys(types))} | {_escaped(why)} |" for n, (types, why) in found.items()]
    lines += [f"| `{n}` | | no sample has it |" for n in missing]
    return "\n".join(lines) + "\n"


def _exclusions() -> str:
    by_reason: dict[str, list[str]] = {}
    for name in sorted(primitives()):
        if name in OUT_OF_SCOPE:
            by_reason.setdefault(OUT_OF_SCOPE[name], []).append(f"`{name}`")
    return "\n".join(f"- **{reason}** — {', '.join(names)}" for reason, names in sorted(by_reason.items())) + "\n"


def _escaped(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")[:200]
