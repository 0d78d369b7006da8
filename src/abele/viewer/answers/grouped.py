"""Variables in groups: by type, role, scope, operation, source line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.report import Report
from abele.report.table import Table
from abele.report.text_column import Text

Groups = tuple[list[str], Int64]
"""Names of groups, and the group of each row."""

_DEEPEST_SCOPE = 3
_MOST_OF_A_SCOPE = 0.6
"""Part of the bytes beyond which a scope is told by the scopes in it."""


def variable_groups(report: Report, by: str) -> Groups:
    """Names of groups, and the group of each variable, int64[variables].

    Args:
        report: The report.
        by: ``type``; ``role``; ``scope``, the outermost parts of the name; ``op``, the operation that writes it first;
            ``line``, the source line that made it, or that of this operation where the report does not say.
    """
    variables = report.variables
    if by == "type":
        return _of_words(_text(variables, "type"), lambda word: word or "of no type")
    if by == "role":
        return _of_words(_text(variables, "role"), lambda word: word or "of no known role")
    if by == "scope":
        return _scopes(variables)
    op = _writer(report)
    if by == "op":
        return _through(
            op, _of_words(_text(report.ops, "name"), lambda word: word or "(no name)"), "always live, or unknown"
        )
    names, code = _through(op, _lines(report.ops), "")
    own_names, own = _lines(variables)
    # The line that made it; where that is unknown, the operation's.
    unknown = np.array([not name for name in own_names], dtype=bool)[own] if len(own) else np.zeros(0, dtype=bool)
    joined = [name or "of no known line" for name in (*own_names, *names)]
    return _distinct(joined, np.where(unknown, code + len(own_names), own))


def _text(table: Table, name: str) -> Text:
    column = table.columns[name]
    assert isinstance(column, Text)
    return column


def _of_words(column: Text, title: Callable[[str], str]) -> Groups:
    """Groups of rows whose words have the same title."""
    return _distinct([title(word) for word in column.words], column.codes.astype(np.int64))


def _distinct(names: Sequence[str], code: npt.NDArray[Any]) -> Groups:
    """Groups with equal names as one."""
    places: dict[str, int] = {}
    place = np.array([places.setdefault(name, len(places)) for name in names], dtype=np.int64)
    return list(places), place[code] if len(place) else code.astype(np.int64)


def _scopes(variables: Table) -> Groups:
    """Scopes that variables are in: as many parts of their names as are needed to tell most of the bytes apart."""
    column, size = _text(variables, "name"), variables["bytes"]
    parts = [word.split("/", _DEEPEST_SCOPE) for word in column.words]
    found: Groups = ([], np.zeros(0, np.int64))
    for depth in range(1, _DEEPEST_SCOPE + 1):
        found = _distinct(["/".join(each[:depth]) or "(no name)" for each in parts], column.codes.astype(np.int64))
        weight = np.bincount(found[1], size)
        if weight.max(initial=0) <= _MOST_OF_A_SCOPE * weight.sum():
            break
    return found


def _lines(table: Table) -> Groups:
    """Source lines as ``file:line``, empty where they are unknown."""
    files = _text(table, "file")
    width = int(table["line"].max(initial=0)) + 1
    keys, code = np.unique(files.codes.astype(np.int64) * width + table["line"], return_inverse=True)
    names = [f"{files.words[key // width]}:{key % width}" if files.words[key // width] else "" for key in keys.tolist()]
    return _distinct(names, code)


def _through(op: Int64, groups: Groups, otherwise: str) -> Groups:
    """Groups of operations as those of variables that they write; a group more where the operation is unknown."""
    names, code = groups
    if not len(code):
        return [otherwise], np.zeros(len(op), np.int64)
    return [*names, otherwise], np.where(op >= 0, code[np.maximum(op, 0)], len(names))


def _writer(report: Report) -> Int64:
    """The operation that writes each variable first, int64[variables]; -1 where that is unknown.

    Where the report does not say, the one in whose step the variable becomes live.
    """
    told = report.variables["op"].astype(np.int64)
    first = report.variables["first_step"]
    if len(report.steps):
        told = np.where((told < 0) & (first >= 0), report.steps["op"][np.maximum(first, 0)], told)
    return np.where(told < len(report.ops), told, -1)
