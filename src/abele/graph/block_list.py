"""A few blocks, as a tuple: the content of almost every view."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from abele.arrays import Int64
from abele.graph import block as algebra
from abele.graph.block import Factor, Factors, NotStridedError, StridedBlock
from abele.graph.content import Content
from abele.graph.intervals import order_of
from abele.graph.variable import Variable
from abele.layout import are_apart, coalesce, matching_groups, offsets, row_major

# Reshaping blocks: the same flat positions, indexed by other dimensions.
#
# A reshape changes no flat position. A block's factors that run inside one index of the new outer dimension, or by
# whole indices of it, go over as they are; one that runs across such an index is split there: into a head up to the
# border, a body of whole periods, and a tail.

Placed = tuple[tuple[int, ...], tuple[Factors, ...], int]
"""Origin, factors per dimension, and offset in the variable."""

_Key = tuple[tuple[int, ...], tuple[Factors, ...], tuple[int, ...], tuple[int, ...], int]
_KNOWN: dict[_Key, list[Placed]] = {}
"""Pieces by origin, factors, old and new shape and the most that are wanted; of few pieces alone."""
_FEW_PIECES = 8
_MOST_KNOWN = 8192


def reshaped(block: StridedBlock, old: Sequence[int], new: Sequence[int], most: int) -> list[StridedBlock]:
    """The blocks that show a block of a view of shape ``old`` in shape ``new``; the view is not empty.

    Raises:
        NotStridedError: There would be more than ``most``.
    """
    # Equal layers ask for the same of other variables, and of one variable again and again.
    key = block.origin, block.factors, tuple(old), tuple(new), most
    found = _KNOWN.get(key)
    if found is None:
        found = _pieces(*key)
        if len(found) <= _FEW_PIECES:
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[key] = found
    return [StridedBlock(block.variable, block.offset + shift, origin, factors) for origin, factors, shift in found]


def _pieces(
    origin: tuple[int, ...], factors: tuple[Factors, ...], old: Sequence[int], new: Sequence[int], most: int
) -> list[Placed]:
    """The pieces of a block of a view of shape ``old`` in shape ``new``."""
    found: list[Placed] = [((), (), 0)]
    for before, after in matching_groups(old, new):
        pieces = _group(origin, factors, old, before, [new[d] for d in after], most)
        if len(found) * len(pieces) > most:
            raise NotStridedError
        found = [(o + p[0], f + p[1], s + p[2]) for o, f, s in found for p in pieces]
    return found


def _group(
    origin: tuple[int, ...],
    factors: tuple[Factors, ...],
    old: Sequence[int],
    before: range,
    shape: list[int],
    most: int,
) -> list[Placed]:
    """A block's pieces along dimensions ``before``, which become ``shape``."""
    if len(before) == len(shape) == 1:
        d = before[0]
        return [((origin[d],), (factors[d],), 0)]
    strides = row_major([old[d] for d in before])
    start = sum(origin[d] * s for d, s in zip(before, strides, strict=True))
    flat = [(n, v * s, t) for d, s in zip(before, strides, strict=True) for n, v, t in factors[d]]
    pieces: list[Placed] = []
    for piece in _fitted(start, coalesce(flat), shape):
        pieces.append(piece)
        if len(pieces) > most:
            raise NotStridedError
    return pieces


def _fitted(start: int, flat: Factors, shape: Sequence[int]) -> Iterator[Placed]:
    """Pieces of flat positions from ``start`` on, as indices of ``shape``."""
    if len(shape) <= 1:
        yield ((start,), (coalesce(flat),), 0) if shape else ((), (), 0)
        return
    inner = math.prod(shape[1:])
    for position, outer, rest, offset in _aligned(start, flat, inner):
        for origin, factors, shift in _fitted(position % inner, rest, shape[1:]):
            yield (position // inner, *origin), (coalesce(outer), *factors), offset + shift


def _aligned(start: int, flat: Factors, cell: int) -> Iterator[tuple[int, Factors, Factors, int]]:
    """Pieces that do not cross a border of cells of ``cell`` positions.

    Yields the first position, factors over cells, factors inside one cell, and offset in the variable.
    """
    if start % cell + 1 + sum((n - 1) * step for n, step, _ in flat) <= cell:
        yield start, (), flat, 0
        return
    (extent, step, stride), rest = flat[0], flat[1:]
    if step % cell == 0:
        yield from _over_cells(start, (extent, step, stride), rest, cell, 0)
        return
    # After so many steps the factor is at the same place in a cell again.
    period = cell // math.gcd(step, cell)
    at = 0
    if extent > period:
        # Up to the next border, so that what follows begins at the start of a cell.
        if cell % step == 0 and start % cell >= step:
            at = -(-(cell - start % cell) // step)
            yield from _moved(start, _first(at, step, stride, rest), cell, 0)
        count = (extent - at) // period
        body, inner = (count, step * period, stride * period), _first(period, step, stride, rest)
        if count:
            yield from _over_cells(start + at * step, body, inner, cell, at * stride)
        at += count * period
    width = 1 + sum((n - 1) * s for n, s, _ in rest)
    while at < extent:
        position = start + at * step
        # As many repetitions as end before the next border; at least one, which is then split itself.
        fits = (cell - position % cell - width) // step + 1
        head = max(1, min(extent - at, fits))
        yield from _moved(position, _first(head, step, stride, rest), cell, at * stride)
        at += head


def _over_cells(
    start: int, outer: Factor, rest: Factors, cell: int, offset: int
) -> Iterator[tuple[int, Factors, Factors, int]]:
    """Pieces of ``rest``, each repeated over whole cells."""
    extent, step, stride = outer
    for position, over, inside, shift in _aligned(start, rest, cell):
        yield position, ((extent, step // cell, stride), *over), inside, shift + offset


def _moved(start: int, flat: Factors, cell: int, offset: int) -> Iterator[tuple[int, Factors, Factors, int]]:
    for position, over, inside, shift in _aligned(start, flat, cell):
        yield position, over, inside, shift + offset


def _first(count: int, step: int, stride: int, rest: Factors) -> Factors:
    return rest if count == 1 else ((count, step, stride), *rest)


class BlockList(Content):
    """Blocks one by one.

    Args:
        blocks: The blocks, in no particular order; together they fill the view.
        is_cut: True if they are what a reshape or a step left of larger ones.
    """

    __slots__ = ("_blocks", "_is_cut")

    def __init__(self, blocks: tuple[StridedBlock, ...], is_cut: bool = False) -> None:
        self._blocks = blocks
        self._is_cut = is_cut and len(blocks) > 1

    @property
    def blocks(self) -> tuple[StridedBlock, ...]:
        """See :class:`Content`."""
        return self._blocks

    @property
    def is_cut(self) -> bool:
        """See :class:`Content`."""
        return self._is_cut

    def _with(self, blocks: Iterable[StridedBlock]) -> BlockList:
        return BlockList(tuple(blocks), self._is_cut)

    def sliced(self, dim: int, begin: int, end: int) -> Content:
        """See :class:`Content`."""
        result = []
        for variable, offset, origin, factors in self._blocks:
            at = origin[dim]
            for index, piece, shift in algebra.cut(factors[dim], begin - at, end - at):
                place = algebra.put(origin, dim, at + index - begin)
                result.append(StridedBlock(variable, offset + shift, place, algebra.put(factors, dim, piece)))
        return self._with(result)

    def picked(self, dim: int, index: int) -> Content:
        """See :class:`Content`."""
        if len(self._blocks) == 1:
            variable, offset, origin, factors = self._blocks[0]
            along = factors[dim]
            if len(along) <= 1:
                shift = along[0][2] * index if along else 0
                rest = factors[:dim] + factors[dim + 1 :]
                return BlockList((StridedBlock(variable, offset + shift, origin[:dim] + origin[dim + 1 :], rest),))
        return super().picked(dim, index)

    @property
    def single_run(self) -> tuple[int, int] | None:
        """See :class:`Content`."""
        if len(self._blocks) != 1:
            return None
        variable, offset, _, factors = self._blocks[0]
        length = 1
        for along in reversed(factors):
            for extent, _, stride in reversed(along):
                if stride != length:
                    return None
                length *= extent
        return (variable.base + offset, length) if length else None

    def reversed(self, dim: int, extent: int) -> Content:
        """See :class:`Content`."""
        result = []
        for variable, offset, origin, factors in self._blocks:
            along = factors[dim]
            shift = sum((n - 1) * s for n, _, s in along)
            place = algebra.put(origin, dim, extent - origin[dim] - algebra.span_of(along))
            turned = tuple((n, step, -s) for n, step, s in along)
            result.append(StridedBlock(variable, offset + shift, place, algebra.put(factors, dim, turned)))
        return self._with(result)

    def sampled(self, dim: int, every: int) -> Content:
        """See :class:`Content`."""
        result = []
        for variable, offset, origin, factors in self._blocks:
            for index, piece, shift in algebra.sampled(factors[dim], origin[dim], every):
                closer = tuple((n, step // every, s) for n, step, s in piece)
                place = algebra.put(origin, dim, index // every)
                result.append(StridedBlock(variable, offset + shift, place, algebra.put(factors, dim, closer)))
        return BlockList(tuple(result), self._is_cut or len(result) > len(self._blocks))

    def permuted(self, order: Sequence[int]) -> Content:
        """See :class:`Content`."""
        return self._with(
            StridedBlock(v, o, tuple([at[d] for d in order]), tuple([f[d] for d in order]))
            for v, o, at, f in self._blocks
        )

    def expanded(self, dim: int, extent: int = 1) -> Content:
        """See :class:`Content`."""
        new: Factors = ((extent, 1, 0),) if extent != 1 else ()
        return self._with(
            StridedBlock(v, o, (*at[:dim], 0, *at[dim:]), (*f[:dim], new, *f[dim:])) for v, o, at, f in self._blocks
        )

    def dropped(self, dim: int) -> Content:
        """See :class:`Content`."""
        return self._with(
            StridedBlock(v, o, at[:dim] + at[dim + 1 :], f[:dim] + f[dim + 1 :]) for v, o, at, f in self._blocks
        )

    def shifted(self, dim: int, by: int) -> Content:
        """See :class:`Content`."""
        return self._with(b._replace(origin=algebra.put(b.origin, dim, b.origin[dim] + by)) for b in self._blocks)

    def reshaped(self, old: Sequence[int], new: Sequence[int], most: int) -> Content:
        """See :class:`Content`."""
        result: list[StridedBlock] = []
        for block in self._blocks:
            result += reshaped(block, old, new, most)
            if len(result) > most:
                raise NotStridedError
        is_cut = self._is_cut or len(result) > len(self._blocks) or not all(b.is_box for b in result)
        if len(result) > 1 and len(result) <= 64:
            for dim in reversed(range(len(new))):
                result = merged(result, dim)
        return BlockList(tuple(result), is_cut)

    def form(self, number: Callable[[Variable], int]) -> Hashable:
        """See :class:`Content`."""
        return self._is_cut, *((number(v), o, at, f) for v, o, at, f in self._blocks)

    def with_variables(self, other: Callable[[Variable], Variable], moved: Callable[[Int64], Int64]) -> Content:
        """See :class:`Content`."""
        return self._with(StridedBlock(other(v), o, at, f) for v, o, at, f in self._blocks)

    def addresses(self, shape: Sequence[int]) -> Int64:
        """See :class:`Content`."""
        return algebra.addresses(self._blocks, shape)

    def runs(self, shape: Sequence[int]) -> tuple[Int64, Int64]:
        """See :class:`Content`."""
        if len(self._blocks) == 1:
            return algebra.runs(self._blocks[0], shape)[:2]
        return in_order([algebra.runs(b, shape) for b in self._blocks])

    def footprint(self) -> tuple[Int64, Int64, bool]:
        """See :class:`Content`."""
        begins, lengths, repeated = [np.empty(0, np.int64)], [np.empty(0, np.int64)], False
        for block in self._blocks:
            if block.size == 0:
                continue
            low, modes, times = algebra.in_memory_order(block)
            repeated |= times > 1
            length = modes.pop()[0] if modes and modes[-1][1] == 1 else 1
            begins.append(low + offsets(modes))
            lengths.append(np.full(len(begins[-1]), length, dtype=np.int64))
        return np.concatenate(begins), np.concatenate(lengths), repeated

    @property
    def is_surely_distinct(self) -> bool:
        """See :class:`Content`."""
        if self.single_run is not None:
            return True
        reaches = []
        for block in self._blocks:
            low, modes, times = algebra.in_memory_order(block)
            if times > 1 or not are_apart(modes):
                return False
            reaches.append((low, low + 1 + sum((n - 1) * s for n, s in modes)))
        reaches.sort()
        return all(a[1] <= b[0] for a, b in pairwise(reaches))

    @property
    def variables(self) -> tuple[Variable, ...]:
        """See :class:`Content`."""
        return tuple(dict.fromkeys([b.variable for b in self._blocks]))

    @property
    def bounds(self) -> tuple[int, int]:
        """See :class:`Content`."""
        low, high = [], []
        for block in self._blocks:
            first, modes, _ = algebra.in_memory_order(block)
            low.append(first)
            high.append(first + 1 + sum((n - 1) * s for n, s in modes))
        return (min(low), max(high)) if low else (0, 0)


def in_order(parts: Sequence[tuple[Int64, Int64, Int64]]) -> tuple[Int64, Int64]:
    """Begins and lengths of the runs of several blocks, put in the order of their positions in the view."""
    if not parts:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    begin, length, position = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = order_of(position)
    return begin[order], length[order]


def merged(blocks: Sequence[StridedBlock], dim: int) -> list[StridedBlock]:
    """The blocks with those joined that continue each other along ``dim``."""
    result: list[StridedBlock] = []
    for block in sorted(blocks, key=lambda b: (b.origin[:dim], b.origin[dim + 1 :], b.origin[dim])):
        result.append(block)
        # What was joined may continue the one before it: rows 0 to 15 are no row of 8 and 4, but of 8, 4 and 4.
        while len(result) > 1 and (joined := _joined(result[-2], result[-1], dim)) is not None:
            result[-2:] = [joined]
    return result


def _joined(a: StridedBlock, b: StridedBlock, dim: int) -> StridedBlock | None:
    """Two blocks as one, ``b`` after ``a`` along ``dim``, if they can be."""
    if a.variable is not b.variable or a.origin[:dim] != b.origin[:dim] or a.origin[dim + 1 :] != b.origin[dim + 1 :]:
        return None
    if a.factors[:dim] != b.factors[:dim] or a.factors[dim + 1 :] != b.factors[dim + 1 :]:
        return None
    along = _continued(a.factors[dim], b.factors[dim], b.origin[dim] - a.origin[dim], b.offset - a.offset)
    return None if along is None else StridedBlock(a.variable, a.offset, a.origin, algebra.put(a.factors, dim, along))


def _continued(a: Factors, b: Factors, by: int, stride: int) -> Factors | None:
    """Factors of ``a`` and of ``b``, which begins ``by`` indices and ``stride`` elements later, as one list."""
    # What fills a range stays one that does: nothing is joined across a gap.
    fills = algebra.count_of(a) == algebra.span_of(a) and algebra.count_of(b) == algebra.span_of(b)
    # Either `a` is repeated already and `b` is a further repetition, or `a` as a whole becomes the first.
    for count_a, rest in ((a[0][0], a[1:]), (1, a)) if a else ((1, a),):
        step, over = divmod(by, count_a)
        width, uneven = divmod(stride, count_a)
        width_of_rest = algebra.span_of(rest)
        if over or uneven or step < width_of_rest or (step > width_of_rest and fills):
            continue
        if count_a > 1 and a[0][1:] != (step, width):
            continue
        if b == rest:
            return coalesce(((count_a + 1, step, width), *rest))
        if b and b[1:] == rest and b[0][1:] == (step, width):
            return coalesce(((count_a + b[0][0], step, width), *rest))
    if a and b and a[0] == b[0]:
        inner = _continued(a[1:], b[1:], by, stride)
        if inner is not None and algebra.span_of(inner) <= a[0][1]:
            return coalesce((a[0], *inner))
    return None
