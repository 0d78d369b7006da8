"""Parts of values: which indices of each dimension something asks for.

A dimension is split into *digits*, outermost first, and of each digit a range of indices is in the part. So the first
token of every sample is a part of rows that hold samples and tokens together, and every second index is one too: the
digits are (samples, all), (tokens, the first) or (pairs, all), (two, the first). A part keeps its meaning when a value
is reshaped, as long as the digits can be divided among the new dimensions; where they cannot, it grows until they can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abele.layout import RefinementError, matching_groups, refine
from abele.network.ir.value import Shape

if TYPE_CHECKING:
    from abele.network.ir.builder import BlockBuilder
    from abele.network.ir.value import Value


@dataclass(frozen=True, slots=True)
class Digit:
    """A factor of a dimension.

    Attributes:
        extent: Indices that there are.
        low: The first that is in the part.
        high: One past the last.
    """

    extent: int
    low: int
    high: int

    @property
    def count(self) -> int:
        """Indices in the part."""
        return self.high - self.low

    @property
    def is_whole(self) -> bool:
        """True if all indices are in the part."""
        return self.count == self.extent


Digits = tuple[Digit, ...]
"""One dimension, outermost digit first."""


def whole_digits(extent: int) -> Digits:
    """All indices of a dimension."""
    return (Digit(extent, 0, extent),)


def some_digits(extent: int, low: int, high: int) -> Digits:
    """The indices from ``low`` to before ``high`` of a dimension."""
    return (Digit(extent, low, high),)


@dataclass(frozen=True, slots=True)
class ValuePart:
    """Some indices of each dimension of a value.

    Attributes:
        dims: The digits of each dimension; one digit where a range says it all.
    """

    dims: tuple[Digits, ...]

    @staticmethod
    def whole(shape: Shape) -> ValuePart:
        """Part that is all of a value."""
        return ValuePart(tuple(map(whole_digits, shape)))

    @property
    def is_whole(self) -> bool:
        """True if every index is in the part."""
        return all(d.is_whole for digits in self.dims for d in digits)

    @property
    def shape(self) -> Shape:
        """Number of indices of each dimension that are in the part."""
        return tuple(math.prod(d.count for d in digits) for digits in self.dims)

    @property
    def size(self) -> int:
        """Elements in the part."""
        return math.prod(self.shape)

    def with_dim(self, dim: int, digits: Digits) -> ValuePart:
        """The part with another one of one dimension."""
        return ValuePart((*self.dims[:dim], joined_digits(digits), *self.dims[dim + 1 :]))

    def with_whole(self, *dims: int) -> ValuePart:
        """The part with all indices of some dimensions."""
        places = {d % len(self.dims) for d in dims}
        return ValuePart(
            tuple(whole_digits(_extent(digits)) if d in places else digits for d, digits in enumerate(self.dims))
        )

    def union(self, other: ValuePart) -> ValuePart:
        """A part that covers both, and perhaps more."""
        return ValuePart(tuple(map(_either, self.dims, other.dims)))

    def reshaped(self, old: Shape, new: Shape) -> ValuePart:
        """The smallest part of the value in shape ``new`` that can be told and has all of this one."""
        dims: list[Digits] = [()] * len(new)
        for before, after in matching_groups(old, new):
            flat = joined_digits(tuple(d for dim in before for d in self.dims[dim]))
            for dim, digits in zip(after, _divided(flat, [new[d] for d in after]), strict=True):
                dims[dim] = digits
        return ValuePart(tuple(dims))

    def inside(self, other: ValuePart) -> ValuePart:
        """This part of a value as a part of ``other`` of it, which has all of this."""
        return ValuePart(tuple(map(_inside, self.dims, other.dims)))


def take(net: BlockBuilder, value: Value, part: ValuePart) -> Value:
    """A part of a value: its dimensions split into digits, sliced, and joined again."""
    from abele.network.ops.views import reshape, slice_

    split = [d for digits in part.dims for d in digits]
    taken = reshape(net, value, [d.extent for d in split])
    for place, digit in enumerate(split):
        taken = slice_(net, taken, place, digit.low, digit.high)
    return reshape(net, taken, part.shape)


def joined_digits(digits: Sequence[Digit]) -> Digits:
    """The same indices in as few digits as can be: neighbours are joined where one range says what both do."""
    extent = math.prod(d.extent for d in digits)
    result: list[Digit] = []
    for digit in digits:
        if digit.extent == 1:
            continue
        last = result[-1] if result else None
        if last is not None and digit.is_whole:
            n = digit.extent
            result[-1] = Digit(last.extent * n, last.low * n, last.high * n)
        elif last is not None and last.count == 1:
            start = last.low * digit.extent
            result[-1] = Digit(last.extent * digit.extent, start + digit.low, start + digit.high)
        else:
            result.append(digit)
    return tuple(result) or whole_digits(extent)


def _extent(digits: Digits) -> int:
    return math.prod(d.extent for d in digits)


def _either(a: Digits, b: Digits) -> Digits:
    if a == b:
        return a
    if len(a) == len(b) == 1:
        return (Digit(a[0].extent, min(a[0].low, b[0].low), max(a[0].high, b[0].high)),)
    return whole_digits(_extent(a))


def _inside(mine: Digits, other: Digits) -> Digits:
    if mine == other:
        return whole_digits(math.prod(d.count for d in other))
    if all(d.is_whole for d in other):
        return mine
    (digit,), (around,) = mine, other
    return (Digit(around.count, digit.low - around.low, digit.high - around.low),)


def _divided(flat: Digits, shape: Sequence[int]) -> Iterator[Digits]:
    """Digits of several dimensions together, divided among these dimensions."""
    try:
        pieces, groups = refine([d.extent for d in flat], shape)
    except RefinementError:
        # A border between dimensions lies within a digit, at no whole number of its indices.
        return map(whole_digits, shape)
    fine = (part for digit, extents in zip(flat, pieces, strict=True) for part in _cut(digit, extents))
    return (joined_digits([next(fine) for _ in group]) for group in groups)


def _cut(digit: Digit, extents: Sequence[int]) -> Digits:
    """A digit as several with these extents; together they have all that it has."""
    if len(extents) < 2:
        return (digit,) if extents else ()
    *outer, n = extents
    first, last = digit.low // n, (digit.high - 1) // n
    inner = Digit(n, digit.low - first * n, digit.high - first * n) if first == last else Digit(n, 0, n)
    return (*_cut(Digit(digit.extent // n, first, last + 1), outer), inner)
