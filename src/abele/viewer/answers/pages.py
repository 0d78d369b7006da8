"""Pages of tables that an answer makes: the rows that a filter leaves, in an order, a part of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abele.arrays import Array
from abele.report.table import Table
from abele.report.text_column import Text
from abele.viewer.answers.table import LONGEST_TEXT, MOST_ROWS, mask, ordered
from abele.viewer.params import Params
from abele.words import shortened


@dataclass(frozen=True, eq=False)
class TablePage:
    """Some rows of a table.

    Attributes:
        found: All rows that the filter leaves, in order, int64[found].
        rows: Those of them that are on the page, int64[rows].
        head: ``total``, ``found``, ``first``, ``columns`` with their ``name``, ``text`` and ``doc``, and ``text``.
        arrays: The columns that are no text.
    """

    found: Array
    rows: Array
    head: dict[str, Any]
    arrays: dict[str, Array]


def page_of(table: Table, docs: dict[str, str], params: Params) -> TablePage:
    """The page that ``filter``, ``sort``, ``first`` and ``count`` ask for.

    Args:
        table: All rows.
        docs: The columns that are told, and what each is.
        params: Of the question.

    Raises:
        InvalidOptionError: There is no such column to sort by, or a filter compares one with what is no number.
    """
    order = ordered(table, params.text("sort"))
    found = order[mask(table, params.text("filter"))[order]]
    first = params.number("first")
    rows = found[first : first + params.number("count", 200, high=MOST_ROWS)]
    columns = {name: column for name, column in table.columns.items() if name in docs}
    head = {
        "total": len(table),
        "found": len(found),
        "first": first,
        "columns": [{"name": n, "text": isinstance(c, Text), "doc": docs[n]} for n, c in columns.items()],
        "text": {
            name: [shortened(text, LONGEST_TEXT) for text in column[rows].decode().tolist()]
            for name, column in columns.items()
            if isinstance(column, Text)
        },
    }
    return TablePage(found, rows, head, {name: c[rows] for name, c in columns.items() if not isinstance(c, Text)})
