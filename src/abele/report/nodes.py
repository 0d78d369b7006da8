"""Questions about the program tree: which steps a node became, and which node each step came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import InvalidOptionError
from abele.report.relations import flat_ranges, ranges_of, rows_of

if TYPE_CHECKING:
    from abele.report.report import Report


_MOST_NESTED = 256
"""Most levels of nodes of our programs, functions included; deeper ones in a file are left out."""


def steps_of_node(report: Report, node: int) -> Int64:
    """Rows of the steps table that a node became, and those of all that is inside, int64[n], ascending.

    Those of a node in a function are there for each call of it.

    Args:
        report: The report.
        node: Row in the program tree.

    Raises:
        InvalidOptionError: There is no such node.
    """
    tree = report.program_tree
    if not 0 <= node < len(tree):
        raise InvalidOptionError(f"no node {node}", remedy=f"the report has rows 0 to {len(tree) - 1}")
    first, count = int(tree["first_step"][node]), int(tree["num_steps"][node])
    if first < 0:
        return np.empty(0, dtype=np.int64)
    parent, root = tree["parent"], node
    # A node comes after the one around it, so this ends.
    while parent[root] >= 0:
        root = int(parent[root])
    begins = np.array([first], dtype=np.int64)
    calls = report.function_calls
    rows = rows_of(calls, "function", root)
    if rows.stop > rows.start:
        begins = calls["first_step"][rows].astype(np.int64) + (first - int(tree["first_step"][root]))
    # Places are apart, so there are no more than have room among the steps.
    found = (begins[: len(report.steps) // max(count, 1), None] + np.arange(min(count, len(report.steps)))).ravel()
    return np.unique(found[(found >= 0) & (found < len(report.steps))])


def nodes_by_step(report: Report) -> npt.NDArray[np.int32]:
    """The innermost node that each row of the steps table came from, int32[steps]; −1 where the report does not say.

    All nodes at all places are intervals of steps that lie in one another or apart. Those of one depth are apart, so
    that depth after depth is written at once, and what is further inside comes later.
    """
    tree, calls = report.program_tree, report.function_calls
    result = np.full(len(report.steps), -1, dtype=np.int32)
    if not len(tree):
        return result
    node, begin = _places(report)
    size = tree["num_steps"][node].astype(np.int64)
    fits = (begin >= 0) & (size > 0) & (begin + size <= len(result))
    node, begin, size = node[fits], begin[fits], size[fits]
    depth = _depths_over_calls(tree["parent"], calls["function"], calls["call"])[node]
    order = np.argsort(depth, kind="stable")
    bounds = np.flatnonzero(np.diff(depth[order])) + 1
    for level in np.split(order, bounds):
        level = level[np.cumsum(size[level]) <= len(result)]
        at, which = flat_ranges(begin[level], size[level])
        result[at] = node[level][which]
    return result


def _places(report: Report) -> tuple[Int64, Int64]:
    """Each node that became steps at each place, and its first row of the steps table there, int64[n] each."""
    tree, calls = report.program_tree, report.function_calls
    root = roots(tree["parent"])
    low, count = ranges_of(calls, "function", root)
    count[tree["num_steps"] <= 0] = 0
    count[np.cumsum(count) > _MOST_NESTED * len(report.steps)] = 0
    alone = np.flatnonzero(count == 0)
    place, within = flat_ranges(low, count)
    first = tree["first_step"].astype(np.int64)
    there = calls["first_step"][place].astype(np.int64) + first[within] - first[root[within]]
    there[(calls["first_step"][place] < 0) | (first[within] < 0)] = -1
    return np.concatenate([alone, within]), np.concatenate([first[alone], there])


# Trees as columns: each node before its contents, with the row of the node around it or the number of those.


def depths(parent: Int64, most: int) -> Int64 | None:
    """Nodes around each node, int64[nodes]; None where there are ``most`` or more, or they go round."""
    depth, above = np.zeros(len(parent), dtype=np.int64), parent
    for _ in range(most):
        inside = above >= 0
        if not inside.any():
            return depth
        depth += inside
        above = np.where(inside, parent[above], -1)
    return None


def parents(depth: Int64) -> Int64:
    """The node around each: the last one before it that is a level above, int64[nodes]; −1 for roots."""
    found = np.full(len(depth), -1, dtype=np.int64)
    rows = np.arange(len(depth))
    for level in range(1, int(depth.max(initial=0)) + 1):
        latest = np.maximum.accumulate(np.where(depth == level - 1, rows, -1))
        found[depth == level] = latest[depth == level]
    return found


def sizes(depth: Int64) -> Int64:
    """Nodes of each subtree, itself included: up to the next node that is not deeper, int64[nodes]."""
    end = np.full(len(depth), len(depth), dtype=np.int64)
    rows = np.arange(len(depth))
    for level in range(int(depth.max(initial=0)) + 1):
        ends = np.where(depth <= level, rows, len(depth))
        following = np.append(np.minimum.accumulate(ends[::-1])[::-1][1:], len(depth))
        end[depth == level] = following[depth == level]
    return end - rows


def roots(parent: npt.NDArray[np.integer[Any]]) -> Int64:
    """The root above each node, int64[nodes]."""
    above = np.where(parent < 0, np.arange(len(parent)), parent).astype(np.int64)
    # Pointer doubling: each round goes twice as far up.
    while True:
        further = above[above]
        if np.array_equal(further, above):
            return above
        above = further


def _depths_over_calls(
    parent: npt.NDArray[np.int32], function: npt.NDArray[np.int32], call: npt.NDArray[np.int32]
) -> Int64:
    """Depth of each node, int64[n]; a function is deeper than every Call of it.

    Each round reaches one level more, so that there are as many rounds as levels.
    """
    depth = np.zeros(len(parent), dtype=np.int64)
    inner = np.flatnonzero(parent >= 0)
    above = parent[inner]
    for _ in range(_MOST_NESTED):
        deeper = depth.copy()
        deeper[inner] = depth[above] + 1
        np.maximum.at(deeper, function, depth[call] + 1)
        if np.array_equal(deeper, depth):
            break
        depth = deeper
    return depth
