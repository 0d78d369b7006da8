"""Vertices in clusters, one a compute set, as Graphviz text; large graphs by groups of vertices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from abele.graph.compute_set import ComputeSet
from abele.graph.intervals import order_of
from abele.graph.program import Execute, Program, walk
from abele.graph.variable import Variable
from abele.graph.vertices import Edge, VertexGroup

if TYPE_CHECKING:
    from abele.graph.graph import Graph

MAX_ITEMS = 200
"""Vertices that are drawn one by one; more are drawn as groups."""


def to_dot(graph: Graph, program: Program | None = None, max_items: int = MAX_ITEMS) -> str:
    """Variables, and vertices by compute set, with the edges between them, as a Graphviz digraph.

    An edge goes from a variable to the vertices that read it, and from a vertex to the variables that it writes.

    Args:
        graph: The graph.
        program: Draw only the compute sets that it executes; all of the graph when left out.
        max_items: Vertices up to which each is drawn with its tile; where there are more, a node stands for a whole
            group of vertices of one codelet, and says how many they are on how many tiles.
    """
    sets = _compute_sets(graph, program)
    each = sum(cs.num_vertices for cs in sets) <= max_items
    drawn: list[str] = []
    used: dict[Variable, None] = {} if program is not None else dict.fromkeys(graph.variables)
    edges: dict[tuple[str, str, str], None] = {}
    for number, compute_set in enumerate(sets):
        lines = []
        for i, group in enumerate(compute_set.groups):
            for node, vertex in _nodes(f"s{number}g{i}", group, each):
                lines.append(f"    {node} [label={_quoted(_label(group, vertex))}, shape=box];")
                for variable, edge in _edges(graph, group, vertex, node):
                    used[variable] = None
                    edges[edge] = None
        drawn += _cluster(number, compute_set, lines)
    shown, hidden = list(used)[:max_items], len(used) - max_items
    names = {f"v{v.id}" for v in shown}
    nodes = [f"  v{v.id} [label={_quoted(_variable_label(v))}, shape=ellipse];" for v in shown]
    if hidden > 0:
        # Edges of variables not drawn end at one node, so none disappears.
        nodes.append(f"  others [label={_quoted(f'{hidden:,} more variables')}, shape=ellipse, style=dashed];")

    def end(name: str) -> str:
        return "others" if name[0] == "v" and name not in names else name

    links = dict.fromkeys(f"  {end(a)} -> {end(b)} [label={_quoted(field)}];" for a, b, field in edges)
    return "\n".join(["digraph compute {", "  rankdir=LR;", *nodes, *drawn, *links, "}", ""])


def vertex_graph(graph: Graph, program: Program | None = None, max_items: int = MAX_ITEMS) -> str:
    """Vertices alone, as a Graphviz digraph: an edge leads from a vertex to the readers of its outputs.

    Args:
        graph: The graph.
        program: Its compute sets, in the order in which they are first executed; all of the graph when left out.
        max_items: As for :func:`to_dot`.
    """
    sets = _compute_sets(graph, program)
    each = sum(cs.num_vertices for cs in sets) <= max_items
    drawn, links = [], []
    writers: list[tuple[str, np.ndarray, np.ndarray]] = []
    for number, compute_set in enumerate(sets):
        lines, fresh = [], []
        for i, group in enumerate(compute_set.groups):
            for node, vertex in _nodes(f"s{number}g{i}", group, each):
                lines.append(f"    {node} [label={_quoted(_label(group, vertex))}, shape=box];")
                reads, writes = (_intervals(group, vertex, w) for w in (("in", "inout"), ("out", "inout")))
                # Against all writers of earlier compute sets, not only the last of each element: text for a reader,
                # limited to `max_items` vertices.
                links += [
                    f"  {name} -> {node};" for name, *written in writers if _meet(reads, (written[0], written[1]))
                ]
                fresh.append((node, *writes))
        writers += fresh
        drawn += _cluster(number, compute_set, lines)
    return "\n".join(["digraph vertices {", "  rankdir=LR;", *drawn, *dict.fromkeys(links), "}", ""])


def _cluster(number: int, compute_set: ComputeSet, lines: list[str]) -> list[str]:
    return [f"  subgraph cluster_{number} {{", f"    label={_quoted(compute_set.name)};", *lines, "  }"]


def _compute_sets(graph: Graph, program: Program | None) -> list[ComputeSet]:
    if program is None:
        return list(graph.compute_sets)
    return list(dict.fromkeys(step.compute_set for step in walk(program) if isinstance(step, Execute)))


def _nodes(prefix: str, group: VertexGroup, each: bool) -> Iterator[tuple[str, int | None]]:
    """Name of each node of a group, and its vertex (None: all)."""
    if each:
        yield from ((f"{prefix}v{i}", i) for i in range(group.num))
    elif group.num:
        yield prefix, None


def _label(group: VertexGroup, vertex: int | None) -> str:
    if vertex is not None:
        return f"{group.codelet.name}\ntile {int(group.tile[vertex])}"
    return f"{group.num:,} × {group.codelet.name}\n{len(np.unique(group.tile)):,} tiles"


def _variable_label(variable: Variable) -> str:
    return f"{variable.name}\n{variable.dtype}{list(variable.shape)}"


def _edges(
    graph: Graph, group: VertexGroup, vertex: int | None, node: str
) -> Iterator[tuple[Variable, tuple[str, str, str]]]:
    directions = {f.name: f.direction for f in group.codelet.fields}
    for name, edge in group.edges.items():
        begin, _ = _edge_intervals(edge, vertex)
        for variable in graph.variables_at(begin) if len(begin) else ():
            if directions[name] in ("in", "inout"):
                yield variable, (f"v{variable.id}", node, name)
            if directions[name] in ("out", "inout"):
                yield variable, (node, f"v{variable.id}", name)


def _edge_intervals(edge: Edge, vertex: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Intervals that a field of one vertex, or of all, is wired to."""
    if vertex is None:
        regions = edge.regions.take(np.unique(edge.index))
    elif edge.row_begin is None:
        regions = edge.regions.take(edge.index[vertex : vertex + 1])
    else:
        regions = edge.regions.take(edge.index[edge.row_begin[vertex] : edge.row_begin[vertex + 1]])
    return regions.begin, regions.length


def _intervals(group: VertexGroup, vertex: int | None, directions: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    wanted = {f.name for f in group.codelet.fields if f.direction in directions}
    parts = [_edge_intervals(edge, vertex) for name, edge in group.edges.items() if name in wanted]
    empty = np.empty(0, dtype=np.int64)
    begin = np.concatenate([empty, *(p[0] for p in parts)])
    order = order_of(begin)
    return begin[order], np.concatenate([empty, *(p[1] for p in parts)])[order]


def _meet(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> bool:
    """True if two sets of intervals, each in ascending order, share an element."""
    if not len(one[0]) or not len(other[0]):
        return False
    # Intervals may overlap, so the one that starts last before an end need not reach furthest: the running maximum of
    # the ends does.
    reach = np.maximum.accumulate(other[0] + other[1])
    slot = np.searchsorted(other[0], one[0] + one[1], side="left") - 1
    return bool(((slot >= 0) & (reach[np.maximum(slot, 0)] > one[0])).any())


def _quoted(text: str) -> str:
    """Text as a Graphviz string: nothing in it can end the string or become markup."""
    plain = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
