"""Equal steps: steps that differ in their variables alone, so that the analysis of one holds for the other.

Why that is right: the analysis reads of a step the codelets, tiles, costs and state of its vertices, which intervals of
which variables they are wired to, and where the elements of these variables lie. It never looks at an address but to
compare it with others: two intervals overlap, adjoin, lie in one tile's share, or come in some order. If there is a
one-to-one map from the variables of one step to those of another that keeps all of these, every comparison has the same
outcome, so races, exchanges, copies, cycles and bytes are the same numbers, for other variables. What the
map must keep is checked array by array: the wiring relative to the base of each variable, the tile mapping of each
variable, its type and size, and the order of the variables in memory (the exchange sorts by address, and the order
decides which of two overlapping wishes arrives first). An IPU's tiles are all alike and so are the links between
IPUs as far as a step on one IPU can tell, so such a step may also lie a whole number of IPUs further on.

Steps of one shape (codelets, lengths of all columns, and what a few places of them hold, which is cheap to hash) are
compared with up to four analysed ones. Without the places, the fifth layer of one size would never be found again on
the next IPU. What was tried: hashing the columns themselves, which reads every array twice where most steps differ in
their shape already; comparing with all analysed steps, which is quadratic where steps differ in their wiring alone;
keeping the vectors of first ones dense, which filled the memory that is given to them on a Pod after eight steps.

Example: a layer on IPU 1 that is wired as one on IPU 0, on tiles 1,472 further on, takes over that one's analysis; its
exchange is not planned again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from abele.arrays import Int32
from abele.compiler.access import Access
from abele.compiler.layout import Layout
from abele.compiler.superstep import Copied, Exchanged, Superstep
from abele.compiler.tile_vector import TileVector
from abele.graph.block import StridedBlock
from abele.graph.intervals import distinct
from abele.graph.mapping import TileMapping
from abele.graph.program import Copy, Program
from abele.graph.regions import Regions
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable
from abele.graph.vertices import Edge, StateData, VertexGroup

if TYPE_CHECKING:
    from abele.compiler.lower import Step
    from abele.graph.graph import Graph

_MOST_BYTES = 1 << 26
"""Memory for the analyses of first steps."""
_MOST_BLOCKS = 64
"""Blocks of a copy's views up to which it is compared with others."""
_MOST_ALIKE = 4
"""First ones of one shape that a step is compared with."""


@dataclass(frozen=True, eq=False, slots=True)
class Analysed:
    """A compute set or a copy that was analysed.

    Attributes:
        groups: Vertices of a compute set.
        superstep: Result of the analysis.
    """

    groups: tuple[VertexGroup, ...]
    superstep: Superstep


class EqualStep(NamedTuple):
    """An analysed step that another equals.

    Attributes:
        first: The step.
        access: Variables that the other touches.
        ipus: Distance of the other, in IPUs.
    """

    first: Analysed
    access: Access
    ipus: int


class EqualSteps:
    """The compute sets and copies analysed so far, to find one that another equals but for the variables.

    Equal are: codelets, tiles, costs, state, the wiring within each variable, and the tile mappings of the variables,
    which come in the same order in memory. So races, exchanges, cycles and memory are equal, too. Steps that each lie
    on one IPU may be on different ones, unless the user made sync groups.

    Args:
        graph: The graph that all are part of.
        layout: Tile and address of its elements.
    """

    def __init__(self, graph: Graph, layout: Layout) -> None:
        self._variables = graph.variables
        self._layout = layout
        self._bases: list[int] = layout.base.tolist()
        self._tiles_per_ipu = graph.system.ipu.num_tiles
        self._may_shift = not graph.sync_groups
        self._by_shape: dict[Hashable, list[Analysed]] = {}
        self._variable_of: dict[int, int | None] = {}
        self._bytes = 0

    def add(self, first: Analysed) -> None:
        """Remember an analysed step, as far as there is room."""
        node = first.superstep.node
        shape = _copy_shape(node) if isinstance(node, Copy) else self._shape(first.groups)
        if shape is None:
            return
        alike = self._by_shape.setdefault(shape, [])
        held = (first.superstep.vertex_state, first.superstep.exchange_code)
        self._bytes += sum(vector.values.nbytes for vector in held if vector is not None)
        # The first ones of a shape stay, so that what later steps are compared with does not depend on their order.
        if len(alike) < _MOST_ALIKE and self._bytes <= _MOST_BYTES:
            alike.append(first)

    def find(self, groups: Sequence[VertexGroup]) -> EqualStep | None:
        """A compute set that these vertices equal."""
        for first in self._by_shape.get(self._shape(groups), ()):
            shift = self._shift_of(first.groups, groups)
            found = None if shift is None else self._counterparts(first.groups, groups, shift)
            if found is not None and shift is not None and self._may_take(first, found, shift):
                return EqualStep(first, self._moved(first.superstep.access, found), shift // self._tiles_per_ipu)
        return None

    def find_copied(self, first: Analysed, others: Mapping[Variable, Variable], shift: int) -> EqualStep | None:
        """Analysed compute set as the equal of a copy of its vertices for other variables.

        None where the variables do not lie as those that they stand for, because they were mapped anew.

        Args:
            first: The analysed one.
            others: The variable in place of each.
            shift: Distance of the vertices, in tiles.
        """
        touched = first.superstep.access.touched.tolist()
        found = {n: others[self._variables[n]].id for n in touched}
        if not self._are_alike(found, shift) or not self._may_take(first, found, shift):
            return None
        return EqualStep(first, self._moved(first.superstep.access, found), shift // self._tiles_per_ipu)

    def find_copy(self, node: Copy) -> EqualStep | None:
        """A copy that this one equals."""
        shape = _copy_shape(node)
        if shape is None:
            return None
        for first in self._by_shape.get(shape, ()):
            old, new = _blocks(first.superstep.node), _blocks(node)
            pairs = [(a.variable.id, b.variable.id) for a, b in zip(old, new, strict=True)]
            found: dict[int, int] = {}
            if any(found.setdefault(x, y) != y for x, y in pairs) or not pairs:
                continue
            before, after = (self._variables[n].mapping.tile for n in pairs[0])
            shift = int(after[0]) - int(before[0]) if len(before) and len(after) else 0
            if self._are_alike(found, shift) and self._may_take(first, found, shift):
                return EqualStep(first, self._moved(first.superstep.access, found), shift // self._tiles_per_ipu)
        return None

    def _shape(self, groups: Sequence[VertexGroup]) -> tuple[object, ...]:
        """Cheap key that is equal for equal compute sets."""
        return tuple(
            (id(g.codelet), g.num, _spread(g.tile), *(self._edge_shape(e) for e in g.edges.values())) for g in groups
        )

    def _edge_shape(self, edge: Edge) -> tuple[object, ...]:
        """Lengths of an edge's columns, and where some of its intervals lie in their variables, and these on tiles."""
        begin = edge.regions.begin
        # A few numbers: Python is quicker with them than NumPy.
        some = [int(begin[i]) for i in _places(len(begin))]
        variables = [bisect_right(self._bases, address) - 1 for address in some]
        offsets = tuple([address - self._bases[v] for address, v in zip(some, variables, strict=True)])
        spread = _spread(self._variables[variables[0]].mapping.tile) if variables else ()
        return len(edge.index), len(begin), int(edge.regions.ptr[-1]), offsets, spread

    def _shift_of(self, old: Sequence[VertexGroup], new: Sequence[VertexGroup]) -> int | None:
        """Tiles by which all vertices lie further on."""
        for a, b in zip(old, new, strict=True):
            if len(a.tile) and len(b.tile):
                shift = int(b.tile[0]) - int(a.tile[0])
                # Only whole IPUs are alike: within one, the neighbour on the exchange bus and the column would change.
                return shift if shift % self._tiles_per_ipu == 0 else None
        return 0

    def _may_take(self, first: Analysed, found: dict[int, int], shift: int) -> bool:
        """True if the analysis of a step holds ``shift`` tiles further on."""
        if shift == 0:
            return True
        if not self._may_shift or shift % self._tiles_per_ipu:
            return False
        tiles = [self._variables[x].mapping.tile for x in found] + [g.tile for g in first.groups]
        # Traffic between IPUs takes other links further on, so all that the step touches must lie on one IPU.
        ends = [end for t in tiles if len(t) for end in (int(t.min()), int(t.max()))]
        return len({end // self._tiles_per_ipu for end in ends}) == 1

    def _counterparts(
        self, old: Sequence[VertexGroup], new: Sequence[VertexGroup], shift: int
    ) -> dict[int, int] | None:
        """The variable that takes the place of each, by position in the graph; None where the vertices differ."""
        found: dict[int, int] = {}
        for a, b in zip(old, new, strict=True):
            if not _same_vertices(a, b, shift):
                return None
            for name, edge in a.edges.items():
                pairs = self._pairs(edge, b.edges[name])
                # A variable has one counterpart throughout the step.
                if pairs is None or any(found.setdefault(x, y) != y for x, y in pairs):
                    return None
        return found if self._are_alike(found, shift) else None

    def _are_alike(self, found: dict[int, int], shift: int) -> bool:
        """True if variables lie as their counterparts do, in the same order in memory and ``shift`` tiles apart."""
        numbers = [found[x] for x in sorted(found)]
        # The exchange sorts by address: counterparts must come in the same order.
        if any(x >= y for x, y in pairwise(numbers)):
            return False
        return all(self._is_alike(x, y, shift) for x, y in found.items())

    def _is_alike(self, old: int, new: int, shift: int) -> bool:
        """True if two variables are of one kind and size, and equally mapped but for ``shift`` tiles."""
        if old == new and shift == 0:
            return True
        a, b = self._variables[old], self._variables[new]
        if a.size != b.size or a.dtype != b.dtype or a.is_constant != b.is_constant:
            return False
        like = self._layout.packing.like
        if like[old] == like[new]:
            # Their pieces have been compared already, and lie one distance apart.
            return int(b.mapping.tile[0]) - int(a.mapping.tile[0]) == shift if len(b.mapping.tile) else True
        return _same_mapping(a.mapping, b.mapping, shift)

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
        # Nearly every edge is wired to one variable: then one subtraction compares all of its intervals. Those of the
        # other edge lie in one variable, too, if it is as large, and variables that differ in size are no counterparts.
        before = self._single(one)
        if before is not None:
            after = int(layout.variables_at(other.begin[:1])[0])
            same = bool((moved == layout.base[after] - layout.base[before]).all())
            return [(before, after)] if same else None
        from_, to = layout.variables_at(one.begin), layout.variables_at(other.begin)
        # An interval that runs over the end of a variable would have two counterparts.
        last = layout.variables_at(one.begin + one.length - 1), layout.variables_at(other.begin + other.length - 1)
        if (
            not _equal(from_, last[0])
            or not _equal(to, last[1])
            or not _equal(moved, layout.base[to] - layout.base[from_])
        ):
            return None
        count = len(layout.base)
        return [divmod(int(key), count) for key in distinct(from_ * count + to)]

    def _single(self, regions: Regions) -> int | None:
        """The only variable that regions of a remembered step lie in."""
        if id(regions) not in self._variable_of:
            ends = np.array([int(regions.begin.min()), int((regions.begin + regions.length).max()) - 1])
            low, high = self._layout.variables_at(ends).tolist()
            self._variable_of[id(regions)] = int(low) if low == high else None
        return self._variable_of[id(regions)]

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
        overlays = np.array([found[v] for v in access.overlays.ravel().tolist()], dtype=np.int64).reshape(-1, 2)
        stays = {found[variable]: which for variable, which in access.stays.items()}
        return Access(reads, writes, complete, partial, overlays=overlays, stays=stays)


def relocated(equal: EqualStep, step: Step, tiles_per_ipu: int) -> Superstep:
    """Superstep of a step, from the one that it equals."""
    first, by = equal.first.superstep, equal.ipus
    tiles, compute = by * tiles_per_ipu, first.compute
    if by == 0:
        return replace(first, index=step.superstep, node=step.node, access=equal.access)
    return replace(
        first,
        index=step.superstep,
        node=step.node,
        access=equal.access,
        before=_exchanged_later(first.before, tiles, by),
        gather=_copied_later(first.gather, tiles, by),
        compute=None if compute is None else replace(compute, by_tile=compute.by_tile.shifted(tiles)),
        scatter=_copied_later(first.scatter, tiles, by),
        after=_exchanged_later(first.after, tiles, by),
        meets=first.meets if compute is None else tuple(_groups_later(groups, by) for groups in first.meets),
        buffer_bytes=_bytes_later(first.buffer_bytes, tiles),
        vertex_state=_bytes_later(first.vertex_state, tiles),
        exchange_code=_bytes_later(first.exchange_code, tiles),
    )


def _bytes_later(held: TileVector | None, tiles: int) -> TileVector | None:
    return None if held is None else held.shifted(tiles)


def _exchanged_later(phase: Exchanged | None, tiles: int, ipus: int) -> Exchanged | None:
    if phase is None:
        return None
    # Where data leaves an IPU all of them meet, of whichever it is.
    groups = phase.groups if phase.leaves else _groups_later(phase.groups, ipus)
    received, sent = phase.received_bytes.shifted(tiles), phase.sent_bytes.shifted(tiles)
    return replace(phase, received_bytes=received, sent_bytes=sent, groups=groups)


def _copied_later(part: Copied | None, tiles: int, ipus: int) -> Copied | None:
    if part is None:
        return None
    return replace(part, by_tile=part.by_tile.shifted(tiles), groups=_groups_later(part.groups, ipus))


def _groups_later(groups: Iterable[int], by: int) -> tuple[int, ...]:
    """The sync groups of IPUs further on."""
    return tuple(g + by for g in groups)


def _blocks(node: Program) -> tuple[StridedBlock, ...]:
    """The blocks of a copy's views, first those of the source; none where a view is no copy's or has too many."""
    if not isinstance(node, Copy) or not isinstance(node.source, Tensor) or not isinstance(node.destination, Tensor):
        return ()
    source, destination = node.source.content.blocks, node.destination.content.blocks
    if source is None or destination is None or len(source) + len(destination) > _MOST_BLOCKS:
        return ()
    return *source, *destination


def _copy_shape(node: Copy) -> Hashable:
    """Key that equal copies share whatever their variables; None where there is no such key."""
    blocks = _blocks(node)
    if not blocks:
        return None
    sides = [(t.shape, t.dtype) for t in (node.source, node.destination) if isinstance(t, Tensor)]
    return *sides, tuple(
        (b.offset, b.origin, b.factors, b.variable.shape, _spread(b.variable.mapping.tile)) for b in blocks
    )


def _spread(tile: Int32) -> tuple[int, ...]:
    """Number of tiles of a column, and the distances of some of them from the first."""
    first = int(tile[0]) if len(tile) else 0
    return len(tile), *[int(tile[i]) - first for i in _places(len(tile))]


def _places(length: int) -> tuple[int, ...]:
    """Some positions in a column, by which most different columns are told apart."""
    return (length // 5, length // 3, length // 2, length - 1) if length else ()


def _same_vertices(a: VertexGroup, b: VertexGroup, shift: int) -> bool:
    return (
        a.codelet is b.codelet
        and a.edges.keys() == b.edges.keys()
        and a.state.keys() == b.state.keys()
        and _equal(_later(a.tile, shift), b.tile)
        and _equal(a.cycles, b.cycles)
        and _equal(a.state_bytes, b.state_bytes)
        and all(_same_state(a.state[name], b.state[name]) for name in a.state)
    )


def _same_state(a: StateData, b: StateData) -> bool:
    return _equal(a.values, b.values) and _equal(a.row_begin, b.row_begin)


def _same_mapping(a: TileMapping, b: TileMapping, shift: int) -> bool:
    if a is b:
        return shift == 0
    return _equal(a.begin, b.begin) and _equal(_later(a.tile, shift), b.tile)


def _later(tile: Int32, shift: int) -> Int32:
    return tile if shift == 0 else tile + np.int32(shift)


def _equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """True if two arrays, or the lack of both, are the same."""
    if a is None or b is None:
        return a is b
    return a is b or (a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())
