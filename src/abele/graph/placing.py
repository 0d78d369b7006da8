"""Placing: the tiles of views, set and read, in the numbering of the graph that is asked."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError, TileMappingError
from abele.graph.debug import DebugInfo
from abele.graph.expect import expect
from abele.graph.interval_map import IntervalMap
from abele.graph.intervals import Int64, cut_at, distinct
from abele.graph.mapping import Int32, TileMapping
from abele.graph.regions import Regions
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.graph import Graph

_MIN_BYTES_A_TILE = 128
_GRAIN_BYTES = 8


class Placing:
    """Mix-in of :class:`Graph`."""

    def map(self: Graph, tensor: Tensor, mapping: Any) -> Tensor:  # type: ignore[misc]
        """Place a view's elements and return the view: on one tile, ``"linear"``, or by intervals of the view.

        Intervals are ``{tile: [intervals]}``, a list of intervals per tile, or a :class:`TileMapping`.

        Raises:
            TileMappingError: A tile that the graph lacks, or an interval outside the view.
        """
        expect(tensor, Tensor, "a mapping places a tensor")
        if isinstance(mapping, str):
            if mapping != "linear":
                raise InvalidOptionError(f"no mapping is called {mapping!r}", remedy='"linear", a tile, or intervals')
            return self.map_linear(tensor)
        debug = self.origin(tensor.name)
        if isinstance(mapping, TileMapping):
            self._place(tensor, mapping.begin, mapping.length, mapping.tile, debug)
        elif isinstance(mapping, (int, np.integer)):
            zero, size = np.zeros(1, np.int64), np.array([tensor.size], np.int64)
            self._place(tensor, zero, size, np.array([mapping], np.int32), debug)
        else:
            expect(mapping, Iterable, "a mapping is a tile, or lists of intervals")
            items = mapping.items() if isinstance(mapping, Mapping) else enumerate(mapping)
            flat = [(tile, *interval) for tile, intervals in items for interval in intervals]
            table = np.array(flat, dtype=np.int64).reshape(-1, 3)
            self._place(tensor, table[:, 1], table[:, 2] - table[:, 1], table[:, 0].astype(np.int32), debug)
        return tensor

    def map_rows(self: Graph, tensor: Tensor, tiles: Sequence[int]) -> Tensor:  # type: ignore[misc]
        """Place row i of a view on ``tiles[i]``. Returns the view.

        Raises:
            TileMappingError: A tile that the graph lacks, or another number of tiles than rows.
        """
        count = np.asarray(tiles, dtype=np.int32)
        if tensor.ndim == 0 or len(count) != tensor.shape[0]:
            raise TileMappingError(
                f"{counted(len(count), 'tile')} for the rows of {tensor!r}", at=self.origin("").location
            )
        width = tensor.size // max(1, tensor.shape[0])
        begin = np.arange(len(count), dtype=np.int64) * width
        self._place(tensor, begin, np.full(len(count), width, dtype=np.int64), count, self.origin(tensor.name))
        return tensor

    def map_linear(  # type: ignore[misc]
        self: Graph, tensor: Tensor, min_elements: int | None = None, grain: int | None = None, first_tile: int = 0
    ) -> Tensor:
        """Spread a view over all tiles in equal chunks and return it; arguments as for :meth:`Tensor.map_linear`."""
        size = tensor.dtype.bytes
        grain = grain or max(1, _GRAIN_BYTES // size)
        smallest = min_elements if min_elements is not None else max(1, _MIN_BYTES_A_TILE // size)
        grains = -(-tensor.size // grain)
        tiles = max(1, min(self.num_tiles, grains, tensor.size // max(1, smallest)))
        edges = np.arange(tiles + 1, dtype=np.int64) * grains // tiles * grain
        edges[-1] = tensor.size
        tile = ((np.arange(tiles) + first_tile) % self.num_tiles).astype(np.int32)
        self._place(tensor, edges[:-1], np.diff(edges), tile, self.origin(tensor.name))
        return tensor

    def map_regions(self: Graph, regions: Regions, tiles: npt.ArrayLike) -> None:  # type: ignore[misc]
        """Place region r of a view on ``tiles[r]``, int[num].

        Raises:
            TileMappingError: A tile that the graph lacks, or two tiles for one element.
        """
        tile = np.asarray(tiles, dtype=np.int32)[regions.row]
        debug = self.origin("")
        self.check_tiles(tile, f"{regions.tensor!r}", debug)
        self._overlay(regions.begin, regions.length, tile, debug)

    def _place(self: Graph, tensor: Tensor, begin: Int64, length: Int64, tile: Int32, debug: DebugInfo) -> None:  # type: ignore[misc]
        self.check_tiles(tile, f"variable {tensor.name!r}", debug)
        if len(begin) and (begin.min() < 0 or int((begin + length).max()) > tensor.size):
            raise TileMappingError(
                f"the mapping of {tensor!r} reaches outside its {counted(tensor.size, 'element')}", at=debug.location
            )
        at, size = tensor.intervals()
        if len(at) == 1:
            self._overlay(at[0] + begin, length, tile, debug)
            return
        starts = np.concatenate([[0], np.cumsum(size)])
        cuts = distinct(np.concatenate([starts, begin, begin + length]))
        cuts = cuts[(cuts >= 0) & (cuts <= tensor.size)]
        pieces, lengths = cuts[:-1], np.diff(cuts)
        begin, length, tile = _disjoint(begin, length, tile, lambda at: f"element {at} of {tensor!r}", debug)
        order = np.argsort(begin, kind="stable")
        slot = np.searchsorted(begin[order], pieces, side="right") - 1
        inside = (slot >= 0) & (pieces < (begin + length)[order][np.maximum(slot, 0)])
        run = np.searchsorted(starts, pieces, side="right") - 1
        address = at[np.minimum(run, len(at) - 1)] + pieces - starts[run]
        self._overlay(address[inside], lengths[inside], tile[order][slot[inside]], debug)

    def _overlay(  # type: ignore[misc]
        self: Graph, address: Int64, length: Int64, tile: Int32, debug: DebugInfo
    ) -> None:
        """Place intervals of the global space."""
        keep = length > 0
        address, length, tile = _disjoint(address[keep], length[keep], tile[keep], self._element, debug)
        address, length, source = cut_at(self._bases(), address, length)
        tile = tile[source]
        owner = np.searchsorted(self._bases(), address, side="right") - 1
        numbers = distinct(owner)
        for number in numbers:
            variable = self.variables[int(number)]
            mine = slice(None) if len(numbers) == 1 else owner == number
            variable.mapping = variable.mapping.overlaid(address[mine] - variable.base, length[mine], tile[mine])

    def _element(self: Graph, address: int) -> str:  # type: ignore[misc]
        variable, element = self.locate(address)
        return f"element {element} of {variable!r}"

    def map_unmapped(self: Graph) -> list[Variable]:  # type: ignore[misc]
        """Spread every variable that is not mapped completely over all tiles, with a warning; returns them."""
        missing = [v for v in self.variables if not v.mapping.is_complete]
        for variable in missing:
            self.map_linear(self.whole(variable))
            warnings.warn(
                f"{variable!r} is not mapped; it was spread over all tiles ({variable.debug.location or 'no line'})",
                stacklevel=2,
            )
        return missing

    def check_tiles(self: Graph, tiles: Int32, what: str, debug: DebugInfo) -> None:  # type: ignore[misc]
        """Raise unless the system has all these tiles.

        Raises:
            TileMappingError: It lacks one; the message names ``what`` was placed there.
        """
        if len(tiles) and (int(tiles.min()) < 0 or int(tiles.max()) >= self.num_tiles):
            wrong = int(tiles.max()) if int(tiles.max()) >= self.num_tiles else int(tiles.min())
            raise TileMappingError(
                f"{what} is mapped to tile {wrong}, but {self.system.name} has {counted(self.num_tiles, 'tile')}",
                at=debug.location,
                remedy=f"use tiles 0 to {self.num_tiles - 1}, or a larger system",
            )

    def mapping_of(self: Graph, tensor: Tensor) -> TileMapping:  # type: ignore[misc]
        """Tile of every element of a flattened view."""
        begin, length = tensor.intervals()
        address, size, tile = self.interval_map(tensor.variables).split(begin, length)[:3]
        starts = np.cumsum(size) - size
        if not len(address):
            return TileMapping.unmapped(tensor.size)
        change = np.append(True, tile[1:] != tile[:-1])
        return TileMapping(tensor.size, starts[change], tile[change])

    def interval_map(self: Graph, variables: Sequence[Variable] | None = None) -> IntervalMap:  # type: ignore[misc]
        """The tile of every element of the global space, or of some variables in it."""
        return IntervalMap.of(self.variables if variables is None else sorted(variables, key=lambda v: v.base))


def _disjoint(
    begin: Int64, length: Int64, tile: Int32, name: Callable[[int], str], debug: DebugInfo
) -> tuple[Int64, Int64, Int32]:
    """Intervals in ascending order, with those of one tile that overlap joined.

    Raises:
        TileMappingError: Two overlap and go to different tiles; ``name`` tells what lies at a position.
    """
    order = np.argsort(begin, kind="stable")
    begin, end, tile = begin[order], (begin + length)[order], tile[order]
    reach = np.maximum.accumulate(end) if len(end) else end
    overlaps = begin[1:] < reach[:-1]
    if not overlaps.any():
        return begin, end - begin, tile
    first = np.flatnonzero(np.append(True, ~overlaps))
    cluster = np.cumsum(np.append(True, ~overlaps)) - 1
    wrong = np.flatnonzero(tile != tile[first][cluster])
    if len(wrong):
        i = int(wrong[0])
        raise TileMappingError(
            f"{name(int(begin[i]))} is mapped to tile {tile[first][cluster[i]]} and to tile {tile[i]}",
            at=debug.location or None,
            remedy="the intervals of one mapping must not overlap",
        )
    return begin[first], np.maximum.reduceat(end, first) - begin[first], tile[first]
