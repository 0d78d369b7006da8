"""Write constants.md, the page of the constants that costs are made of: python docs/make_constants.py."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from abele.garden.braggnn import PublishedScript
from abele.machine import CONFIDENCE, cited_works, hosts
from abele.validation.audit import FormulaConstant, MachineRow, formula_constants, machine_rows, rows_of

PAGE = Path(__file__).parent / "constants.md"

HEAD = """# Constants

Every number that modelled cycles and bytes are made of, with its source. This page is written from the code by
`python docs/make_constants.py`; a test compares the two, and another fails if a number of a cost formula has no source.
`abele systems NAME` prints the constants of one machine; [machines](machine.md) says how to change them.

| mark | confidence |
|---|---|
{marks}
| – | chosen: a limit of a search, which is in no cost |

Sections (§) are those of the project's machine reference, which collects published formulas and measurements.

## Machines

Where chips or presets differ, each value has those that it holds for.

"""

HOSTS = """
## Hosts

What feeds a machine, which decides [what limits a rate](report.md#what-limits-the-rate).

"""

SCRIPT = """
The script whose rates of BraggNN were published, as far as its rate depends on it:

"""

FORMULAS = """
## Cost formulas

What vertices, the planner and the memory model use besides, module by module. Formulas with numbers of their own cite
the section that has the formula.

"""


def page() -> str:
    """The page as Markdown."""
    marks = "\n".join(f"| {mark} | {text} |" for mark, text in CONFIDENCE.items() if mark != "U")
    host_rows = rows_of({name: hosts.get(name) for name in hosts.names()})
    rows = (*machine_rows(), *host_rows)
    works = cited_works(source.text for row in rows for _, source in row.by_value)
    cited = "".join(f"- **{key}**: {work}\n" for key, work in works.items())
    script = _constants(rows_of({"script": PublishedScript()}))
    parts = [HEAD.format(marks=marks), _constants(machine_rows()), HOSTS, _constants(host_rows), SCRIPT, script]
    parts += ["\nWorks:\n\n", cited, FORMULAS]
    for module, constants in groupby(formula_constants(), lambda c: c.module):
        parts.append(
            f"### {module}\n\n" + _table(("name", "value", "", "meaning and source"), map(_formula, constants))
        )
        parts.append("\n")
    return "".join(parts).rstrip() + "\n"


def _constants(rows: Iterable[MachineRow]) -> str:
    headings = ("constant", "meaning", "value", "", "source", "calibrated on")
    return _table(headings, (cells for row in rows for cells in _rows(row)))


def _rows(row: MachineRow) -> Iterable[tuple[str, ...]]:
    for number, ((value, source), holders) in enumerate(row.by_value.items()):
        name, meaning = (f"`{row.path}`", row.meaning) if number == 0 else ("", "")
        held = value if len(row.by_value) == 1 else f"{value} ({', '.join(holders)})"
        on = "; ".join(text.replace("_", r"\\_") for text in source.calibrated_on)
        yield name, meaning, held, source.confidence, source.text, on


def _formula(constant: FormulaConstant) -> tuple[str, ...]:
    return f"`{constant.name}`", f"`{constant.value}`", constant.confidence, constant.text


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    lines += ["| " + " | ".join(_cell(text) for text in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text of a table: no bars, and roles of Sphinx as plain names."""
    plain = text.replace("``", "`").replace("|", r"\\|")
    for role in (":func:", ":class:", ":attr:", ":meth:"):
        plain = plain.replace(role, "")
    return plain


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
