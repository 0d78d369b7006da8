"""Parameters of a pooling: kind, window, stride, padding, and the shapes that follow."""

from __future__ import annotations

import dataclasses
import operator
from typing import Literal

from abele.errors import InvalidOptionError, TensorError, nearest
from abele.numerics import ElementType

PoolKind = Literal["max", "avg", "sum"]
KINDS = ("max", "avg", "sum")
PoolTies = Literal["all", "shared", "first"]
TIES = ("all", "shared", "first")


@dataclasses.dataclass(frozen=True)
class PoolParams:
    """A pooling over the field dimensions of [batch, channels, *field].

    Attributes:
        kind: ``max``, ``avg`` (of the elements inside the field: padding does not count) or ``sum``.
        field: Extents of the field.
        kernel: Window along each field dimension.
        stride: Step of the window along each.
        padding_lower: Padding before each.
        padding_upper: Padding after each.
        channels: Channels of the activations.
        batch: Samples.
        dtype: Element type, for what is made from the parameters alone; operands have their own.
        ties: Elements of a window that equal its maximum and get its gradient: ``all`` of them (PopLibs' default), all
            of them an even share (``shared``, PopLibs' scaled gradient), or the ``first`` in row-major order alone, as
            in PyTorch, where of several NaN the last counts. For ``max`` only.

    Raises:
        InvalidOptionError: No such kind or rule for ties, or a rule for ties of another kind than ``max``.
        TensorError: Different numbers of dimensions, a window or stride below 1, negative padding, or a window that is
            larger than the padded field.
    """

    kind: PoolKind
    field: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding_lower: tuple[int, ...]
    padding_upper: tuple[int, ...]
    channels: int
    batch: int
    dtype: ElementType | None = dataclasses.field(default=None, compare=False)
    ties: PoolTies = "all"

    def __post_init__(self) -> None:
        _check_word("pooling", self.kind, KINDS)
        _check_word("rule for ties of a pooling", self.ties, TIES)
        if self.ties != "all" and self.kind != "max":
            raise InvalidOptionError(
                f"only max pooling has ties, not {self.kind}", because=f"the parameters say ties={self.ties!r}"
            )
        for name in ("field", "kernel", "stride", "padding_lower", "padding_upper"):
            object.__setattr__(self, name, self._numbers(name))
        lists = (self.field, self.kernel, self.stride, self.padding_lower, self.padding_upper)
        if len({len(x) for x in lists}) != 1 or not self.field:
            raise TensorError(f"pooling parameters differ in their number of field dimensions: {self}")
        if min(self.kernel) < 1 or min(self.stride) < 1:
            raise TensorError(f"pooling window {self.kernel} and stride {self.stride} must be at least 1")
        if min(*self.padding_lower, *self.padding_upper) < 0:
            raise TensorError(
                f"pooling padding {self.padding_lower}, {self.padding_upper} is negative",
                remedy="slice the input to leave out a part of its field",
            )
        if any(n < k for n, k in zip(self._padded, self.kernel, strict=True)):
            raise TensorError(f"pooling window {self.kernel} is larger than the padded field {self._padded}")

    def _numbers(self, name: str) -> tuple[int, ...]:
        given = getattr(self, name)
        try:
            return tuple(map(operator.index, given))
        except TypeError:
            raise TensorError(
                f"pooling {name} must be whole numbers, one per field dimension, got {given!r}", remedy="as in (3, 3)"
            ) from None

    @property
    def _padded(self) -> tuple[int, ...]:
        return tuple(n + a + b for n, a, b in zip(self.field, self.padding_lower, self.padding_upper, strict=True))

    @property
    def pads(self) -> bool:
        """True if there is any padding."""
        return any(self.padding_lower) or any(self.padding_upper)

    @property
    def rank(self) -> int:
        """Number of field dimensions."""
        return len(self.field)

    @property
    def in_shape(self) -> tuple[int, ...]:
        """Shape of the activations: [batch, channels, *field]."""
        return (self.batch, self.channels, *self.field)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the pooled activations."""
        field = zip(self._padded, self.kernel, self.stride, strict=True)
        return (self.batch, self.channels, *((n - k) // s + 1 for n, k, s in field))

    def window_sizes(self, dim: int) -> list[int]:
        """Elements inside the field that each window along ``dim`` covers."""
        starts = [o * self.stride[dim] - self.padding_lower[dim] for o in range(self.out_shape[2 + dim])]
        return [max(min(s + self.kernel[dim], self.field[dim]) - max(s, 0), 0) for s in starts]

    @property
    def has_empty_windows(self) -> bool:
        """True if some window covers nothing but padding; it gives 0."""
        return any(0 in self.window_sizes(d) for d in range(self.rank))


def _check_word(what: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        close = nearest(str(word), words)
        raise InvalidOptionError(
            f"no {what} {word!r}", remedy=f"did you mean {close!r}?" if close else ", ".join(words)
        )
