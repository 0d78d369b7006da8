"""A matrix in tiles, each as a product of two thin factors or dense: the tile low-rank form, in NumPy.

Tile (i, j) of A is U_ij · V_ijᵀ with rank k_ij, or dense where k · (rows + columns) is no less than rows · columns. All
V rows lie in one stack, tile column after tile column, and all U columns beside them: row r of ``v`` and row r of ``u``
belong together. Singular values are shared out equally, their root on either side, so that factors have the scale of
the matrix's root and fit 16 bits where the matrix does.

Example: 256 × 384 in tiles of 128 is a grid of 2 × 3. With rank 10 everywhere ``u`` and ``v`` are [60, 128]: 15,360
numbers instead of 98,304.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.numerics import ElementType, as_element_type

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TileLowRank:
    """A matrix of shape (M, N) in I × J tiles of low rank; edge tiles are smaller where sizes do not divide.

    Attributes:
        shape: Rows and columns of the matrix, (M, N).
        tile: Rows and columns of a tile, (m, n).
        ranks: Rank of each tile, int64[I, J]; 0 for dense tiles and for tiles that are dropped.
        is_dense: True for tiles that are held dense, bool[I, J].
        u: Left factors, float64[R, m], R the sum of all ranks; row r is a column of U of its tile.
        v: Right factors, float64[R, n]. Both go by tile columns, in each by tile rows, in each by singular values.
        dense: Dense tiles in the same order, float64[D, m, n]. What lies beyond the matrix's edge is 0.
        norm: Frobenius norm of the matrix that was compressed.
        error: Frobenius norm of the difference from it, as measured.
    """

    shape: tuple[int, int]
    tile: tuple[int, int]
    ranks: Int64
    is_dense: npt.NDArray[np.bool_]
    u: Float64
    v: Float64
    dense: Float64
    norm: float
    error: float

    def __repr__(self) -> str:
        m, n = self.shape
        return (
            f"TileLowRank({m:,} × {n:,} in tiles of {self.tile[0]} × {self.tile[1]}, mean rank {self.mean_rank:.1f}, "
            f"{int(self.is_dense.sum())} of {self.ranks.size} dense, relative error {self.relative_error:.1e}, "
            f"{self.compression:.2f} of dense)"
        )

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down and across, (I, J)."""
        return self.ranks.shape[0], self.ranks.shape[1]

    @property
    def heights(self) -> Int64:
        """Rows of each tile row, int64[I]."""
        return extents(self.shape[0], self.tile[0])

    @property
    def widths(self) -> Int64:
        """Columns of each tile column, int64[J]."""
        return extents(self.shape[1], self.tile[1])

    @property
    def relative_error(self) -> float:
        """Frobenius norm of the difference over that of the matrix; 0 for a zero matrix."""
        return self.error / self.norm if self.norm else 0.0

    @property
    def mean_rank(self) -> float:
        """Mean rank of the tiles that are not dense."""
        low = ~self.is_dense
        return float(self.ranks[low].mean()) if low.any() else 0.0

    @cached_property
    def starts(self) -> Int64:
        """First row of each tile in ``u`` and ``v``, int64[I, J]."""
        by_column = self.ranks.T.reshape(-1)
        return (np.cumsum(by_column) - by_column).reshape(self.ranks.T.shape).T

    @property
    def num_values(self) -> int:
        """Numbers in all factors and dense tiles, without padding."""
        low = self.ranks * (self.heights[:, None] + self.widths)
        full = self.is_dense * (self.heights[:, None] * self.widths)
        return int(low.sum() + full.sum())

    @property
    def compression(self) -> float:
        """Numbers held, over those of the dense matrix."""
        return self.num_values / max(1, self.shape[0] * self.shape[1])

    def num_bytes(self, dtype: ElementType | str = "float") -> int:
        """Bytes of all factors and dense tiles in an element type."""
        return self.num_values * as_element_type(dtype).bytes

    def dense_bytes(self, dtype: ElementType | str = "float") -> int:
        """Bytes of the dense matrix in an element type."""
        return self.shape[0] * self.shape[1] * as_element_type(dtype).bytes

    @property
    def multiply_adds(self) -> int:
        """Products in one product with a vector: one for each number held."""
        return self.num_values

    def to_dense(self) -> Float64:
        """The matrix that the factors stand for, float64[M, N]."""
        (rows, columns), (m, n) = self.grid, self.tile
        whole = np.zeros((rows, m, columns, n))
        for j in range(columns):
            whole[:, :, j] = self.tile_column(j)
        return np.ascontiguousarray(whole.reshape(rows * m, columns * n)[: self.shape[0], : self.shape[1]])

    def tile_column(self, j: int) -> Float64:
        """The tiles of column ``j``, float64[I, m, n], zeros beyond the edge."""
        ranks = self.ranks[:, j]
        first, total = int(self.starts[0, j]), int(ranks.sum())
        # Batched products take one rank: factors are padded with zeros to the largest of the column.
        row = np.repeat(np.arange(len(ranks)), ranks)
        place = np.arange(total) - np.repeat(np.cumsum(ranks) - ranks, ranks)
        shape = (len(ranks), int(ranks.max(initial=0)))
        left, right = np.zeros((*shape, self.tile[0])), np.zeros((*shape, self.tile[1]))
        left[row, place], right[row, place] = self.u[first : first + total], self.v[first : first + total]
        tiles: Float64 = left.transpose(0, 2, 1) @ right
        before = int(self.is_dense[:, :j].sum())
        tiles[self.is_dense[:, j]] = self.dense[before : before + int(self.is_dense[:, j].sum())]
        return tiles

    def multiply(self, x: npt.ArrayLike) -> Float64:
        """A · x for vectors x[..., N], by the factors; float64[..., M].

        Raises:
            TensorError: The last dimension is not N.
            TypeMismatchError: The elements are not real numbers.
        """
        vectors = self._vectors(x)
        padded = np.zeros((len(vectors), self.grid[1] * self.tile[1]))
        padded[:, : self.shape[1]] = vectors
        pieces = padded.reshape(len(vectors), *self.grid[1:], self.tile[1])
        column = np.repeat(np.arange(self.grid[1]), self.ranks.sum(0))
        cuts = np.searchsorted(column, np.arange(self.grid[1] + 1))
        z = np.empty((len(vectors), len(self.v)))
        for j in range(self.grid[1]):
            rows = slice(cuts[j], cuts[j + 1])
            z[:, rows] = pieces[:, j] @ self.v[rows].T
        y = np.zeros((len(vectors), *self.grid[:1], self.tile[0]))
        row = np.repeat(np.tile(np.arange(self.grid[0]), self.grid[1]), self.ranks.T.reshape(-1))
        for i in range(self.grid[0]):
            mine = np.flatnonzero(row == i)
            y[:, i] = z[:, mine] @ self.u[mine]
        across, down = np.nonzero(self.is_dense.T)
        np.add.at(y.transpose(1, 0, 2), down, np.einsum("dmn,bdn->dbm", self.dense, pieces[:, across]))
        result = y.reshape(len(vectors), -1)[:, : self.shape[0]]
        return np.ascontiguousarray(result.reshape(*np.shape(x)[:-1], self.shape[0]))

    def _vectors(self, x: npt.ArrayLike) -> Float64:
        given: npt.NDArray[Any] = np.asarray(x)
        if given.ndim == 0 or given.shape[-1] != self.shape[1]:
            raise TensorError(
                f"multiply takes vectors [..., {self.shape[1]}], got shape {list(given.shape)}",
                because=f"the matrix has {self.shape[0]} rows and {self.shape[1]} columns",
            )
        if given.dtype.kind not in "fiub":
            raise TypeMismatchError(f"multiply takes real numbers, got {given.dtype}")
        return given.reshape(-1, self.shape[1]).astype(np.float64)


def extents(size: int, each: int) -> Int64:
    """Sizes of the pieces of ``size`` cut at multiples of ``each``; the last one may be smaller."""
    starts = np.arange(0, size, each, dtype=np.int64)
    return np.minimum(each, size - starts)
