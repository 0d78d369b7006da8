"""Columns of text: each distinct string stored once, rows as codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array


def read_only(values: Array) -> Array:
    """Read-only view of an array; reports of one executable share their arrays."""
    if not values.flags.writeable:
        return values
    view = values.view()
    view.setflags(write=False)
    return view


@dataclass(frozen=True, eq=False)
class Text:
    """A column of strings, each distinct one stored once.

    Attributes:
        codes: int32[n], index into ``words``.
        words: The distinct strings.
    """

    codes: npt.NDArray[np.int32]
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", read_only(self.codes))

    @classmethod
    def of(cls, values: Sequence[str] | Array) -> Text:
        """The column that holds ``values``, in order."""
        if len(values) == 0:
            return cls(np.zeros(0, np.int32), ())
        index: dict[str, int] = {}
        codes = np.fromiter((index.setdefault(str(value), len(index)) for value in values), np.int32, len(values))
        return cls(codes, tuple(index))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Text:
        return Text(self.codes[rows], self.words)

    def decode(self) -> Array:
        """The strings as a NumPy array of n objects: a long one among many rows takes its own room alone."""
        return np.array(self.words, dtype=object)[self.codes] if self.words else np.full(len(self), "", dtype=object)

    def order(self) -> Array:
        """Rank of each row's string in alphabetical order, int64[n]."""
        rank = np.empty(len(self.words), np.int64)
        rank[np.argsort(np.array(self.words, dtype=object), kind="stable")] = np.arange(len(self.words))
        return rank[self.codes]


Column = Array | Text


def packed_words(words: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Strings as one run of UTF-8, uint8[bytes], and where each ends in it, int64[words]."""
    encoded = [word.encode("utf-8", "surrogatepass") for word in words]
    ends = np.cumsum([len(e) for e in encoded], dtype=np.int64) if encoded else np.zeros(0, np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def unpacked_words(letters: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> tuple[str, ...]:
    """The strings that :func:`packed_words` packed.

    Raises:
        ValueError: The ends do not ascend to the last letter, or the letters are no UTF-8.
    """
    starts = np.append(0, ends[:-1]) if len(ends) else ends
    if (ends < starts).any() or int(ends[-1] if len(ends) else 0) != len(letters):
        raise ValueError("its words do not lie one after the other")
    content = letters.tobytes()
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return tuple(content[start:end].decode("utf-8", "surrogatepass") for start, end in pairs)


def unchanging(column: Column) -> Column:
    """Read-only form of a column."""
    return column if isinstance(column, Text) else read_only(column)
