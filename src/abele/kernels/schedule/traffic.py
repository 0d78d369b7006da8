"""Memory traffic of a loop nest: cache lines that its loops read again, and lines without a prefetch.

Inside a loop that does not move an array, the array's elements are read again in every round. Whether that costs
anything depends on what is touched in between: if the loops inside touch no more than a cache holds, the lines come
from that cache. So each loop is taken in turn, from the innermost outwards. The bytes touched by one round are the
product of the extents inside the loop, per array, less where windows overlap. The bytes read again are weighted by the
smallest cache that holds all of them. This is the reuse-distance estimate of loop tiling, with three caches. Of
associativity it knows that lines a power of two apart share few places of the first-level cache.

A loop that moves an array by less than a line, or by less than a window, reads again what both rounds have in common.

Large arrays cost something even when each element is read once, where the next access is not the next line and nothing
prefetches it; that is counted apart.

Example: a product of 1,024³ in f32 with the rows outermost reads the 4 MB of B again for each row, from the smallest
cache that holds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from operator import itemgetter
from typing import Any, NamedTuple

from abele.kernels.nest.loop_nest import LoopNest, free_dims
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.target import HostTarget
from abele.llvm.host import LINE_BYTES

OWN_COST, SHARED_COST = 1.5, 8.0
"""Costs of a line from the second-level cache, and from the last."""
CONFLICT_COST = 13.0
"""Cost of a line that was lost to others at its place of the first-level cache: nothing fetches it early."""
MEMORY_COST = 40.0
"""Cost of a line from beyond all caches."""
JUMP_COST = 64.0
"""Further cost of a line from beyond the second-level cache where the next access is not the next line, so that
nothing prefetches it."""
MAX_STREAMS, STREAM_COST = 4, 8.0
"""Rows of a large array that can be read side by side without loss, and the further cost of a line where there are
more: rows a power of two apart fall on the same places of the first-level cache, and prefetched lines are lost again.
"""
MAX_PERMUTED = 4
"""Loops whose every order is tried; of more, those along which results lie closest stay innermost."""


@dataclass(frozen=True)
class _Array:
    """One access: dims that move it, those with the stride of each, and bytes of an element."""

    dims: frozenset[str]
    strides: dict[str, int]
    bytes: int
    loaded: bool


class _FarLines(NamedTuple):
    """Lines of a large array that a tile touches.

    Attributes:
        moving: Dims whose loops move the tile on.
        further: Those along which it goes on where the last one ended.
        jumping: Cost of its lines where the innermost of them does not.
        streamed: The same where it does.
    """

    moving: frozenset[str]
    further: set[str]
    jumping: float
    streamed: float


class _Touched(NamedTuple):
    """Part of an array that loops touch: bytes in whole lines, and lines per place of the first-level cache."""

    bytes: int
    ways: float


class _Round(NamedTuple):
    """Parts of all arrays that one round of a loop touches.

    Attributes:
        inside: Points of every dim.
        sizes: Bytes of each array.
        weight: Cost of a line that the next round reads again.
    """

    inside: dict[str, int]
    sizes: tuple[int, ...]
    weight: float


KnownRounds = dict[frozenset[str], _Round]
"""By the loops outside, and the one in question. Orders of the same loops have most of these in common."""
KnownRereads = dict[tuple[frozenset[str], str], tuple[float, float]]
"""By the same, and the one in question: bytes that every further round of it reads again, and what a line costs."""


def _nothing(extents: dict[str, int]) -> tuple[()]:
    """Extents of no dims."""
    return ()


class Traffic:
    """The traffic of ``nest`` under any schedule."""

    def __init__(self, nest: LoopNest, target: HostTarget) -> None:
        self.nest, self.extents = nest, nest.extents
        # What fits into each cache beside other things, and what a line from it costs.
        self.own = target.own_bytes * 3 // 4
        self.caches = (
            (target.near_bytes * 3 // 4, 0.0),
            (self.own, OWN_COST),
            (target.far_bytes // 2, SHARED_COST),
        )
        self.arrays = [
            _Array(free_dims(f), dict(f.access.address.terms), f.access.type.bytes, True) for f in nest.fetches
        ]
        self.arrays += [
            _Array(frozenset(o.access.address.names), dict(o.access.address.terms), o.access.type.bytes, False)
            for o in nest.outs
        ]
        self.way, self.ways = target.way_bytes, target.near_ways
        self.steps = [
            sorted(((d, abs(s) * a.bytes) for d, s in a.strides.items() if s), key=lambda t: t[1]) for a in self.arrays
        ]
        # Of each array: extents of its dims, and the bytes that such points were found to reach.
        self.along = [itemgetter(*(d for d, _ in steps)) if steps else _nothing for steps in self.steps]
        self.known: list[dict[Any, _Touched]] = [{} for _ in self.arrays]
        # True if an array moves along a dim by less than it reaches in other dims, so that rounds have parts in common.
        self.moves_near = {
            d: any(0 < abs(a.strides.get(d, 0)) * a.bytes <= target.near_bytes for a in self.arrays)
            for d in self.extents
        }
        self.out_stride = {d: max(abs(o.access.stride(d)) for o in nest.outs) for d, _ in nest.parallel}

    def best_order(
        self, schedule: NestSchedule, free: Sequence[str], leading: Sequence[str] = (), limit: float = math.inf
    ) -> tuple[tuple[str, ...], float]:
        """The parallel dims ``free`` in the order with the least traffic, and weighted lines of that order.

        Those of ``leading`` are the outermost, in their order. Where no order has fewer lines than ``limit``, that is
        the number of lines, and the order is any.
        """
        steps = {d: schedule.step(d) for d in self.extents}
        by_stride = sorted(free, key=lambda d: self.out_stride[d], reverse=True)
        first = tuple(d for d in leading if self.extents[d] > steps[d])
        looping = [d for d in by_stride if self.extents[d] > steps[d] and d not in first]
        still = tuple(d for d in by_stride if d not in looping and d not in first)
        if not self.nest.accumulates:
            return (*first, *looping, *still), 0.0
        outside, inside = looping[:MAX_PERMUTED], looping[MAX_PERMUTED:]
        parts, rereads = self._parts(steps), self._rereads(steps)
        best, least = (*first, *looping), limit
        for order in permutations(outside):
            loops = (*first, *order, *inside)
            # What an order costs only grows as its loops are added up.
            lines = rereads(loops, least)
            if lines < least:
                lines += self._jumps(parts, (*loops, *schedule.reduced))
            if lines < least:
                best, least = loops, lines
        return (*best, *still), least

    def _rereads(self, steps: dict[str, int]) -> Callable[[Sequence[str], float], float]:
        """A function of an order of loops: the weighted lines read again, or any number from a limit on."""
        starts = math.prod(self.extents[d] for d in self.nest.unit)
        counts = {d: -(-self.extents[d] // steps[d]) for d in self.extents}
        rounds_of, known = KnownRounds(), KnownRereads()

        def lines(order: Sequence[str], limit: float) -> float:
            # From the outermost loop inwards: one round of a loop touches what is inside it, and `rounds` is how often
            # the loop is started.
            total, rounds = 0.0, 1.0
            outside: frozenset[str] = frozenset()
            for dim in order:
                outside |= {dim}
                if (outside, dim) not in known:
                    found = rounds_of.get(outside)
                    if found is None:
                        found = rounds_of[outside] = self._round(steps, outside)
                    known[outside, dim] = self._kept(found, steps, dim), found.weight
                num_bytes, weight = known[outside, dim]
                total += rounds * (counts[dim] - 1) * num_bytes * weight
                if starts * total / LINE_BYTES >= limit:
                    break
                rounds *= counts[dim]
            return starts * total / LINE_BYTES

        return lines

    def _round(self, steps: dict[str, int], outside: frozenset[str]) -> _Round:
        """Parts of all arrays that one round touches in the loops ``outside``."""
        inside = dict(self.extents) | dict.fromkeys(self.nest.unit, 1)
        inside |= {d: min(steps[d], self.extents[d]) for d in outside}
        touched = [self._touched(number, inside) for number in range(len(self.arrays))]
        # All that one round touches must fit for what is read again to be there still.
        size = sum(t.bytes for t in touched)
        weight = next((w for limit, w in self.caches if size <= limit), MEMORY_COST)
        if not weight and sum(t.ways for t in touched) > self.ways:
            weight = CONFLICT_COST
        return _Round(inside, tuple(t.bytes for t in touched), weight)

    def _kept(self, around: _Round, steps: dict[str, int], dim: str) -> float:
        """Bytes of all arrays that one round of a loop over ``dim`` has in common with the next."""
        if not self.moves_near[dim]:
            return sum(size for array, size in zip(self.arrays, around.sizes, strict=True) if dim not in array.dims)
        further = around.inside | {dim: min(2 * steps[dim], self.extents[dim])}
        total = 0.0
        for number, (array, size) in enumerate(zip(self.arrays, around.sizes, strict=True)):
            if dim not in array.dims:
                total += size
            elif (step := abs(array.strides.get(dim, LINE_BYTES)) * array.bytes * steps[dim]) < LINE_BYTES:
                total += size * (1 - step / LINE_BYTES)
            else:
                total += max(0, 2 * size - self._touched(number, further).bytes)
        return total

    def _touched(self, number: int, inside: dict[str, int]) -> _Touched:
        """Part of an array that the given points of every dim reach; what windows share is counted once."""
        steps, known, key = self.steps[number], self.known[number], self.along[number](inside)
        if key not in known:
            # Dims by their steps in bytes, smallest first; what steps within the reach of those before lengthens it.
            runs = [(self.arrays[number].bytes, 1)]
            for dim, step in steps:
                stride, reach = runs[-1]
                if inside[dim] > 1 and step <= stride * reach and step % stride == 0:
                    runs[-1] = stride, reach + step // stride * (inside[dim] - 1)
                elif inside[dim] > 1:
                    runs.append((step, inside[dim]))
            # Steps within lines touch all of these.
            last = max(LINE_BYTES, max(stride * reach for stride, reach in runs if stride < LINE_BYTES))
            far = [(stride, reach) for stride, reach in runs if stride >= LINE_BYTES]
            size = last * math.prod(reach for _, reach in far)
            # So many different places of a way each run falls on, at most.
            places = last // LINE_BYTES
            for stride, reach in far:
                places *= min(reach, self.way // min(self.way, math.gcd(stride, self.way)))
            known[key] = _Touched(size, size / LINE_BYTES / min(places, self.way // LINE_BYTES))
        return known[key]

    def _parts(self, steps: dict[str, int]) -> list[_FarLines]:
        """Lines that tiles touch of arrays larger than the second-level cache."""
        parts = []
        for number, array in enumerate(self.arrays):
            size = self._touched(number, self.extents).bytes
            if size <= self.own:
                continue
            moving = frozenset(d for d in array.strides if self.extents[d] > steps[d])
            run, further = self._run(number, steps)
            streamed = 0.0
            if self._is_streamed(array, steps):
                touched = self._touched(number, {d: min(step, self.extents[d]) for d, step in steps.items()}).bytes
                streamed = STREAM_COST * size / LINE_BYTES if touched > MAX_STREAMS * max(LINE_BYTES, run) else 0.0
            parts.append(_FarLines(moving, further, JUMP_COST * size / max(LINE_BYTES, run), streamed))
        return parts

    @staticmethod
    def _jumps(parts: Sequence[_FarLines], loops: Sequence[str]) -> float:
        """Weighted lines of large arrays that are reached by jumps."""
        total = 0.0
        for part in parts:
            last = next((d for d in reversed(loops) if d in part.moving), None)
            total += part.streamed if last is None or last in part.further else part.jumping
        return total

    def _is_streamed(self, array: _Array, steps: dict[str, int]) -> bool:
        """True if ``array`` is read once from end to end, so that its lines come from memory.

        That is where every loop moves it; loops of the reduction alone may all leave it, as an epilogue's operand.
        """
        looping = {d for d, extent in self.extents.items() if extent > steps[d]}
        reduced = {d for d, _ in self.nest.reduced}
        if not reduced & array.dims:
            looping -= reduced
        return array.loaded and looping <= array.dims

    def _run(self, number: int, steps: dict[str, int]) -> tuple[int, set[str]]:
        """Bytes of an array in a row that a tile touches, and the dims along the row beyond it."""
        run, further = self.arrays[number].bytes, set[str]()
        for dim, stride in self.steps[number]:
            if stride > run:
                break
            run += stride * (min(steps[dim], self.extents[dim]) - 1)
            if steps[dim] < self.extents[dim]:
                further.add(dim)
        return run, further
