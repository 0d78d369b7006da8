"""Trees from paths: rows with the same outer levels stand together, each node before its contents."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64

_CLASS = re.compile(r"^(?P<path>.*?)\s*\((?P<type>[^()]*)\)$")
DEEPEST = 24
"""Levels of a path that are told apart."""


@dataclass(frozen=True)
class Nested:
    """A tree whose leaves are the rows of a table.

    Attributes:
        depth: Levels above each node, int64[nodes].
        level: Number that its own level has, −1 for leaves, int64[nodes].
        row: The row of a leaf, −1 for others, int64[nodes].
        first: Its first leaf in ``leaves``, int64[nodes].
        leaves: Rows in the order of the tree, int64[rows].
        num_leaves: Leaves of its subtree, int64[nodes].
        size: Nodes of its subtree, itself included, int64[nodes].
    """

    depth: Int64
    level: Int64
    row: Int64
    first: Int64
    leaves: Int64
    num_leaves: Int64
    size: Int64


def nested(levels: Int64) -> Nested:
    """The tree of some paths.

    Args:
        levels: Numbers of the levels of each row, outermost first, −1 behind the last, int64[rows, levels].

    Groups stand in the order in which they come up first, rows inside one in their own.
    """
    num, width = levels.shape
    ranks = np.stack([_appearance(levels[:, : k + 1]) for k in range(width)], axis=1) if width else levels
    leaves = np.lexsort((np.arange(num), *ranks.T[::-1])) if width else np.arange(num)
    ordered, place = levels[leaves], ranks[leaves]
    new = np.ones((num, width), dtype=bool)
    new[1:] = np.logical_or.accumulate(place[1:] != place[:-1], axis=1)
    given = ordered >= 0
    begins = np.concatenate([new & given, np.ones((num, 1), dtype=bool)], axis=1)
    at, column = np.nonzero(begins)
    is_leaf = column == width
    depth = np.where(is_leaf, given.sum(axis=1)[at] if num else 0, column)
    level = np.where(is_leaf, -1, np.concatenate([ordered, np.full((num, 1), -1)], axis=1)[at, column])
    size = _sizes(depth)
    ends = np.append(at, num)[np.arange(len(at)) + size]
    return Nested(
        depth=depth,
        level=level,
        row=np.where(is_leaf, leaves[at] if num else 0, -1),
        first=at,
        leaves=leaves,
        num_leaves=ends - at,
        size=size,
    )


def _appearance(columns: Int64) -> Int64:
    """First row with the same levels as each row, int64[rows]."""
    if not len(columns):
        return np.zeros(0, dtype=np.int64)
    _, first, place = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[place.reshape(-1)], dtype=np.int64)


def _sizes(depth: Int64) -> Int64:
    from abele.viewer.answers.tree import sizes

    return sizes(depth.astype(np.int64))


def split_path(path: str) -> tuple[list[str], str]:
    """The modules that a path of scopes names, outermost first, and the class of the innermost where it is told.

    ``model.conv1 (Conv2d)`` is ``model``, ``conv1`` of class ``Conv2d``.
    """
    found = _CLASS.match(path)
    kind = found["type"] if found else ""
    text = found["path"] if found else path
    return [part for part in re.split(r"[/.]", text) if part][:DEEPEST], kind
