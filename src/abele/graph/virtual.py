"""Virtual graphs: a graph with some of its tiles only, numbered from 0."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int32, Int64
from abele.errors import TileMappingError
from abele.graph.compute_set import ComputeSet, VertexRef
from abele.graph.debug import DebugRecord
from abele.graph.graph import Graph
from abele.graph.interval_map import IntervalMap
from abele.graph.mapping import TileMapping
from abele.graph.place import Placement
from abele.graph.sync_group import SyncGroup
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable
from abele.graph.vertices import VertexGroup
from abele.machine import System
from abele.words import counted


class VirtualGraph(Graph):
    """A view of a graph that has some of its tiles only, numbered from 0.

    It has no state of its own: variables, constants, compute sets, vertices, streams and functions that are made
    through it belong to the whole graph, ``top_level``. Tiles are its own numbers wherever it takes or gives any:
    ``map``, ``mapping_of``, ``map_linear``, ``interval_map``, the vertices of its compute sets, ``place_vertex``. So
    a library function that is given a virtual graph stays inside its tiles.

    A tensor knows nothing of virtual graphs: ``t.graph`` is the whole graph, and ``t.map`` and ``t.mapping`` number
    tiles as that does. Use ``virtual.map(t, …)`` and ``virtual.mapping_of(t)`` for virtual numbers. Reading the mapping
    of elements that lie on other tiles is an error.

    Made by :meth:`Graph.virtual`, :meth:`Graph.ipu` and :meth:`Graph.virtual_tiles_per_ipu`, also on a virtual graph.

    Attributes:
        parent: The graph that it was made from.
        tiles: The whole graph's number of each of its tiles, int32[num_tiles].
        system: The machine with these tiles alone: as many IPUs as they are spread over evenly, or one.
    """

    parent: Graph
    tiles: Int32
    system: System
    _top: Graph
    _number: Int32

    def __init__(self, parent: Graph, tiles: Int64) -> None:
        debug = parent.origin("")
        unique, counts = np.unique(tiles, return_counts=True)
        if len(tiles) == 0 or len(unique) < len(tiles):
            what = f"tile {unique[counts > 1][0]} is named twice" if len(tiles) else "it would have no tile"
            raise TileMappingError(f"cannot make a virtual graph: {what}", at=debug.location or None)
        in_parent = tiles.astype(np.int32)
        parent.check_tiles(in_parent, "a virtual graph", debug)
        top = parent.top_level
        whole = parent.tiles[in_parent] if isinstance(parent, VirtualGraph) else in_parent
        number = np.full(top.num_tiles, -1, dtype=np.int32)
        number[whole] = np.arange(len(whole), dtype=np.int32)
        own = {"parent": parent, "tiles": whole, "system": _part(top.system, whole), "_top": top, "_number": number}
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_top" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._top, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._top, name, value)

    @property
    def top_level(self) -> Graph:
        """The whole graph."""
        return self._top

    # --- tiles -------------------------------------------------------------------------------------------------------

    def check_tiles(self, tiles: Int32, what: object, debug: DebugRecord) -> None:
        """Raise unless this virtual graph has all these tiles.

        Raises:
            TileMappingError: It lacks one; the message names ``what`` was placed there, in both numberings.
        """
        wrong = tiles[(tiles < 0) | (tiles >= self.num_tiles)]
        if len(wrong):
            raise TileMappingError(
                f"{what} is mapped to tile {wrong[0]}, but the virtual graph has {counted(self.num_tiles, 'tile')}",
                at=debug.location or None,
                because=f"it is {self._words()}",
                remedy=f"use tiles 0 to {self.num_tiles - 1}, or the graph that it was made from",
            )

    def in_top_level(self, tiles: npt.ArrayLike, what: str = "something") -> Int32:
        """The whole graph's numbers of tiles, int32[n].

        Raises:
            TileMappingError: The virtual graph lacks one; ``what`` is placed there.
        """
        numbers = np.asarray(tiles, dtype=np.int32)
        self.check_tiles(numbers.reshape(-1), what, self.origin(""))
        return self.tiles[numbers]

    def own_numbers(self, tiles: Int32, what: object) -> Int32:
        """The virtual graph's numbers of the whole graph's tiles, int32[n]; −1 (mapped nowhere) stays.

        Raises:
            TileMappingError: One is outside; ``what`` lies there.
        """
        own = np.where(tiles < 0, -1, self._number[np.maximum(tiles, 0)]).astype(np.int32)
        outside = np.flatnonzero((own < 0) & (tiles >= 0))
        if len(outside):
            raise TileMappingError(
                f"{what} lies on tile {tiles[outside[0]]} of {self._top.system.name}, outside the virtual graph",
                at=self.origin("").location or None,
                because=f"the virtual graph has {counted(self.num_tiles, 'tile')}: it is {self._words()}",
                remedy="copy it to a tensor inside, or ask the graph that has the tile",
            )
        return own

    def _words(self) -> str:
        low, high = int(self.tiles.min()), int(self.tiles.max())
        every = "" if high - low == self.num_tiles - 1 else f"{self.num_tiles} of the "
        return f"{every}tiles {low} to {high} of {self._top.system.name}"

    def place_addresses(self, placement: Placement, debug: DebugRecord) -> None:
        """Place intervals of the global space, on own tiles.

        Raises:
            TileMappingError: Two tiles for one element.
        """
        self._top.place_addresses(placement._replace(tile=self.tiles[placement.tile]), debug)

    def place_vertex(self, vertex: VertexRef, tile: int) -> None:
        """Place a vertex that was added alone, by its own tile number."""
        self._top.place_vertex(vertex, int(self.in_top_level(tile, f"a vertex {vertex.codelet.name}")))

    def mapping_of(self, tensor: Tensor) -> TileMapping:
        """Own tile of every element of a flattened view.

        Raises:
            TileMappingError: An element lies on a tile outside.
        """
        found = self._top.mapping_of(tensor)
        return TileMapping(found.size, found.begin, self.own_numbers(found.tile, tensor))

    def interval_map(self, variables: Sequence[Variable] | None = None) -> IntervalMap:
        """The own tile of every element of the global space, or of some variables in it.

        Raises:
            TileMappingError: An element lies on a tile outside.
        """
        found = self._top.interval_map(variables)
        what = variables[0] if variables is not None and len(variables) == 1 else "a tensor"
        return IntervalMap(found.begin, self.own_numbers(found.tile, what), found.size)

    # --- vertices ----------------------------------------------------------------------------------------------------

    def compute_set(self, name: str = "compute_set", stage: Hashable = None) -> ComputeSet:
        """A new, empty compute set of the whole graph; its ``vertices`` and ``vertex`` take own tile numbers."""
        compute_set = _VirtualComputeSet(self, len(self.compute_sets), self.origin(name), stage)
        self.compute_sets.append(compute_set)
        return compute_set

    def sync_group(self, tiles: npt.ArrayLike, name: str = "sync group") -> SyncGroup:
        """Tiles, by this graph's numbers, that meet at barriers of their own; see :meth:`Graph.sync_group`."""
        return self._top.sync_group(self.in_top_level(tiles, f"sync group {name!r}"), name)

    def __repr__(self) -> str:
        return f"VirtualGraph({counted(self.num_tiles, 'tile')}: {self._words()})"


class _VirtualComputeSet(ComputeSet):
    """A compute set of the whole graph whose vertices are placed by a virtual graph's tile numbers."""

    def __init__(self, virtual: VirtualGraph, id_: int, debug: DebugRecord, stage: Hashable) -> None:
        super().__init__(virtual.top_level, id_, debug, stage)
        self._virtual = virtual

    def vertices(
        self, codelet: Any, *, tile: npt.ArrayLike, cycles: npt.ArrayLike | None = None, **fields: Any
    ) -> VertexGroup:
        """See :meth:`ComputeSet.vertices`; tiles are the virtual graph's."""
        return super().vertices(codelet, tile=self._placed(codelet, tile), cycles=cycles, **fields)

    def vertex(self, codelet: Any, *, tile: int | None = None, cycles: int | None = None, **fields: Any) -> VertexRef:
        """See :meth:`ComputeSet.vertex`; the tile is the virtual graph's."""
        placed = None if tile is None else int(self._placed(codelet, tile))
        return super().vertex(codelet, tile=placed, cycles=cycles, **fields)

    def _placed(self, codelet: Any, tile: npt.ArrayLike) -> Int32:
        name = getattr(codelet, "__name__", str(codelet))
        return self._virtual.in_top_level(tile, f"a vertex {name} of compute set {self.name!r}")


def _part(system: System, tiles: Int32) -> System:
    """The machine with these tiles alone."""
    each = system.ipu.num_tiles
    ipus, counts = np.unique(tiles // each, return_counts=True)
    even = (counts == counts[0]).all() and (np.diff(tiles // each) >= 0).all()
    num_ipus = len(ipus) if even else 1
    return system.with_ipus(num_ipus).evolve(ipu={"num_tiles": len(tiles) // num_ipus})
