"""Write constants.md, the page of the constants that costs are made of: python docs/make_constants.py."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from abele.garden.braggnn import PublishedScript
from abele.machine import CONFIDENCE, cited_works, hosts
from abele.validation.audit import FormulaConstant, MachineRow, formula_constants, machine_rows, rows_of

PAGE = Path(__file__).parent / "constants.md"

HEAD = """# Constants

Every number that modelled cycles and bytes are made of, with its source, written from the code by
`python docs/make_constants.py`; tests hold the two together and refuse a cost formula's number without a source.
`abele systems NAME` prints the constants of one machine; [machines](machine.md) says how to change them. Sources begin
with their confidence; sections (§) are those of the project's machine reference.

| mark | confidence |
|---|---|
{marks}
| – | chosen: a limit of a search, which is in no cost |

## Machines

"""

HOSTS = """
## Hosts

Figures of hosts, which decide [what limits a rate](report.md#what-limits-the-rate).

"""

SCRIPT = """
The script whose rates of BraggNN were published, as far as its rate depends on it:

"""

FORMULAS = """
## Cost formulas

Numbers of vertices, the planner and the memory model, by module. The code's comment on each says more.

"""

_SHORT = 40
"""Characters of a source that is repeated rather than pointed at."""

_SENTENCE = re.compile(r"(?<=[.)])\s+(?=[A-Z`])")
_SOURCE = re.compile(r"^(Source|Guessed|Chosen|Calibrated)")
_PLAIN = re.compile(
    r"(?:machine reference|``?reference/machine\.md``?|machine\.md) (?=§)|^Source(?: of every formula| of all)?: "
)


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
        parts += [f"**{module}**\n\n", *_formulas(constants), "\n"]
    return "".join(parts).rstrip() + "\n"


def _constants(rows: Iterable[MachineRow]) -> str:
    lines, first_with = ["| constant | value, confidence and source |", "|---|---|"], dict[str, str]()
    before = ""
    for row in rows:
        most = max(row.by_value.values(), key=len)
        texts = []
        for (value, source), holders in row.by_value.items():
            whose = "others" if holders is most and len(holders) > 1 else ", ".join(holders)
            for_whom = "" if len(row.by_value) == 1 else f" for {whose}"
            first = first_with.setdefault(source.text, row.path)
            cited = source.text if first == row.path or len(source.text) < _SHORT else f"as `{first}`"
            on = "; ".join(name.replace("_", r"\_") for name in source.calibrated_on)
            texts.append(f"{value}{for_whom}, {source.confidence}: {cited}" + (f"; calibrated on {on}" if on else ""))
        if row.path == "num_ipus":  # Fifteen sources say little but the preset's title.
            texts = [f"{value} for {', '.join(names)}" for value, names in _by_value(row).items()]
            texts.append("S: GC-ANL and GC-SW; LOUW for c2; C600 brochure for c600")
        meaning = row.meaning if row.meaning != before else "as above"
        before = row.meaning
        lines.append(f"| `{row.path}`: {_cell(meaning)} | {_cell('; '.join(texts))} |")
    return "\n".join(lines) + "\n"


def _by_value(row: MachineRow) -> dict[str, list[str]]:
    """Holders of each value, whatever its source."""
    found: dict[str, list[str]] = {}
    for (value, _), holders in row.by_value.items():
        found.setdefault(value, []).extend(holders)
    return found


def _formulas(constants: Iterable[FormulaConstant]) -> Iterable[str]:
    """List entries: neighbours of one meaning together, and a source as often as it changes."""
    before = ""
    for (text, confidence), group in groupby(constants, lambda c: (c.text, c.confidence)):
        sentences = _SENTENCE.split(text)
        sources = [s for s in sentences if _SOURCE.match(s)]
        first = next((s for s in sentences if not _SOURCE.match(s)), "")
        source = " ".join(_PLAIN.sub("", s) for s in sources if s not in ("Guessed.", "Chosen."))
        said = "" if source == before else source
        before = source
        named = ", ".join(f"`{c.name} = {c.value}`" for c in group)
        meaning = _cell(" ".join(filter(None, (_PLAIN.sub("", first), said))))
        yield f"- {named} ({confidence}){': ' + meaning if meaning else ''}\n"


def _cell(text: str) -> str:
    """Text of a table: no bars, and roles of Sphinx as plain names."""
    plain = text.replace("``", "`").replace("|", r"\\|")
    for role in (":func:", ":class:", ":attr:", ":meth:"):
        plain = plain.replace(role, "")
    return plain


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
