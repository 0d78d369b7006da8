"""Twins: compute sets that do the same to other variables, so that what was found of one holds for the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from abele.compiler.access import Access
from abele.compiler.layout import Layout
from abele.compiler.superstep import Superstep
from abele.graph.intervals import Int64, distinct
from abele.graph.mapping import Int32, TileMapping
from abele.graph.variable import Variable
from abele.graph.vertices import Edge, StateData, VertexGroup

if TYPE_CHECKING:
    from abele.graph.graph import Graph

_MOST_BYTES = 1 << 26
"""Memory that what is kept of first ones may take."""
_MOST_ALIKE = 4
"""First ones of one shape that a compute set is compared with."""


@dataclass(frozen=True, eq=False, slots=True)
class Analysed:
    """A compute set that was analysed.

    Attributes:
        groups: Its vertices.
        superstep: What was found.
        vertex_state: Bytes that its vertices' records take on each tile, int32[tiles].
        exchange_code: Bytes of exchange instructions on each tile, int32[tiles].
    """

    groups: tuple[VertexGroup, ...]
    superstep: Superstep
    vertex_state: Int32
    exchange_code: Int32


class Twins:
    """The compute sets analysed so far, to find one that another equals but for the variables.

    Equal are: codelets, tiles, costs, state, the wiring within each variable, and the tile mappings of the variables,
    which come in the same order in memory. So races, exchanges, cycles and memory are equal, too.

    Args:
        graph: The graph that all are part of.
        layout: Where its elements live.
    """

    def __init__(self, graph: Graph, layout: Layout) -> None:
        self._variables = graph.variables
        self._layout = layout
        self._by_shape: dict[tuple[object, ...], list[Analysed]] = {}
        self._bytes = 0

    def add(self, first: Analysed) -> None:
        """Remember an analysed compute set, as far as there is room."""
        alike = self._by_shape.setdefault(_shape(first.groups), [])
        self._bytes += first.vertex_state.nbytes + first.exchange_code.nbytes
        if len(alike) < _MOST_ALIKE and self._bytes <= _MOST_BYTES:
            alike.append(first)

    def find(self, groups: Sequence[VertexGroup]) -> tuple[Analysed, Access] | None:
        """A compute set that these vertices equal, and what they touch themselves."""
        for first in self._by_shape.get(_shape(groups), ()):
            found = self._counterparts(first.groups, groups)
            if found is not None:
                return first, self._moved(first.superstep.access, found)
        return None

    def _counterparts(self, old: Sequence[VertexGroup], new: Sequence[VertexGroup]) -> dict[int, int] | None:
        """The variable that takes the place of each, by position in the graph; None where the vertices differ."""
        found: dict[int, int] = {}
        for a, b in zip(old, new, strict=True):
            if not _same_vertices(a, b):
                return None
            for name, edge in a.edges.items():
                pairs = self._pairs(edge, b.edges[name])
                if pairs is None or any(found.setdefault(x, y) != y for x, y in pairs):
                    return None
        numbers = [found[x] for x in sorted(found)]
        if any(x >= y for x, y in pairwise(numbers)):
            return None
        variables = self._variables
        return found if all(_alike(variables[x], variables[y]) for x, y in found.items()) else None

    def _pairs(self, old: Edge, new: Edge) -> list[tuple[int, int]] | None:
        """The variables that both are wired to in the same way, as pairs; None where they are not."""
        one, other = old.regions, new.regions
        if not _equal(old.index, new.index) or not _equal(old.row_begin, new.row_begin):
            return None
        if not _equal(one.ptr, other.ptr) or not _equal(one.length, other.length):
            return None
        if len(one.begin) == 0:
            return []
        layout, moved = self._layout, other.begin - one.begin
        before, after = (self._single(regions.begin, regions.length) for regions in (one, other))
        if before is not None and after is not None:
            same = bool((moved == layout.base[after] - layout.base[before]).all())
            return [(before, after)] if same else None
        from_, to = layout.variables_at(one.begin), layout.variables_at(other.begin)
        last = layout.variables_at(one.begin + one.length - 1), layout.variables_at(other.begin + other.length - 1)
        if (
            not _equal(from_, last[0])
            or not _equal(to, last[1])
            or not _equal(moved, layout.base[to] - layout.base[from_])
        ):
            return None
        count = len(layout.base)
        return [divmod(int(key), count) for key in distinct(from_ * count + to)]

    def _single(self, begin: Int64, length: Int64) -> int | None:
        """The only variable that intervals lie in."""
        ends = np.array([int(begin.min()), int((begin + length).max()) - 1])
        low, high = self._layout.variables_at(ends).tolist()
        return int(low) if low == high else None

    def _moved(self, access: Access, found: dict[int, int]) -> Access:
        """An access to the counterparts of variables."""
        base = self._layout.base
        partial = {}
        for variable, (begin, end) in access.partial.items():
            by = base[found[variable]] - base[variable]
            partial[found[variable]] = (begin + by, end + by)
        reads, writes, complete = (
            np.array([found[v] for v in numbers.tolist()], dtype=np.int64)
            for numbers in (access.reads, access.writes, access.complete)
        )
        return Access(reads, writes, complete, partial)


def relocated(first: Superstep, superstep: Superstep, access: Access) -> None:
    """Fill a superstep with what was found of its twin."""
    copy = replace(first, index=superstep.index, kind=superstep.kind, node=superstep.node, access=access)
    vars(superstep).update(vars(copy))


def _shape(groups: Sequence[VertexGroup]) -> tuple[object, ...]:
    """What equal compute sets have in common, cheaply."""
    return tuple(
        (
            id(g.codelet),
            g.num,
            *((len(e.index), len(e.regions.begin), int(e.regions.ptr[-1])) for e in g.edges.values()),
        )
        for g in groups
    )


def _same_vertices(a: VertexGroup, b: VertexGroup) -> bool:
    return (
        a.codelet is b.codelet
        and a.edges.keys() == b.edges.keys()
        and a.state.keys() == b.state.keys()
        and _equal(a.tile, b.tile)
        and _equal(a.cycles, b.cycles)
        and all(_same_state(a.state[name], b.state[name]) for name in a.state)
    )


def _same_state(a: StateData, b: StateData) -> bool:
    return _equal(a.values, b.values) and _equal(a.row_begin, b.row_begin)


def _alike(a: Variable, b: Variable) -> bool:
    return a is b or (
        a.size == b.size
        and a.dtype == b.dtype
        and a.is_constant == b.is_constant
        and _same_mapping(a.mapping, b.mapping)
    )


def _same_mapping(a: TileMapping, b: TileMapping) -> bool:
    return a is b or (_equal(a.begin, b.begin) and _equal(a.tile, b.tile))


def _equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """Whether two arrays, or the lack of both, are the same."""
    if a is None or b is None:
        return a is b
    return a is b or np.array_equal(a, b)
