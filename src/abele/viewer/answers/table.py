"""Rows of any table of a report: filtered, sorted, a page at a time; text stays coded until a page is taken."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import InvalidOptionError
from abele.report.schema import TABLES
from abele.report.table import Table
from abele.report.text_column import Text
from abele.viewer.answers.registry import Frozen, question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer
from abele.words import shortened

MOST_ROWS = 2_000
"""Rows of a page of a table."""
LONGEST_TEXT = 1_000
"""Characters of a text in a row; the middle of a longer one is left out."""
_KEPT_ORDERS = 16

Rows = npt.NDArray[np.int64]


def _frozen(opened: Opened) -> Frozen:
    del opened
    for name, sort in (("ops", "-cycles"), ("steps", ""), ("variables", "-bytes"), ("runs", "")):
        yield {"of": name, "sort": sort, "count": str(MOST_ROWS)}


@question("table", frozen=_frozen, rank=3)
def table(opened: Opened, params: Params) -> Answer:
    """Rows of a table.

    Parameters: ``of`` its name; ``filter`` words that must all occur in a row's text, or ``column>number``;
    ``sort`` a column, with ``-`` before it for largest first; ``first`` and ``count`` of the rows; ``columns``.

    Answer: head ``total`` and ``found`` rows, ``columns`` with name, type and meaning, ``text`` the text columns of the
    page; arrays ``row`` (rows in the table) and the numeric columns.
    """
    name = params.choice("of", tuple(TABLES))
    whole: Table = getattr(opened.report, name)
    rows = matching(opened, name, params.text("filter"), params.text("sort"))
    first = params.number("first")
    count = params.number("count", 200, high=MOST_ROWS)
    page = rows[first : first + count]
    wanted = params.words("columns", whole.names)
    head: dict[str, Any] = {"total": len(whole), "found": len(rows), "first": first, "columns": [], "text": {}}
    arrays: dict[str, Array] = {"row": page}
    for column in wanted:
        if column not in whole:
            raise InvalidOptionError(f"{name} has no column {column[:60]!r}", remedy="one of " + ", ".join(whole.names))
        spec = TABLES[name].columns.get(column)
        held = whole.columns[column]
        head["columns"].append(
            {"name": column, "text": isinstance(held, Text), "doc": spec.doc if spec is not None else ""}
        )
        if isinstance(held, Text):
            head["text"][column] = [shortened(text, LONGEST_TEXT) for text in held[page].decode().tolist()]
        else:
            arrays[column] = held[page]
    return Answer(head, arrays)


def matching(opened: Opened, name: str, filtered: str, sort: str) -> Rows:
    """Rows of a table that a filter leaves, in order.

    Args:
        opened: The report.
        name: Of the table.
        filtered: As the page's filter boxes take it.
        sort: A column, with ``-`` before it for largest first; the table's own order when empty.

    Raises:
        InvalidOptionError: There is no such column.
    """
    whole: Table = getattr(opened.report, name)
    kept: OrderedDict[tuple[str, str, str], Rows] = opened.once("orders of tables", OrderedDict)
    key = (name, filtered, sort)
    with opened.lock:
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
    rows = ordered(whole, sort)
    if filtered.strip():
        rows = rows[mask(whole, filtered)[rows]]
    with opened.lock:
        kept[key] = rows
        while len(kept) > _KEPT_ORDERS:
            kept.popitem(last=False)
    return rows


def ordered(whole: Table, sort: str) -> Rows:
    """All rows of a table in order of a column, with ``-`` before it for largest first; its own order when empty."""
    column, descending = sort.removeprefix("-"), sort.startswith("-")
    if not column:
        return np.arange(len(whole), dtype=np.int64)
    if column not in whole:
        raise InvalidOptionError(f"no column {column[:60]!r} to sort by", remedy="one of " + ", ".join(whole.names))
    held = whole.columns[column]
    keys = held.order() if isinstance(held, Text) else held
    if descending:
        return (len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]).astype(np.int64)
    return np.argsort(keys, kind="stable").astype(np.int64)


_COMPARISONS: dict[str, Any] = {
    ">=": np.greater_equal,
    "<=": np.less_equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    "=": np.equal,
}


def mask(whole: Table, filtered: str) -> npt.NDArray[np.bool_]:
    """Rows of a table that a filter leaves, bool[rows]."""
    left = np.ones(len(whole), dtype=bool)
    for term in filtered.split():
        left &= _term(whole, term)
    return left


def _term(whole: Table, term: str) -> npt.NDArray[np.bool_]:
    """Rows that one word of a filter leaves: ``column>number``, ``column=text``, or text in any text column."""
    for sign, compare in _COMPARISONS.items():
        column, found, value = term.partition(sign)
        if found and column in whole:
            held = whole.columns[column]
            if isinstance(held, Text):
                hits = np.array([value.casefold() == word.casefold() for word in held.words], dtype=bool)
                picked: npt.NDArray[np.bool_] = hits[held.codes] if len(hits) else np.zeros(len(whole), dtype=bool)
                return ~picked if sign == "!=" else picked
            try:
                return np.asarray(compare(held, float(value.replace(",", ""))), dtype=bool)
            except ValueError as error:
                raise InvalidOptionError(f"{term[:60]!r}: {column} is compared with a number") from error
    wanted = term.casefold()
    mask = np.zeros(len(whole), dtype=bool)
    for held in whole.columns.values():
        if isinstance(held, Text) and held.words:
            hits = np.array([wanted in word.casefold() for word in held.words], dtype=bool)
            if hits.any():
                mask |= hits[held.codes]
    return mask
