"""Errors of queries, in words that name the tables and columns."""

from __future__ import annotations

import re
from collections.abc import Mapping

from abele.errors import QueryError, nearest
from abele.words import shortened

_NO_TABLE = re.compile(r"Table with name (.+?) does not exist!")
_NO_COLUMN = (
    re.compile(r'Referenced column "(.+?)" not found'),
    re.compile(r'does not have a column named "(.+?)"'),
    re.compile(r'Column "(.+?)" does not exist'),
)
_LINE = re.compile(r"^(LINE \d+: )(.*)\n(.*\^)", re.MULTILINE)
_KEYWORDS = ("group",)
"""Columns of reports whose names are words of SQL."""
_LONGEST = 300


def missing_table(text: str) -> str | None:
    """The table that an error of the database says it does not have."""
    found = _NO_TABLE.search(text)
    return found[1] if found else None


def _missing_column(text: str) -> str | None:
    """The column that an error of the database says it does not have."""
    found = next(filter(None, (pattern.search(text) for pattern in _NO_COLUMN)), None)
    return found[1] if found else None


def query_error(text: str, query: str, columns: Mapping[str, tuple[str, ...]]) -> QueryError:
    """Error for a query from an error of the database.

    Args:
        text: Message of the database.
        query: The query.
        columns: The columns of each table that there is.
    """
    message = text.partition("\n")[0].partition(": ")[2] or text
    return QueryError(
        shortened(message.rstrip("!"), _LONGEST),
        at=_place(text, query),
        remedy=_remedy(text, query, columns),
    )


def _place(text: str, query: str) -> str | None:
    """The line of the query that is wrong, and below it where."""
    found = _LINE.search(text)
    # The database may speak of what was put around the query, or of a part of a long line.
    if found is not None and found[2].strip(" .") in query:
        return f"{found[2]}\n{found[3][len(found[1]) :]}"
    name = missing_table(text) or _missing_column(text)
    for line in query.splitlines() if name else ():
        if at := re.search(rf"\b{re.escape(name or '')}\b", line, re.IGNORECASE):
            first = max(at.start() - _LONGEST // 4, 0)
            return f"{line[first : first + _LONGEST // 2]}\n{' ' * (at.start() - first)}{'^' * len(at[0])}"
    return None


def _remedy(text: str, query: str, columns: Mapping[str, tuple[str, ...]]) -> str | None:
    table = missing_table(text)
    if table is not None:
        close = nearest(table, columns)
        return f"did you mean {close}?" if close else "the tables are " + ", ".join(columns)
    if (column := _missing_column(text)) is not None:
        return _column_remedy(column, query, columns)
    if text.startswith("Permission Error"):
        return "a query reads the tables of the report alone"
    if text.startswith("Parser Error"):
        for word in _KEYWORDS:
            # A column of that name stands before a comma or FROM, behind a dot, or in brackets.
            if re.search(rf"[\s.,(]{word}(\s*[,)]|\s+from\b)|\.{word}\b", query, re.IGNORECASE):
                return f'a column that is called like a word of SQL has quotes: "{word}"'
    return None


def _column_remedy(name: str, query: str, columns: Mapping[str, tuple[str, ...]]) -> str:
    """Column of the query's tables that was probably meant, or the columns of these."""
    words = {word.casefold() for word in re.findall(r"\w+", query)}
    named = {table: names for table, names in columns.items() if table in words} or columns
    every = [each for names in named.values() for each in names]
    close = nearest(name, every)
    if close is not None:
        return f"did you mean {close}?"
    return "\n".join(f"{table} has {', '.join(names)}" for table, names in named.items())
