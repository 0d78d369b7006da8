"""Places where an element meets vertices: which vertex and field of a compute set use it, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from abele.graph import ComputeSet, Edge, Graph, VertexGroup


def element_text(graph: Graph, address: int) -> str:
    """``element [2, 3] of variable 'x'``."""
    variable, element = graph.locate(address)
    index = ", ".join(map(str, variable.coordinates(element)))
    return f"element [{index}] of {variable.kind} {variable.name!r}"


def made_at(graph: Graph, address: int) -> str | None:
    """Source line at which the variable of an element was made, in words."""
    variable, _ = graph.locate(address)
    return f"{variable.name!r} was made at {variable.debug.location}" if variable.debug.file else None


def vertex_text(compute_set: ComputeSet, group: VertexGroup, vertex: int, replica: int | None = None) -> str:
    """Name of a vertex: its tile, compute set and source line."""
    where = f"vertex {vertex} of {group.num} × {group.codelet.name} on tile {int(group.tile[vertex])}"
    if replica is not None:
        where += f" of replica {replica}"
    return f"{where}\ncompute set {compute_set.name!r}, made at {group.origin_of(vertex).location}"


def users(
    compute_set: ComputeSet, address: int, directions: Sequence[str]
) -> Iterator[tuple[VertexGroup, int, str, int]]:
    """Vertices of a compute set that a field of one of some directions connects to an element.

    Yields:
        The group, the vertex, the field, and the index of the element in the field.
    """
    for group in compute_set.groups:
        for field in group.codelet.fields:
            if field.direction in directions:
                for vertex, index in _rows_with(group.edges[field.name], address):
                    yield group, vertex, field.name, index


def _rows_with(edge: Edge, address: int) -> Iterator[tuple[int, int]]:
    regions = edge.regions
    for piece in np.flatnonzero((regions.begin <= address) & (address < regions.begin + regions.length)):
        region = int(np.searchsorted(regions.ptr, piece, side="right")) - 1
        before = int(regions.length[regions.ptr[region] : piece].sum())
        for row in np.flatnonzero(edge.index == region):
            yield int(edge.vertex_of_row[row]), before + address - int(regions.begin[piece])
