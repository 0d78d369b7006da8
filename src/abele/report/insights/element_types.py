"""Element types of operations, as far as a report has them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from abele.report.text_column import Text

if TYPE_CHECKING:
    from abele.report.report import Report

_TYPES = {"f16": "f16", "bf16": "f16", "f32": "f32"}
"""Types of floats, and whose peak is theirs; 8-bit floats, of any format and scale, have one of their own."""
_QUARTERS = "f8"
_NARROWEST_FIRST = (_QUARTERS, "f16", "f32")
"""Products of 8-bit floats give f16, and those of f16 often f32."""
_PRODUCTS = ("poplin.",)


class ElementTypes:
    """Element types of the arithmetic of operations.

    If all floats of a report are of one type, all operations have it. Otherwise the variables that an operation's
    supersteps touch decide, or, in files that do not hold those, the variables named after it. Products of f16 whose
    partials are f32 are products of f16, and those of 8-bit floats whose results are f16 products of these.

    Args:
        report: The report.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._variables = report.variables

    def of(self, op: int, title: str) -> str:
        """``f8``, ``f16`` or ``f32``, or empty where that is not known.

        Args:
            op: Row in the ops table.
            title: The operation with its path.
        """
        if len(self._all) == 1:
            return _narrowest(self._all)
        if len(self._report.superstep_variables):
            return next((name for name, touched in self._by_op.items() if touched[op]), "")
        return _narrowest(self._by_name.get(title, set()))

    @cached_property
    def _by_op(self) -> dict[str, npt.NDArray[np.bool_]]:
        """True for the operations that touch f8, f16 and f32, bool[ops] each."""
        report, steps = self._report, self._report.steps
        touched, superstep = report.superstep_variables, steps["superstep"]
        known = (steps["op"] >= 0) & (superstep >= 0)
        op_of = np.full(int(max(superstep.max(initial=-1), touched["superstep"].max(initial=-1))) + 1, -1)
        op_of[superstep[known]] = steps["op"][known]
        op = op_of[touched["superstep"]]
        types = np.array(self._type_of_row, dtype=object)[touched["variable"]]
        found = {}
        for name in _NARROWEST_FIRST:
            found[name] = np.zeros(max(len(report.ops), 1), dtype=bool)
            found[name][op[(op >= 0) & np.asarray(types == name, dtype=bool)]] = True
        return found

    @cached_property
    def _type_of_row(self) -> list[str]:
        column = self._variables.columns["type"]
        assert isinstance(column, Text)
        words = np.array([_peak_of(word) for word in column.words], dtype=object)
        return list(words[column.codes].tolist()) if len(words) else [""] * len(column)

    @cached_property
    def _all(self) -> set[str]:
        return set(self._type_of_row) - {""}

    @cached_property
    def _by_name(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name, type_ in zip(self._variables["name"].tolist(), self._type_of_row, strict=True):
            if type_:
                found.setdefault(name.rpartition("/")[0], set()).add(type_)
        return found


def _peak_of(word: str) -> str:
    return _QUARTERS if word.startswith("f8_") else _TYPES.get(word, "")


def _narrowest(types: set[str]) -> str:
    return next((name for name in _NARROWEST_FIRST if name in types), "")


def is_product(kind: str) -> bool:
    """True for operations that the matrix unit carries out."""
    return kind.startswith(_PRODUCTS)
