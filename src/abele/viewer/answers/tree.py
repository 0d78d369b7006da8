"""The tree of control programs as columns, each node before its contents, with the cost of every subtree.

A report's table of the program tree has the steps of every node as a range of rows, so that sums of a subtree are two
rows of running sums apart, however deep the tree is. Functions are trees once; what their nodes cost is summed over all
calls. Below the nodes that the program was written with stand the steps that the compiler made of them. Where a report
has no such table, blocks and scopes in the names of steps say how they nest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.report import Report
from abele.report.nodes import depths, parents, sizes
from abele.report.programs import program_name
from abele.report.relations import flat_ranges, rows_of
from abele.report.text_column import Text
from abele.viewer.answers.costs import StepCosts

DEEPEST = 200
"""Levels of a tree that is shown; what lies deeper is no program that somebody wrote."""
MOST_NODES = 400_000
_SCOPES = 24
"""Scopes of a step's name that become levels."""


@dataclass(frozen=True)
class Tree:
    """Nodes of control programs and functions.

    Attributes:
        depth: Levels above each, int64[nodes].
        parent: Row of the node around each, −1 for roots, int64[nodes].
        size: Nodes of its subtree, itself included, int64[nodes].
        kind: Kind of each node.
        name: Its name.
        title: Role of each node in the node around it.
        step: First row of its steps in the steps table, −1 for none, int64[nodes].
        num_steps: Its steps, int64[nodes].
        op: Row in the ops table, −1 for none, int64[nodes].
        count: Trips of a loop, int64[nodes].
        function: Row of the function that it calls, −1 for none, int64[nodes].
        source: Row in the report's table of the tree, −1 for steps and where it has none, int64[nodes].
        is_step: True for steps that the compiler made, bool[nodes].
        cycles: Cycles of a run by part, over all calls, float64[nodes, parts].
        told: True where the report holds the tree, False where it follows from names.
    """

    depth: Int64
    parent: Int64
    size: Int64
    kind: Text
    name: Text
    title: Text
    step: Int64
    num_steps: Int64
    op: Int64
    count: Int64
    function: Int64
    source: Int64
    is_step: npt.NDArray[np.bool_]
    cycles: Float64
    told: bool

    def __len__(self) -> int:
        return len(self.depth)


def tree_of(report: Report, costs: StepCosts) -> Tree:
    """The tree of a report's programs, with the steps as leaves where the whole is not too large."""
    table = report.program_tree
    if len(table):
        parent = table["parent"].astype(np.int64)
        depth = depths(parent, DEEPEST)
        if depth is not None and in_order(depth, parent):
            return _told(report, costs, depth, parent)
    return _named(report, costs)


def in_order(depth: Int64, parent: Int64) -> bool:
    """True if each node comes directly before its contents."""
    if len(depth) == 0:
        return True
    if depth[0] != 0 or bool((np.diff(depth) > 1).any()):
        return False
    return bool((parents(depth) == parent).all())


def _told(report: Report, costs: StepCosts, depth: Int64, parent: Int64) -> Tree:
    table, num_steps = report.program_tree, len(report.steps)
    first = table["first_step"].astype(np.int64)
    count = np.where(first >= 0, np.minimum(table["num_steps"], num_steps - first), 0).astype(np.int64)
    cycles = over_calls(report, costs, depth, first, count)
    columns = {name: table.columns[name] for name in ("kind", "name", "title")}
    texts = {name: column for name, column in columns.items() if isinstance(column, Text)}
    nodes = Tree(
        depth=depth,
        parent=parent,
        size=sizes(depth),
        kind=texts["kind"],
        name=texts["name"],
        title=texts["title"],
        step=first,
        num_steps=count,
        op=table["op"].astype(np.int64),
        count=table["count"].astype(np.int64),
        function=table["function"].astype(np.int64),
        source=np.arange(len(table)),
        is_step=np.zeros(len(table), dtype=bool),
        cycles=cycles,
        told=True,
    )
    if len(table) + num_steps > MOST_NODES:
        return nodes
    return _with_steps(report, costs, nodes, owners(depth, first, count, num_steps, table["function"]))


def over_calls(report: Report, costs: StepCosts, depth: Int64, first: Int64, count: Int64) -> Float64:
    """Cycles of each node by part, over all calls of the functions that it is in, float64[nodes, parts]."""
    begin = np.where(count > 0, first, 0)
    cycles = costs.between(begin, begin + count)
    calls = report.function_calls
    if not len(calls):
        return cycles
    roots = np.flatnonzero(depth == 0)
    ends = np.append(roots[1:], len(depth))
    places = calls["first_step"].astype(np.int64)
    for root, end in zip(roots.tolist(), ends.tolist(), strict=True):
        there = places[rows_of(calls, "function", root)]
        there = there[there >= 0]
        if len(there) < 2:
            continue
        total = np.zeros_like(cycles[root:end])
        inside = begin[root:end] - begin[root]
        for place in there.tolist():
            low_rows = np.clip(place + inside, 0, len(costs.part))
            total += costs.between(low_rows, np.clip(low_rows + count[root:end], 0, len(costs.part)))
        cycles[root:end] = np.where(count[root:end, None] > 0, total, 0)
    return cycles


def owners(depth: Int64, first: Int64, count: Int64, num_steps: int, function: Int64) -> Int64:
    """The deepest node that each step is of, −1 for none and for steps of a function's further calls, int64[steps]."""
    owner = np.full(num_steps, -1, dtype=np.int64)
    roots = np.flatnonzero(depth == 0)
    # A function's first call lies inside a Call of a root before it, and is the function's own.
    for root, end in zip(roots.tolist(), np.append(roots[1:], len(depth)).tolist(), strict=True):
        levels = depth[root:end]
        for level in range(int(levels.max()) + 1):
            rows = root + np.flatnonzero((levels == level) & (count[root:end] > 0))
            steps, owned = flat_ranges(first[rows], count[rows])
            owner[steps] = rows[owned]
    return np.where((owner >= 0) & (function[owner] >= 0), -1, owner)


def _with_steps(report: Report, costs: StepCosts, nodes: Tree, owner: Int64) -> Tree:
    """The tree with steps as leaves behind the other contents of their nodes, in their order."""
    steps = np.flatnonzero(owner >= 0)
    above = owner[steps]
    place = _places(nodes, steps, above, len(report.steps))
    order = np.lexsort((steps, place))
    steps, above, place = steps[order], above[order], place[order]
    old = np.arange(len(nodes)) + np.searchsorted(place, np.arange(len(nodes)), side="right")
    new = place + np.arange(len(steps))
    total = len(nodes) + len(steps)

    def merged(mine: Int64, other: Int64 | int) -> Int64:
        result = np.empty(total, dtype=np.int64)
        result[old], result[new] = mine, other
        return result

    depth = merged(nodes.depth, nodes.depth[above] + 1)
    cycles = np.empty((total, costs.cycles.shape[1]))
    cycles[old], cycles[new] = nodes.cycles, costs.cycles[steps]
    is_step = np.zeros(total, dtype=bool)
    is_step[new] = True
    shift = np.append(old, -1)
    table = report.steps
    return Tree(
        depth=depth,
        parent=parents(depth),
        size=sizes(depth),
        kind=_merged_text(nodes.kind, table.columns["kind"], old, new, steps, total),
        name=_merged_text(nodes.name, table.columns["name"], old, new, steps, total),
        title=_merged_text(nodes.title, Text(np.zeros(len(table), np.int32), ("",)), old, new, steps, total),
        step=merged(nodes.step, steps),
        num_steps=merged(nodes.num_steps, 1),
        op=merged(nodes.op, table["op"][steps].astype(np.int64)),
        count=merged(nodes.count, 1),
        function=merged(shift[nodes.function], -1),
        source=merged(nodes.source, -1),
        is_step=is_step,
        cycles=cycles,
        told=nodes.told,
    )


def _places(nodes: Tree, steps: Int64, above: Int64, num_steps: int) -> Int64:
    """Node before which each step stands: the first inside its own node with later steps."""
    root = np.cumsum(nodes.depth == 0)
    # First steps ascend in the order of nodes within a root; nodes without steps count as the one before them.
    keys = np.maximum.accumulate(root * (num_steps + 2) + np.where(nodes.num_steps > 0, nodes.step, -1) + 1)
    found = np.searchsorted(keys, root[above] * (num_steps + 2) + steps + 1, side="right")
    return np.clip(found, above + 1, above + nodes.size[above]).astype(np.int64)


def _merged_text(mine: Text, other: object, old: Int64, new: Int64, rows: Int64, total: int) -> Text:
    assert isinstance(other, Text)
    words = {word: code for code, word in enumerate(mine.words)}
    turned = np.array([words.setdefault(word, len(words)) for word in other.words], dtype=np.int32)
    codes = np.empty(total, dtype=np.int32)
    codes[old] = mine.codes
    codes[new] = turned[other.codes[rows]] if len(rows) else 0
    return Text(codes, tuple(words))


def _named(report: Report, costs: StepCosts) -> Tree:
    """The tree that programs, blocks and scopes in the names of steps make."""
    steps = report.steps
    num = len(steps)
    if not num:
        none = np.zeros(0, dtype=np.int64)
        empty = Text(np.zeros(0, np.int32), ())
        return Tree(
            depth=none,
            parent=none,
            size=none,
            kind=empty,
            name=empty,
            title=empty,
            step=none,
            num_steps=none,
            op=none,
            count=none,
            function=none,
            source=none,
            is_step=none.astype(bool),
            cycles=costs.cycles[:0],
            told=False,
        )
    levels, words = _levels(report)
    given = levels >= 0
    # A node begins where any of the levels down to its own differs from the step before.
    new = np.ones_like(given)
    new[1:] = np.logical_or.accumulate(levels[1:] != levels[:-1], axis=1)
    # The last level of a step is the step itself.
    deepest = given.sum(axis=1) - 1
    new[np.arange(num), deepest] = True
    step, depth = np.nonzero(new & given)
    is_step = depth == deepest[step]
    size = sizes(depth)
    end = np.append(step, num)[np.arange(len(step)) + size]
    kind = steps.columns["kind"]
    assert isinstance(kind, Text)
    kinds = ("Program", "Scope", *kind.words)
    code = np.where(is_step, kind.codes[step] + 2, np.where(depth == 0, 0, 1)).astype(np.int32)
    op = steps["op"].astype(np.int64)[step]
    single = np.full(len(step), -1, dtype=np.int64)
    return Tree(
        depth=depth.astype(np.int64),
        parent=parents(depth),
        size=size,
        kind=Text(code, kinds),
        name=Text(levels[step, depth].astype(np.int32), words),
        title=Text(np.zeros(len(step), np.int32), ("",)),
        step=step.astype(np.int64),
        num_steps=end - step,
        op=np.where(is_step, op, -1),
        count=np.ones(len(step), dtype=np.int64),
        function=single,
        source=single,
        is_step=is_step,
        cycles=costs.between(step, end),
        told=False,
    )


def _levels(report: Report) -> tuple[Int64, tuple[str, ...]]:
    """Words around each step, outermost first, as numbers, −1 behind the last, int64[steps, levels]."""
    steps = report.steps
    words: dict[str, int] = {}
    numbers, place = np.unique(steps["program"], return_inverse=True)
    names = [program_name(report, number) or f"program {number}" for number in numbers.tolist()]
    columns = [np.array([words.setdefault(name, len(words)) for name in names])[place][:, None]]
    for column in ("block", "name"):
        held = steps.columns[column]
        assert isinstance(held, Text)
        parts = [_scopes(word, column == "name") for word in held.words]
        width = max((len(part) for part in parts), default=0)
        coded = np.full((max(len(parts), 1), max(width, 1)), -1, dtype=np.int64)
        for row, part in enumerate(parts):
            coded[row, : len(part)] = [words.setdefault(word, len(words)) for word in part]
        columns.append(coded[held.codes])
    levels = np.concatenate(columns, axis=1)
    # Close the gaps that short block names leave.
    order = np.argsort(levels < 0, axis=1, kind="stable")
    return np.take_along_axis(levels, order, axis=1), tuple(words)


def _scopes(name: str, keeps_last: bool) -> list[str]:
    """The scopes of a name; a step's own name stays whole with what the compiler says behind a colon."""
    head, colon, tail = name.partition(": ")
    parts = [part for part in head.split("/") if part][:_SCOPES]
    if keeps_last:
        parts = parts or ["step"]
        parts.append(parts[-1] + colon + tail)
    return parts
