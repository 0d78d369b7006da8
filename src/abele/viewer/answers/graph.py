"""Operations and what flows between them, nested in their modules, as a drawing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.report import Report
from abele.report.nodes import parents
from abele.report.relations import flat_ranges, joined_rows
from abele.report.table import Table
from abele.viewer.answers.costs import occurrences
from abele.viewer.answers.layered import layered
from abele.viewer.answers.operations import Nested, nested, operations, path_levels
from abele.viewer.answers.registry import Frozen, question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

# Data flow between operations: the writer of each operand.
#
# Accesses of supersteps, in the order of the steps table, make epochs of each variable: writes that follow each other
# are one, and what is read belongs to the epoch before. A read before any write belongs to the last epoch: what goes
# round in a loop. Reports without accesses tell of each variable from which step to which it lives; then an edge leads
# from the operation that brings it to life to the last one that needs it, and operations are strung up in order
# besides.

_MOST_WRITERS = 32
_MOST_ACCESSES = 20_000_000


@dataclass(frozen=True)
class Flows:
    """Edges between operations.

    Attributes:
        source: Row of the operation that writes, int64[edges].
        target: Row of the one that reads, int64[edges].
        variable: Variable that it reads, −1 for mere order, int64[edges].
        bytes: That it reads, int64[edges].
        round: True for what an earlier trip of a loop wrote, bool[edges].
        told: True where the report holds accesses.
    """

    source: Int64
    target: Int64
    variable: Int64
    bytes: Int64
    round: npt.NDArray[np.bool_]
    told: bool


def flows_of(report: Report) -> Flows:
    """The edges between a report's operations."""
    if len(report.superstep_variables) and len(report.superstep_variables) < _MOST_ACCESSES:
        return _told(report)
    return _guessed(report)


def _told(report: Report) -> Flows:
    table, places = report.superstep_variables, occurrences(report)
    rows, owner = joined_rows(table, "superstep", places.superstep)
    owned = places.op[owner] >= 0
    rows, owner = rows[owned], owner[owned]
    variable, op = table["variable"][rows].astype(np.int64), places.op[owner]
    order = np.lexsort((owner, variable))
    rows, variable, op = rows[order], variable[order], op[order]
    return _joined(variable, op, table["read_bytes"][rows], table["written_bytes"][rows])


def _joined(variable: Int64, op: Int64, read_bytes: Int64, written_bytes: Int64) -> Flows:
    """Edges from accesses in order of variables and time."""
    reads, writes = read_bytes > 0, written_bytes > 0
    begins = np.ones(len(variable), dtype=bool)
    begins[1:] = variable[1:] != variable[:-1]
    read_before = np.append(False, reads[:-1])[: len(variable)]
    starts = writes & (begins | reads | read_before)
    epoch = np.cumsum(starts)
    seen = epoch - starts
    before = np.maximum.accumulate(np.where(begins, seen, 0))
    # The last epoch of each variable, for what is read before it is written.
    last_row = np.append(np.flatnonzero(begins)[1:], len(variable)) - 1
    final = np.repeat(epoch[last_row], np.diff(np.append(last_row[::-1], -1)[::-1])) if len(variable) else epoch
    early = reads & (seen == before)
    wanted = np.where(early, final, seen)
    has = reads & (wanted > before)
    writers = _firsts(epoch[writes], op[writes], _MOST_WRITERS)
    reader_epoch, reader_op = wanted[has], op[has]
    low = np.searchsorted(writers[0], reader_epoch)
    count = np.searchsorted(writers[0], reader_epoch, side="right") - low
    at, owner = flat_ranges(low, count)
    source, target = writers[1][at], reader_op[owner]
    apart = source != target
    source, target, owner = source[apart], target[apart], owner[apart]
    read = np.flatnonzero(has)[owner]
    keys = np.stack([source, target, variable[read]], axis=1)
    _, first = np.unique(keys, axis=0, return_index=True)
    return Flows(
        source[first],
        target[first],
        variable[read][first],
        read_bytes[read][first].astype(np.int64),
        early[read][first],
        True,
    )


def _firsts(group: Int64, values: Int64, most: int) -> tuple[Int64, Int64]:
    """Distinct values of each group, at most so many of the last, in order of groups."""
    pairs = np.unique(np.stack([group, values], axis=1), axis=0)
    end = np.searchsorted(pairs[:, 0], pairs[:, 0], side="right")
    kept = end - np.arange(len(pairs)) <= most
    return pairs[kept, 0], pairs[kept, 1]


def _guessed(report: Report) -> Flows:
    """Edges from lifetimes, and the order of operations."""
    steps, variables = report.steps, report.variables
    op = steps["op"].astype(np.int64)
    first, last = variables["first_step"].astype(np.int64), variables["last_step"].astype(np.int64)
    lives = np.flatnonzero((first >= 0) & (last >= 0) & (first < len(steps)) & (last < len(steps)))
    source, target = op[first[lives]], op[last[lives]]
    apart = (source >= 0) & (target >= 0) & (source != target)
    lives, source, target = lives[apart], source[apart], target[apart]
    some = np.flatnonzero(op >= 0)
    _, at = np.unique(op[some], return_index=True)
    program = steps["program"][some[np.sort(at)]]
    chain = op[some[np.sort(at)]]
    follows = program[1:] == program[:-1]
    before, after = chain[:-1][follows], chain[1:][follows]
    size = variables["bytes"].astype(np.int64)[lives]
    return Flows(
        np.concatenate([source, before]),
        np.concatenate([target, after]),
        np.concatenate([lives, np.full(len(before), -1)]),
        np.concatenate([size, np.zeros(len(before), dtype=np.int64)]),
        np.zeros(len(lives) + len(before), dtype=bool),
        False,
    )


METRICS = ("cycles", "flops", "moved_bytes", "read_bytes", "written_bytes", "code_bytes", "balance")
"""Columns by which nodes may be coloured."""
MOST_NODES = 400
"""Nodes of a drawing."""
MOST_EDGES = 4_000
_AT_FIRST = 60
_MOST_INSIDE = 120
"""Nodes of one module that are told apart; the cheapest others are one node."""
_LETTER = 6.6
_HEIGHT = 34.0
_PADDING = 12.0
_HEADING = 22.0
OP, MODULE, OPENED, REST = range(4)
"""Kinds of nodes in a drawing."""


@dataclass(frozen=True)
class Modules:
    """Operations in their modules.

    Attributes:
        tree: Modules and operations as a tree.
        parent: Module around each node, −1 for none, int64[nodes].
        label: Name of each node.
        metrics: Of each node, float64[nodes, METRICS].
        begin: First step of each, int64[nodes].
        leaf: Node of each operation, int64[ops].
        flows: Edges between operations.
    """

    tree: Nested
    parent: Int64
    label: list[str]
    metrics: Array
    begin: Int64
    leaf: Int64
    flows: Flows


def modules(opened: Opened) -> Modules:
    """A report's operations in their modules."""
    return opened.once("modules", lambda: _modules(opened))


def _modules(opened: Opened) -> Modules:
    report, whole = opened.report, operations(opened)
    levels, words = path_levels(whole)
    tree = nested(levels)
    names = whole["name"].tolist()
    label = [
        names[row] if row >= 0 else words[level]
        for row, level in zip(tree.row.tolist(), tree.level.tolist(), strict=True)
    ]
    values = np.stack([whole[name].astype(np.float64) for name in METRICS], axis=1)[tree.leaves]
    weight = values[:, [0]]
    values[:, -1:] *= weight
    running = np.concatenate([np.zeros((1, len(METRICS))), np.cumsum(values, axis=0)])
    metrics = running[tree.first + tree.num_leaves] - running[tree.first]
    with np.errstate(divide="ignore", invalid="ignore"):
        metrics[:, -1] = np.where(metrics[:, 0] > 0, metrics[:, -1] / np.maximum(metrics[:, 0], 1), 0.0)
    leaf = np.zeros(len(whole), dtype=np.int64)
    leaf[tree.row[tree.row >= 0]] = np.flatnonzero(tree.row >= 0)
    op = report.steps["op"].astype(np.int64)
    begin = np.full(len(whole), len(op), dtype=np.int64)
    np.minimum.at(begin, op[op >= 0], np.flatnonzero(op >= 0))
    return Modules(
        tree=tree,
        parent=parents(tree.depth.astype(np.int64)),
        label=label,
        metrics=metrics,
        begin=_least(begin[tree.leaves], tree),
        leaf=leaf,
        flows=flows_of(report),
    )


def _least(values: Int64, tree: Nested) -> Int64:
    """The least value of the leaves of each node, int64[nodes]."""
    if not len(tree.depth):
        return np.zeros(0, dtype=np.int64)
    found = np.full(len(tree.depth), np.iinfo(np.int64).max)
    found[tree.row >= 0] = values
    parent = parents(tree.depth.astype(np.int64))
    for depth in range(int(tree.depth.max()), 0, -1):
        mine = np.flatnonzero(tree.depth == depth)
        np.minimum.at(found, parent[mine], found[mine])
    return found


def opened_at_first(found: Modules) -> list[int]:
    """Modules that are open when nobody said: from outside inwards, as long as the drawing stays small."""
    result: list[int] = []
    tree, seen = found.tree, int((found.parent < 0).sum())
    waiting = np.flatnonzero((found.parent < 0) & (tree.row < 0)).tolist()
    while waiting:
        node = waiting.pop(0)
        inside = np.flatnonzero(found.parent == node)
        if result and seen + len(inside) > _AT_FIRST:
            continue
        result.append(node)
        seen += len(inside)
        waiting += inside[tree.row[inside] < 0].tolist()
    return result


def _frozen(opened: Opened) -> Frozen:
    del opened
    yield {}


@question("graph", frozen=_frozen, rank=5)
def graph(opened: Opened, params: Params) -> Answer:
    """The drawing of operations and open modules.

    Parameters: ``open`` numbers of the modules that are open, between dots; ``none`` for none, empty for as many as
    make a small drawing; ``op`` an operation that is to be seen.

    Answer: head ``labels``, ``metrics`` (names), ``open``, ``told`` (whether edges follow from accesses), ``width``,
    ``height``, ``left_out`` edges, ``tensors`` (a line for each edge); arrays of nodes ``node`` (number), ``kind``,
    ``op``, ``count``, ``around`` (the drawn module around it, −1), ``x``, ``y``, ``w``, ``h``, ``metric`` [nodes,
    metrics], and of edges ``from``, ``to`` (drawn nodes), ``bytes``, ``num`` (tensors), ``round``, ``order``, ``first``
    (into ``points`` [n, 2], one more than edges).
    """
    found = modules(opened)
    given = params.text("open")
    wanted = (
        opened_at_first(found)
        if not given
        else []
        if given == "none"
        else [int(word) for word in given.split(".") if word.isdecimal()]
    )
    op = params.number("op", -1, low=-1)
    if 0 <= op < len(found.leaf):
        node = int(found.parent[found.leaf[op]])
        while node >= 0:
            wanted.append(node)
            node = int(found.parent[node])
    return _drawn(opened.report, found, _allowed(found, wanted))


def _allowed(found: Modules, wanted: list[int]) -> list[int]:
    """Modules that can be open: those around them are as well, and the drawing does not grow too large."""
    tree, result, left = found.tree, set[int](), MOST_NODES - int(min((found.parent < 0).sum(), _MOST_INSIDE))
    for node in sorted({n for n in wanted if 0 <= n < len(tree.depth) and tree.row[n] < 0}):
        above = int(found.parent[node])
        inside = min(int((found.parent == node).sum()), _MOST_INSIDE)
        if (above < 0 or above in result) and inside <= left:
            result.add(node)
            left -= inside
    return sorted(result)


@dataclass
class _Box:
    """A node of a drawing. ``node`` is its number, that of the module around it for the rest."""

    node: int
    kind: int
    label: str
    around: int
    leaves: int
    members: Int64
    x: float = 0.0
    y: float = 0.0
    w: float = 0.0
    h: float = _HEIGHT


def _drawn(report: Report, found: Modules, opened_: list[int]) -> Answer:
    boxes, box_of = _boxes(found, set(opened_))
    around = np.array([box.around for box in boxes], dtype=np.int64)
    flows = found.flows
    a, b = box_of[found.leaf[flows.source]], box_of[found.leaf[flows.target]]
    apart = (a != b) & (a >= 0) & (b >= 0)
    pair, place = np.unique(np.stack([a[apart], b[apart]], axis=1), axis=0, return_inverse=True)
    place = place.reshape(-1)
    size = np.bincount(place, weights=flows.bytes[apart], minlength=len(pair))
    tensors = np.bincount(place, weights=flows.variable[apart] >= 0, minlength=len(pair))
    goes_round = np.ones(len(pair), dtype=bool)
    np.logical_and.at(goes_round, place, flows.round[apart])
    lines = _tensor_lines(report, flows.variable[apart], flows.bytes[apart], place, len(pair))
    kept = np.argsort(-size, kind="stable")[:MOST_EDGES]
    kept.sort()
    left_out = len(pair) - len(kept)
    pair, size, tensors, goes_round = pair[kept], size[kept], tensors[kept], goes_round[kept]
    lines = [lines[i] for i in kept.tolist()]
    routes, width, height = _layout(boxes, around, pair, goes_round)
    counts = np.array([len(route) for route in routes], dtype=np.int64)
    head = {
        "labels": [box.label for box in boxes],
        "metrics": list(METRICS),
        "open": opened_,
        "told": flows.told,
        "width": width,
        "height": height,
        "left_out": left_out,
        "tensors": lines,
    }
    arrays: dict[str, Array] = {
        "node": np.array([box.node for box in boxes], dtype=np.int32),
        "kind": np.array([box.kind for box in boxes], dtype=np.uint8),
        "op": np.array([found.tree.row[box.node] if box.kind == OP else -1 for box in boxes], dtype=np.int32),
        "count": np.array([box.leaves for box in boxes], dtype=np.int32),
        "around": around.astype(np.int32),
        **{name: np.array([getattr(box, name) for box in boxes], dtype=np.float32) for name in ("x", "y", "w", "h")},
        "metric": np.array([_metric(found, box) for box in boxes]).reshape(len(boxes), len(METRICS)),
        "from": pair[:, 0].astype(np.int32),
        "to": pair[:, 1].astype(np.int32),
        "bytes": size,
        "num": tensors.astype(np.int32),
        "round": goes_round,
        "first": np.append(0, np.cumsum(counts)).astype(np.int32),
        "points": np.array([point for route in routes for point in route], dtype=np.float32).reshape(-1, 2),
    }
    return Answer(head, arrays)


def _metric(found: Modules, box: _Box) -> Array:
    if box.kind != REST:
        return np.asarray(found.metrics[box.node])
    values = found.metrics[box.members]
    total: Array = values.sum(axis=0)
    total[-1] = float(np.average(values[:, -1], weights=values[:, 0])) if values[:, 0].sum() > 0 else 0.0
    return total


def _boxes(found: Modules, opened_: set[int]) -> tuple[list[_Box], Int64]:
    """Boxes to draw, modules before their contents, and the box of each node of the tree, −1 for none."""
    tree = found.tree
    boxes: list[_Box] = []
    box_of = np.full(len(tree.depth), -1, dtype=np.int64)
    waiting = [(-1, -1)]
    while waiting:
        node, around = waiting.pop()
        inside = np.flatnonzero(found.parent == node)
        if len(inside) > _MOST_INSIDE:
            cost = np.where(np.isin(inside, list(opened_)), np.inf, found.metrics[inside, 0])
            order = np.argsort(-cost, kind="stable")
            rest = np.sort(inside[order[_MOST_INSIDE - 1 :]])
            inside = inside[np.sort(order[: _MOST_INSIDE - 1])]
            leaves = int(tree.num_leaves[rest].sum())
            members, _ = flat_ranges(rest, tree.size[rest])
            box_of[members] = len(boxes)
            boxes.append(_Box(node, REST, f"{leaves:,} more", around, leaves, rest, w=110.0))
        for child in inside[np.argsort(found.begin[inside], kind="stable")].tolist():
            kind = OP if tree.row[child] >= 0 else OPENED if child in opened_ else MODULE
            box_of[child : child + int(tree.size[child])] = len(boxes)
            if kind == OPENED:
                waiting.append((child, len(boxes)))
            label = found.label[child]
            boxes.append(
                _Box(
                    child,
                    kind,
                    label,
                    around,
                    int(tree.num_leaves[child]),
                    np.array([child]),
                    w=min(max(len(label) * _LETTER + 22.0, 84.0), 230.0),
                )
            )
    return boxes, box_of


def _tensor_lines(report: Report, variable: Int64, size: Int64, place: Int64, num: int) -> list[str]:
    """Name, type and shape of the largest variable of each edge."""
    largest = np.full(num, -1, dtype=np.int64)
    order = np.argsort(size, kind="stable")
    largest[place[order]] = variable[order]
    table: Table = report.variables
    names, types, shapes = table.columns["name"], table.columns["type"], table.columns["shape"]
    lines = []
    for each in largest.tolist():
        if each < 0:
            lines.append("")
            continue
        name, kind, shape = (c.words[c.codes[each]] for c in (names, types, shapes))  # type: ignore[union-attr]
        lines.append(f"{name}\n{kind}{' [' + shape + ']' if shape else ''}")
    return lines


def _layout(
    boxes: list[_Box], around: Int64, pair: Int64, goes_round: Array
) -> tuple[list[list[tuple[float, float]]], float, float]:
    """Place boxes, innermost modules first, and route edges; points are where edges bend, their ends included."""
    # An edge is laid out in the innermost module around both ends, between the members that hold them.
    holder, mine_a, mine_b = _common(around, pair)
    bends: list[list[tuple[float, float]]] = [[] for _ in range(len(pair))]
    inside: dict[int, list[int]] = {}
    for number, box in enumerate(boxes):
        inside.setdefault(box.around, []).append(number)
    width = height = 0.0
    for module in sorted(inside, reverse=True):
        # Inner modules have higher numbers, so their sizes are known when the module around them is laid out.
        members = np.array(inside[module])
        edges = np.flatnonzero(holder == module)
        index = np.full(len(boxes), -1, dtype=np.int64)
        index[members] = np.arange(len(members))
        ends = np.stack([index[mine_a[edges]], index[mine_b[edges]]], axis=1)
        # Edges that go round point back whatever the order says.
        turned = goes_round[edges] & (ends[:, 0] < ends[:, 1])
        ends[turned] = ends[turned][:, ::-1]
        distinct, which = (
            np.unique(ends, axis=0, return_inverse=True) if len(ends) else (ends, np.zeros(0, dtype=np.int64))
        )
        drawing = layered(
            np.array([boxes[m].w for m in members]),
            np.array([boxes[m].h for m in members]),
            distinct[:, 0],
            distinct[:, 1],
        )
        for number, x, y in zip(members.tolist(), drawing.x.tolist(), drawing.y.tolist(), strict=True):
            boxes[number].x, boxes[number].y = x, y
        for edge, drawn in zip(edges.tolist(), which.reshape(-1).tolist(), strict=True):
            bends[edge] = drawing.bends[drawn]
        # The drawing's size becomes that of the module's box, with room for its heading.
        if module < 0:
            width, height = drawing.width, drawing.height
        else:
            boxes[module].w = max(drawing.width + 2 * _PADDING, len(boxes[module].label) * _LETTER + 30.0)
            boxes[module].h = drawing.height + 2 * _PADDING + _HEADING
    # Positions are relative to the module so far; outer boxes come first.
    for box in boxes:
        if box.around >= 0:
            box.x += boxes[box.around].x + _PADDING
            box.y += boxes[box.around].y + _PADDING + _HEADING
    # Edges leave at the bottom of a box and enter at the top, or the other way round where they point up.
    routes = []
    for (a, b), module, points in zip(pair.tolist(), holder.tolist(), bends, strict=True):
        dx, dy = (boxes[module].x + _PADDING, boxes[module].y + _PADDING + _HEADING) if module >= 0 else (0.0, 0.0)
        s, t = boxes[a], boxes[b]
        up = t.y + t.h <= s.y
        ends_ = (s.x + s.w / 2, s.y if up else s.y + s.h), (t.x + t.w / 2, t.y + t.h if up else t.y)
        routes.append([ends_[0], *((x + dx, y + dy) for x, y in points), ends_[1]])
    return routes, width, height


def _common(around: Int64, pair: Int64) -> tuple[Int64, Int64, Int64]:
    """The innermost box around both ends of each edge, and the boxes in it that the ends are in, int64[edges] each."""
    depth = np.zeros(len(around), dtype=np.int64)
    for number, above in enumerate(around.tolist()):
        depth[number] = depth[above] + 1 if above >= 0 else 0
    a, b = pair[:, 0].copy(), pair[:, 1].copy()
    for _ in range(2 * int(depth.max(initial=0)) + 1):
        deeper_a, deeper_b = depth[a] > depth[b], depth[b] > depth[a]
        both = ~deeper_a & ~deeper_b & (around[a] != around[b])
        if not (deeper_a | deeper_b | both).any():
            break
        a = np.where(deeper_a | both, around[a], a)
        b = np.where(deeper_b | both, around[b], b)
    return around[a], a, b
