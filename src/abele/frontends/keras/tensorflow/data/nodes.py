"""Nodes of datasets: sources, and changes of the order and number of elements. All give elements in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from abele.errors import AbeleError

from ..shapes import TensorSpec
from ..structure import flatten, map_structure
from .rows import ElementRows, RowReader, join
from .shuffling import shuffled

INFINITE = -1
UNKNOWN = -2
_RANGE_BLOCK = 1 << 16
"""Numbers of a range that are made at once."""


class InvalidArgumentError(AbeleError, ValueError):
    """Tensors that an operation does not take, such as elements of different shapes in a batch."""


class Node(ABC):
    """Elements of one structure, as often as they are asked for."""

    @property
    @abstractmethod
    def spec(self) -> Any:
        """The structure of an element, with a :class:`TensorSpec` per leaf."""

    @abstractmethod
    def count(self) -> int:
        """The number of elements, ``INFINITE`` or ``UNKNOWN``."""

    @abstractmethod
    def blocks(self) -> Iterator[ElementRows]:
        """The elements from the first."""


class Over(Node):
    """A node whose elements have the structure of another's.

    Args:
        source: The other.
    """

    def __init__(self, source: Node) -> None:
        self.source = source

    @property
    def spec(self) -> Any:
        """Form of the source's elements."""
        return self.source.spec

    def count(self) -> int:
        """Number of the source's elements."""
        return self.source.count()

    def blocks(self) -> Iterator[ElementRows]:
        """Blocks of the source."""
        return self.source.blocks()


class RowsOfArrays(Node):
    """ElementRows of arrays.

    Args:
        rows: The elements.
        spec: Their structure.
    """

    def __init__(self, rows: ElementRows, spec: Any) -> None:
        self.rows = rows
        self._spec = spec

    @property
    def spec(self) -> Any:
        """The structure that it was made with."""
        return self._spec

    def count(self) -> int:
        """The number of rows."""
        return self.rows.size

    def blocks(self) -> Iterator[ElementRows]:
        """All rows at once."""
        if self.rows.size:
            yield self.rows


class Numbers(Node):
    """Numbers in steps.

    Args:
        start: The first.
        stop: The end, None where there is none.
        step: From one to the next.
        dtype: Their type.
    """

    def __init__(self, start: int, stop: int | None, step: int = 1, dtype: Any = "int64") -> None:
        self._first, self._end, self._step = start, stop, step
        self._spec = TensorSpec((), dtype)

    @property
    def spec(self) -> Any:
        """A scalar."""
        return self._spec

    def count(self) -> int:
        """Number of elements."""
        return INFINITE if self._end is None else len(range(self._first, self._end, self._step))

    def blocks(self) -> Iterator[ElementRows]:
        """A vector after the other."""
        place, total = 0, self.count()
        while total == INFINITE or place < total:
            size = _RANGE_BLOCK if total == INFINITE else min(_RANGE_BLOCK, total - place)
            numbers = self._first + self._step * np.arange(place, place + size, dtype=np.int64)
            yield ElementRows.of([numbers.astype(self._spec.dtype.dtype)])
            place += size


class MadeElements(Node):
    """Elements that a function makes one by one.

    Args:
        make: Gives the leaves of each element, from the first.
        spec: Their structure.
        count: Number of elements.
    """

    def __init__(self, make: Callable[[], Iterator[list[Any]]], spec: Any, count: int = UNKNOWN) -> None:
        self._make, self._spec, self._count = make, spec, count

    @property
    def spec(self) -> Any:
        """The structure that it was made with."""
        return self._spec

    def count(self) -> int:
        """The number that it was made with."""
        return self._count

    def blocks(self) -> Iterator[ElementRows]:
        """An element after the other."""
        return map(ElementRows.one, self._make())


class Shuffled(Over):
    """Elements in the order of a shuffle buffer.

    Args:
        source: The elements.
        size: Elements that the buffer holds.
        seed: Makes the generator of the iteration of a number.
        again: True if each iteration has an order of its own.
    """

    def __init__(self, source: Node, size: int, seed: Callable[[int], np.random.Generator], again: bool) -> None:
        super().__init__(source)
        self._size, self._seed, self._again = size, seed, again
        self._iterations = 0

    def blocks(self) -> Iterator[ElementRows]:
        """The elements of the source, drawn."""
        generator = self._seed(self._iterations)
        self._iterations += self._again
        return shuffled(self.source.blocks(), self._size, generator)


class Repeated(Over):
    """All elements several times.

    Args:
        source: The elements.
        times: Number of times; None for ever.
    """

    def __init__(self, source: Node, times: int | None) -> None:
        super().__init__(source)
        self._times = times

    def count(self) -> int:
        """Every time that of the source."""
        once = self.source.count()
        if self._times == 0 or once == 0:
            return 0
        if once < 0:
            return once
        return INFINITE if self._times is None else once * self._times

    def blocks(self) -> Iterator[ElementRows]:
        """The blocks of the source, again and again; none for ever where it has none."""
        done = 0
        while self._times is None or done < self._times:
            empty = True
            for block in self.source.blocks():
                empty = False
                yield block
            if empty:
                return
            done += 1


class SomeElements(Over):
    """Some elements by their number: from ``start`` on, every ``step``-th before ``stop``."""

    def __init__(self, source: Node, start: int, stop: int | None, step: int = 1) -> None:
        super().__init__(source)
        self._start, self._stop, self._step = start, stop, step

    def count(self) -> int:
        """Number of the source's elements that are left."""
        total = self.source.count()
        if total == UNKNOWN or (total == INFINITE and self._stop is None):
            return total
        stop = self._stop if total == INFINITE else total if self._stop is None else min(self._stop, total)
        return len(range(self._start, stop or 0, self._step))

    def blocks(self) -> Iterator[ElementRows]:
        """Pieces of the blocks of the source."""
        if self._stop is not None and self._stop <= self._start:
            return
        passed = 0
        for block in self.source.blocks():
            first = self._start - passed if passed <= self._start else -(passed - self._start) % self._step
            stop = None if self._stop is None else self._stop - passed
            piece = block.cut(first, stop, self._step)
            if piece.size:
                yield piece
            passed += block.size
            if self._stop is not None and passed >= self._stop:
                return


class Chained(Over):
    """The elements of one node, then those of another."""

    def __init__(self, source: Node, then: Node) -> None:
        super().__init__(source)
        self._then = then

    @property
    def spec(self) -> Any:
        """Spec of elements of either."""
        return map_structure(common_spec, self.source.spec, self._then.spec, lists=False)

    def count(self) -> int:
        """The sum of both."""
        counts = self.source.count(), self._then.count()
        return INFINITE if INFINITE in counts else UNKNOWN if UNKNOWN in counts else sum(counts)

    def blocks(self) -> Iterator[ElementRows]:
        """Blocks of the one source, then of the other."""
        yield from self.source.blocks()
        yield from self._then.blocks()


def common_spec(one: Any, other: Any) -> Any:
    """Spec of a leaf of one spec or the other."""
    if not isinstance(one, TensorSpec) or one == other:
        return one
    if one.shape.rank is None or other.shape.rank is None or len(one.shape) != len(other.shape):
        return TensorSpec(None, one.dtype)
    return TensorSpec([a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)], one.dtype)


class CachedElements(Over):
    """Elements that are made once: the first iteration that comes to the end keeps them."""

    def __init__(self, source: Node) -> None:
        super().__init__(source)
        self._kept: list[ElementRows] | None = None

    def blocks(self) -> Iterator[ElementRows]:
        """The elements that were kept, or those of the source."""
        if self._kept is not None:
            yield from self._kept
            return
        made = []
        for block in self.source.blocks():
            made.append(block)
            yield block
        self._kept = made


class Zipped(Node):
    """Elements of several nodes side by side, until one of them ends.

    Args:
        sources: The nodes.
        structure: The structure of the nodes: a tuple or dict, with anything in the place of each.
    """

    def __init__(self, sources: list[Node], structure: Any) -> None:
        self._sources, self._structure = sources, structure

    @property
    def spec(self) -> Any:
        """The structures of all, side by side."""
        specs = iter([source.spec for source in self._sources])
        return map_structure(lambda _: next(specs), self._structure)

    def count(self) -> int:
        """Number of the shortest source's elements."""
        counts = [source.count() for source in self._sources]
        finite = [count for count in counts if count >= 0]
        return UNKNOWN if UNKNOWN in counts else min(finite) if finite else INFINITE

    def blocks(self) -> Iterator[ElementRows]:
        """As many elements at a time as all have in one block."""
        readers = [RowReader(source.blocks()) for source in self._sources]
        while True:
            parts: list[ElementRows] = []
            for reader in readers:
                found = reader.some(parts[-1].size if parts else _RANGE_BLOCK)
                if found is None:
                    return
                parts.append(found)
            size = parts[-1].size
            for number, part in enumerate(parts):
                if part.size > size:
                    readers[number].put_back(part.cut(size))
                    parts[number] = part.cut(0, size)
            yield ElementRows(
                tuple(array for part in parts for array in part.arrays),
                tuple(places for part in parts for places in part.places),
            )


def every_element(node: Node) -> Iterator[list[Any]]:
    """The leaves of each element."""
    for block in node.blocks():
        if block.size == 1:
            yield [column[0] for column in block.gathered()]
            continue
        for number in range(block.size):
            yield block.element(number)


def all_rows(node: Node) -> ElementRows | None:
    """Every element of a node that ends, None where there is none."""
    blocks = list(node.blocks())
    return join(blocks) if blocks else None


def leaves_of(spec: Any) -> list[Any]:
    """The leaves of the structure of an element."""
    return flatten(spec, lists=False)
