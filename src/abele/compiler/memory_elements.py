"""Memory elements: fields that must lie apart, in interleaved memory, or at an alignment.

Two fields share a memory element only if they share an element of a variable (the allocator is assumed to be able to
separate everything else), so the check is an intersection of intervals per vertex: intervals of one field are sorted on
an axis where each vertex has a stretch of its own, and those of the other are looked up in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Int32, Int64
from abele.compiler.layout import Layout
from abele.compiler.tile_vector import TileTotal, TileVector
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

    def concerns(self, groups: Sequence[VertexGroup]) -> bool:
        """True if any field of some vertices has a request."""
        return any(self._asks(field) for group in groups for field in group.codelet.fields)

    def _asks(self, field: FieldDef) -> bool:
        return field.alignment_bytes > self._base_alignment or field.interleaved

    def of_variables(self) -> tuple[Int64, Int64]:
        """Alignment and interleaving that fields demand of variables.

        Returns:
            The strictest alignment in bytes that is wanted of each, int64[variables], 0 where the usual one is enough;
            and the variables that must lie in interleaved memory, int64[k].
        """
        alignment = np.zeros(len(self._layout.base), dtype=np.int64)
        for align in sorted(self._aligned):
            alignment[self._owners(self._aligned[align])] = align
        return alignment, self._owners(self._interleaved)

    def _owners(self, shares: Sequence[Int64]) -> Int64:
        """The variables of shares; a variable's packed elements take up the addresses of the variable itself."""
        return self._layout.variables_at(distinct(np.concatenate([np.empty(0, np.int64), *shares])))

    def gap_bytes(self) -> TileVector:
        """Bytes that alignment beyond the usual may leave unused on each tile.

        Model: the start of a tile's share of a variable lies anywhere on the usual grid, so up to the difference of
        the two alignments is lost before it.
        """
        total, seen = TileTotal(self._layout.num_tiles), np.empty(0, dtype=np.int64)
        # The strictest request of a share counts; weaker ones of the same share are met by it.
        for align in sorted(self._aligned, reverse=True):
            shares = np.setdiff1d(distinct(np.concatenate(self._aligned[align])), seen)
            seen = np.concatenate([seen, shares])
            tiles, _ = self._held(shares)
            lost = np.full(len(tiles), align - self._base_alignment)
            total.add(TileVector.sum_of(tiles, lost, self._layout.num_tiles))
        return total.vector()

    def interleaved_bytes(self) -> TileVector:
        """Bytes of variables that must lie in interleaved memory on each tile.

        Model: a tile's whole share of a variable, counted once; that temporaries could follow each other there is left
        out.
        """
        if not self._interleaved:
            return TileVector.zero(self._layout.num_tiles)
        held = self._held(distinct(np.concatenate(self._interleaved)))
        return TileVector.sum_of(*held, self._layout.num_tiles).packed()

    def _held(self, shares: Int64) -> tuple[Int32, Int64]:
        """Tile and bytes of shares, given by their first packed address in ascending order."""
        layout = self._layout
        mapped = layout.tile >= 0
        share, tile = layout.all_packed[1][mapped], layout.tile[mapped]
        owner = layout.variables_at(layout.begin[mapped])
        size = (layout.end - layout.begin)[mapped] * layout.width[owner]
        found = np.searchsorted(shares, share)
        inside = (
            (found < len(shares)) & (shares[np.minimum(found, len(shares) - 1)] == share) if len(shares) else found < 0
        )
        tiles = np.zeros(len(shares), dtype=np.int32)
        tiles[found[inside]] = tile[inside]
        return tiles, np.bincount(found[inside], weights=size[inside], minlength=len(shares)).astype(np.int64)
