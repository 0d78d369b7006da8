"""Memory elements: fields that must lie apart, in interleaved memory, or at an alignment.

Two fields share a memory element only if they share an element of a variable (the allocator is assumed to be able to
separate everything else), so the check is an intersection of intervals per vertex: intervals of one field are sorted on
an axis where each vertex has a stretch of its own, and those of the other are looked up in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from abele.arrays import Bool, Int64
from abele.compiler.layout import Layout
from abele.compiler.uses import FieldUse
from abele.errors import MemoryElementError
from abele.graph.graph import Graph
from abele.graph.intervals import distinct, order_of

if TYPE_CHECKING:
    from abele.codelet import Constraint, FieldDef
    from abele.graph.vertices import VertexGroup


def check_constraints(uses: Sequence[FieldUse], graph: Graph, where: str) -> None:
    """Fields that a codelet wants in different memory elements can be placed there, interleaved ones fit.

    Raises:
        MemoryElementError: Two such fields of a vertex are wired to the same elements, or a field that must lie in
            interleaved memory is larger than all of it.
    """
    by_field = {(id(u.group), u.field.name): u for u in uses}
    for group in dict.fromkeys(u.group for u in uses):
        for constraint in group.codelet.constraints:
            one, other = (by_field[id(group), name] for name in (constraint.one, constraint.other))
            _check_apart(one, other, constraint, graph, where)
    for use in uses:
        if use.field.interleaved:
            _check_interleaved(use, graph, where)


def _check_apart(one: FieldUse, other: FieldUse, constraint: Constraint, graph: Graph, where: str) -> None:
    clash = _common(one, other, graph.num_elements)
    if clash is None:
        return
    vertex, begin, end = clash
    variable, element = graph.locate(begin)
    group, number = one.group, vertex - one.first_vertex
    raise MemoryElementError(
        f"fields {group.codelet.name}.{constraint.one} and .{constraint.other} of vertex {number} in {where} share "
        f"elements [{element}:{element + end - begin}) of variable {variable.name!r}",
        at=group.origin_of(number).location or None,
        because=f"{group.codelet.name} has the constraint {constraint}: one place is in one memory element",
        remedy="wire one of them to a copy",
    )


def _common(one: FieldUse, other: FieldUse, span: int) -> tuple[int, int, int] | None:
    """A vertex that has elements in both fields, and the interval of them."""
    begin, length, vertex = one.intervals()
    low, size, owner = other.intervals()
    if len(begin) == 0 or len(low) == 0:
        return None
    if max(int(begin.min()), int(low.min())) >= min(int((begin + length).max()), int((low + size).max())):
        return None
    span += 1
    key = vertex * span + begin
    order = order_of(key)
    key, reach = key[order], np.maximum.accumulate((key + length)[order])
    wanted = owner * span + low
    # The last interval that begins before the wanted one ends; `reach` also covers longer ones before it.
    slot = np.searchsorted(key, wanted + size, side="left") - 1
    hit = np.flatnonzero((slot >= 0) & (reach[np.maximum(slot, 0)] > wanted))
    if len(hit) == 0:
        return None
    at = int(hit[0])
    first = int(np.searchsorted(reach, int(wanted[at]), side="right"))
    lowest = max(int(key[first]), int(wanted[at]))
    highest = min(int(reach[first]), int(wanted[at] + size[at]))
    return int(owner[at]), lowest % span, lowest % span + highest - lowest


def _check_interleaved(use: FieldUse, graph: Graph, where: str) -> None:
    room = graph.system.ipu.tile.interleaved_bytes
    sizes = use.edge.row_sizes * use.field.type.bytes
    over = np.flatnonzero(sizes > room)
    if len(over) == 0:
        return
    row = int(over[0])
    number = int(use.edge.vertex_of_row[row])
    raise MemoryElementError(
        f"field {use.group.codelet.name}.{use.field.name} of vertex {number} in {where} has {int(sizes[row]):,} B and "
        f"must lie in interleaved memory, of which a tile has {room:,} B",
        at=use.group.origin_of(number).location or None,
        remedy="give each vertex a smaller region, or drop the request for interleaved memory",
    )


class Demands(NamedTuple):
    """Demands of fields on the place of what tiles hold of variables; a share is one variable on one tile.

    Attributes:
        alignment_bytes: Alignment that is wanted of each share, 0 where the usual one is enough, int64[shares].
        interleaved: Shares that must lie in interleaved memory, bool[shares].
        apart: Pairs of shares of one tile that may share no memory element, int64[n, 2].
    """

    alignment_bytes: Int64
    interleaved: Bool
    apart: Int64


class ElementDemands:
    """Demands of a program's fields on the place of variables on their tiles, collected field by field.

    Args:
        layout: Tile and address of the graph's elements.
        alignment_bytes: Alignment that every variable has anyway.
    """

    def __init__(self, layout: Layout, alignment_bytes: int) -> None:
        self._layout = layout
        self._base_alignment = alignment_bytes
        self._aligned: dict[int, list[Int64]] = {}
        self._interleaved: list[Int64] = []
        self._apart: list[Int64] = []

    def add(self, uses: Sequence[FieldUse]) -> None:
        """Note the requests of a compute set."""
        for use in uses:
            field = use.field
            align = field.alignment_bytes
            if not self._asks(field):
                continue
            regions = use.edge.regions
            shares = distinct(self._layout.cut(regions.begin, regions.length).share)
            if align > self._base_alignment:
                self._aligned.setdefault(align, []).append(shares)
            if field.interleaved:
                self._interleaved.append(shares)
        by_field = {(id(u.group), u.field.name): u for u in uses}
        for group in dict.fromkeys(u.group for u in uses):
            for constraint in group.codelet.constraints:
                self._keep_apart(*(by_field[id(group), name] for name in (constraint.one, constraint.other)))

    def _keep_apart(self, one: FieldUse, other: FieldUse) -> None:
        """Note that what two fields of a vertex use of its tile is to lie apart."""
        (vertex, share), (owner, partner) = (self._used_in_place(use) for use in (one, other))
        # Each share of a vertex in one field meets each of the same vertex in the other.
        first = np.searchsorted(owner, vertex, side="left")
        count = np.searchsorted(owner, vertex, side="right") - first
        met = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
        pairs = np.stack([np.repeat(share, count), partner[met]], axis=1)
        self._apart.append(np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0))

    def _used_in_place(self, use: FieldUse) -> tuple[Int64, Int64]:
        """Vertices, ascending, and the shares that a field of each uses; what lies on other tiles goes to buffers."""
        begin, length, vertex = use.intervals()
        pieces = self._layout.cut(begin, length)
        owner = vertex[pieces.source]
        here = use.group.tile[owner - use.first_vertex] == pieces.tile
        found = np.unique(np.stack([owner[here], pieces.share[here]], axis=1), axis=0)
        return found[:, 0], found[:, 1]

    @property
    def apart(self) -> Int64:
        """Variables that are to lie apart from others, somewhere, ascending."""
        shares = np.concatenate([np.empty(0, np.int64), *(pairs.ravel() for pairs in self._apart)])
        return distinct(self._layout.variables_at(shares))

    def concerns(self, groups: Sequence[VertexGroup]) -> bool:
        """True if any field of some vertices has a request."""
        return any(g.codelet.constraints or any(self._asks(f) for f in g.codelet.fields) for g in groups)

    def _asks(self, field: FieldDef) -> bool:
        return field.alignment_bytes > self._base_alignment or field.interleaved

    def of_shares(self, first: Int64) -> Demands:
        """Demands on all shares.

        Args:
            first: Packed address of the first element of each, int64[shares], ascending.
        """
        alignment, interleaved = np.zeros(len(first), dtype=np.int64), np.zeros(len(first), dtype=bool)
        # The strictest request of a share counts; weaker ones of the same share are met by it.
        for align in sorted(self._aligned):
            alignment[np.searchsorted(first, np.concatenate(self._aligned[align]))] = align
        interleaved[np.searchsorted(first, np.concatenate([np.empty(0, np.int64), *self._interleaved]))] = True
        pairs = np.concatenate([np.empty((0, 2), np.int64), *self._apart])
        return Demands(alignment, interleaved, np.unique(np.searchsorted(first, pairs), axis=0))
