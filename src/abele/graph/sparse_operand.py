"""Notes on sparse operands: what library calls tell of a sparse matrix, for reports.

A library that spreads a sparse matrix over tiles notes on the graph how many values each tile works on. Of a pattern
that is known when the graph is built these are the values themselves; of one that comes with the data they are those of
an even deal, and :class:`BucketWords` says where the words are that hold the truth of a run.

Example: buckets of 72 words begin at word 8. A bucket [1, 0, 0, 3, 46, …] holds 3 blocks and goes on at its word 46,
where a 0 ends it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from abele.arrays import Int32, Int64

if TYPE_CHECKING:
    from abele.graph.tensor import Tensor

_COUNT, _LINK = 3, 4
"""Words of a list that have its blocks, and the words to the next list. Source: ``popsparse.dynamic.buckets``."""


@dataclass(frozen=True)
class BucketWords:
    """Place of the words that say what buckets hold.

    Attributes:
        first: First word of the first bucket; what is before it begins with the passes along x and along y.
        slots: Words of a bucket, which are lists of blocks, one after the other.
        header: Words of a list before its first row.
        area: Values of a block.
    """

    first: int
    slots: int
    header: int
    area: int

    def values(self, words: npt.ArrayLike, tiles: int) -> Int64 | None:
        """Values in each bucket, int64[tiles]; None where words are no buckets."""
        flat = np.asarray(words).reshape(-1).astype(np.int64)
        if flat.size < self.first + tiles * self.slots or self.header <= _LINK:
            return None
        found, tile = np.zeros(tiles, np.int64), np.arange(tiles)
        at, end = self.first + tile * self.slots, self.first + (tile + 1) * self.slots
        while True:
            more = at + self.header <= end
            more[more] = flat[at[more]] > 0
            at, end, tile = at[more], end[more], tile[more]
            if not len(at):
                return found * self.area
            found[tile] += flat[at + _COUNT]
            if (flat[at + _LINK] < self.header).any():
                return None
            at = at + flat[at + _LINK]

    def passes(self, words: npt.ArrayLike, worst: int) -> int:
        """Passes beyond the first that these words ask for."""
        flat = np.asarray(words).reshape(-1)
        return max(min(int(flat[0]) * int(flat[1]) - 1, worst), 0)


@dataclass(frozen=True, eq=False)
class SparseNote:
    """A sparse matrix and its spread over tiles.

    Attributes:
        name: Name of its values.
        library: One of ``abele.report.SPARSE_LIBRARIES``.
        dtype: Element type of the values.
        shape: Rows and columns, in elements.
        block: Rows and columns of a block.
        blocks: Blocks held, of all groups; of a pattern that comes with the data, blocks that there is room for.
        tile: Tiles that work on it, int32[tiles].
        values: Values that each of these works on, int64[tiles].
        groups: Matrices of that shape.
        capacity: Values that a bucket has room for; 0 where tiles hold what there is.
        worst_passes: Passes over buckets, beyond the first, of the worst pattern.
        passes: Those of this pattern.
        words: Tensor of the words that hold the pattern; None for one that the program knows.
        buckets: Place of the buckets in it.
        counted: True once values were counted in the words.
    """

    name: str
    library: str
    dtype: str
    shape: tuple[int, int]
    block: tuple[int, int]
    blocks: int
    tile: Int32
    values: Int64
    groups: int = 1
    capacity: int = 0
    worst_passes: int = 0
    passes: int = 0
    words: Tensor | None = None
    buckets: BucketWords | None = None
    counted: bool = False

    @property
    def key(self) -> Hashable:
        """Equal for notes on one matrix that is spread alike."""
        words = () if self.words is None else tuple(v.id for v in self.words.variables)
        sizes = self.shape, self.block, self.blocks, self.groups
        return self.library, self.name, sizes, self.tile.tobytes(), self.values.tobytes(), words

    def with_words(self, words: npt.ArrayLike) -> SparseNote:
        """The operand as these words have it; unchanged where they hold no pattern."""
        if self.buckets is None:
            return self
        values = self.buckets.values(words, len(self.tile))
        if values is None or (values > self.capacity).any() or not values.any():
            return self
        blocks = int(values.sum()) // (self.block[0] * self.block[1])
        passes = self.buckets.passes(words, self.worst_passes)
        return replace(self, values=values, blocks=blocks, passes=passes, counted=True)
