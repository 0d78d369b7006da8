"""Lines of large operands that a contraction asks for ahead, where CPUs do not fetch them early by themselves.

CPUs fetch lines ahead where a loop reads one after the other. Where the reduction goes from line to line in steps of
pages, as through weights in blocks of channels, each line is met by surprise, for every tile again, and arithmetic
waits. So at each such step the code asks for the lines of some steps later, as many as take the time of an answer from
memory; near the end of a tile these are of the next tile. They are not asked for earlier: steps a power of two apart
fall on few places of the caches, where lines are soon lost.

Example: weights [48, 3072, 16] of f32, summed over the first and the last dim, in tiles of 3 × 32: each of the 48 steps
reads 192 bytes for 192 vector operations, and asks for those of the sixth step from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from abele.kernels.nest.ir import affine
from abele.kernels.nest.loop_nest import ElementAccess, Fetch, LoopNest
from abele.kernels.schedule.pack_panels import Panel
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.target import FAR_BYTES
from abele.llvm.host import LINE_BYTES

LARGE_BYTES = 1 << 18
"""Least bytes of an operand: smaller ones stay in the second-level cache of any CPU that plans are made for."""
MAX_POINTS = 1 << 12
"""Most elements between two steps: there is time to fetch ahead by itself in more."""
MIN_WORK, MIN_STEP = 4, 64
"""Least vector operations for each line that is asked for, and of a step: finding its place takes eight instructions.
Steps of 12 operations, as through rows of a transposed operand, lost a fifth by them."""
ANSWER = 1000
"""Vector operations in the time of an answer from memory: two each cycle for 100 ns at 5 GHz."""


@dataclass(frozen=True)
class LinesAhead:
    """Lines to ask for at each step of a reduced dim.

    Attributes:
        first: First element of the tile at the first step of the dim.
        stride: From step to step, in elements.
        further: Steps to look ahead.
        tile: Elements from here to the next tile.
        offsets: Of the lines, in elements from the first of a step.
    """

    first: ElementAccess
    stride: int
    further: int
    tile: int
    offsets: tuple[int, ...]


def lines_ahead(nest: LoopNest, schedule: NestSchedule, panel: Panel | None) -> dict[str, list[LinesAhead]]:
    """Lines to ask for, by the reduced dim at whose steps."""
    found: dict[str, list[LinesAhead]] = {}
    moving = [d for d in schedule.order if nest.extents[d] > schedule.step(d)]
    if not moving or nest.unit or schedule.sweeps or schedule.row_units or nest.stores_in_rows:
        return found
    if any(schedule.step(d) > 1 for d in schedule.reduced):
        return found
    fetches = dict.fromkeys(e for a in nest.accumulates for e in a.value.walk() if isinstance(e, Fetch))
    for fetch in fetches:
        access = fetch.access
        is_copied = panel is not None and access == panel.packed
        if is_copied or not access.stride(moving[-1]) or _bytes(nest, access) < LARGE_BYTES:
            continue
        step = _far_step(nest, schedule, access)
        if step is not None:
            found.setdefault(step, []).extend(_lines(nest, schedule, access, step, moving[-1]))
    return found


def _bytes(nest: LoopNest, access: ElementAccess) -> int:
    return access.type.bytes * math.prod(nest.extents[d] for d in access.address.names if d in nest.extents)


def _far_step(nest: LoopNest, schedule: NestSchedule, access: ElementAccess) -> str | None:
    """The innermost reduced dim with steps of pages; None if there is none."""
    far = (
        d
        for d in reversed(schedule.reduced)
        if nest.extents[d] > 1 and abs(access.stride(d)) * access.type.bytes >= FAR_BYTES
    )
    return next(far, None)


def _lines(
    nest: LoopNest, schedule: NestSchedule, access: ElementAccess, step: str, moving: str
) -> Iterator[LinesAhead]:
    """The lines of ``access`` at one step of ``step``, a tile further along ``moving``; none if they are too many."""
    inner = schedule.reduced[schedule.reduced.index(step) + 1 :]
    reach = {d: nest.extents[d] for d in inner} | {d: min(schedule.step(d), n) for d, n in nest.parallel}
    spans = [range(0, n * stride, stride) for d, n in reach.items() if n > 1 and (stride := access.stride(d))]
    if math.prod(map(len, spans)) > MAX_POINTS:
        return
    size = LINE_BYTES // access.type.bytes
    lines = tuple(dict.fromkeys(place // size * size for place in sorted(map(sum, product(*spans)))))
    work = math.prod(count for _, count in schedule.tile) * math.prod(nest.extents[d] for d in inner)
    if work < max(MIN_STEP, len(lines) * MIN_WORK):
        return
    first = access.address.substitute(dict.fromkeys((*inner, step), affine()))
    further = min(nest.extents[step], -(-ANSWER // work))
    tile = access.stride(moving) * schedule.step(moving)
    yield LinesAhead(replace(access, address=first), access.stride(step), further, tile, lines)
