"""The vertices of popops."""

from __future__ import annotations

from collections.abc import Iterable

from abele.poplibs.public_vertices import (
    casts,
    choosing,
    counters,
    elementwise,
    filling,
    images,
    reductions,
    row_elements,
    scaled_adds,
    slices,
    sorts,
    statistics,
    transposes,
)
from abele.poplibs.public_vertices.family import Family

_MODULES = (
    elementwise,
    casts,
    choosing,
    scaled_adds,
    filling,
    reductions,
    slices,
    counters,
    statistics,
    transposes,
    sorts,
    images,
    row_elements,
)

_WORK_LISTS = "the coding of its work lists is not known here"
WITHHELD = {
    "CompareAndSwapAtDistance": _WORK_LISTS,
    "CompareAndSwapAtDistanceKeyVal": _WORK_LISTS,
    "bitonic::CompareAndSwapAtDistance": _WORK_LISTS,
    "bitonic::CompareAndSwapAtDistanceKeyVal": _WORK_LISTS,
    "SplitTranspose1D": _WORK_LISTS,
    **dict.fromkeys(
        ("SelectFromIntervals", "SelectFromRowsInColumns", "UpdateIntervalsDEC", "UpdateColumnsDEC"),
        "its fields are not known here; SelectFromInterval and UpdateIntervalDEC do what it is for, row by row",
    ),
    "SequenceSlice": "its fields are not known here; popops.sequenceSlice does what it is for",
    "SplineBasis": "its fields are not known here; popops.splineBasis does what it is for",
    "SplineWeighting": "its fields are not known here; popops.splineWeighting does what it is for",
}
"""Why vertices of popops are not here."""


def families() -> Iterable[Family]:
    """Every vertex of popops."""
    return [family for module in _MODULES for family in module.families()]
