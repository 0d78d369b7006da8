"""The program tree of a report that has none, such as one of an earlier version: steps and the blocks around them.

It has a sequence for each control program, below it blocks, below these steps. Neighbouring steps in blocks of one name
are one block.
"""

from __future__ import annotations

import numpy as np

from abele.pva.program_nodes import NodeColumns, NodeType, step_types
from abele.pva.sequences import Int64
from abele.report import Report, Text

MOST_DEEP = 16
"""Blocks that may lie in each other; the names of those further inside are one name."""


def nodes_of_steps(report: Report) -> NodeColumns:
    """The nodes that the steps table and its blocks make.

    Args:
        report: The report.
    """
    steps = report.steps
    names = [str(name) for name in report.meta.get("programs", [])]
    program = steps["program"].astype(np.int64)
    order = np.argsort(program, kind="stable")
    known = np.union1d(np.unique(program), np.arange(len(names)))
    paths = _block_paths(steps.columns["block"])
    # What is new at each row in order: the outermost block that changes, and all blocks inside of it.
    mine, count = program[order], len(order)
    first_row = np.ones(count, bool)
    first_row[1:] = mine[1:] != mine[:-1]
    breaks, new, levels = first_row, [], []
    for level in paths.levels:
        here = level[order]
        changed = np.ones(count, bool)
        changed[1:] = here[1:] != here[:-1]
        breaks = breaks | changed
        new.append(breaks & (here >= 0))
        levels.append((here, breaks))
    before = np.cumsum([np.zeros(count, np.int64), *new], axis=0)  # Blocks opened at a row, outer ones first.
    position = np.searchsorted(known, mine)
    # A node for the row, for the blocks that begin at it, and for each program up to its own.
    leaf = np.cumsum(before[-1] + 1) - 1 + position + 1
    num_nodes = count + int(before[-1].sum()) + len(known)
    ends_of = np.searchsorted(position, np.arange(len(known)), side="right")
    starts_of = np.searchsorted(position, np.arange(len(known)), side="left")
    leaves_before = np.concatenate([[0], np.cumsum(before[-1] + 1)])
    roots = leaves_before[starts_of] + np.arange(len(known))
    kind = np.zeros(num_nodes, np.int8)
    row = np.full(num_nodes, -1, np.int64)
    depth = np.zeros(num_nodes, np.int64)
    end = np.zeros(num_nodes, np.int64)
    name_codes = np.zeros(num_nodes, np.int64)
    end[roots] = leaves_before[ends_of] + np.arange(len(known)) + 1
    row[leaf], depth[leaf], end[leaf] = order, paths.depths[order] + 1, leaf + 1
    of_step = np.empty(count, np.int64)
    of_step[order] = leaf
    kind[leaf] = step_types(report)[order]
    blocks: list[Int64] = []
    for deep, (begins, (here, broken)) in enumerate(zip(new, levels, strict=True)):
        at = np.flatnonzero(begins)
        node = leaf[at] - (before[-1][at] - before[deep][at])
        edges = np.append(np.flatnonzero(broken), count)
        stop = edges[np.searchsorted(edges, at, side="right")]
        kind[node], depth[node] = NodeType.BLOCK, deep + 1
        end[node] = leaf[stop - 1] + 1
        name_codes[node] = here[at]
        inside = np.full(count, -1, np.int64)
        lies = here >= 0
        inside[lies] = node[np.cumsum(begins)[lies] - 1]
        of_row = np.empty(count, np.int64)
        of_row[order] = inside
        blocks.append(of_row)
    step_names = steps.columns["name"]
    assert isinstance(step_names, Text)
    titles = {index: names[index] if index < len(names) else f"program {index}" for index in known.tolist()}
    words = (*paths.words, *step_names.words, *titles.values())
    name_codes[leaf] = step_names.codes[order] + len(paths.words)
    name_codes[roots] = np.arange(len(known)) + len(paths.words) + len(step_names.words)
    return NodeColumns(
        type=kind,
        row=row,
        source=np.full(num_nodes, -1, np.int64),
        depth=depth,
        end=end,
        name_codes=name_codes,
        words=words,
        roots=roots,
        programs=known,
        functions=np.zeros(0, np.int64),
        of_step=of_step,
        blocks=blocks,
    )


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
