"""The pattern of a sparse matrix: which of its blocks are held.

Values are no part of a pattern. They are an array ``[blocks, block rows, block columns]`` beside it, in the pattern's
order: block rows from the top, and in each its blocks from the left. Explicit zeros count as held.

Example: a matrix of 4 × 6 elements in blocks of 2 × 3 is a grid of 2 × 2 blocks. With its first and last block held,
``row_starts`` is [0, 1, 2] and ``columns`` is [0, 1]; both count blocks.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Bool, Int64
from abele.errors import SparsePatternError, TensorError, TypeMismatchError
from abele.words import counted

MAX_LINES = 2**28
"""Block rows or block columns of a pattern, at most: their starts take 2 GiB of the host."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Blocks of a matrix that are held, by compressed rows, sorted and each once.

    Equal patterns are equal and have the same hash.

    Attributes:
        shape: Rows and columns of the matrix, in elements.
        block: Rows and columns of a block, in elements.
        row_starts: Place of each block row's first block [block rows + 1].
        columns: Block column of each block [blocks], ascending within a row.

    Raises:
        SparsePatternError: The shape is no multiple of the block, or an index is outside, unsorted or doubled.
    """

    shape: tuple[int, int]
    block: tuple[int, int]
    row_starts: Int64
    columns: Int64

    def __post_init__(self) -> None:
        shape, block = _check_grid(self.shape, self.block)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "block", block)
        for field in ("row_starts", "columns"):
            numbers = np.array(_whole_indices(field, getattr(self, field)))
            numbers.setflags(write=False)
            object.__setattr__(self, field, numbers)
        rows, columns = self.grid
        starts = self.row_starts
        if (
            starts.shape != (rows + 1,)
            or starts[0] != 0
            or starts[-1] != len(self.columns)
            or (np.diff(starts) < 0).any()
        ):
            raise SparsePatternError(
                f"row starts of {rows:,} block rows are {rows + 1:,} ascending numbers from 0 to {len(self.columns):,}",
                because=f"got {starts.shape[0]:,} numbers, {_ends(starts)}",
            )
        _check_range("column", self.columns, columns)
        # Within a row, each column is behind the one before it.
        behind = np.diff(self.columns) > 0
        first_of_row = np.zeros(max(len(self.columns) - 1, 0), bool)
        inner = starts[1:-1]
        inner = inner[(inner > 0) & (inner < len(self.columns))]
        first_of_row[inner - 1] = True
        wrong = np.flatnonzero(~(behind | first_of_row))
        if wrong.size:
            at = int(wrong[0]) + 1
            row = int(np.searchsorted(starts, at, side="right")) - 1
            raise SparsePatternError(
                f"block {at:,} of block row {row:,} has column {self.columns[at]:,} after {self.columns[at - 1]:,}",
                because="columns of a row ascend, and each is there once",
                remedy="Pattern.from_coordinates sorts, and says which block is doubled",
            )

    @classmethod
    def from_coordinates(
        cls,
        shape: tuple[int, int],
        rows: npt.ArrayLike,
        columns: npt.ArrayLike,
        block: tuple[int, int] = (1, 1),
    ) -> tuple[Pattern, Int64]:
        """The pattern of blocks at (rows, columns), counted in blocks, and the order that sorts them.

        Returns:
            The pattern and ``order`` [blocks]: block ``i`` of the pattern is ``order[i]`` of what was given.

        Raises:
            SparsePatternError: A block is outside the grid or there twice.
        """
        shape, block = _check_grid(shape, block)
        y, x = (_whole_indices(*v).reshape(-1) for v in (("rows", rows), ("columns", columns)))
        if y.shape != x.shape:
            raise SparsePatternError(f"{y.size:,} rows and {x.size:,} columns do not name blocks together")
        grid = shape[0] // block[0], shape[1] // block[1]
        _check_range("row", y, grid[0])
        _check_range("column", x, grid[1])
        places = y * grid[1] + x
        order = np.argsort(places, kind="stable")
        places = places[order]
        doubled = np.flatnonzero(places[1:] == places[:-1])
        if doubled.size:
            row, column = divmod(int(places[doubled[0]]), grid[1])
            raise SparsePatternError(
                f"the block at row {row:,}, column {column:,} of the grid is there twice",
                because=f"{doubled.size:,} of {places.size:,} blocks double one before them",
                remedy="add up the values of equal places beforehand",
            )
        starts = np.zeros(grid[0] + 1, np.int64)
        np.cumsum(np.bincount(y, minlength=grid[0]), out=starts[1:])
        return cls(shape, block, starts, x[order]), order

    @classmethod
    def from_dense_mask(cls, mask: npt.ArrayLike, block: tuple[int, int] = (1, 1)) -> Pattern:
        """The pattern of the true places of ``mask`` [block rows, block columns]."""
        held = even_array(mask, "a mask of blocks") != 0
        if held.ndim != 2:
            raise TensorError(f"a mask of blocks has two dimensions, got {held.ndim}")
        block = whole_pair("a block", block)
        rows, columns = np.nonzero(held)
        shape = held.shape[0] * block[0], held.shape[1] * block[1]
        return cls.from_coordinates(shape, rows, columns, block)[0]

    @classmethod
    def from_dense(cls, matrix: npt.ArrayLike, block: tuple[int, int] = (1, 1)) -> tuple[Pattern, Array]:
        """The pattern of the blocks of ``matrix`` that are not all zero, and their values [blocks, *block]."""
        dense = np.asarray(matrix)
        if dense.ndim != 2:
            raise TensorError(f"a matrix has two dimensions, got {dense.ndim}")
        block = _check_grid(dense.shape, block)[1]
        blocks = _blocks(dense, block)
        pattern = cls.from_dense_mask((blocks != 0).any((2, 3)), block)
        return pattern, blocks[pattern.rows, pattern.columns]

    @property
    def grid(self) -> tuple[int, int]:
        """Block rows and block columns."""
        return self.shape[0] // self.block[0], self.shape[1] // self.block[1]

    @property
    def num_blocks(self) -> int:
        """Blocks that are held."""
        return len(self.columns)

    @property
    def num_values(self) -> int:
        """Elements that are held."""
        return self.num_blocks * self.block[0] * self.block[1]

    @property
    def density(self) -> float:
        """Share of the elements that is held; zero of an empty matrix."""
        size = self.shape[0] * self.shape[1]
        return self.num_values / size if size else 0.0

    @cached_property
    def rows(self) -> Int64:
        """Block row of each block [blocks]."""
        return np.repeat(np.arange(self.grid[0]), np.diff(self.row_starts))

    @cached_property
    def mask(self) -> Bool:
        """Held blocks, as true elements of [block rows, block columns]."""
        mask = np.zeros(self.grid, bool)
        mask[self.rows, self.columns] = True
        return mask

    def to_dense(self, values: npt.ArrayLike) -> Array:
        """The matrix of ``values`` [blocks, *block], zeros elsewhere."""
        held = np.asarray(values)
        if held.size != self.num_values:
            raise SparsePatternError(
                f"{held.size:,} values do not fill {self}", because=f"it holds {self.num_values:,} values"
            )
        held = held.reshape((self.num_blocks, *self.block))
        blocks = np.zeros((*self.grid, *self.block), held.dtype)
        blocks[self.rows, self.columns] = held
        return blocks.transpose((0, 2, 1, 3)).reshape(self.shape)

    def values_of(self, matrix: npt.ArrayLike) -> Array:
        """Elements of a dense ``matrix`` at the pattern's places, [blocks, *block]."""
        dense = np.asarray(matrix)
        if dense.shape != self.shape:
            raise TensorError(f"a matrix {list(dense.shape)} has no values for a pattern of {list(self.shape)}")
        return _blocks(dense, self.block)[self.rows, self.columns]

    def transposed(self) -> tuple[Pattern, Int64]:
        """The transpose's pattern and ``order``: its block ``i`` is the transpose of block ``order[i]``."""
        return Pattern.from_coordinates(self.shape[::-1], self.columns, self.rows, self.block[::-1])

    def recut(self, block: tuple[int, int]) -> tuple[Pattern, Int64]:
        """The same elements in smaller blocks, and the place of each of its values in the old ones' flat values.

        Returns:
            The pattern and ``order`` [blocks, *block], so that ``new = old.reshape(-1)[order]``.

        Raises:
            SparsePatternError: The new block does not divide the old one.
        """
        (height, width), (rows, columns) = self.block, whole_pair("a block", block)
        if min(rows, columns) < 1 or height % rows or width % columns:
            raise SparsePatternError(f"blocks of {height} x {width} do not divide into blocks of {rows} x {columns}")
        down, across = height // rows, width // columns
        y = np.repeat(self.rows * down, down * across) + np.tile(np.repeat(np.arange(down), across), self.num_blocks)
        x = np.repeat(self.columns * across, down * across) + np.tile(np.arange(across), self.num_blocks * down)
        places = np.arange(self.num_values).reshape((self.num_blocks, down, rows, across, columns))
        places = places.transpose((0, 1, 3, 2, 4)).reshape((-1, rows, columns))
        finer, order = Pattern.from_coordinates(self.shape, y, x, block)
        return finer, places[order]

    @cached_property
    def digest(self) -> str:
        """A digest of shape, block and places."""
        state = hashlib.blake2b(repr((self.shape, self.block)).encode(), digest_size=16)
        state.update(self.row_starts.tobytes())
        state.update(self.columns.tobytes())
        return state.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pattern):
            return NotImplemented
        return self is other or self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        (rows, columns), (height, width) = self.shape, self.block
        blocks = "" if self.block == (1, 1) else f" in blocks of {height} x {width}"
        return f"Pattern({rows:,} x {columns:,}{blocks}, {self.num_blocks:,} held, density {self.density:.3g})"

    def difference_text(self, other: Pattern) -> str:
        """Difference to another pattern: ``3 of its 48 blocks are others, the first at row 0, column 5``, say."""
        if (self.shape, self.block) != (other.shape, other.block):
            return f"it is {other}"
        mine, its = (p.rows * p.grid[1] + p.columns for p in (self, other))
        new = np.setdiff1d(its, mine)
        if not new.size:
            return f"it lacks {counted(len(mine) - len(its), 'block')} of {len(mine):,}"
        row, column = divmod(int(new[0]), self.grid[1])
        there = f"the first at row {row:,}, column {column:,} of the grid"
        return f"{len(new):,} of its {counted(len(its), 'block')} are others, {there}"


def union_of(patterns: Sequence[Pattern]) -> Pattern:
    """The blocks that any of ``patterns``, of one shape and block, holds."""
    if not patterns:
        raise SparsePatternError("a union is of at least one pattern")
    first = patterns[0]
    for other in patterns[1:]:
        if (other.shape, other.block) != (first.shape, first.block):
            raise SparsePatternError(f"{other} and {first} have no union: their shapes or blocks differ")
    columns = first.grid[1]
    places = np.unique(np.concatenate([p.rows * columns + p.columns for p in patterns]))
    return Pattern.from_coordinates(first.shape, places // columns, places % columns, first.block)[0]


def _blocks(dense: Array, block: tuple[int, int]) -> Array:
    """A matrix as [block rows, block columns, *block]."""
    rows, columns = dense.shape
    cut = dense.reshape((rows // block[0], block[0], columns // block[1], block[1]))
    return cut.transpose((0, 2, 1, 3))


def grid_of(shape: Sequence[int], block: Sequence[int]) -> tuple[int, int]:
    """Block rows and block columns of a matrix.

    Raises:
        SparsePatternError: The shape is no multiple of the block.
    """
    shape, block = _check_grid(shape, block)
    return shape[0] // block[0], shape[1] // block[1]


def whole_sizes(what: str, sizes: Iterable[Any]) -> tuple[int, ...]:
    """``sizes`` as Python's whole numbers.

    Raises:
        SparsePatternError: One is no whole number; true and false are none.
    """
    try:
        given = tuple(sizes)
        if any(isinstance(n, (bool, np.bool_)) for n in given):
            raise TypeError
        return tuple(operator.index(n) for n in given)
    except TypeError:
        raise SparsePatternError(f"{what} is of whole numbers, got {sizes!r}") from None


def whole_pair(what: str, sizes: Iterable[Any]) -> tuple[int, int]:
    """Rows and columns as Python's whole numbers.

    Raises:
        SparsePatternError: They are not two, or no whole numbers.
    """
    found = whole_sizes(what, sizes)
    if len(found) != 2:
        raise SparsePatternError(f"{what} has rows and columns, got {sizes!r}")
    return found[0], found[1]


def _check_grid(shape: Iterable[Any], block: Iterable[Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shape and block as Python's whole numbers."""
    shape, block = whole_pair("the shape of a sparse matrix", shape), whole_pair("its block", block)
    if min(block) < 1 or min(shape) < 0:
        raise SparsePatternError(
            f"a sparse matrix has two dimensions and blocks of at least 1 x 1, got {list(shape)} and {list(block)}"
        )
    for what, size, part in zip(("rows", "columns"), shape, block, strict=True):
        if size % part:
            raise SparsePatternError(
                f"{size:,} {what} are no multiple of a block's {part:,}",
                remedy=f"{size - size % part:,} or {size + part - size % part:,} {what}, or a block that divides them",
            )
        if size // part > MAX_LINES:
            raise SparsePatternError(
                f"{size // part:,} {what} of blocks; a pattern has at most {MAX_LINES:,}",
                remedy="larger blocks, or the matrix in parts",
            )
    return shape, block


def even_array(given: npt.ArrayLike, what: str) -> Array:
    """Array of what is given.

    Raises:
        TensorError: Its rows have several lengths.
    """
    try:
        return np.asarray(given)
    except ValueError:
        raise TensorError(f"{what} is an array, got rows of several lengths") from None


def _whole_indices(what: str, given: npt.ArrayLike) -> Int64:
    """Indices as whole numbers.

    Raises:
        TypeMismatchError: They are floating point, or no numbers.
    """
    found = np.asarray(given)
    if found.size and found.dtype.kind not in "iu":
        raise TypeMismatchError(f"{what} of blocks are whole numbers, got {found.dtype}")
    return found.astype(np.int64, copy=False)


def _check_range(what: str, numbers: Int64, count: int) -> None:
    outside = np.flatnonzero((numbers < 0) | (numbers >= count))
    if outside.size:
        at = int(outside[0])
        raise SparsePatternError(
            f"block {at:,} lies at block {what} {numbers[at]:,}; there are {count:,}",
            because=f"{outside.size:,} of {numbers.size:,} indices are outside",
        )


def _ends(starts: Any) -> str:
    return "none" if not len(starts) else f"from {starts[0]:,} to {starts[-1]:,}"
