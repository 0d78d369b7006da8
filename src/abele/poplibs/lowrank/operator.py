"""A tile low-rank operator in a graph: its factors as variables that stay in the tiles' memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import OutOfMemoryError, PatternMismatchError, TensorError, TypeMismatchError
from abele.graph import Graph, Regions, Tensor
from abele.numerics import ElementType, as_element_type
from abele.poplibs.lowrank.compressed import TileLowRank
from abele.poplibs.lowrank.cut import within
from abele.poplibs.lowrank.layout import (
    LeftShares,
    RightShares,
    apart_from_sources,
    homes_of_x,
    place_blocks,
    share_left,
    share_right,
)
from abele.poplibs.poputil.options import Options, choice, read_options
from abele.words import counted

Values = npt.NDArray[np.floating[Any]]
_COLUMNS_AT_A_TIME = 1 << 15
OPERATOR_OPTIONS = {"ipuSplit": choice("auto", "columns", "rows")}
"""``ipuSplit``: block columns on each of several IPUs, so that partial results cross, or block rows, so that x does."""


@dataclass(frozen=True, eq=False)
class LowRankOperator:
    """Factors of a matrix, laid out over the tiles of a graph's machine.

    Attributes:
        graph: The graph.
        matrix: The matrix in NumPy; its numbers are in the variables when a program is loaded.
        dtype: Type of the factors, of x and of y; sums are f32.
        split: ``columns`` or ``rows``: what an IPU has of the matrix.
        right: ItemShares of V rows.
        left: ItemShares of U columns.
        v: Right factors, share after share, [rows, stride] each.
        u: Left factors and dense blocks, share after share, [rows, stride] each.
    """

    graph: Graph
    matrix: TileLowRank
    dtype: ElementType
    split: str
    right: RightShares
    left: LeftShares
    v: Tensor
    u: Tensor

    def __repr__(self) -> str:
        return (
            f"LowRankOperator({self.matrix!r} in {self.dtype}, {self.num_bytes:,} B on "
            f"{counted(self.graph.num_tiles, 'tile')}, {self.worst_tile_bytes:,} B on the fullest)"
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of both variables, with rows rounded up to 8 bytes."""
        return (self.v.size + self.u.size) * self.dtype.bytes

    @cached_property
    def worst_tile_bytes(self) -> int:
        """Bytes of both on the tile that has most."""
        return int(tile_bytes(self.graph, self.dtype, self.matrix, self.right, self.left).max(initial=0))

    def values(self, matrix: TileLowRank) -> tuple[Values, Values]:
        """Contents of :attr:`v` and :attr:`u` for a matrix with the same ranks, to be written while the engine stands.

        Raises:
            PatternMismatchError: Another shape, other tiles or other ranks.
        """
        mine = self.matrix
        if not isinstance(matrix, TileLowRank):
            raise TypeMismatchError(f"a matrix of low rank is what compress returns, got {matrix!r}")
        same = (mine.shape, mine.tile) == (matrix.shape, matrix.tile)
        if not same or (mine.ranks != matrix.ranks).any() or (mine.is_dense != matrix.is_dense).any():
            what = f"{int((mine.ranks != matrix.ranks).sum())} ranks differ" if same else f"got {matrix!r}"
            raise PatternMismatchError(
                f"an operator of {mine!r} takes matrices with its tiles and ranks",
                because=what,
                remedy="compress with rank=…, which gives every matrix the same ranks, or create another operator",
            )
        return right_values(matrix, self.right, self.dtype), left_values(matrix, self.left, self.dtype)


def create_low_rank_operator(
    graph: Graph,
    matrix: TileLowRank,
    dtype: ElementType | str = "float",
    *,
    batch: int = 1,
    options: Options = None,
    name: str = "low_rank",
) -> LowRankOperator:
    """The factors of a matrix as variables that are spread over all tiles, equal in work.

    Args:
        graph: The graph.
        matrix: A matrix from :func:`~abele.poplibs.lowrank.compress`.
        dtype: f32 or f16.
        batch: Right-hand sides that the layout is chosen for; products take any number.
        options: ``ipuSplit`` (``auto``, ``columns``, ``rows``): what each of several IPUs has.
        name: Name of the variables.

    Raises:
        TypeMismatchError: Another type, or a matrix that was not compressed.
        TensorError: A batch below 1.
        InvalidOptionError: An option or value that there is not.
        OutOfMemoryError: Factors that the tiles cannot hold.
    """
    element = as_element_type(dtype)
    if element.name not in ("f32", "f16"):
        raise TypeMismatchError(f"create_low_rank_operator: dtype is f32 or f16, got {element}")
    if not isinstance(matrix, TileLowRank):
        raise TypeMismatchError(
            f"create_low_rank_operator takes a TileLowRank, got {type(matrix).__name__}",
            remedy="lowrank.compress(matrix, tile_size, tolerance=…)",
        )
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise TensorError(f"create_low_rank_operator: batch is a whole number from 1 on, got {batch!r}")
    asked: str = read_options("create_low_rank_operator", options, OPERATOR_OPTIONS)["ipuSplit"]
    split = _split(matrix, element) if asked == "auto" else asked
    blocks = place_blocks(matrix, graph.system.num_ipus, split)
    per_ipu = graph.num_tiles // graph.system.num_ipus
    right = share_right(matrix, blocks, per_ipu, element, batch)
    left = share_left(matrix, blocks, per_ipu, element, batch)
    left = apart_from_sources(left, right, homes_of_x(matrix, right, graph.num_tiles), matrix.tile[1], per_ipu)
    _check_fits(graph, element, matrix, right, left)
    with graph.scope(name):
        right_side, left_side = right_values(matrix, right, element), left_values(matrix, left, element)
        v = graph.variable(element, right_side.shape, name="v", initial=right_side)
        u = graph.variable(element, left_side.shape, name="u", initial=left_side)
    graph.map_regions(stretches(v, *right_stretches(matrix, right, element)), right.shares.tile)
    graph.map_regions(stretches(u, *left_stretches(left, element)), left.shares.tile)
    return LowRankOperator(graph, matrix, element, split, right=right, left=left, v=v, u=u)


def create_low_rank_input(
    graph: Graph, operator: LowRankOperator, batch: int | None = None, *, name: str = "x"
) -> Tensor:
    """A variable [N], or [batch, N], whose pieces lie where a block column has its first rows.

    Raises:
        TensorError: A batch below 1.
    """
    if batch is not None and batch < 1:
        raise TensorError(f"create_low_rank_input: batch is a whole number from 1 on, got {batch}")
    matrix = operator.matrix
    tile = homes_of_x(matrix, operator.right, graph.num_tiles)
    count = batch or 1
    x = graph.variable(operator.dtype, (count, matrix.shape[1]), name=name)
    starts = np.arange(matrix.grid[1]) * matrix.tile[1]
    row = np.tile(np.arange(matrix.grid[1]), count)
    begin = (x.addresses()[:, 0][:, None] + starts).reshape(-1)
    graph.map_regions(stretches(x, begin - x.addresses()[0, 0], np.tile(matrix.widths, count)), tile[row])
    return x.reshape((matrix.shape[1],)) if batch is None else x


def stride_of(size: Int64, dtype: ElementType) -> Int64:
    """Elements from one row of a factor to the next: rows begin at multiples of 8 bytes."""
    unit = 8 // dtype.bytes
    return np.asarray(-(-size // unit) * unit, np.int64)


def right_stretches(matrix: TileLowRank, right: RightShares, dtype: ElementType) -> tuple[Int64, Int64]:
    """Begin and length of each share within ``v``."""
    length = right.shares.size * stride_of(matrix.widths[right.column[right.shares.item]], dtype)
    return np.cumsum(length) - length, length


def left_stretches(left: LeftShares, dtype: ElementType) -> tuple[Int64, Int64]:
    """Begin and length of each share within ``u``."""
    length = left.height[left.shares.item] * stride_of(left.shares.size, dtype)
    return np.cumsum(length) - length, length


def right_values(matrix: TileLowRank, right: RightShares, dtype: ElementType) -> Values:
    """Contents of ``v``: rows in the order of the shares."""
    begin, length = right_stretches(matrix, right, dtype)
    flat = np.zeros(int(length.sum()), dtype.np)
    width = np.repeat(matrix.widths[right.column[right.shares.item]], right.shares.size)
    at = np.repeat(begin, right.shares.size) + within(right.shares.size) * stride_of(width, dtype)
    inside = np.arange(matrix.tile[1]) < width[:, None]
    flat[(at[:, None] + np.arange(matrix.tile[1]))[inside]] = _narrowed(matrix.v[right.source], dtype)[inside]
    return flat


def left_values(matrix: TileLowRank, left: LeftShares, dtype: ElementType) -> Values:
    """Contents of ``u``: the columns of each share side by side."""
    begin, length = left_stretches(left, dtype)
    flat = np.zeros(int(length.sum()), dtype.np)
    # Some shares at a time: indices take more memory than the numbers.
    group = np.cumsum(left.shares.size) // _COLUMNS_AT_A_TIME
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), left.shares.num]
    for first, end in itertools.pairwise(edges):
        _fill_left(flat, begin, matrix, left, np.arange(first, end))
    return flat


def _fill_left(flat: Values, begin: Int64, matrix: TileLowRank, left: LeftShares, chosen: Int64) -> None:
    """Write some shares of ``u``, of which each begins at ``begin`` of ``flat``."""
    dtype = as_element_type(flat.dtype)
    size, item = left.shares.size[chosen], left.shares.item[chosen]
    column = np.repeat(left.starts[item] + left.shares.first[chosen], size) + within(size)
    low = left.right[column] >= 0
    numbers = np.empty((len(column), matrix.tile[0]))
    numbers[low] = matrix.u[left.source[column[low]]]
    full = column[~low]
    numbers[~low] = matrix.dense[left.source[full], :, left.along[full] % matrix.tile[1]]
    row = np.arange(matrix.tile[0]) - np.repeat(left.begin[item], size)[:, None]
    inside = (row >= 0) & (row < np.repeat(left.height[item], size)[:, None])
    at = (np.repeat(begin[chosen], size) + within(size))[:, None] + row * np.repeat(stride_of(size, dtype), size)[
        :, None
    ]
    flat[at[inside]] = _narrowed(numbers, dtype)[inside]


def _narrowed(numbers: npt.NDArray[np.float64], dtype: ElementType) -> Values:
    """Numbers in an element type.

    Raises:
        TensorError: One is too large for it.
    """
    largest, limit = float(np.abs(numbers).max(initial=0.0)), float(np.finfo(dtype.np).max)
    if largest > limit:
        raise TensorError(
            f"factors up to {largest:.3g} do not fit {dtype}, whose largest number is {limit:.3g}",
            remedy="scale the matrix and the result, or dtype='float'",
        )
    return numbers.astype(dtype.np)


def stretches(tensor: Tensor, begin: Int64, length: Int64) -> Regions:
    """One region for each stretch of a whole variable; ``begin`` counts its elements."""
    base = int(tensor.intervals()[0][0]) if tensor.size else 0
    return Regions.from_intervals(tensor, np.arange(len(begin)), base + begin, length, len(begin))


def tile_bytes(graph: Graph, dtype: ElementType, matrix: TileLowRank, right: RightShares, left: LeftShares) -> Int64:
    """Bytes of factors on each tile, int64[tiles]."""
    of_right, of_left = right_stretches(matrix, right, dtype)[1], left_stretches(left, dtype)[1]
    tiles = np.concatenate([right.shares.tile, left.shares.tile])
    held = np.bincount(tiles, np.concatenate([of_right, of_left]), minlength=graph.num_tiles)
    return np.asarray(held * dtype.bytes, np.int64)


def _split(matrix: TileLowRank, dtype: ElementType) -> str:
    """The split that moves less between IPUs: partial results in f32 (``columns``), or x (``rows``)."""
    return "columns" if 4 * matrix.shape[0] <= dtype.bytes * matrix.shape[1] else "rows"


def _check_fits(graph: Graph, dtype: ElementType, matrix: TileLowRank, right: RightShares, left: LeftShares) -> None:
    held = tile_bytes(graph, dtype, matrix, right, left)
    tile, available = int(held.argmax()), graph.system.ipu.tile.usable_bytes
    if held[tile] <= available:
        return
    total, each = int(held.sum()), graph.num_tiles // graph.system.num_ipus * available
    ways = [f"{counted(-(-total // each) + 1, 'IPU')} or more", "a larger tolerance or a smaller rank"]
    if dtype.bytes > 2:
        ways.insert(0, "dtype='half', which halves it")
    raise OutOfMemoryError(
        f"tile {tile} needs {held[tile]:,} B for its share of the factors, has {available:,} B",
        tiles=({"tile": tile, "needed_bytes": int(held[tile]), "available_bytes": available},),
        because=f"the factors take {total:,} B in {dtype}, {graph.system.name} has {graph.num_tiles * available:,} B",
        remedy=" · ".join(ways),
    )
