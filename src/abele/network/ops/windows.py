"""Dependences of sliding windows: the operand's part for a part of the result, of samples and of a field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from abele.network.ir.part import Digits, ValuePart, some_digits, whole_digits


@dataclass(frozen=True)
class SlidingWindows:
    """Windows that slide over a field.

    Attributes:
        field: Extents of what they slide over.
        span: Elements from the first to the last that one window covers, along each dimension.
        stride: Step of the window.
        padding_lower: Padding before each dimension.
        padding_upper: Padding after each.
    """

    field: tuple[int, ...]
    span: tuple[int, ...]
    stride: tuple[int, ...]
    padding_lower: tuple[int, ...]
    padding_upper: tuple[int, ...]

    def part(self, wanted: Sequence[Digits]) -> WindowPart:
        """The windows that make ``wanted`` of the result's field dimensions."""
        along = [self._along(d, digits) for d, digits in enumerate(wanted)]
        made, read, lower, upper = zip(*along, strict=True)
        return WindowPart(made, read, lower, upper)

    def _along(self, dim: int, wanted: Digits) -> tuple[Digits, Digits, int, int]:
        """Part made along a dimension, part read for it, and its padding; all of both where no range says it."""
        field, lower, upper = self.field[dim], self.padding_lower[dim], self.padding_upper[dim]
        if len(wanted) == 1 and not wanted[0].is_whole:
            first = wanted[0].low * self.stride[dim] - lower
            end = (wanted[0].high - 1) * self.stride[dim] - lower + self.span[dim]
            low, high = max(0, first), min(field, end)
            if low < high:
                return wanted, some_digits(field, low, high), low - first, end - high
        extent = math.prod(digit.extent for digit in wanted)
        return whole_digits(extent), whole_digits(field), lower, upper


@dataclass(frozen=True)
class WindowPart:
    """Some of the windows over a field.

    Attributes:
        made: The part of each dimension of the result.
        read: The part of each dimension of the field.
        padding_lower: Padding before the part that is read.
        padding_upper: Padding after it.
    """

    made: tuple[Digits, ...]
    read: tuple[Digits, ...]
    padding_lower: tuple[int, ...]
    padding_upper: tuple[int, ...]

    @property
    def field(self) -> tuple[int, ...]:
        """Extents of the operand."""
        return ValuePart(self.read).shape
