"""Containers that cannot change, so that networks, ops and attributes can be shared, compared and hashed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from abele.arrays import Array
from abele.numerics import ElementType

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(Mapping[K, V]):
    """A mapping that keeps its order and cannot change."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._entries: dict[K, V] = dict(entries or {})

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.items()))

    def __repr__(self) -> str:
        return f"FrozenDict({self._entries!r})"


class Dense:
    """The contents of a constant: an array that nobody writes, equal to another with the same bits.

    One number for all elements is stored once, whatever the shape.

    Args:
        contents: The elements, of the element type's own NumPy type; copied unless they are already read-only.
    """

    def __init__(self, contents: Array) -> None:
        if contents.size and _is_uniform(contents):
            contents = np.broadcast_to(np.array(contents.flat[0]), contents.shape)
        elif contents.flags.writeable:
            contents = contents.copy()
            contents.flags.writeable = False
        self.contents = contents

    @staticmethod
    def splat(number: float | int | bool, shape: tuple[int, ...], dtype: ElementType) -> Dense:
        """``number`` at every element of ``shape``."""
        return Dense(np.broadcast_to(np.asarray(number).astype(dtype.np), shape))

    @cached_property
    def number(self) -> float | int | bool | None:
        """The number at every element, if they are all equal; else None. NaN equals nothing."""
        if not self.contents.size or (any(self.contents.strides) and not _is_uniform(self.contents)):
            return None
        number: float | int | bool = self.contents.flat[0].item()
        return number if number == number else None

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Key of equal constants: type, shape and bits."""
        every = self.contents.size and not any(self.contents.strides)
        bits = self.contents.reshape(-1)[:1] if every else self.contents
        return (self.contents.dtype.name, self.contents.shape, bool(every), np.ascontiguousarray(bits).tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dense) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Dense({self.contents.dtype}{list(self.contents.shape)})"


def _is_uniform(contents: Array) -> bool:
    """True if all elements have the same bits (0 and −0 differ, a NaN equals itself)."""
    if not any(contents.strides):
        return True
    bits = np.ascontiguousarray(contents).reshape(-1).view(np.uint8).reshape(contents.size, -1)
    # The last element settles it for most arrays without a look at all of them.
    return bool((bits[-1] == bits[0]).all() and (bits == bits[0]).all())
