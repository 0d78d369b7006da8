"""Text columns row by row, without decoding the others."""

from __future__ import annotations

from collections.abc import Mapping

from abele.report.text_column import Column, Text


def text_at(columns: Mapping[str, Column], name: str, row: int) -> str:
    """The string that a text column holds in a row; empty where the table has no such column."""
    column = columns.get(name)
    return column.words[int(column.codes[row])] if isinstance(column, Text) else ""
