"""Diagonal blocks by substitution on all right-hand sides at once, which workers share out.

One right-hand side has a diagonal block on a tile of its own; more are on as many tiles as give each worker one, to
which the block is sent.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from abele.graph import Execute, Sequence, Tensor, concat
from abele.poplibs.poplin.linalg import blocks
from abele.poplibs.poplin.linalg.codelets import solve_codelet
from abele.poplibs.poplin.linalg.halved import HalvedSolve


class SharedSolve(HalvedSolve):
    """A solve whose vertices are counted from their code."""

    @cached_property
    def _shares(self) -> list[tuple[slice, slice, int]]:
        """Equal shares of the right-hand sides: tiles of a batch, columns of all of them, and columns of each.

        Each tile takes one for every worker, or more where tiles are few.
        """
        batch, _, right = self.b.shape
        tiles = max(1, self.graph.num_tiles // batch)
        return blocks.equal_shares(right, max(self.graph.system.ipu.num_workers, -(-right // tiles)))

    def _tiles(self, index: int, tiles: slice) -> list[int]:
        """Tiles of a share for a diagonal block, batch after batch; the first holds the block."""
        batch, each = self.b.shape[0], self._shares[-1][0].stop
        numbers = np.arange(batch)[:, None] * each + np.arange(tiles.start, tiles.stop)
        first: int = index * (len(self.extents) + 1) * batch
        return [int(t) for t in (first + numbers.ravel()) % self.graph.num_tiles]

    def new_block(self, index: int, size: int) -> Tensor:
        """A variable for a block of X: the vectors of each tile one after the other, shown as [batch, m, r]."""
        batch, parts = self.b.shape[0], []
        for tiles, _, vectors in self._shares:
            count = tiles.stop - tiles.start
            made = self.graph.variable(self.b.dtype, (batch * count, vectors, size), name="x")
            self.graph.map_rows(made, self._tiles(index, tiles))
            parts.append(made.reshape((batch, count * vectors, size)).transpose((0, 2, 1)))
        return concat(parts, 2)

    def solve_block(self, body: Sequence, index: int, b: Tensor) -> None:
        """Solve one diagonal block for every part of the right-hand sides, in one superstep."""
        begin = sum(self.extents[:index])
        size, batch = self.extents[index], b.shape[0]
        square = self.a[:, begin : begin + size, begin : begin + size].reshape((batch, size * size))
        cs = self.graph.compute_set("substitute")
        sign, last = (1, 0) if self.lower else (-1, size - 1)
        for tiles, columns, vectors in self._shares:
            count = tiles.stop - tiles.start
            every = square.expand_dims(1).broadcast_to((batch, count, size * size))
            cs.vertices(
                solve_codelet(b.dtype),
                tile=self._tiles(index, tiles),
                a=every.reshape((batch * count, size * size)),
                b=_vectors(b[:, :, columns], batch * count, vectors * size),
                x=_vectors(self.out[index][:, :, columns], batch * count, vectors * size),
                n=size,
                start=last * (size + 1),
                row=sign * size,
                column=sign,
                first=last,
                along=sign,
                unit=int(self.unit),
            )
        body.add(Execute(cs))


def _vectors(columns: Tensor, vertices: int, elements: int) -> Tensor:
    """Columns of [batch, m, r], ``elements`` per vertex, one after the other."""
    return columns.transpose((0, 2, 1)).reshape((vertices, elements))
