"""Matching: equal rows of the tables of several reports.

Rows are matched by the words of some columns, such as name, path and kind; of several that are called the same, the
first of one table is matched with the first of the other, and so on. What is left on both sides is matched once more
with numbers left out, so that ``layer3/matmul_12`` finds ``layer3/matmul_14`` after something was put before it. Each
table is matched against all rows of those before it, so that what two later reports both added is one row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64

Words = Sequence[str] | npt.NDArray[np.object_]
"""One string for each row."""

_NUMBERS = re.compile(r"\d+")


class Codes:
    """Numbers for strings, the same for equal ones."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, words: Words) -> Int64:
        """A number for each string, int64[n]."""
        known = self._known
        return np.fromiter((known.setdefault(word, len(known)) for word in words), np.int64, len(words))


def without_numbers(words: Words) -> list[str]:
    """The strings with each number as ``#``."""
    return [_NUMBERS.sub("#", word) for word in words]


def occurrences(codes: Int64) -> Int64:
    """For each entry how many equal ones come before it, int64[n]."""
    order = np.argsort(codes, kind="stable")
    sorted_ = codes[order]
    first = np.ones(len(codes), dtype=bool)
    first[1:] = sorted_[1:] != sorted_[:-1]
    starts = np.maximum.accumulate(np.where(first, np.arange(len(codes)), 0)) if len(codes) else order
    found = np.empty(len(codes), dtype=np.int64)
    found[order] = np.arange(len(codes)) - starts
    return found


def _pairs(left: Int64, right: Int64) -> tuple[Int64, Int64]:
    """Places of entries that are equal and of equal occurrence, int64[pairs] in each."""
    size = int(max(left.max(initial=-1), right.max(initial=-1))) + 1
    one, two = (occurrences(codes) * size + codes for codes in (left, right))
    _, at_left, at_right = np.intersect1d(one, two, assume_unique=True, return_indices=True)
    return at_left.astype(np.int64), at_right.astype(np.int64)


def match(tables: Sequence[Words]) -> Int64:
    """Match rows of the same name.

    Args:
        tables: For each table, the words that each of its rows is known by.

    Returns:
        The row of each thing in each table, -1 where it has none, int64[things, tables]: in the order of the first
        table, then what each later one adds.
    """
    exact = Codes()
    codes = [exact.of(words) for words in tables]
    things, things_words = codes[0], np.array(tables[0], dtype=object)
    found = np.arange(len(things), dtype=np.int64)[:, None]
    for mine, words in zip(codes[1:], tables[1:], strict=True):
        own_words = np.array(words, dtype=object)
        column = np.full(len(things), -1, dtype=np.int64)
        at, row = _pairs(things, mine)
        column[at] = row
        is_free = np.ones(len(mine), dtype=bool)
        is_free[row] = False
        left, free = np.flatnonzero(column < 0), np.flatnonzero(is_free)
        loose = Codes()
        plain = [loose.of(without_numbers(part)) for part in (things_words[left], own_words[free])]
        again, others = _pairs(*plain)
        column[left[again]] = free[others]
        is_free[free[others]] = False
        added = np.flatnonzero(is_free)
        more = np.full((len(added), found.shape[1]), -1, dtype=np.int64)
        found = np.concatenate([np.concatenate([found, more]), np.concatenate([column, added])[:, None]], axis=1)
        things = np.concatenate([things, mine[added]])
        things_words = np.concatenate([things_words, own_words[added]])
    return found
