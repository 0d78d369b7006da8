"""Errors of the model by kind of operator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from abele.validation.figures import spread
from abele.validation.measure import RowResult


@dataclass(frozen=True)
class Errors:
    """Relative errors of one kind of operator, as shares of the published figures.

    Attributes:
        tool: Kind of operator.
        rows: Figures compared.
        cycles: Median, 90th percentile and worst error of cycles.
        bytes: Median, 90th percentile and worst error of total memory.
    """

    tool: str
    rows: int
    cycles: tuple[float, float, float]
    bytes: tuple[float, float, float]


def errors_by_tool(results: Iterable[RowResult]) -> list[Errors]:
    """Errors of every kind of operator among ``results`` that has published figures, in their order."""
    kinds: dict[str, list[RowResult]] = {}
    for result in results:
        if result.reference_cycles is None and result.reference_bytes is None:
            continue
        kinds.setdefault(result.tool, []).append(result)
    return [
        Errors(kind, len(rows), _spread(r.cycles_error for r in rows), _spread(r.bytes_error for r in rows))
        for kind, rows in kinds.items()
    ]


def _spread(errors: Iterable[float | None]) -> tuple[float, float, float]:
    found = spread([error for error in errors if error is not None])
    return found.median, found.high, found.worst
