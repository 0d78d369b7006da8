"""A few blocks, as a tuple: the content of almost every view."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from abele.arrays import Int64
from abele.graph import block as algebra
from abele.graph import block_reshape
from abele.graph.block import Factors, NotStridedError, StridedBlock
from abele.graph.content import Content
from abele.graph.intervals import order_of
from abele.graph.variable import Variable
from abele.layout import are_apart, coalesce, offsets


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
            result += block_reshape.reshaped(block, old, new, most)
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
        joined = _joined(result[-1], block, dim) if result else None
        if joined is None:
            result.append(block)
        else:
            result[-1] = joined
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
