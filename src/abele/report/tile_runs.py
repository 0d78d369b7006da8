"""Runs of tiles: numbers per tile, stored once for equal neighbours.

Most steps touch few tiles, and those that touch all do the same on long stretches of them. A run ``(first tile, number
of tiles, values)`` says so in one row, so that a relation between steps and tiles grows with what differs and not with
the machine: five tiles of a Pod take five rows at most, and a program that does the same on 94,208 tiles takes one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64

Runs = tuple[Int64, Int64, dict[str, Int64]]
"""First tile and number of tiles of each run, and the values of its tiles by name, int64[runs] each."""


def runs_of(tiles: npt.NDArray[np.integer[Any]], **values: npt.NDArray[np.integer[Any]]) -> Runs:
    """Runs of neighbouring tiles with equal values; tiles whose values are all zero are left out.

    Args:
        tiles: Tiles, each once and in order, integer[n].
        values: Values of each of them, integer[n] by name.
    """
    tile = np.asarray(tiles)
    columns = {name: np.asarray(each, dtype=np.int64) for name, each in values.items()}
    return joined(tile, np.ones(len(tile), dtype=np.int64), **columns)


def dense_runs(**values: npt.NDArray[np.integer[Any]]) -> Runs:
    """Runs of arrays that have an entry for each tile, integer[tiles] by name."""
    return runs_of(np.arange(max(len(each) for each in values.values())), **values)


def spread(first: npt.ArrayLike, count: npt.ArrayLike, values: npt.ArrayLike, num_tiles: int) -> Int64:
    """Values of runs as one for each tile, int64[num_tiles]; runs on the same tile add up.

    Args:
        first: First tile of each run, integer[runs].
        count: Tiles of each, integer[runs].
        values: Value of each of these tiles, int64[runs].
        num_tiles: Tiles in all.
    """
    begin = np.asarray(first, dtype=np.int64)
    steps = np.zeros(num_tiles + 1, dtype=np.int64)
    amount = np.asarray(values, dtype=np.int64)
    # Add where a run begins, subtract behind its end: the running sum is what lies on each tile.
    np.add.at(steps, begin, amount)
    np.subtract.at(steps, begin + np.asarray(count, dtype=np.int64), amount)
    return np.cumsum(steps[:-1])


def summed(first: npt.ArrayLike, count: npt.ArrayLike, **values: npt.ArrayLike) -> Runs:
    """Runs that may lie on the same tiles, added up where they do: disjoint runs in order of their tiles.

    Works on the places where a run begins or ends, of which there are two for each, so that the cost does not depend on
    how many tiles a run spans.

    Args:
        first: First tile of each run, integer[runs].
        count: Tiles of each, integer[runs].
        values: Values of each of these tiles, int64[runs] by name.
    """
    begin, length = np.asarray(first, dtype=np.int64), np.asarray(count, dtype=np.int64)
    # The same, over places where something changes instead of over tiles.
    edges, place = np.unique(np.concatenate([begin, begin + length]), return_inverse=True)
    columns: dict[str, Int64] = {}
    for name, each in values.items():
        change = np.zeros(len(edges), dtype=np.int64)
        amount = np.asarray(each, dtype=np.int64)
        np.add.at(change, place[: len(begin)], amount)
        np.subtract.at(change, place[len(begin) :], amount)
        columns[name] = np.cumsum(change)[:-1]
    lengths = np.diff(edges)
    return joined(edges[:-1], lengths, **columns)


def joined(first: npt.NDArray[Any], count: npt.NDArray[Any], **values: Int64) -> Runs:
    """Disjoint runs in order of their tiles, without those that hold zeros, neighbours with equal values as one."""
    some = np.zeros(len(first), dtype=bool)
    for column in values.values():
        some |= column != 0
    begin, length = first[some], count[some]
    columns = {name: column[some] for name, column in values.items()}
    starts = np.ones(len(begin), dtype=bool)
    if len(begin):
        # A run ends at a gap, or where any of the values changes.
        starts[1:] = begin[1:] != begin[:-1] + length[:-1]
        for column in columns.values():
            starts[1:] |= np.diff(column) != 0
    at = np.flatnonzero(starts)
    total = np.add.reduceat(length, at) if len(at) else length
    return begin[at].astype(np.int64), total.astype(np.int64), {name: column[at] for name, column in columns.items()}
