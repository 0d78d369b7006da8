"""Algebra of views: strided blocks of variables, and the effect of view operations on one block.

A view is an ordered set of blocks. A block fills some indices of the view's index space; along every dimension these
are a list of *factors* ``(extent, step, stride)``, outermost first: ``extent`` indices that are ``step`` apart in the
view and ``stride`` apart in the variable. A dimension may so run over several dimensions of the variable (the channels
of a ``[C1, B, H, W, C0]`` variable, say), and a block may lie between others (the first five of every eight indices,
say, after two matrices were joined side by side and flattened). Every view operation works on blocks alone and moves
no data; some split blocks, and the few that would need too many raise :class:`NotStridedError`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from abele.arrays import Int64
from abele.graph.variable import Variable
from abele.layout import ModeImage, Modes, coalesce, image, offsets, row_major

Factor = tuple[int, int, int]
Factors = tuple[Factor, ...]
T = TypeVar("T")

MOST_RESIDUES = 4096
"""Most blocks into which taking every n-th index may split one."""


class NotStridedError(Exception):
    """The result is no small set of strided blocks."""


class StridedBlock(NamedTuple):
    """Elements of one variable that appear in a view at regular distances.

    Attributes:
        variable: The storage.
        offset: Element of the variable at the block's first index.
        origin: The block's first index in the view, one number per dimension.
        factors: Per dimension, extents, steps in the view and strides in the variable, outermost first; a dimension
            with one index has none.
    """

    variable: Variable
    offset: int
    origin: tuple[int, ...]
    factors: tuple[Factors, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Number of indices along each dimension."""
        return tuple(count_of(f) for f in self.factors)

    @property
    def size(self) -> int:
        """Elements in the block."""
        return math.prod(self.extents)

    @property
    def is_box(self) -> bool:
        """True if the block fills a box of the view, with no other block between its indices."""
        return all(count_of(f) == span_of(f) for f in self.factors)


def count_of(factors: Factors) -> int:
    """Indices that factors select."""
    return math.prod(f[0] for f in factors)


def span_of(factors: Factors) -> int:
    """Indices from the first to the last that factors select, both included."""
    return 1 + sum((n - 1) * step for n, step, _ in factors)


def whole(variable: Variable) -> StridedBlock:
    """The block that is all of a variable."""
    shape = variable.shape
    factors = tuple(((n, 1, s),) if n != 1 else () for n, s in zip(shape, row_major(shape), strict=True))
    return StridedBlock(variable, 0, (0,) * len(shape), factors)


def strides_of(factors: Factors) -> Modes:
    """Extents and strides alone, for a dimension that a block fills; ``((1, 0),)`` for one index."""
    return tuple((n, s) for n, _, s in factors) or ((1, 0),)


def cut(factors: Factors, begin: int, end: int) -> Iterator[tuple[int, Factors, int]]:
    """Pieces of the indices in ``[begin, end)``: first index, factors and offset of each, in order."""
    low, high = max(begin, 0), min(end, span_of(factors))
    if low >= high:
        return
    if not factors:
        yield 0, (), 0
        return
    (_, step, stride), rest = factors[0], factors[1:]
    inner = span_of(rest)
    first, last = low // step, (high - 1) // step
    # Begin and end lie in one index of the outer factor: only the inner factors are cut.
    if first == last:
        for index, piece, offset in cut(rest, low - first * step, high - first * step):
            yield index + first * step, piece, offset + first * stride
        return
    # A first index of which a part is kept, then whole ones, then a last part: at most three pieces per factor.
    if low > first * step:
        for index, piece, offset in cut(rest, low - first * step, inner):
            yield index + first * step, piece, offset + first * stride
        first += 1
    is_cut = high < last * step + inner
    count = last - first + (not is_cut)
    if count:
        yield first * step, rest if count == 1 else ((count, step, stride), *rest), first * stride
    if is_cut:
        for index, piece, offset in cut(rest, 0, high - last * step):
            yield index + last * step, piece, offset + last * stride


def sampled(factors: Factors, origin: int, every: int) -> Iterator[tuple[int, Factors, int]]:
    """Pieces of the indices, counted from ``origin``, that ``every`` divides: index, factors and offset of each.

    Raises:
        NotStridedError: They lie in too many pieces.
    """
    if not factors:
        if origin % every == 0:
            yield origin, (), 0
        return
    (extent, step, stride), rest = factors[0], factors[1:]
    # Indices of the factor at which (origin + i · step) has one residue repeat every `period`.
    common = math.gcd(step, every)
    period = every // common
    if rest:
        if min(period, extent) > MOST_RESIDUES:
            raise NotStridedError
        # Inner factors may reach the multiple from any residue, so each is tried.
        starts: Sequence[int] = range(min(period, extent))
    else:
        # Innermost: the one i with origin + i · step ≡ 0 (mod every), by the inverse of step / common.
        solution = -(origin // common) * pow(step // common, -1, period) % period
        starts = [solution] if origin % common == 0 and solution < extent else []
    for start in starts:
        count = -(-(extent - start) // period)
        for index, piece, offset in sampled(rest, origin + start * step, every):
            outer = ((count, step * period, stride * period),) if count > 1 else ()
            yield index, (*outer, *piece), offset + start * stride


def addresses(blocks: Sequence[StridedBlock], shape: Sequence[int]) -> Int64:
    """Global address of every element of the view, int64[shape]."""
    result = np.empty(tuple(shape), dtype=np.int64)
    for block in blocks:
        grid = np.array(block.variable.base + block.offset, dtype=np.int64)
        indices: list[slice | Int64] = []
        is_box = block.is_box
        for d, factors in enumerate(block.factors):
            spread = (-1,) + (1,) * (len(shape) - d - 1)
            grid = grid + offsets((n, s) for n, _, s in factors).reshape(spread)
            at = block.origin[d]
            if is_box:
                indices.append(slice(at, at + count_of(factors)))
            else:
                indices.append(at + offsets((n, step) for n, step, _ in factors).reshape(spread))
        result[tuple(indices)] = grid
    return result


def flat_factors(block: StridedBlock, shape: Sequence[int]) -> tuple[int, list[Factor]]:
    """First position of a block in the flattened view, and its factors there, neighbours merged."""
    strides = row_major(shape)
    start = sum(o * s for o, s in zip(block.origin, strides, strict=True))
    fine = [(n, v * strides[d], s) for d, factors in enumerate(block.factors) for n, v, s in factors]
    return start, list(coalesce(fine))


def runs(block: StridedBlock, shape: Sequence[int]) -> tuple[Int64, Int64, Int64]:
    """Global begin, length and view position of each contiguous run of one block, int64[k] each."""
    start, fine = flat_factors(block, shape)
    length = fine.pop()[0] if fine and fine[-1][1:] == (1, 1) else 1
    begin = block.variable.base + block.offset + offsets((n, s) for n, _, s in fine)
    position = start + offsets((n, step) for n, step, _ in fine)
    if block.size == 0:
        begin, position = begin[:0], position[:0]
    return begin, np.full(len(begin), length, dtype=np.int64), position


def in_memory_order(block: StridedBlock) -> ModeImage:
    """A block's elements as a set of global addresses."""
    low, modes, times = image((n, s) for factors in block.factors for n, _, s in factors)
    return ModeImage(block.variable.base + block.offset + low, modes, times)


def put(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    """The tuple with one item replaced."""
    return (*items[:at], item, *items[at + 1 :])
