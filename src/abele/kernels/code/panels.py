"""LLVM code that copies an operand into a panel: vector by vector as lanes find it, or in squares that are transposed.

Where lanes run across the operand's rows, a vector of lanes takes an element from each of many cache lines, and the
next point of the reduction takes its neighbours from the same lines. Rows a power of two apart share so few places of
the first-level cache that the lines are lost in between: copying 64 rows of 2 KB took as long as a third of the product
of 512 outputs that it served. So there a square is loaded along the rows and transposed in registers, and each line is
read once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from abele.kernels.code.memory import I64, element_pointer, load_lanes, store_lanes
from abele.kernels.code.points import Point, Points, transposed
from abele.kernels.schedule.pack_panels import Panel
from abele.kernels.schedule.schedule import NestSchedule
from abele.llvm import ir as ll
from abele.llvm.host import LINE_BYTES

Value = Any
MIN_SQUARE = 4
"""Lanes from which on a transposed square beats loads of single elements."""


def dim_along_rows(panel: Panel, schedule: NestSchedule, extents: Mapping[str, int], reduced: Sequence[str]) -> str:
    """The reduced dim along which the operand lies in memory, if lanes run across its rows; else empty."""
    access, lanes = panel.fetch.access, schedule.lanes
    if lanes < MIN_SQUARE or access.stride(schedule.lane) == 1:
        return ""
    return next((d for d in reduced if access.stride(d) == 1 and extents[d] % lanes == 0), "")


def square_step(panel: Panel, lanes: int, extent: int) -> int:
    """Points along rows that are copied at once, of ``extent``: those of a cache line, and at least a vector."""
    return math.gcd(extent, max(lanes, LINE_BYTES // panel.fetch.access.type.bytes))


def copy_vector(points: Points, panel: Panel, at: Point) -> None:
    """Copy the elements that the lanes read at ``at``."""
    _store(points, panel, at, points.vector(points.load(panel.fetch.access, at, None)))


def copy_square(points: Points, panel: Panel, at: Point, along: str, first: int) -> None:
    """Copy the elements that the lanes read at ``at``, for as many points of ``along`` from ``first`` on as there are
    lanes.
    """
    access, lanes, builder = panel.fetch.access, points.lanes, points.builder
    start = points.pointer(access, Point((*at.offsets, (along, first)), at.valid))
    rows = []
    for lane in range(lanes):
        # Rows that do not exist are not stored; another one stands for them.
        distance = ll.Constant(I64, access.stride(points.lane) * min(lane, at.valid - 1))
        place = element_pointer(builder, start, distance, access.type)
        rows.append(load_lanes(builder, place, access.type, lanes, stride=1, valid=lanes, mask=None))
    for number, vector in enumerate(transposed(builder, rows)):
        _store(points, panel, Point((*at.offsets, (along, first + number)), at.valid), vector)


def _store(points: Points, panel: Panel, at: Point, vector: Value) -> None:
    pointer, type_ = points.pointer(panel.packed, at), panel.packed.type
    store_lanes(points.builder, vector, pointer, type_=type_, stride=1, valid=at.valid, mask=None)
