"""Account of the program tree: control programs and functions as rows, and the steps that their nodes became.

Lowering goes through the tree in one order and gives steps numbers as it goes, so the same walk with a counter finds
the steps of every node: those between the number at which it is entered and the one at which it is left. A function is
lowered again for every call, always into as many steps, because it has one copy of its code. So its nodes are rows
once, with the steps of the first call, and each further call is one number: where its steps begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.compiler.lower import Lowered
from abele.graph.control import Block, CycleCount
from abele.graph.debug import DebugRecord
from abele.graph.flow import InOrder, OneOf, Rounds, While
from abele.graph.program import Call, Copy, Execute, Function, LibraryCall, Program, Repeat, Steps
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import Stream
from abele.report import FUNCTION_CALLS, PROGRAM_TREE, Table


class TreeTables(NamedTuple):
    """Tables of the report about control programs.

    Attributes:
        program_tree: Programs and functions as trees.
        function_calls: Calls of functions.
    """

    program_tree: Table
    function_calls: Table


def tree_tables(
    programs: Sequence[Program], names: Sequence[str], lowered: Lowered, first_row: Int64, ops: Mapping[int, int]
) -> TreeTables:
    """The tables of control programs and functions.

    Args:
        programs: The control programs.
        names: Their names.
        lowered: Their steps.
        first_row: First row of each step in the steps table, and the number of rows, int64[steps + 1].
        ops: Row in the ops table of the nodes that have one, by their id.
    """
    walk = _TreeWalk(lowered)
    roots = [walk.root(name, None, body) for name, body in zip(names, programs, strict=True)]
    # Functions finish after those that they call; the other way round, callers come first.
    roots += reversed(walk.finished)
    sizes = [1 + len(root.nodes) for root in roots]
    offsets = (np.cumsum(sizes) - sizes).tolist()
    row_of = {id(root): row for root, row in zip(roots, offsets, strict=True)}
    return TreeTables(_nodes_table(roots, row_of, first_row, ops), _calls_table(roots, row_of, first_row))


def _nodes_table(roots: Sequence[_Root], row_of: Mapping[int, int], first_row: Int64, ops: Mapping[int, int]) -> Table:
    parent: list[int] = []
    debug: list[DebugRecord | None] = []
    kind, name, title = list[str](), list[str](), list[str]()
    count, op, first, end = list[int](), list[int](), list[int](), list[int]()
    function = np.full(sum(1 + len(root.nodes) for root in roots), -1, dtype=np.int64)
    for root in roots:
        row = row_of[id(root)]
        parent += [-1, *(row + 1 + p for p in root.parents)]
        kind += ["Program" if root.debug is None else "Function", *map(_kind, root.nodes)]
        name += [root.name, *map(_name, root.nodes)]
        title += ["", *root.titles]
        debug += [root.debug, *map(_debug, root.nodes)]
        count += [1, *(node.count if isinstance(node, Repeat) else 1 for node in root.nodes)]
        op += [-1, *(ops.get(id(node), -1) for node in root.nodes)]
        first += [root.first, *root.firsts]
        end += [root.end, *root.ends]
        for call, called, _ in root.calls:
            function[row + 1 + call] = row_of[id(called)]
    begin, stop = first_row[np.array(first, dtype=np.int64)], first_row[np.array(end, dtype=np.int64)]
    return PROGRAM_TREE.table(
        parent=parent,
        kind=kind,
        name=name,
        title=title,
        file=["" if d is None else d.file for d in debug],
        line=[0 if d is None else d.line for d in debug],
        count=count,
        function=function,
        op=op,
        first_step=np.where(stop > begin, begin, -1),
        num_steps=stop - begin,
    )


def _calls_table(roots: Sequence[_Root], row_of: Mapping[int, int], first_row: Int64) -> Table:
    """Calls of functions: those in a function come up at each place where that is called itself."""
    places = {id(root): [np.empty(0, np.int64)] if root.debug else [np.array([root.first])] for root in roots}
    lines = [np.empty((4, 0), dtype=np.int64)]
    for root in roots:
        # Callers come first, so all places of this one are known.
        here = np.concatenate(places[id(root)])
        for call, called, first in root.calls:
            there = here + (first - root.first)
            places[id(called)].append(there)
            facts = row_of[id(called)], row_of[id(root)] + 1 + call, called.end - called.first
            lines.append(np.stack([there, *(np.full(len(there), fact) for fact in facts)]))
    at, function, call, size = np.concatenate(lines, axis=1)
    order = np.lexsort((at, function))
    begin, stop = first_row[at][order], first_row[at + size][order]
    return FUNCTION_CALLS.table(
        function=function[order], call=call[order], first_step=np.where(stop > begin, begin, -1)
    )


def _kind(node: Program) -> str:
    if isinstance(node, Copy):
        ends = (node.source, node.destination)
        if any(isinstance(end, Stream) for end in ends):
            return "StreamCopy"
        if any(isinstance(end, RemoteBuffer) for end in ends):
            return "RemoteCopy"
    return type(node).__name__


def _debug(node: Program) -> DebugRecord:
    return node.debug


def _name(node: Program) -> str:
    if isinstance(node, Copy):
        outside = [end for end in (node.source, node.destination) if isinstance(end, Stream | RemoteBuffer)]
        return outside[0].name if outside else node.debug.full_name
    return node.compute_set.name if isinstance(node, Execute) else node.debug.full_name


@dataclass(eq=False, slots=True)
class _Root:
    """A control program or a function, with the nodes in it.

    Attributes:
        name: Its name.
        debug: Place where the user made it; None for programs.
        first: First step of its body where that is reached first.
        end: One past the last.
        nodes: The nodes, parents before children.
        parents: Row of the node around each among the nodes, −1 for the body.
        titles: Role of each in the node around it.
        firsts: First step of each.
        ends: One past its last.
        calls: Each Call among them: its row, its function, and the first step of the body there.
    """

    name: str
    debug: DebugRecord | None
    first: int = 0
    end: int = 0
    nodes: list[Program] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    calls: list[tuple[int, _Root, int]] = field(default_factory=list)


class _TreeWalk:
    """The walk through the programs, in the order of lowering.

    Attributes:
        finished: Functions, each after those that it calls.
    """

    def __init__(self, lowered: Lowered) -> None:
        self.finished: list[_Root] = []
        self._steps = lowered.steps
        self._at = 0
        self._functions: dict[int, _Root] = {}

    def root(self, name: str, debug: DebugRecord | None, body: Program) -> _Root:
        """A program or function that is reached now."""
        found = _Root(name, debug, first=self._at)
        self._node(found, body, -1, "body")
        found.end = self._at
        return found

    def _node(self, root: _Root, node: Program, parent: int, title: str) -> None:
        row = len(root.nodes)
        root.nodes.append(node)
        root.parents.append(parent)
        root.titles.append(title)
        root.firsts.append(self._at)
        root.ends.append(-1)
        if isinstance(node, Call):
            self._call(root, node, row)
        else:
            for inner, each in _inside(node):
                if inner is None:
                    self._step(node)
                else:
                    self._node(root, inner, row, each)
        root.ends[row] = self._at

    def _step(self, node: Program) -> None:
        assert self._steps[self._at].node is node, f"step {self._at} is not what the tree says"
        self._at += 1

    def _call(self, root: _Root, node: Call, row: int) -> None:
        for copy in node.copies_in:
            self._node(root, copy, row, "arguments")
        first, found = self._at, self._functions.get(id(node.function))
        if found is None:
            found = self._first_call(node.function)
        else:
            self._at += found.end - found.first
        root.calls.append((row, found, first))
        for copy in node.copies_out:
            self._node(root, copy, row, "results")

    def _first_call(self, function: Function) -> _Root:
        found = self.root(function.debug.full_name, function.debug, function.body)
        self._functions[id(function)] = found
        self.finished.append(found)
        return found


def _inside(node: Program) -> Iterator[tuple[Program | None, str]]:
    """Children of a node, with their titles, in the order in which they are lowered; None for a step of its own."""
    match node:
        case LibraryCall() | Block():
            yield node.body, "body"
            return
        case CycleCount():
            yield from ((None, ""), (node.body, "body"), (None, ""))
            return
    match node.flow():
        case Rounds(_, body):
            yield body, "body"
        case While() as loop:
            yield from ((loop.condition, "condition"), (None, ""), (loop.body, "body"))
        case OneOf() as branch:
            yield None, ""
            yield from zip(branch.ways, branch.titles, strict=True)
        case InOrder(steps) if steps or type(node) in (Steps, Program):
            yield from ((step, "") for step in steps)
        case _:
            yield None, ""
