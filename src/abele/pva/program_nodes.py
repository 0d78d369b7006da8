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
        from abele.pva.nodes_of_steps import nodes_of_steps
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
