"""The program tree of a report as columns, in the order of a walk."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.report import Report, Text


class NodeType(IntEnum):
    """Kind of a program node."""

    SEQUENCE = 0
    BLOCK = 1
    ON_TILE_EXECUTE = 2
    DO_EXCHANGE = 3
    GLOBAL_EXCHANGE = 4
    STREAM_COPY_MID = 5
    CONTROL = 6
    REPEAT = 7
    REPEAT_WHILE = 8
    IF = 9
    SWITCH = 10
    CALL = 11
    LIBRARY_CALL = 12
    SYNC = 13
    WRITE_UNDEF = 14


_OF_KIND = {
    "compute": NodeType.ON_TILE_EXECUTE,
    "copy": NodeType.ON_TILE_EXECUTE,
    "exchange": NodeType.DO_EXCHANGE,
    "stream": NodeType.STREAM_COPY_MID,
}


@dataclass(frozen=True, eq=False)
class NodeColumns:
    """The nodes of a program tree; a node stands before those below it.

    Attributes:
        type: ``NodeType`` of each node, int8[nodes].
        row: Row of the steps table of a step, -1 for others, int64[nodes].
        source: Row of the report's program tree of what is no step, -1 for others, int64[nodes].
        depth: Nodes that a node lies in, int64[nodes].
        end: The node after the last one below it, int64[nodes].
        name_codes: Its name as a place in ``words``, int64[nodes].
        words: The names that there are.
        roots: The nodes of the control programs, int64[programs].
        programs: Index of each of these, int64[programs], ascending.
        functions: The nodes of functions, int64[functions].
        of_step: The node of each row of the steps table, int64[steps]; rows of one step of a function, at the places
            where that is called, have one node.
        blocks: For each nesting depth, the outermost first: the node of the block that each row of the steps table lies
            in at that depth, -1 for none, int64[steps].
    """

    type: npt.NDArray[np.int8]
    row: Int64
    source: Int64
    depth: Int64
    end: Int64
    name_codes: Int64
    words: tuple[str, ...]
    roots: Int64
    programs: Int64
    functions: Int64
    of_step: Int64
    blocks: list[Int64]


class ProgramNodes:
    """The program tree of a report: what the report says of it, or what its steps and their blocks do.

    Args:
        report: The report.

    Attributes:
        report: The report.
    """

    def __init__(self, report: Report) -> None:
        self.report = report

    @cached_property
    def columns(self) -> NodeColumns:
        """The nodes, made when somebody asks for one."""
        from abele.pva.nodes_of_tree import nodes_of_tree

        found = nodes_of_tree(self.report)
        return nodes_of_steps(self.report) if found is None else found

    @property
    def type(self) -> npt.NDArray[np.int8]:
        """``NodeType`` of each node, int8[nodes]."""
        return self.columns.type

    @property
    def row(self) -> Int64:
        """Row of the steps table of a step, -1 for others, int64[nodes]."""
        return self.columns.row

    @property
    def of_step(self) -> Int64:
        """The node of each row of the steps table, int64[steps]."""
        return self.columns.of_step

    @property
    def roots(self) -> Int64:
        """The nodes of the control programs, int64[programs]."""
        return self.columns.roots

    @property
    def blocks(self) -> list[Int64]:
        """The blocks around each row of the steps table, one array per nesting depth, int64[steps] each."""
        return self.columns.blocks

    def __len__(self) -> int:
        return len(self.type)

    def name(self, node: int) -> str:
        """Name of a node."""
        return self.columns.words[int(self.columns.name_codes[node])]

    def children(self, node: int) -> Int64:
        """Nodes directly below one, int64[n], in order."""
        depth = self.columns.depth
        below = np.flatnonzero(depth[node + 1 : self.columns.end[node]] == depth[node] + 1)
        return below + (node + 1)

    def subtree(self, node: int) -> Int64:
        """A node and all below it, int64[n], each before those below it."""
        return np.arange(node, int(self.columns.end[node]))

    def functions_of(self, nodes: Int64) -> Int64:
        """The functions that some nodes call, int64[n], each once."""
        source = self.columns.source[nodes[self.type[nodes] == NodeType.CALL]]
        called = self.report.program_tree["function"][source[source >= 0]]
        functions = self.columns.functions
        return functions[np.isin(self.columns.source[functions], called)]

    def root_of(self, program: int) -> int:
        """The node of a control program."""
        return int(self.roots[np.searchsorted(self.columns.programs, program)])

    def codes_with(self, part: str) -> Int64:
        """Places in ``words`` of the names that contain a text, int64[n]."""
        return np.flatnonzero([part in word for word in self.columns.words])


def step_types(report: Report) -> npt.NDArray[np.int8]:
    """``NodeType`` of each row of the steps table, int8[steps]."""
    kind, partner = report.steps.columns["kind"], report.steps.columns["partner"]
    assert isinstance(kind, Text)
    assert isinstance(partner, Text)
    by_word = np.array([_OF_KIND.get(word, NodeType.CONTROL) for word in kind.words] or [NodeType.CONTROL], np.int8)
    found = by_word[kind.codes]
    replicas = partner.words.index("replicas") if "replicas" in partner.words else -1
    sync = _rows_of_syncs(report)
    found[sync] = NodeType.SYNC
    found[(found == NodeType.DO_EXCHANGE) & (partner.codes == replicas)] = NodeType.GLOBAL_EXCHANGE
    return found


def _rows_of_syncs(report: Report) -> Int64:
    """Rows of the steps table that are barriers, int64[n]; none where the report does not say."""
    kind = report.supersteps.columns["kind"]
    assert isinstance(kind, Text)
    if "sync" not in kind.words:
        return np.zeros(0, np.int64)
    barriers = np.flatnonzero(kind.codes == kind.words.index("sync"))
    return np.flatnonzero(np.isin(report.steps["superstep"], barriers))


# The program tree of a report that has none, such as one of an earlier version: steps and the blocks around them.
#
# It has a sequence for each control program, below it blocks, below these steps. Neighbouring steps in blocks of one
# name are one block.

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
