"""The program tree of a report that has none, such as one of an earlier version: steps and the blocks around them.

It has a sequence for each control program, below it blocks, below these steps. Neighbouring steps in blocks of one name
are one block.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.pva.program_nodes import NodeColumns, NodeType, step_types
from abele.report import Report, Text

MOST_DEEP = 16
"""Blocks that may lie in each other; the names of those further inside are one name."""


def nodes_of_steps(report: Report) -> NodeColumns:
    """The nodes that the steps table and its blocks make.

    Args:
        report: The report.
    """
    steps = report.steps
    titles = [str(name) for name in report.meta.get("programs", [])]
    program = steps["program"].astype(np.int64)
    known = np.union1d(np.unique(program), np.arange(len(titles)))
    # Rows by program; a block begins where its level, or one further out, changes.
    paths = _block_paths(steps.columns["block"])
    order = np.argsort(program, kind="stable")
    mine, count = program[order], len(order)
    levels = [level[order] for level in paths.levels]
    broken = _broken(mine, levels)
    new = [breaks & (here >= 0) for breaks, here in zip(broken, levels, strict=True)]
    # Blocks that begin at a row, outer ones first: how many of them lie further out than each depth.
    before = np.cumsum([np.zeros(count, np.int64), *new], axis=0)
    # A node for each row, for the blocks that begin at it, and for each program up to its own.
    position = np.searchsorted(known, mine)
    leaf = np.cumsum(before[-1] + 1) + position
    leaves_before = np.concatenate([[0], np.cumsum(before[-1] + 1)])
    first, last = (np.searchsorted(position, np.arange(len(known)), side=side) for side in ("left", "right"))
    roots = leaves_before[first] + np.arange(len(known))
    num_nodes = int(leaves_before[-1]) + len(known)
    # Fill the columns: programs, then a leaf for each row.
    kind, row = np.full(num_nodes, NodeType.SEQUENCE, np.int8), np.full(num_nodes, -1, np.int64)
    depth, end, name_codes = (np.zeros(num_nodes, np.int64) for _ in range(3))
    end[roots] = leaves_before[last] + np.arange(len(known)) + 1
    kind[leaf], row[leaf] = step_types(report)[order], order
    depth[leaf], end[leaf] = paths.depths[order] + 1, leaf + 1
    # Blocks depth by depth: a node stands before its leaf by the number of blocks between, and ends where the level
    # breaks.
    blocks: list[Int64] = []
    for deep, begins in enumerate(new):
        at = np.flatnonzero(begins)
        node = leaf[at] - (before[-1][at] - before[deep][at])
        edges = np.append(np.flatnonzero(broken[deep]), count)
        stop = edges[np.searchsorted(edges, at, side="right")]
        kind[node], depth[node], end[node] = NodeType.BLOCK, deep + 1, leaf[stop - 1] + 1
        name_codes[node] = levels[deep][at]
        lies = levels[deep] >= 0
        blocks.append(np.full(count, -1, np.int64))
        blocks[-1][order[lies]] = node[np.cumsum(begins)[lies] - 1]
    names = steps.columns["name"]
    assert isinstance(names, Text)
    name_codes[leaf] = names.codes[order] + len(paths.words)
    name_codes[roots] = np.arange(len(known)) + len(paths.words) + len(names.words)
    called = (titles[index] if index < len(titles) else f"program {index}" for index in known.tolist())
    of_step = np.empty(count, np.int64)
    of_step[order] = leaf
    return NodeColumns(
        type=kind,
        row=row,
        source=np.full(num_nodes, -1, np.int64),
        depth=depth,
        end=end,
        name_codes=name_codes,
        words=(*paths.words, *names.words, *called),
        roots=roots,
        programs=known,
        functions=np.zeros(0, np.int64),
        of_step=of_step,
        blocks=blocks,
    )


def _broken(program: Int64, levels: list[Int64]) -> list[npt.NDArray[np.bool_]]:
    """True for rows where another block begins at a nesting depth or further out, or another program: bool[rows] by
    depth.
    """
    found: list[npt.NDArray[np.bool_]] = []
    breaks = _differs(program)
    for level in levels:
        breaks = breaks | _differs(level)
        found.append(breaks)
    return found


def _differs(values: Int64) -> npt.NDArray[np.bool_]:
    """True where a row differs from the one before, and at row 0, bool[rows]."""
    found = np.ones(len(values), bool)
    found[1:] = values[1:] != values[:-1]
    return found


class _Paths:
    """Names of blocks by nesting depth.

    Attributes:
        levels: One array per depth: the name of the block that a row lies in, as a place in ``words``, -1 for none.
        depths: Blocks around each row, int64[rows].
        words: The names of blocks.
    """

    def __init__(self, levels: list[Int64], depths: Int64, words: tuple[str, ...]) -> None:
        self.levels = levels
        self.depths = depths
        self.words = words


def _block_paths(column: object) -> _Paths:
    assert isinstance(column, Text)
    parts = [word.split("/", MOST_DEEP - 1) if word else [] for word in column.words]
    numbers: dict[str, int] = {}
    deepest = max(map(len, parts), default=0)
    table = np.full((deepest, max(len(parts), 1)), -1, np.int64)
    for code, names in enumerate(parts):
        for depth, name in enumerate(names):
            table[depth, code] = numbers.setdefault(name, len(numbers))
    depths = np.array([len(names) for names in parts] or [0], np.int64)
    return _Paths([level[column.codes] for level in table], depths[column.codes], tuple(numbers))
