"""Addresses: where the data of one tile lies, found by packing lifetimes.

Data that is wanted at the same time may not share bytes; data that is not may. This is dynamic storage allocation with
lifetimes that are known, which is hard to do at best; greedy ones come within a few percent of the sum that is live at
the worst step, which no packing can go below. One after the other takes the smallest hole that is large enough, of
those that nothing leaves occupied at any of its steps. What lives at one of the fullest steps goes first, since others
have room above it; of that, what lives longest. Several orders are tried, and then what stuck out is placed first.
Sources: greedy by size, Pisarchyk and Lee, "Efficient memory management for deep neural net inference" (2020); by
contention, Maas et al., "TelaMalloc: efficient on-chip memory allocation for production machine learning accelerators"
(2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from abele.arrays import Bool, Int64
from abele.graph.intervals import distinct
from abele.machine import TileMemory

_REPAIRS = 6
"""Further attempts from each of the two best, in which what stuck out of memory is placed first."""
_FULLEST = 0.9
"""Steps with this part of the bytes of the fullest one are among the fullest."""
_GOOD = 64
"""A packing that loses less than 1 / 64 is as good as any, where nothing can fit."""
_SHORT = 2
"""Moments of the exchange and the vertices of a step: what lives no longer is looked at only at its first and last."""
_FULL = 4
"""Steps with less than 3 / 4 of the bytes of the fullest one are not thought to raise the top."""


@dataclass(frozen=True, eq=False, slots=True)
class Items:
    """Data of one tile that wants addresses.

    Attributes:
        size: Bytes of each, whole multiples of the usual alignment, int64[n].
        alignment: Its address is a multiple of this, int64[n].
        lowest: Lowest address that it may have, int64[n].
        ptr: Lifetimes of item i are ``ptr[i]`` to ``ptr[i + 1]``, at least one, int64[n + 1].
        begin: First step of each lifetime, int64[k]; ascending, and apart, within an item; −1 for before all.
        end: One past its last step, int64[k].
        apart: For an item, those with which it may share no memory element; given both ways.
    """

    size: Int64
    alignment: Int64
    lowest: Int64
    ptr: Int64
    begin: Int64
    end: Int64
    apart: Mapping[int, Sequence[int]]

    @property
    def span(self) -> Int64:
        """Steps during which each item is live, int64[n]."""
        if len(self.size) == 0:
            return self.size
        return np.asarray(np.add.reduceat(self.end - self.begin, self.ptr[:-1]), dtype=np.int64)

    def by_moments(self) -> Items:
        """The same items, with steps numbered by the moments at which something begins or ends."""
        moments = distinct(np.concatenate([self.begin, self.end]))
        begin, end = (np.searchsorted(moments, side) for side in (self.begin, self.end))
        return replace(self, begin=begin, end=end)

    def take(self, kept: Bool) -> Items:
        """Some of the items; whatever others are to be apart from is kept as well."""
        number, rows = np.cumsum(kept) - 1, np.repeat(kept, np.diff(self.ptr))
        return Items(
            size=self.size[kept],
            alignment=self.alignment[kept],
            lowest=self.lowest[kept],
            ptr=np.concatenate([[0], np.cumsum(np.diff(self.ptr)[kept])]),
            begin=self.begin[rows],
            end=self.end[rows],
            apart={int(number[i]): [int(number[j]) for j in others] for i, others in self.apart.items()},
        )

    def joined(self, item: Int64) -> Items:
        """Fewer items: those of one number have one address, and what any of them wants; they never live at once.

        Args:
            item: Number of the item that each becomes, int64[n]; those that are to be apart from others become none
                with others.
        """
        count = int(item.max(initial=-1)) + 1
        size, alignment, lowest = np.zeros((3, count), dtype=np.int64)
        for wanted, each in ((size, self.size), (alignment, self.alignment), (lowest, self.lowest)):
            np.maximum.at(wanted, item, each)
        owner = np.repeat(item, np.diff(self.ptr))
        order = np.lexsort((self.begin, owner))
        return Items(
            size=size,
            alignment=alignment,
            lowest=lowest,
            ptr=np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))]),
            begin=self.begin[order],
            end=self.end[order],
            apart={int(item[i]): [int(item[j]) for j in others] for i, others in self.apart.items()},
        )

    def followed_by(self, more: Items) -> Items:
        """These items and then others, which need not be apart from any."""
        columns = ("size", "alignment", "lowest", "begin", "end")
        joined = {name: np.concatenate([getattr(self, name), getattr(more, name)]) for name in columns}
        return Items(ptr=np.concatenate([self.ptr, self.ptr[-1] + more.ptr[1:]]), apart=self.apart, **joined)


class PackedItems(NamedTuple):
    """Addresses of items.

    Attributes:
        address: Address of each, int64[n].
        top: One past the highest address that any of them takes; the floor where there are none.
    """

    address: Int64
    top: int


def pack(items: Items, floor: int, room: int, memory: TileMemory) -> PackedItems:
    """Addresses of the items of a tile.

    Args:
        items: The items.
        floor: Addresses below it are taken.
        room: Bytes of the tile; the first packing that stays below is taken, else that with the lowest top.
        memory: The memory, of which the elements are taken.
    """
    steps, items = items, items.by_moments()
    live = _live(items)
    least = floor + int(live.max(initial=0))
    # What lives for a step that is not among the fullest finds a place behind all others.
    short, last = (items.span <= _SHORT) & (np.diff(items.ptr) == 1), np.maximum(items.ptr[1:] - 1, 0)
    late = short & (items.lowest == 0)
    here = last[late]
    fullest = np.maximum(live[items.begin[here]], live[items.end[here] - 1])
    late[late] = fullest * _FULL < live.max(initial=0) * (_FULL - 1)
    late[list(items.apart)] = False
    tried: list[tuple[PackedItems, Int64]] = []
    for order in _orders(steps, _lives_among(items, live >= live.max(initial=0) * _FULLEST)):
        found = _placed(items, order[~late[order]], order[late[order]], floor, memory)
        tried.append((found, order))
        if found.top <= room or (least > room and found.top - least < least // _GOOD):
            return found
    tried.sort(key=lambda each: each[0].top)
    best = tried[0][0]
    if least > room:
        return best
    for found, order in tried[:2]:
        best = min(best, _repaired(items, (found, order), late.copy(), floor, room, memory), key=lambda each: each.top)
        if best.top <= room:
            break
    return best


def _repaired(
    items: Items, start: tuple[PackedItems, Int64], late: Bool, floor: int, room: int, memory: TileMemory
) -> PackedItems:
    """The best of some packings that follow from one and its order, as what stuck out of memory is placed first."""
    found, order = start
    best = found
    for _ in range(_REPAIRS):
        out = (found.address + items.size)[order] > room
        late[order[out]] = False
        order = np.concatenate([order[out], order[~out]])
        found = _placed(items, order[~late[order]], order[late[order]], floor, memory)
        best = min(best, found, key=lambda each: each.top)
        if best.top <= room:
            break
    return best


def most_live(items: Items) -> int:
    """Bytes that live at the worst moment."""
    return int(_live(items.by_moments()).max(initial=0))


def _live(items: Items) -> Int64:
    """Bytes that live at each moment, int64[moments]."""
    size, steps = np.repeat(items.size, np.diff(items.ptr)), int(items.end.max(initial=0))
    change = np.bincount(items.begin, size, steps + 1) - np.bincount(items.end, size, steps + 1)
    return np.cumsum(change[:steps]).astype(np.int64)


def _lives_among(items: Items, moments: Bool) -> Bool:
    """True for items that live at one of some moments, bool[n]."""
    before = np.concatenate([[0], np.cumsum(moments)])
    if len(items.size) == 0:
        return np.zeros(0, dtype=bool)
    return np.logical_or.reduceat(before[items.end] > before[items.begin], items.ptr[:-1])


def _orders(items: Items, fullest: Bool) -> Iterator[Int64]:
    """Orders of placing, what is bound to a region always first: by lives, first of what lives at the fullest moments;
    by size; by lives.
    """
    bound, span = items.lowest > 0, items.span
    yield np.lexsort((-items.size, -span, ~fullest, ~bound))
    yield np.lexsort((-span, -items.size, ~bound))
    yield np.lexsort((-items.size, -span, ~bound))


class _Taken:
    """Intervals of addresses that are taken, and of steps, in order of low ends."""

    def __init__(self, capacity: int) -> None:
        # Low end, high end, first step and end.
        self._rows = np.empty((4, capacity), dtype=np.int64)
        self._count = 0

    def during(self, begin: Sequence[int], end: Sequence[int]) -> tuple[Int64, Int64]:
        """Low and high ends of what is there during some steps."""
        low, high, starts, ends = self._rows[:, : self._count]
        meets = (starts < end[0]) & (ends > begin[0])
        for first, last in zip(begin[1:], end[1:], strict=True):
            meets |= (starts < last) & (ends > first)
        return low[meets], high[meets]

    def add(self, low: int, high: int, begin: Sequence[int], end: Sequence[int]) -> None:
        """Take addresses during some steps."""
        rows, count, more = self._rows, self._count, len(begin)
        place = int(np.searchsorted(rows[0, :count], low))
        if place < count:
            rows[:, place + more : count + more] = rows[:, place:count]
        here = rows[:, place : place + more]
        here[0], here[1], here[2], here[3] = low, high, begin, end
        self._count += more

    def reach(self, steps: int) -> Int64:
        """One past the highest address that is taken during each step, int64[steps]; 0 where none is."""
        found = np.zeros(steps, dtype=np.int64)
        _, high, starts, ends = self._rows[:, : self._count]
        order = np.argsort(high, kind="stable")
        for top, begin, end in zip(high[order].tolist(), starts[order].tolist(), ends[order].tolist(), strict=True):
            found[begin:end] = top
        return found


def _placed(items: Items, order: Int64, late: Int64, floor: int, memory: TileMemory) -> PackedItems:
    """Place items in an order, each in the smallest hole that takes it.

    Args:
        items: The items.
        order: Those that are placed one by one.
        late: Those of a moment or two that are placed afterwards, behind what is there if that raises no top.
        floor: Addresses below it are taken.
        memory: The memory.
    """
    address = np.zeros(len(items.size), dtype=np.int64)
    taken, top = _Taken(len(items.begin)), floor
    begin, end = items.begin.tolist(), items.end.tolist()
    ptr, sizes = items.ptr.tolist(), items.size.tolist()
    alignments, lowest = items.alignment.tolist(), items.lowest.tolist()
    done: set[int] = set()

    def place(item: int) -> None:
        nonlocal top
        lives = slice(ptr[item], ptr[item + 1])
        low, high = taken.during(begin[lives], end[lives])
        if item in items.apart:
            partners = np.array([i for i in items.apart[item] if i in done], dtype=np.int64)
            low, high = _with_elements(address[partners], items.size[partners], low, high, memory)
        at = _hole(low, high, sizes[item], alignments[item], max(floor, lowest[item]))
        address[item] = at
        done.add(item)
        top = max(top, at + sizes[item])
        taken.add(at, at + sizes[item], begin[lives], end[lives])

    for item in order.tolist():
        place(item)
    if len(late):
        starts, ends, alignment = items.begin[items.ptr[late]], items.end[items.ptr[late]], items.alignment[late]
        reach = taken.reach(int(ends.max()))
        behind = np.maximum(np.maximum(reach[starts], reach[ends - 1]), floor)
        behind += -behind % alignment
        # Only those that meet none of the others before them are placed without a look.
        first = np.zeros(len(late), dtype=bool)
        by_start = np.argsort(starts, kind="stable")
        first[by_start] = starts[by_start] >= np.append(0, np.maximum.accumulate(ends[by_start]))[:-1]
        free = first & (behind + items.size[late] <= top)
        address[late[free]] = behind[free]
        for item, at in zip(late[free].tolist(), behind[free].tolist(), strict=True):
            lives = slice(ptr[item], ptr[item + 1])
            taken.add(at, at + sizes[item], begin[lives], end[lives])
        for item in late[~free].tolist():
            place(item)
    return PackedItems(address, top)


def _hole(low: Int64, high: Int64, size: int, alignment: int, floor: int) -> int:
    """Address of the smallest hole between intervals, in order of their low ends, that takes so many bytes."""
    if len(low) == 0:
        return -(-floor // alignment) * alignment
    start = np.empty(len(low) + 1, dtype=np.int64)
    start[0] = floor
    np.maximum.accumulate(high, out=start[1:])
    np.maximum(start, floor, out=start)
    start += -start % alignment
    hole = low - start[:-1]
    fits = np.flatnonzero(hole >= size)
    return int(start[fits[np.argmin(hole[fits])]]) if len(fits) else int(start[-1])


def _with_elements(address: Int64, size: Int64, low: Int64, high: Int64, memory: TileMemory) -> tuple[Int64, Int64]:
    """Intervals that are taken, with the whole elements of some items, in order of low ends."""
    begin, end = _element(address, memory)[0], _element(address + np.maximum(size - 1, 0), memory)[1]
    low, high = np.concatenate([low, begin]), np.concatenate([high, end])
    order = np.argsort(low, kind="stable")
    return low[order], high[order]


def _element(address: Int64, memory: TileMemory) -> tuple[Int64, Int64]:
    """First address of the memory element that each address lies in, and one past its last.

    In interleaved memory two neighbours are one element, since words alternate between them.
    """
    plain, size = memory.plain_bytes, memory.element_bytes
    beyond = address >= plain
    width = np.where(beyond, 2 * size, size)
    base = np.where(beyond, plain, 0)
    begin = base + (address - base) // width * width
    # The last element before region 1 ends where that begins.
    return begin, np.where(beyond, begin + width, np.minimum(begin + width, plain))
