"""Elements stacked to batches, batches taken apart, and windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..shapes import TensorShape, TensorSpec
from ..structure import flatten, map_structure
from .nodes import INFINITE, UNKNOWN, InvalidArgumentError, Node, Over, RowsOfArrays, all_rows, every_element
from .rows import Array, ElementRows, RowReader, is_ragged, join, stacked


class Batched(Over):
    """Consecutive elements stacked.

    Args:
        source: The elements.
        size: Elements of a batch.
        whole: True if a last batch of fewer is left out.
    """

    def __init__(self, source: Node, size: int, whole: bool) -> None:
        super().__init__(source)
        self._size, self._whole = size, whole

    @property
    def spec(self) -> Any:
        """A dim more, unknown where the last batch may be smaller."""
        size = self._size if self._whole else None
        return map_structure(lambda leaf: _stacked_spec(leaf, size), self.source.spec, lists=False)

    def count(self) -> int:
        """Batches of the source's elements."""
        total = self.source.count()
        return total if total < 0 else total // self._size if self._whole else -(-total // self._size)

    def blocks(self) -> Iterator[ElementRows]:
        """A batch after the other."""
        reader = RowReader(self.source.blocks())
        while (rows := reader.read(self._size)) is not None:
            if rows.size == self._size or not self._whole:
                yield ElementRows.of([self._stack(column, leaf)[None] for leaf, column in enumerate(rows.gathered())])

    def _stack(self, column: Array, leaf: int) -> Array:
        if is_ragged(column):
            shapes = [np.shape(cell) for cell in column]
            other = next((number for number, shape in enumerate(shapes) if shape != shapes[0]), None)
            if other is not None:
                raise InvalidArgumentError(
                    f"batch({self._size}) of tensors of different shapes in component {leaf}",
                    because=f"element 0 of the batch is {list(shapes[0])}, element {other} is {list(shapes[other])}",
                    remedy="padded_batch, or a map that gives all elements one shape",
                )
        return stacked(column)


class PaddedBatched(Over):
    """Consecutive elements padded to one shape and stacked.

    Args:
        source: The elements.
        size: Elements of a batch.
        shapes: For each leaf, the dims to pad to; None where the largest of the batch is taken.
        values: For each leaf, what it is padded with.
        whole: True if a last batch of fewer is left out.
    """

    def __init__(self, source: Node, size: int, shapes: list[TensorShape], values: list[Any], whole: bool) -> None:
        super().__init__(source)
        self._size, self._shapes, self._values, self._whole = size, shapes, values, whole

    @property
    def spec(self) -> Any:
        """A dim more; others are what they are padded to."""
        size, shapes = self._size if self._whole else None, iter(self._shapes)
        return map_structure(lambda leaf: TensorSpec((size, *next(shapes)), leaf.dtype), self.source.spec, lists=False)

    def count(self) -> int:
        """Batches of the source's elements."""
        return Batched(self.source, self._size, self._whole).count()

    def blocks(self) -> Iterator[ElementRows]:
        """A batch after the other."""
        reader = RowReader(self.source.blocks())
        while (rows := reader.read(self._size)) is not None:
            if rows.size == self._size or not self._whole:
                yield ElementRows.of([column[None] for column in self.stacked(rows)])

    def stacked(self, rows: ElementRows) -> list[Array]:
        """Elements padded and stacked: an array per leaf."""
        columns = zip(rows.gathered(), self._shapes, self._values, strict=True)
        return [_padded(column, shape, value) for column, shape, value in columns]


def _padded(column: Array, shape: TensorShape, value: Any) -> Array:
    cells = [np.asarray(cell) for cell in column] if column.dtype == object else list(column)
    largest = np.max([np.shape(cell) for cell in cells], axis=0).astype(int)
    dims = tuple(int(most) if dim is None else dim for dim, most in zip(shape, largest, strict=True))
    if any(most > dim for most, dim in zip(largest, dims, strict=True)):
        raise InvalidArgumentError(
            f"padded_batch to {list(dims)} of an element of {largest.tolist()}",
            remedy="None in padded_shapes pads to the largest of each batch",
        )
    made = np.full((len(cells), *dims), value, dtype=cells[0].dtype)
    for number, cell in enumerate(cells):
        made[number][tuple([slice(size) for size in np.shape(cell)])] = cell
    return made


class Unbatched(Over):
    """The rows of elements as elements."""

    @property
    def spec(self) -> Any:
        """A dim less."""
        return map_structure(lambda leaf: TensorSpec(leaf.shape[1:], leaf.dtype), self.source.spec, lists=False)

    def count(self) -> int:
        """The source's elements times their rows, where their number is known."""
        total, rows = self.source.count(), {leaf.shape[0] for leaf in flatten(self.source.spec, lists=False)}
        known = next(iter(rows))
        return total if total == INFINITE else UNKNOWN if total < 0 or known is None else total * known

    def blocks(self) -> Iterator[ElementRows]:
        """The rows of an element after those of the other."""
        for leaves in every_element(self.source):
            if len({len(leaf) for leaf in leaves}) > 1:
                raise InvalidArgumentError(
                    f"unbatch() of an element whose tensors have {[len(leaf) for leaf in leaves]} rows"
                )
            yield ElementRows.of(leaves)


class Windowed(Over):
    """Consecutive elements as datasets: one per leaf.

    Args:
        source: The elements.
        size: Elements of a window.
        shift: Elements from a window to the next.
        stride: Elements from one of a window to the next.
        whole: True if windows of fewer are left out.
        dataset: Makes a dataset of a node.
    """

    def __init__(
        self, source: Node, size: int, *, shift: int, stride: int, whole: bool, dataset: Callable[[Node], Any]
    ) -> None:
        super().__init__(source)
        self._size, self._shift, self._stride, self._whole, self._dataset = size, shift, stride, whole, dataset

    @property
    def spec(self) -> Any:
        """A dataset per leaf."""
        return map_structure(DatasetSpec, self.source.spec, lists=False)

    def count(self) -> int:
        """Windows of the source's elements."""
        total = self.source.count()
        if total < 0:
            return total
        span = (self._size - 1) * self._stride
        return len(range(0, max(total - span, 0) if self._whole else total, self._shift))

    def blocks(self) -> Iterator[ElementRows]:
        """A window after the other."""
        reader, span = RowReader(self.source.blocks()), (self._size - 1) * self._stride + 1
        while (rows := reader.read(span)) is not None:
            if rows.size == span or not self._whole:
                yield ElementRows.one(self._datasets(rows.cut(0, None, self._stride)))
            if rows.size > self._shift:
                reader.put_back(rows.cut(self._shift))
            elif reader.read(self._shift - rows.size) is None and self._shift > rows.size:
                return

    def _datasets(self, rows: ElementRows) -> Iterator[Any]:
        for array, places, leaf in zip(rows.arrays, rows.places, flatten(self.source.spec, lists=False), strict=True):
            yield self._dataset(RowsOfArrays(ElementRows((array,), (places,)), leaf))


class DatasetSpec:
    """A leaf that is a dataset itself, of elements of a spec."""

    def __init__(self, element_spec: Any) -> None:
        self.element_spec = element_spec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetSpec) and self.element_spec == other.element_spec

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec!r}, TensorShape([]))"


def _stacked_spec(leaf: Any, size: int | None) -> Any:
    return TensorSpec((size, *leaf.shape) if leaf.shape.rank is not None else None, leaf.dtype)


def batched_by_length(
    node: Node, lengths: Callable[[list[Any]], int], boundaries: list[int], sizes: list[int], whole: bool
) -> Iterator[ElementRows]:
    """Elements of like length gathered until there are enough for a batch.

    Yields:
        The elements of a batch.
    """
    waiting: list[list[ElementRows]] = [[] for _ in sizes]
    for leaves in every_element(node):
        bucket = int(np.searchsorted(boundaries, lengths(leaves), side="right"))
        waiting[bucket].append(ElementRows.one(leaves))
        if len(waiting[bucket]) == sizes[bucket]:
            yield from _drained(waiting[bucket])
    if not whole:
        for rest in waiting:
            yield from _drained(rest)


def _drained(rows: list[ElementRows]) -> Iterator[ElementRows]:
    if rows:
        yield join(rows)
        rows.clear()


def only_element(node: Node) -> list[Any]:
    """The leaves of the one element of a node.

    Raises:
        InvalidArgumentError: It has none, or several.
    """
    rows = all_rows(node)
    if rows is None or rows.size != 1:
        raise InvalidArgumentError(f"a dataset of one element is needed, this one has {rows.size if rows else 0}")
    return rows.element(0)
