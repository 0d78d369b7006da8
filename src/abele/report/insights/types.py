"""Element types of operations, as far as a report tells them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abele.report.report import Report

_HALVES = ("f16", "bf16")
_PRODUCTS = ("poplin.",)


class ElementTypes:
    """What operations compute with.

    An operation's variables are named after it. Where they do not tell, a report in which all floats are of one type
    does.

    Args:
        report: The report.
    """

    def __init__(self, report: Report) -> None:
        self.report = report

    @cached_property
    def _by_scope(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        names, types = self.report.variables["name"].tolist(), self.report.variables["type"].tolist()
        for name, type_ in zip(names, types, strict=True):
            scope = name.rpartition("/")[0]
            # "layer/fc1/matmul/rewrite/input" tells of all calls around it.
            for _ in range(3):
                if not scope:
                    break
                found.setdefault(scope, set()).add(type_)
                scope = scope.rpartition("/")[0]
        return found

    @cached_property
    def _all(self) -> set[str]:
        return set(self.report.variables["type"].tolist())

    def of(self, title: str) -> str:
        """``f16`` or ``f32``, or empty where that is not known.

        Args:
            title: The operation with its path.
        """
        types = self._by_scope.get(title, set())
        for known in (types, self._all):
            if any(half in known for half in _HALVES):
                # Partials of f16 products are often f32; the products are what the peak is of.
                return "f16" if known is types or "f32" not in known else ""
            if "f32" in known and (known is not types or not any(half in self._all for half in _HALVES)):
                return "f32"
        return "f32" if "f32" in types else ""


def is_product(kind: str) -> bool:
    """True for operations that the matrix unit carries out."""
    return kind.startswith(_PRODUCTS)
