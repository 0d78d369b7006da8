"""The program tree of a report as columns, in the order in which one walks it.

A report of this version knows of control programs, the blocks around each step, and the steps in order: the tree has a
sequence for each control program, below it blocks, below these steps. Neighbouring steps in blocks of one name are one
block. Reports with a finer tree (loops, branches, calls) plug in here: whatever makes these columns makes the tree.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from abele.pva.sequences import Int64
from abele.report import Report, Text

Codes = npt.NDArray[np.int32]
MOST_DEEP = 16
"""Blocks that may lie in each other; the names of those further inside are one name."""


class NodeType(IntEnum):
    """What a node is."""

    SEQUENCE = 0
    BLOCK = 1
    ON_TILE_EXECUTE = 2
    DO_EXCHANGE = 3
    GLOBAL_EXCHANGE = 4
    STREAM_COPY_MID = 5
    CONTROL = 6


_OF_KIND = {
    "compute": NodeType.ON_TILE_EXECUTE,
    "copy": NodeType.ON_TILE_EXECUTE,
    "exchange": NodeType.DO_EXCHANGE,
    "stream": NodeType.STREAM_COPY_MID,
}


class ProgramNodes:
    """Columns of the nodes of a report's program tree; a node stands before those below it.

    Args:
        report: The report.

    Attributes:
        report: The report.
        type: ``NodeType`` of each node, int8[nodes].
        row: Row of the steps table of a step, -1 for others, int64[nodes].
        depth: Nodes that a node lies in, int64[nodes].
        end: The node after the last one below it, int64[nodes].
        program: Index of its control program, int64[nodes].
        name_codes: Its name as a place in ``words``, int64[nodes].
        words: The names that there are.
        roots: The nodes of the control programs, int64[programs], in order of ``program``.
        of_step: The node of each row of the steps table, int64[steps].
        blocks: For each nesting depth, the outermost first: the node of the block that each row of the steps table lies
            in at that depth, -1 for none, int64[steps].
    """

    def __init__(self, report: Report) -> None:
        self.report = report
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
        self.roots = leaves_before[starts_of] + np.arange(len(known))
        self.type = np.zeros(num_nodes, np.int8)
        self.row = np.full(num_nodes, -1, np.int64)
        self.depth = np.zeros(num_nodes, np.int64)
        self.end = np.zeros(num_nodes, np.int64)
        self.program = np.zeros(num_nodes, np.int64)
        self.name_codes = np.zeros(num_nodes, np.int64)
        self.end[self.roots] = leaves_before[ends_of] + np.arange(len(known)) + 1
        self.program[self.roots] = known
        self.row[leaf], self.depth[leaf], self.end[leaf] = order, paths.depths[order] + 1, leaf + 1
        self.program[leaf] = mine
        self.of_step = np.empty(count, np.int64)
        self.of_step[order] = leaf
        self.type[leaf] = _step_types(report)[order]
        self.blocks: list[Int64] = []
        for depth, (begins, (here, broken)) in enumerate(zip(new, levels, strict=True)):
            at = np.flatnonzero(begins)
            node = leaf[at] - (before[-1][at] - before[depth][at])
            edges = np.append(np.flatnonzero(broken), count)
            stop = edges[np.searchsorted(edges, at, side="right")]
            self.type[node], self.depth[node], self.program[node] = NodeType.BLOCK, depth + 1, mine[at]
            self.end[node] = leaf[stop - 1] + 1
            self.name_codes[node] = here[at]
            inside = np.full(count, -1, np.int64)
            lies = here >= 0
            inside[lies] = node[np.cumsum(begins)[lies] - 1]
            of_row = np.empty(count, np.int64)
            of_row[order] = inside
            self.blocks.append(of_row)
        step_names = steps.columns["name"]
        assert isinstance(step_names, Text)
        titles = {index: names[index] if index < len(names) else f"program {index}" for index in known.tolist()}
        self.words = (*paths.words, *step_names.words, *titles.values())
        self.name_codes[leaf] = step_names.codes[order] + len(paths.words)
        self.name_codes[self.roots] = np.arange(len(known)) + len(paths.words) + len(step_names.words)

    def __len__(self) -> int:
        return len(self.type)

    def name(self, node: int) -> str:
        """Name of a node."""
        return self.words[int(self.name_codes[node])]

    def children(self, node: int) -> Int64:
        """Nodes directly below one, int64[n], in order."""
        below = np.flatnonzero(self.depth[node + 1 : self.end[node]] == self.depth[node] + 1)
        return below + (node + 1)

    def subtree(self, node: int) -> Int64:
        """A node and all below it, int64[n], each before those below it."""
        return np.arange(node, int(self.end[node]))

    def root_of(self, program: int) -> int:
        """The node of a control program."""
        return int(self.roots[np.searchsorted(self.program[self.roots], program)])

    def codes_with(self, part: str) -> Int64:
        """Places in ``words`` of the names that contain a text, int64[n]."""
        return np.flatnonzero([part in word for word in self.words])


def _step_types(report: Report) -> npt.NDArray[np.int8]:
    """``NodeType`` of each row of the steps table, int8[steps]."""
    kind, partner = report.steps.columns["kind"], report.steps.columns["partner"]
    assert isinstance(kind, Text)
    assert isinstance(partner, Text)
    by_word = np.array([_OF_KIND.get(word, NodeType.CONTROL) for word in kind.words] or [NodeType.CONTROL], np.int8)
    found = by_word[kind.codes]
    replicas = partner.words.index("replicas") if "replicas" in partner.words else -1
    found[(found == NodeType.DO_EXCHANGE) & (partner.codes == replicas)] = NodeType.GLOBAL_EXCHANGE
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
