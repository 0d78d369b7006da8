"""Sorting networks over tiles: bitonic sort, and the best of each row by a tree of merges.

Why it sorts: a bitonic merge takes two sorted stretches. Comparing each place with its mirror image puts the better of
every pair into the first half; then everything in the first half is at least as good as all of the second, and both are
bitonic. Comparing at half the distance, a quarter, and so on down to neighbours sorts any bitonic stretch. So blocks
are sorted first, and merged with blocks of twice the size until a row is one: log²(n) / 2 rounds, in each of which
every place is compared once. Which places meet depends on their numbers alone and never on data. That is what an
exchange that is fixed at compile time needs; algorithms that do less work (sample sort, quicksort) send as many
elements between tiles as the data says. Rounds whose distance is below a block run within tiles, in one superstep.

``keep_best`` needs less: of two sorted blocks the best k are found by comparing the first with the mirror image of the
other and keeping the better of each pair, which is bitonic again. A tree of these takes log(blocks) supersteps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Steps
from abele.poplibs.popops.sorting.blocks import RecordBlocks, power_of_two
from abele.poplibs.popops.sorting.codelets import Record, best_codelet, keep_codelet, local_codelet, swap_codelet
from abele.poplibs.poputil.regions import flat_regions


class SortingNetwork:
    """Steps that sort columns of records in blocks.

    Args:
        graph: Graph in which vertices are made.
        body: Program that steps are appended to.
        blocks: Layout of the records on tiles.
        record: Key and values of a record.
        columns: Tensor [rows, length] in these blocks for each field of a record.
        name: Prefix of compute sets.
    """

    def __init__(
        self, graph: Graph, body: Steps, blocks: RecordBlocks, record: Record, columns: Sequence[Tensor], name: str
    ) -> None:
        self.graph, self.body, self.blocks, self.record, self.name = graph, body, blocks, record, name
        self.columns = dict(zip(record.columns, (c.flatten() for c in columns), strict=True))

    def sort(self) -> None:
        """Sort every row: each block, then blocks of twice the size, until a row is one."""
        blocks = self.blocks
        self._local(whole=True)
        size = 2
        while size < 2 * blocks.per_row:
            # First round of a merge of `size` blocks: mirrored, so both halves may be sorted the same way.
            self._swap(0, size)
            distance = size // 4
            while distance > 0:
                self._swap(distance)
                distance //= 2
            # All rounds with distances below a block.
            self._local(whole=False)
            size *= 2

    def keep_best(self, wanted: int) -> None:
        """Leave the best ``wanted`` records of every row, sorted, at its begin; the rest is left in disorder.

        A block holds at least the least power of two that is ``wanted`` or more.
        """
        kept, distance = power_of_two(wanted), 1
        if kept < min(self.blocks.size, self.blocks.length):
            self._best(kept)
        else:
            self._local(whole=True)
        while distance < self.blocks.per_row:
            self._keep(kept, distance)
            distance *= 2

    def _edges(self, suffix: str, begin: Int64, length: Int64) -> dict[str, Any]:
        return {f"{n}{suffix}": flat_regions(t, begin, length) for n, t in self.columns.items()}

    def _local(self, whole: bool) -> None:
        begin, length, tile = self.blocks.on_tiles()
        row = length if self.blocks.per_row > 1 else self.blocks.length
        width = min(self.blocks.size, power_of_two(self.blocks.length))
        compute_set = self.graph.compute_set(f"{self.name}/{'sort' if whole else 'merge'}")
        codelet = local_codelet(self.record, whole)
        compute_set.vertices(codelet, tile=tile, row=row, width=width, **self._edges("", begin, length))
        self.body.add(Execute(compute_set))

    def _best(self, kept: int) -> None:
        """The best of every block to its begin."""
        begin, length, tile = self.blocks.on_tiles()
        row = length if self.blocks.per_row > 1 else self.blocks.length
        compute_set = self.graph.compute_set(f"{self.name}/best")
        edges = self._edges("", begin, length)
        compute_set.vertices(best_codelet(self.record), tile=tile, row=row, kept=kept, **edges)
        self.body.add(Execute(compute_set))

    def _swap(self, distance: int, mirrored: int = 0) -> None:
        """Compare blocks, half of the places on the tile of either."""
        blocks = self.blocks
        low, high, pairs = blocks.pairs(distance, mirrored)
        if len(low) == 0:
            return
        # Each of the two tiles compares half of the places, so that both work and half as much is sent.
        middle = -(-pairs // 2)
        first = np.concatenate([np.zeros_like(pairs), middle])
        count = np.concatenate([middle, pairs - middle])
        low, high, pairs = np.tile(low, 2), np.tile(high, 2), np.tile(pairs, 2)
        tile = np.concatenate([blocks.tile[low[: len(low) // 2]], blocks.tile[high[: len(high) // 2]]])
        some = count > 0
        low, high, pairs, first, count, tile = (a[some] for a in (low, high, pairs, first, count, tile))
        # Mirrored: a shorter last block meets the end of the earlier one, as if worst elements filled it up.
        low_begin = blocks.begin[low] + first + (blocks.sizes[low] - pairs if mirrored else 0)
        high_begin = blocks.begin[high] + (pairs - first - count if mirrored else first)
        compute_set = self.graph.compute_set(f"{self.name}/swap")
        edges = self._edges("_low", low_begin, count) | self._edges("_high", high_begin, count)
        compute_set.vertices(swap_codelet(self.record, bool(mirrored)), tile=tile, **edges)
        self.body.add(Execute(compute_set))

    def _keep(self, kept: int, distance: int) -> None:
        """Merge the best of blocks ``distance`` apart into the earlier of them."""
        blocks = self.blocks
        low, high, _ = blocks.pairs(distance)
        # In the tree only blocks that have won before go on.
        chosen = low % blocks.per_row % (2 * distance) == 0
        low, high = low[chosen], high[chosen]
        low_size, high_size = np.full(len(low), kept, np.int64), np.minimum(blocks.sizes[high], kept)
        compute_set = self.graph.compute_set(f"{self.name}/keep")
        edges = self._edges("_low", blocks.begin[low], low_size) | self._edges("_high", blocks.begin[high], high_size)
        compute_set.vertices(keep_codelet(self.record), tile=blocks.tile[low], **edges)
        self.body.add(Execute(compute_set))
