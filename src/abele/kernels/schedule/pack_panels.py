"""Pack operands of contractions panel by panel, in the order in which they are read, into memory of the thread.

In a long reduction a vector of a matrix' columns is read row after row. Where the rows lie far apart, every read is in
another page and many fall on the same cache lines; 16-bit elements are widened again for every tile of the other
operand; and elements apart from each other are gathered again and again. A panel is the part of such an operand that
one tile of its own dims needs, over the whole reduction. Units of a function that share it come after each other, and
the first of them copies it. This is the packing of fast matrix products.

A copy changes no value, and a thread that starts in the middle of the units that share a panel copies it for itself, so
any split of the units gives the same bits. Panels are packed by the thread that uses them and not once before, which
would need memory for the whole operand and a barrier more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from abele.kernels.nest.ir import Affine, Expr, compute_type
from abele.kernels.nest.loop_nest import ElementAccess, Fetch, LoopNest
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.target import FAR_BYTES, HostTarget

MIN_REUSE = 8
"""Tiles of the other operand that a panel must serve, or copying it costs too much."""
MIN_BYTES, MAX_BYTES = 1 << 13, 1 << 23
"""Bytes of a panel that is worth a copy: a smaller one stays in the first-level cache, a larger one takes too much
memory.
"""
WIDEST_TILE = 24
"""Points along one dim that a register tile may have; what is expected before the tile is known holds for all."""


@dataclass(frozen=True)
class Panel:
    """A load whose values are copied.

    Attributes:
        fetch: The load, as the nest has it.
        packed: The element of the copy: its reduced dims outside, then the places in the tile.
        dims: The parallel dims that the load depends on; they are the function's first units.
        elements: Of the copy.
    """

    fetch: Fetch
    packed: ElementAccess
    dims: tuple[str, ...]
    elements: int

    @property
    def bytes(self) -> int:
        """Memory that the copy takes."""
        return self.elements * self.packed.type.bytes

    def __str__(self) -> str:
        return f"panel of {self.fetch} in {self.packed}, {self.elements} elements"


def find_panel(nest: LoopNest, schedule: NestSchedule, target: HostTarget) -> Panel | None:
    """The load of ``nest`` that is best copied under ``schedule``, if any; its dims may not yet be the first units."""
    steps = {d: schedule.step(d) for d in nest.extents}
    reduces_in_tile = any(steps[d] > 1 for d, _ in nest.reduced)
    if (
        nest.unit
        or nest.stores_in_rows
        or len(nest.accumulates) != 1
        or reduces_in_tile
        or any(o.combine != "set" for o in nest.outs)
    ):
        return None
    found = [p for f in _candidates(nest) if (p := _panel(nest, schedule, f, target)) is not None]
    # Both operands rarely qualify; the larger one has more to gain.
    return max(found, key=lambda p: p.elements, default=None)


def packable_fetches(nest: LoopNest) -> list[Fetch]:
    """The loads that may be copied under some schedule; :func:`fits_panel` says under which lane dim to expect it."""
    return [] if nest.unit or len(nest.accumulates) != 1 else _candidates(nest)


def fits_panel(nest: LoopNest, fetch: Fetch, lane: str, lanes: int) -> bool:
    """True if one of :func:`packable_fetches` is expected to be copied with ``lane`` in the lanes, for enough tiles.

    The tile is not known yet: a vector of lanes times four points stands for it.
    """
    names = set(fetch.access.address.names)
    reduced = [n for d, n in nest.reduced if d in names]
    served = math.prod(n for d, n in nest.parallel if d not in names)
    vectors = math.prod(reduced) * lanes * 4
    fits = _least_bytes(fetch, lane) <= vectors <= MAX_BYTES // WIDEST_TILE
    return (
        lane in names and lane not in dict(nest.reduced) and fits and served >= WIDEST_TILE * _least_reuse(fetch, lane)
    )


def packed_nest(nest: LoopNest, panel: Panel) -> LoopNest:
    """``nest`` reading the copy, which is its last argument, instead of the operand."""

    def change(part: Expr) -> Expr | None:
        return Fetch(panel.packed) if part == panel.fetch else None

    accumulates = tuple(replace(a, value=rewrite(a.value, change)) for a in nest.accumulates)
    return replace(nest, accumulates=accumulates, num_arrays=nest.num_arrays + 1)


def _candidates(nest: LoopNest) -> list[Fetch]:
    written = {o.access.array for o in nest.outs}
    inner = dict.fromkeys(e for a in nest.accumulates for e in a.value.walk() if isinstance(e, Fetch))
    return [f for f in inner if not f.bounds and f.access.type.is_float and f.access.array not in written]


def _panel(nest: LoopNest, schedule: NestSchedule, fetch: Fetch, target: HostTarget) -> Panel | None:
    names = set(fetch.access.address.names)
    own = tuple(d for d, _ in nest.parallel if d in names)
    reduced = [d for d in schedule.reduced if d in names]
    served = math.prod(-(-n // schedule.step(d)) for d, n in nest.parallel if d not in names)
    if schedule.lane not in own or not reduced or served < _least_reuse(fetch, schedule.lane):
        return None
    address, size = _packed_address(nest, schedule, own, reduced)
    packed = ElementAccess(nest.num_arrays, compute_type(fetch.access.type), address, own)
    panel = Panel(fetch, packed, own, size)
    fits = _least_bytes(fetch, schedule.lane) <= panel.bytes <= MAX_BYTES
    return panel if fits and _reads_badly(nest, schedule, fetch, target) else None


def _least_reuse(fetch: Fetch, lane: str) -> int:
    """Least tiles that a panel must serve: two where lanes lie apart, as each tile gathers them again otherwise."""
    return MIN_REUSE if fetch.access.stride(lane) == 1 else 2


def _least_bytes(fetch: Fetch, lane: str) -> int:
    """Least bytes of a panel that is worth a copy: any where lanes lie apart, as each tile gathers them again."""
    return MIN_BYTES if fetch.access.stride(lane) == 1 else 0


def _packed_address(
    nest: LoopNest, schedule: NestSchedule, own: tuple[str, ...], reduced: list[str]
) -> tuple[Affine, int]:
    """The address in the copy, the lane dim innermost, and the number of its elements."""
    inside = [d for d in own if d != schedule.lane]
    order = [(schedule.lane, schedule.step(schedule.lane)), *((d, schedule.step(d)) for d in inside)]
    order += [(d, nest.extents[d]) for d in reversed(reduced)]
    terms, stride = [], 1
    for dim, extent in order:
        terms.append((dim, stride))
        stride *= extent
    return Affine(tuple(terms)), stride


def _reads_badly(nest: LoopNest, schedule: NestSchedule, fetch: Fetch, target: HostTarget) -> bool:
    access = fetch.access
    if access.stride(schedule.lane) != 1 or access.type.bits < 32:
        return True
    near = min((abs(access.stride(d)) for d in schedule.reduced if access.stride(d)), default=0)
    return near * access.type.bytes >= FAR_BYTES or _loses_lines(nest, schedule, access, target)


def _loses_lines(nest: LoopNest, schedule: NestSchedule, access: ElementAccess, target: HostTarget) -> bool:
    """True if short runs, far from each other, are more than the first-level cache has room for where they fall.

    Every tile then has all its lines from the second level. Weights of a window of one point lie in blocks of channels,
    of 1 KiB. Sixteen such blocks 64 KiB apart all fall on the same quarter of the cache.
    """
    steps = sorted((s * access.type.bytes, nest.extents[d]) for d in schedule.reduced if (s := abs(access.stride(d))))
    run = access.type.bytes * schedule.step(schedule.lane)
    far = [(step, extent) for step, extent in steps if step >= FAR_BYTES]
    for step, extent in steps[: len(steps) - len(far)]:
        run = max(run, step * extent)
    # Windows of several points step far along more dims; there the order of a panel costs more than it saves.
    if len(far) != 1 or run >= FAR_BYTES:
        return False
    ((step, blocks),) = far
    places = target.way_bytes // max(run, math.gcd(step, target.way_bytes))
    return blocks > places * (target.near_ways - 1)
