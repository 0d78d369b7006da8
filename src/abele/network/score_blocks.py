"""Blocks of scores: which rows are computed together, with which keys, where a mask is known beforehand.

Rows in a row that see nearby keys form a block, which takes the keys from the first to the last that one of them sees.
Blocks of one size can run as one product with more groups, which all tiles share; so blocks are sorted by size, and
ranges of keys are rounded, so that few sizes come about. How fine to cut is a matter of cycles, which is for others to
weigh: here are the ways that are worth it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Bool

GRAIN = 16
"""Rows and keys of a block are a multiple of this: the width of the widest products of a tile."""
MOST_BLOCKS = 32
MOST_SIZES = 8
"""Blocks and sizes of them beyond which cutting finer only adds steps."""


@dataclass(frozen=True, order=True)
class RowBlock:
    """Some rows of scores, and the keys that they are computed with.

    Attributes:
        begin: The first row.
        end: One past the last.
        low: The first key.
        high: One past the last.
    """

    begin: int
    end: int
    low: int
    high: int

    @property
    def size(self) -> tuple[int, int]:
        """Number of rows and of keys."""
        return self.end - self.begin, self.high - self.low


@dataclass(frozen=True)
class RowBlocks:
    """All rows of scores as blocks.

    Attributes:
        blocks: In the order of rows.
    """

    blocks: tuple[RowBlock, ...]

    @property
    def by_size(self) -> tuple[tuple[RowBlock, ...], ...]:
        """Blocks of one size together, in the order in which sizes first come."""
        sizes: dict[tuple[int, int], list[RowBlock]] = {}
        for block in self.blocks:
            sizes.setdefault(block.size, []).append(block)
        return tuple(map(tuple, sizes.values()))

    @property
    def scores(self) -> int:
        """Scores that are computed."""
        return sum(rows * keys for rows, keys in (b.size for b in self.blocks))


def blockings(visible: Bool) -> list[RowBlocks]:
    """Ways to leave out keys, those with the fewest scores first; none where nothing can be left out.

    Args:
        visible: True where some sample and head sees a key, [rows, keys].
    """
    rows, keys = visible.shape
    low, high = _seen(visible)
    cuts = {tuple(range(0, rows, rows // n)) for n in _parts(rows)} | {(0,), _changes(low, high)}
    found: dict[RowBlocks, None] = {}
    for cut in sorted(cuts, key=len):
        ends = (*cut[1:], rows)
        blocks = _merged([_block(b, e, low, high, keys) for b, e in zip(cut, ends, strict=True)])
        for way in (blocks, _widened(blocks, keys)):
            if len(way) <= MOST_BLOCKS:
                found[RowBlocks(tuple(way))] = None
    worth = [b for b in found if b.scores < rows * keys and len(b.by_size) <= MOST_SIZES]
    return sorted(worth, key=lambda b: (b.scores, len(b.by_size), len(b.blocks)))


def _seen(visible: Bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The first key that each row sees, and one past the last; all keys and none of a row that sees nothing."""
    keys = visible.shape[1]
    some = visible.any(1)
    low = np.where(some, visible.argmax(1), keys)
    high = np.where(some, keys - visible[:, ::-1].argmax(1), 0)
    return low, high


def _parts(rows: int) -> Iterator[int]:
    """Numbers of equal parts of the rows."""
    count = 2
    while count <= MOST_BLOCKS and rows // count >= GRAIN:
        if rows % count == 0:
            yield count
        count *= 2


def _changes(low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> tuple[int, ...]:
    """Rows that see other keys than the row before: where sequences begin, say."""
    changed = 1 + np.flatnonzero((np.diff(low) != 0) | (np.diff(high) != 0))
    return (0, *changed.tolist()) if len(changed) < MOST_BLOCKS else (0,)


def _block(begin: int, end: int, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64], keys: int) -> RowBlock:
    first, last = int(low[begin:end].min()), int(high[begin:end].max())
    if first >= last:
        first, last = 0, 1  # Rows that see nothing have a softmax nevertheless.
    return RowBlock(begin, end, first // GRAIN * GRAIN, min(-(-last // GRAIN) * GRAIN, keys))


def _merged(blocks: Sequence[RowBlock]) -> list[RowBlock]:
    """Neighbours that see the same keys as one."""
    found = [blocks[0]]
    for block in blocks[1:]:
        last = found[-1]
        if (last.low, last.high) == (block.low, block.high):
            found[-1] = RowBlock(last.begin, block.end, last.low, last.high)
        else:
            found.append(block)
    return found


def _widened(blocks: Sequence[RowBlock], keys: int) -> list[RowBlock]:
    """Blocks that all have as many keys as the widest, so that those of as many rows are of one size."""
    width = max(b.high - b.low for b in blocks)

    def moved(block: RowBlock) -> RowBlock:
        low = min(block.low, keys - width)
        return RowBlock(block.begin, block.end, low, low + width)

    return [moved(b) for b in blocks]
