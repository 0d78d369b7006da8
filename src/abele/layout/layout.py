"""The layout as a value, with the operations of the algebra; each says where it is defined."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from abele.arrays import Int64
from abele.layout.modes import Index, Mode, Modes, are_apart, coalesce, image, offset_at, offsets, split
from abele.layout.shapes import LayoutError, digits, refine, row_major


class CompositionError(LayoutError):
    """A composition that steps from one mode of the outer layout into the next, unevenly."""


class ComplementError(LayoutError):
    """A layout whose offsets do not tile a range."""


class InverseError(LayoutError):
    """A layout that repeats offsets or has gaps."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A function from indices to offsets.

    >>> by_columns = Layout((4, 6), (1, 4))
    >>> by_columns(7), by_columns.size, by_columns.bounds
    (5, 24, (0, 23))

    Attributes:
        shape: Extents, the slowest first.
        stride: Offset between neighbours along each.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.stride):
            raise LayoutError(f"shape {self.shape} and stride {self.stride} differ in length")

    def __str__(self) -> str:
        return f"{self.shape}:{self.stride}"

    @staticmethod
    def of(modes: Iterable[Mode]) -> Layout:
        """The layout with these modes."""
        pairs = list(modes)
        return Layout(tuple([n for n, _ in pairs]), tuple([s for _, s in pairs]))

    @staticmethod
    def dense(shape: Sequence[int], order: Sequence[int] | None = None) -> Layout:
        """A layout without gaps, its dimensions in ``order``, the slowest first; row-major without one.

        >>> Layout.dense((3, 4, 5), order=(1, 0, 2))
        Layout(shape=(3, 4, 5), stride=(5, 15, 1))
        """
        if order is None:
            return Layout(tuple(shape), row_major(shape))
        along = dict(zip(order, row_major([shape[d] for d in order]), strict=True))
        return Layout(tuple(shape), tuple([along[d] for d in range(len(shape))]))

    @property
    def modes(self) -> Modes:
        """Extent and stride of each mode."""
        return tuple(zip(self.shape, self.stride, strict=True))

    @property
    def size(self) -> int:
        """Number of indices."""
        return math.prod(self.shape)

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest offset of a layout that has any."""
        reach = [(n - 1) * s for n, s in self.modes]
        return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)

    def __call__(self, index: Index) -> Index:
        """Offset of an index, or of each of an array of them; they wrap past the size."""
        return offset_at(self.modes, index)

    def offsets(self) -> Int64:
        """Offset of every index, int64[size]."""
        return offsets(self.modes)

    def coalesced(self) -> Layout:
        """The same function in the fewest modes."""
        return Layout.of(coalesce(self.modes))

    def reshaped(self, shape: Sequence[int]) -> tuple[Layout, ...]:
        """The same function by the dimensions of another shape, one layout per dimension.

        >>> [str(along) for along in Layout((4, 6), (1, 4)).reshaped((2, 12))]
        ['(2,):(2,)', '(2, 6):(1, 4)']

        Raises:
            RefinementError: A border between dimensions lies within a step of a mode.
        """
        pieces, groups = refine(self.shape, shape)
        fine = iter(split(self.modes, pieces))
        return tuple([Layout.of([next(fine) for _ in group]) for group in groups])

    def sliced(self, keys: Sequence[slice]) -> tuple[Layout, int]:
        """A slice of each dimension as a layout, and the first offset that it shows.

        >>> Layout((4, 6), (1, 4)).sliced([slice(3, None, -1), slice(1, 6, 2)])
        (Layout(shape=(4, 3), stride=(-1, 8)), 7)
        """
        ranges = [range(n)[key] for n, key in zip(self.shape, keys, strict=True)]
        stride = tuple([r.step * s for r, s in zip(ranges, self.stride, strict=True)])
        first = sum([r.start * s for r, s in zip(ranges, self.stride, strict=True)])
        return Layout(tuple(map(len, ranges)), stride), first

    def compose(self, inner: Layout, at: int = 0) -> Layout:
        """The layout C with ``self(at + inner(i)) == self(at) + C(i)`` for all indices of ``inner``.

        Strides of ``inner`` become steps along single modes of this one. A mode that passes the end of such a mode in
        whole rounds is cut there.

        >>> str(Layout((4, 6), (1, 4)).compose(Layout((12,), (2,))))
        '(4, 3):(1, 8)'

        Raises:
            CompositionError: A stride moves several modes, or the sum of all steps leaves one.
        """
        if not 0 <= at < self.size:
            raise CompositionError(f"{self} has no index {at}")
        steps = [step for mode in inner.modes for step in self._steps(*mode)]
        # While every digit stays inside its extent, no step carries into the next: offsets then add up.
        low = digits(at, self.shape)
        high = list(low)
        for count, distance, dim in steps:
            if distance:
                (high if distance > 0 else low)[dim] += (count - 1) * distance
        if min(low, default=0) < 0 or any(n >= extent for n, extent in zip(high, self.shape, strict=True)):
            raise CompositionError(f"{inner} from {at} on carries from one mode of {self} into the next")
        return Layout.of([(count, k and k * self.stride[dim]) for count, k, dim in steps])

    def _steps(self, count: int, stride: int) -> list[tuple[int, int, int]]:
        """Steps of ``stride`` indices as (count, distance, mode), outermost first; nothing for one index."""
        if count == 1:
            return []
        if not stride:
            return [(count, 0, 0)]
        inner, length = row_major(self.shape), abs(stride)
        dim = next((d for d, n in enumerate(self.shape) if n > 1 and inner[d] <= length < inner[d] * n), None)
        if dim is None or length % inner[dim]:
            raise CompositionError(f"steps of {stride} move no single mode of {self}")
        extent, distance, sign = self.shape[dim], length // inner[dim], 1 if stride > 0 else -1
        if (count - 1) * distance < extent:
            return [(count, sign * distance, dim)]
        round_ = extent // distance
        if extent % distance or count % round_:
            raise CompositionError(f"{count} steps of {stride} are no whole rounds of mode {dim} of {self}")
        return [*self._steps(count // round_, stride * round_), (round_, sign * distance, dim)]

    def complement(self, size: int) -> Layout:
        """The layout of first offsets whose copies of this one fill 0 up to ``size``, each offset once.

        >>> str(Layout((2, 2), (8, 1)).complement(32))
        '(2, 4):(16, 2)'

        Raises:
            ComplementError: Strides and ``size`` do not divide each other in turn, or offsets repeat.
        """
        low, modes, times = image(self.modes)
        marks = [1]
        for extent, stride in reversed(modes):
            marks += [stride, stride * extent]
        marks.append(size)
        if low or times != 1 or any(b % a for a, b in pairwise(marks)):
            raise ComplementError(f"copies of {self} do not tile {size} offsets")
        gaps = [(b // a, a) for a, b in zip(marks[::2], marks[1::2], strict=True)]
        return Layout.of(coalesce(gaps[::-1]))

    def divide(self, tile: Layout) -> tuple[Layout, Layout]:
        """Offsets by tiles: the layout over tiles, and the one within each, which ``tile`` picks the indices of.

        >>> tuple(map(str, Layout((24,), (10,)).divide(Layout((4,), (2,)))))
        ('(3, 2):(80, 10)', '(4,):(20,)')

        Raises:
            ComplementError: Copies of ``tile`` do not tile all indices.
            CompositionError: Its strides move several modes.
        """
        return self.compose(tile.complement(self.size)), self.compose(tile)

    def inverse(self) -> Layout:
        """The layout from offsets 0, 1, … to the indices that lie there: ``self(self.inverse()(offset)) == offset``.

        >>> str(Layout((4, 6), (1, 4)).inverse())
        '(6, 4):(1, 6)'

        Raises:
            InverseError: Offsets repeat, are negative or leave gaps.
        """
        indices = zip(self.stride, self.shape, row_major(self.shape), strict=True)
        found = sorted([step for step in indices if step[1] > 1])
        if any(s <= 0 for s, _, _ in found) or not are_apart(self.modes) or self.bounds[1] != self.size - 1:
            raise InverseError(f"offsets of {self} are not 0 to {self.size - 1}, each once")
        return Layout.of([(extent, index) for _, extent, index in reversed(found)])
