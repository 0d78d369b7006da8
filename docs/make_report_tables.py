"""Write the columns of a report's tables into report.md: python docs/make_report_tables.py."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from abele.report.schema import TABLES

PAGE = Path(__file__).parent / "report.md"
_SHARED = "<!-- columns: shared -->\n"
_LEAST_TABLES = 2
"""Tables from which on a column of one meaning is listed once, before all tables."""


def page(text: str) -> str:
    """The text of a page with its columns as the schemas have them; a list of columns ends at the first empty line."""
    columns = {name: _columns(name) for name in TABLES}
    counted = Counter(column for found in columns.values() for column in found)
    shared = [column for column, tables in counted.items() if tables >= _LEAST_TABLES]
    text = _replaced(text, _SHARED, "".join(f"- {_entry(column)}\n" for column in shared))
    for name, found in columns.items():
        own = [column for column in found if column not in shared]
        others = [f"`{column[0]}`" for column in found if column in shared]
        listed = "".join(f"- {_entry(column)}\n" for column in own) + (f"- {', '.join(others)}\n" if others else "")
        text = _replaced(text, f"<!-- columns: {name} -->\n", listed)
    return text


def _columns(name: str) -> list[tuple[str, str, str]]:
    """Name, type and meaning of each column of a table."""
    return [(key, spec.dtype.lstrip("<|"), spec.doc) for key, spec in TABLES[name].columns.items()]


def _entry(column: tuple[str, str, str]) -> str:
    name, kind, meaning = column
    return f"`{name}` ({kind}): {meaning}"


def _replaced(text: str, head: str, listed: str) -> str:
    text, found = re.subn(re.escape(head) + r"(.+\n)*", lambda _: head + listed, text)
    assert found == 1, f"the page has no marker {head!r}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
