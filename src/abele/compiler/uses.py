"""Field uses: every edge field of every vertex group of a compute set, as rows of regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Int32, Int64
from abele.graph.vertices import Edge, VertexGroup

if TYPE_CHECKING:
    from abele.codelet import FieldDef


@dataclass(eq=False)
class FieldUse:
    """One edge field of a vertex group.

    Attributes:
        group: The vertices.
        field: The field of their codelet.
        first_vertex: Number of the group's first vertex in its compute set.
    """

    group: VertexGroup
    field: FieldDef
    first_vertex: int

    @property
    def edge(self) -> Edge:
        """Edge of the field."""
        return self.group.edges[self.field.name]

    @property
    def reads(self) -> bool:
        """True if the vertices may read the field."""
        return bool(self.field.direction != "out")

    @property
    def writes(self) -> bool:
        """True if the vertices may write the field."""
        return bool(self.field.direction != "in")

    @property
    def row_vertex(self) -> Int64:
        """Vertex of each row, numbered through the compute set, int64[rows]."""
        return self.edge.vertex_of_row + self.first_vertex

    @property
    def row_tile(self) -> Int32:
        """Tile of each row's vertex, int32[rows]."""
        edge = self.edge
        return self.group.tile if edge.row_begin is None else self.group.tile[edge.vertex_of_row]

    @cached_property
    def is_identity(self) -> bool:
        """True if row i is wired to region i and every region is used."""
        index = self.edge.index
        if len(index) != self.edge.regions.num:
            return False
        return bool((index == np.arange(len(index))).all())

    def intervals(self) -> tuple[Int64, Int64, Int64]:
        """Begin, length and vertex of every interval of every row, int64[k] each."""
        regions = self.edge.regions if self.is_identity else self.edge.regions.take(self.edge.index)
        vertex = self.row_vertex
        if len(regions.begin) != regions.num or (regions.counts != 1).any():
            vertex = np.repeat(vertex, regions.counts)
        return regions.begin, regions.length, vertex


def field_uses(groups: Sequence[VertexGroup]) -> list[FieldUse]:
    """Uses of all edge fields, in order of groups and of declaration."""
    uses, first = [], 0
    for group in groups:
        uses += [FieldUse(group, f, first) for f in group.codelet.fields if f.direction != "state"]
        first += group.num
    return uses
