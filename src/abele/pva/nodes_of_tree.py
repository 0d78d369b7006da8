"""The program tree as a report tells it: control programs and functions as they were written, and below them steps.

What became steps stands in the tree as these steps. A function is there once, with the steps of its first call; the
rows that it became at other calls lead to the same nodes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.pva.program_nodes import NodeColumns, NodeType, step_types
from abele.report import Report, Text
from abele.report.nodes import depths, roots, sizes
from abele.report.relations import flat_ranges, ranges_of

_OF_KIND = {
    "Block": NodeType.BLOCK,
    "Repeat": NodeType.REPEAT,
    "RepeatWhile": NodeType.REPEAT_WHILE,
    "If": NodeType.IF,
    "Switch": NodeType.SWITCH,
    "Call": NodeType.CALL,
    "LibraryCall": NodeType.LIBRARY_CALL,
    "WriteUndef": NodeType.WRITE_UNDEF,
}
_ALWAYS_TOLD = {"Program", "Function", "Sequence", "WriteUndef", *_OF_KIND}
"""Kinds of nodes that stand in the tree also where nothing is inside; others stand there as the steps they became."""
_MOST_DEEP = 256
_MOST_BLOCKS_DEEP = 16


def nodes_of_tree(report: Report) -> NodeColumns | None:
    """The nodes of the report's program tree.

    Args:
        report: The report.

    Returns:
        None where the report has no tree, or one that does not hold its steps.
    """
    tree = report.program_tree
    owner = report.nodes_by_step.astype(np.int64)
    parent = tree["parent"].astype(np.int64)
    depth = depths(parent, _MOST_DEEP)
    if not len(tree) or (owner < 0).any() or depth is None:
        return None
    kind, names, step_names = tree.columns["kind"], tree.columns["name"], report.steps.columns["name"]
    assert isinstance(kind, Text)
    assert isinstance(names, Text)
    assert isinstance(step_names, Text)
    # Refuse a tree whose programs do not hold the steps in order: the caller then makes nodes of the steps alone.
    root = roots(parent)
    programs = _with_kind(kind, "Program")
    place = _first_places(report, root[owner])
    if not _are_places(place, owner, step_names.codes) or not _are_programs(report, programs, root[owner]):
        return None
    # Nodes to show: kinds that libpva has, and whatever has something inside. Steps are leaves.
    told = np.array([word in _ALWAYS_TOLD for word in kind.words], bool)[kind.codes]
    told[parent[parent >= 0]] = True
    leaves = np.flatnonzero(place == np.arange(len(place)))
    anchor = _anchors(tree["first_step"].astype(np.int64), root, root[owner[leaves]], leaves)
    # Holder of each node; where the owner of a step is shown as its steps, they lie in the owner's holder.
    holder = np.append(parent, np.where(told[owner[leaves]], owner[leaves], parent[owner[leaves]]))
    # Nodes of the tree, and behind each the steps that follow it.
    order = np.lexsort((np.append(np.full(len(tree), -1), leaves), np.append(np.arange(len(tree)), anchor)))
    order = order[np.append(told, np.ones(len(leaves), bool))[order]]
    is_step = order >= len(tree)
    nodes, steps = order[~is_step], leaves[order[is_step] - len(tree)]
    # Columns in the order of the walk, from the tree for nodes and from the steps table for leaves.
    source, row, types, codes = (np.full(len(order), -1, np.int64) for _ in range(4))
    source[~is_step], row[is_step] = nodes, steps
    types[~is_step] = np.array([_OF_KIND.get(word, NodeType.SEQUENCE) for word in kind.words])[kind.codes[nodes]]
    types[is_step] = step_types(report)[steps]
    codes[~is_step], codes[is_step] = names.codes[nodes], step_names.codes[steps] + len(names.words)
    node_of_source = np.full(len(tree), -1, np.int64)
    node_of_source[nodes] = np.flatnonzero(~is_step)
    # The end of each subtree follows from depths alone; it is right only if each node lies inside of its holder.
    level = np.where(is_step, depth[holder[order]] + 1, depth[np.maximum(source, 0)])
    end = np.arange(len(level)) + sizes(level)
    inner = np.flatnonzero(holder[order] >= 0)
    if (holder[order[is_step]] < 0).any() or not _lie_in(inner, node_of_source[holder[order[inner]]], level, end):
        return None
    # Steps that a function repeats at several calls share the node of the first.
    of_row = np.full(len(owner), -1, np.int64)
    of_row[steps] = np.flatnonzero(is_step)
    return NodeColumns(
        type=types.astype(np.int8),
        row=row,
        source=source,
        depth=level,
        end=end,
        name_codes=codes,
        words=(*names.words, *step_names.words),
        roots=node_of_source[programs],
        programs=np.arange(len(programs)),
        functions=node_of_source[_with_kind(kind, "Function")],
        of_step=of_row[place],
        blocks=_blocks(report, _with_kind(kind, "Block"), root, node_of_source),
    )


def _are_places(place: Int64, owner: Int64, names: npt.NDArray[np.int32]) -> bool:
    """True if each row of a function's other calls has a row of the same node and name where the first call has one."""
    if (place < 0).any() or (place >= len(owner)).any():
        return False
    return bool((place[place] == place).all() and (owner[place] == owner).all() and (names[place] == names).all())


def _with_kind(kind: Text, word: str) -> Int64:
    return np.flatnonzero(kind.codes == kind.words.index(word)) if word in kind.words else np.zeros(0, np.int64)


def _are_programs(report: Report, programs: Int64, root_of_step: Int64) -> bool:
    """True if the n-th root that is a program holds steps of program n alone, and there is one for each."""
    number = report.steps["program"].astype(np.int64)
    if (number >= len(programs)).any():
        return False
    outside = np.isin(root_of_step, programs)
    return bool((programs[number[outside]] == root_of_step[outside]).all())


def _first_places(report: Report, root: Int64) -> Int64:
    """The row that the same step became at the first call of its function, for each row of steps, int64[steps].

    Args:
        report: The report.
        root: Program or function of each row, as a row of the program tree, int64[steps].
    """
    tree, calls = report.program_tree, report.function_calls
    rows = np.arange(len(root))
    function, begin = calls["function"].astype(np.int64), calls["first_step"].astype(np.int64)
    # Calls in order of functions and of the steps at which they begin.
    key = function * (len(root) + 1) + begin
    order = np.argsort(key, kind="stable")
    last = np.searchsorted(key[order], root * (len(root) + 1) + rows, side="right") - 1
    found = last >= 0
    call = order[np.maximum(last, 0)] if len(order) else np.zeros(len(root), np.int64)
    if not len(order):
        return rows
    found &= (function[call] == root) & (begin[call] >= 0)
    return np.where(found, rows - begin[call] + tree["first_step"][root], rows)


def _anchors(first_step: Int64, root: Int64, root_of_leaf: Int64, leaves: Int64) -> Int64:
    """The node of the tree behind which each step stands: the last of its root that begins no later, int64[leaves]."""
    begins = np.flatnonzero(first_step >= 0)
    width = int(max(first_step.max(initial=0), leaves.max(initial=0))) + 2
    key = root[begins] * width + first_step[begins]
    order = np.argsort(key, kind="stable")
    at = np.searchsorted(key[order], root_of_leaf * width + leaves, side="right") - 1
    return begins[order][np.maximum(at, 0)] if len(order) else np.zeros(len(leaves), np.int64)


def _lie_in(nodes: Int64, holders: Int64, depth: Int64, end: Int64) -> bool:
    """True if each node is behind its holder and before the end of that, and one deeper."""
    there = (holders >= 0) & (holders < nodes) & (nodes < end[holders])
    return bool((there & (depth[nodes] == depth[holders] + 1)).all())


def _blocks(report: Report, blocks: Int64, root: Int64, node_of_source: Int64) -> list[Int64]:
    """The blocks around each row of the steps table, one array per nesting depth, outer ones first, int64[steps] each.

    Blocks at all places, those in functions at each call, are intervals of steps that lie in one another or apart.
    """
    tree, calls, count = report.program_tree, report.function_calls, len(report.steps)
    first, size = (tree[name].astype(np.int64) for name in ("first_step", "num_steps"))
    blocks = blocks[(first[blocks] >= 0) & (size[blocks] > 0)]
    # Once where they stand, or once per call of the function that they stand in.
    low, places = ranges_of(calls, "function", root[blocks])
    if places.sum() > _MOST_DEEP * max(count, 1):
        return []
    call, again = flat_ranges(low, places)
    there = calls["first_step"][call] + first[blocks[again]] - first[root[blocks[again]]]
    alone = blocks[places == 0]
    block, begin = np.append(alone, blocks[again]), np.append(first[alone], there)
    fits = (begin >= 0) & (begin + size[block] <= count)
    block, begin = block[fits], begin[fits]
    order = np.lexsort((block, -size[block], begin))
    block, begin = block[order], begin[order]
    stop = begin + size[block]
    depth = np.arange(len(block)) - np.searchsorted(np.sort(stop), begin, side="right")
    found: list[Int64] = []
    for level in range(min(int(depth.max(initial=-1)) + 1, _MOST_BLOCKS_DEEP)):
        inside = np.full(count, -1, np.int64)
        mine = np.flatnonzero(depth == level)
        length = size[block[mine]]
        if length.sum() > count:
            break
        at, which = flat_ranges(begin[mine], length)
        inside[at] = node_of_source[block[mine]][which]
        found.append(inside)
    return found
