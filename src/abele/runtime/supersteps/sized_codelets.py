"""Sizes for which vertices get native code of their own: those that a group has in common, if the code pays."""

from __future__ import annotations

from abele.arrays import Int64
from abele.codelet import Size, Sizes
from abele.graph import Edge, VertexGroup

_MOST_ELEMENTS = 1024
"""Most elements of a vector for code of its own: longer ones gain nothing, as only the set-up of a loop is saved."""
_FEWEST_VERTICES = 32
_FEWEST_BYTES = 1 << 16
"""Fewer would take less time to run than such code takes to make."""


def worthwhile_sizes(group: VertexGroup, work_bytes: int) -> Sizes:
    """Sizes that all vertices of a group share, if code made for them pays; else none."""
    if group.num < _FEWEST_VERTICES or work_bytes < _FEWEST_BYTES:
        return Sizes()
    edges = ((f.name, group.edges[f.name]) for f in group.codelet.fields if f.is_edge and f.rank)
    return Sizes.of(_size(name, edge) for name, edge in edges)


def _size(name: str, edge: Edge) -> Size:
    each = _common(edge.row_sizes)
    if edge.row_begin is None:
        return Size(name, each)
    return Size(name, _common(edge.row_begin[1:] - edge.row_begin[:-1]), each)


def _common(sizes: Int64) -> int | None:
    if not len(sizes) or sizes[0] > _MOST_ELEMENTS or (sizes != sizes[0]).any():
        return None
    return int(sizes[0])
