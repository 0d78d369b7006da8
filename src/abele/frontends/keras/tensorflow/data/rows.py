"""Elements of a dataset by the row: arrays, and which of their rows are meant.

A block of 60,000 images is the array of images and ``range(60000)``. Shuffling, skipping and sharding change places
alone; a batch gathers its rows at once, or is a view where they lie one after the other.

Elements of different shapes lie as arrays in a vector of objects: :func:`ragged` columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Places = range | Array


@dataclass(frozen=True, slots=True)
class ElementRows:
    """Elements in their order.

    Attributes:
        arrays: One per leaf of the structure of an element: [rows, ...].
        places: For each array, which of its rows are the elements; all of one length.
    """

    arrays: tuple[Array, ...]
    places: tuple[Places, ...]

    @classmethod
    def of(cls, arrays: Iterable[Array]) -> ElementRows:
        """Every row of arrays of one length."""
        arrays = tuple(arrays)
        every = range(len(arrays[0]))
        return cls(arrays, (every,) * len(arrays))

    @classmethod
    def one(cls, leaves: Iterable[Any]) -> ElementRows:
        """One element, given by its leaves."""
        return cls.of([_as_column([leaf]) for leaf in leaves])

    @property
    def size(self) -> int:
        """The number of elements."""
        return len(self.places[0])

    def cut(self, start: int, stop: int | None = None, step: int = 1) -> ElementRows:
        """The elements of a slice."""
        return ElementRows(self.arrays, _each(self.places, lambda places: places[start:stop:step]))

    def take(self, chosen: Array) -> ElementRows:
        """Elements by their number."""
        return ElementRows(self.arrays, _each(self.places, lambda places: _numbers(places)[chosen]))

    def gathered(self) -> list[Array]:
        """The elements as one array per leaf: [elements, ...]; a view where they lie in order."""
        return [_gather(array, places) for array, places in zip(self.arrays, self.places, strict=True)]

    def element(self, number: int) -> list[Any]:
        """The leaves of one element."""
        return [array[places[number]] for array, places in zip(self.arrays, self.places, strict=True)]


def _each(places: tuple[Places, ...], function: Any) -> tuple[Places, ...]:
    """Apply a function once to places that several arrays share."""
    made = {id(each): function(each) for each in places}
    return tuple(made[id(each)] for each in places)


def _numbers(places: Places) -> Array:
    return np.arange(places.start, places.stop, places.step) if isinstance(places, range) else places


def _gather(array: Array, places: Places) -> Array:
    if not isinstance(places, range):
        return np.asarray(array[places])
    if len(places) == len(array) and places.step == 1:
        return array
    # A range that runs down to the first row has a stop below zero, which a slice would count from the end.
    return array[places.start : places.stop : places.step] if places.step > 0 else array[_numbers(places)]


def join(blocks: Sequence[ElementRows]) -> ElementRows:
    """The elements of several blocks, one after the other; of one set of arrays, only places are joined."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    if all(same_arrays(first, block) for block in blocks[1:]):
        joined = _joined_places([block.places for block in blocks])
        return ElementRows(first.arrays, joined)
    gathered = [block.gathered() for block in blocks]
    return ElementRows.of(_joined_columns([leaves[leaf] for leaves in gathered]) for leaf in range(len(first.arrays)))


def same_arrays(one: ElementRows, other: ElementRows) -> bool:
    """True if both are rows of the same arrays."""
    return all(a is b for a, b in zip(one.arrays, other.arrays, strict=True))


def _joined_places(places: list[tuple[Places, ...]]) -> tuple[Places, ...]:
    made: dict[tuple[int, ...], Array] = {}
    joined = []
    for parts in zip(*places, strict=True):
        key = tuple(map(id, parts))
        if key not in made:
            made[key] = np.concatenate([_numbers(part) for part in parts])
        joined.append(made[key])
    return tuple(joined)


def _joined_columns(columns: list[Array]) -> Array:
    if len({(column.shape[1:], is_ragged(column)) for column in columns}) == 1:
        return np.concatenate(columns)
    return _as_column([cell for column in columns for cell in column])


def is_ragged(column: Array) -> bool:
    """True for a vector of objects that are arrays, or datasets, themselves; strings are no such objects."""
    return column.dtype == object and column.ndim == 1 and len(column) > 0 and not isinstance(column[0], bytes | str)


def _as_column(cells: Sequence[Any]) -> Array:
    """Cells below each other: an array where they have one shape, else a vector of objects."""
    shapes = {getattr(cell, "shape", None) for cell in cells}
    if len(shapes) == 1 and None not in shapes:
        return np.stack(cells)
    column = np.empty(len(cells), object)
    for number, cell in enumerate(cells):
        column[number] = cell
    return column


def stacked(column: Array) -> Array:
    """A column as one array.

    Raises:
        ValueError: It is ragged, and its elements have different shapes.
    """
    return np.stack(list(column)) if is_ragged(column) else column


class RowReader:
    """Blocks read by the number of elements.

    Args:
        blocks: The elements.
    """

    def __init__(self, blocks: Iterator[ElementRows]) -> None:
        self._blocks = blocks
        self._rest: list[ElementRows] = []

    def read(self, most: int) -> ElementRows | None:
        """The next elements, at most so many, of as many blocks as it takes; None at the end."""
        parts, missing = [], most
        while missing and (block := self.some(missing)) is not None:
            parts.append(block)
            missing -= block.size
        return join(parts) if parts else None

    def some(self, most: int) -> ElementRows | None:
        """The next elements, at most so many, of one block; None at the end."""
        block = self._rest.pop() if self._rest else next(self._blocks, None)
        while block is not None and block.size == 0:
            block = next(self._blocks, None)
        if block is not None and block.size > most:
            self._rest.append(block.cut(most))
            return block.cut(0, most)
        return block

    def put_back(self, rows: ElementRows) -> None:
        """Let elements that were read be read again, before the others."""
        self._rest.append(rows)
