"""The order of a shuffle buffer, many draws at once.

TensorFlow keeps a buffer of ``size`` elements, draws one at random and puts the next element in its slot. Of many
draws each takes the element that the latest earlier draw of the same slot put there, or the one that lay there before:
after sorting the draws by slot, that is the neighbour. Draws of slots 2, 0, 2 from a buffer [a b c] with d, e, f to
come give c, a, d and leave [e b f].
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .rows import Array, ElementRows, is_ragged, join, same_arrays

MOST_DRAWS = 1 << 16
"""Draws at once: enough that arithmetic on arrays pays, few enough for the cache."""


def shuffled(blocks: Iterator[ElementRows], size: int, generator: np.random.Generator) -> Iterator[ElementRows]:
    """Blocks in the order of a shuffle buffer.

    Args:
        blocks: The elements.
        size: Elements that the buffer holds.
        generator: Source of the draws.

    Yields:
        All elements, each once.
    """
    buffer = _Buffer()
    for block in blocks:
        start = 0
        if buffer.filled < size:
            start = min(size - buffer.filled, block.size)
            buffer.append(block.cut(0, start))
        while start < block.size:
            piece = block.cut(start, start + MOST_DRAWS)
            yield buffer.exchange(piece, generator.integers(0, size, piece.size))
            start += piece.size
    if buffer.filled:
        yield buffer.drained(generator.permutation(buffer.filled))


class _Buffer:
    """Slots with elements: their places while all are rows of the same arrays, else the elements themselves."""

    def __init__(self) -> None:
        self.filled = 0
        self._parts: list[ElementRows] = []
        self._whole: ElementRows | None = None
        self._own = False  # What slots hold may be written.
        self._by_place = False

    def append(self, rows: ElementRows) -> None:
        self._parts.append(rows)
        self.filled += rows.size

    def exchange(self, incoming: ElementRows, slots: Array) -> ElementRows:
        """Draw the elements of slots and put others there."""
        whole = self._seat(incoming)
        old, new = _columns(whole, incoming)
        before, last = _neighbours(slots)
        drawn = []
        for kept, coming in zip(old, new, strict=True):
            taken = kept[slots]
            later = before >= 0
            taken[later] = coming[before[later]]
            kept[slots[last]] = coming[last]
            drawn.append(taken)
        return _rows_like(whole, incoming, drawn)

    def drained(self, order: Array) -> ElementRows:
        return self._all().take(order)

    def _all(self) -> ElementRows:
        if self._whole is None:
            self._whole = join(self._parts)
            self._parts = []
        return self._whole

    def _seat(self, incoming: ElementRows) -> ElementRows:
        """The slots, in arrays that may be written, of the kind of what comes."""
        whole = self._all()
        if same_arrays(whole, incoming):
            if not self._own:
                whole = whole.take(np.arange(whole.size))
        elif not self._own or self._by_place:
            whole = ElementRows.of([np.array(column) for column in whole.gathered()])
        self._own, self._by_place = True, same_arrays(whole, incoming)
        if not self._by_place:
            coming = incoming.gathered()
            if any(_differ(old, new) for old, new in zip(whole.arrays, coming, strict=True)):
                columns = zip(whole.arrays, coming, strict=True)
                whole = ElementRows.of([_objects(old) if _differ(old, new) else old for old, new in columns])
        self._whole = whole
        return whole


def _differ(old: Array, new: Array) -> bool:
    """True for columns of elements of different shapes, of which one is not ragged yet."""
    return not is_ragged(old) and (old.shape[1:] != new.shape[1:] or is_ragged(new))


def _objects(column: Array) -> Array:
    if is_ragged(column):
        return column
    cells = np.empty(len(column), object)
    for number, cell in enumerate(column):
        cells[number] = cell
    return cells


def _columns(whole: ElementRows, incoming: ElementRows) -> tuple[list[Array], list[Array]]:
    """Contents of slots and of what comes: places, each set of them once, or elements."""
    if same_arrays(whole, incoming):
        kinds = _distinct(whole)
        return [np.asarray(whole.places[leaf]) for leaf in kinds], [np.asarray(incoming.places[leaf]) for leaf in kinds]
    kept = whole.gathered()
    coming = [
        _objects(column) if old.dtype == object and is_ragged(old) else column
        for old, column in zip(kept, incoming.gathered(), strict=True)
    ]
    return kept, coming


def _rows_like(whole: ElementRows, incoming: ElementRows, drawn: list[Array]) -> ElementRows:
    if not same_arrays(whole, incoming):
        return ElementRows.of(drawn)
    kinds = _distinct(whole)
    by_places = {id(whole.places[leaf]): places for leaf, places in zip(kinds, drawn, strict=True)}
    return ElementRows(whole.arrays, tuple(by_places[id(places)] for places in whole.places))


def _distinct(rows: ElementRows) -> list[int]:
    seen: dict[int, int] = {}
    for leaf, places in enumerate(rows.places):
        seen.setdefault(id(places), leaf)
    return list(seen.values())


def _neighbours(slots: Array) -> tuple[Array, Array]:
    """For each draw, the latest earlier one of the same slot, or -1; and the last draws of each slot."""
    order = np.argsort(slots, kind="stable")
    in_order = slots[order]
    same = in_order[1:] == in_order[:-1]
    before = np.full(len(slots), -1)
    before[order[1:][same]] = order[:-1][same]
    return before, order[np.append(~same, True)]
