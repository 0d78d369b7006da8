"""Element types of operations, as far as a report tells them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from abele.report.text_column import Text

if TYPE_CHECKING:
    from abele.report.report import Report

_TYPES = {"f16": "f16", "bf16": "f16", "f32": "f32"}
"""Types of floats, and whose peak is theirs."""
_PRODUCTS = ("poplin.",)


class ElementTypes:
    """What operations compute with.

    A report in which all floats are of one type tells it of all operations. Otherwise an operation's own variables do,
    which are named after it: products of f16 whose partials are f32 are products of f16.

    Args:
        report: The report.
    """

    def __init__(self, report: Report) -> None:
        self._variables = report.variables

    def of(self, title: str) -> str:
        """``f16`` or ``f32``, or empty where that is not known.

        Args:
            title: The operation with its path.
        """
        known = self._all if len(self._all) == 1 else self._by_operation.get(title, set())
        return min(known, default="")

    @cached_property
    def _type_of_row(self) -> list[str]:
        column = self._variables.columns["type"]
        assert isinstance(column, Text)
        words = np.array([_TYPES.get(word, "") for word in column.words], dtype=object)
        return list(words[column.codes].tolist()) if len(words) else [""] * len(column)

    @cached_property
    def _all(self) -> set[str]:
        return set(self._type_of_row) - {""}

    @cached_property
    def _by_operation(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name, type_ in zip(self._variables["name"].tolist(), self._type_of_row, strict=True):
            if type_:
                found.setdefault(name.rpartition("/")[0], set()).add(type_)
        return found


def is_product(kind: str) -> bool:
    """True for operations that the matrix unit carries out."""
    return kind.startswith(_PRODUCTS)
