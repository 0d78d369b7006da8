"""Placing: mappings as intervals of global addresses and the tile of each."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from abele.arrays import Int32, Int64
from abele.errors import InvalidOptionError, TensorCreationError, TensorError, TileMappingError, TypeMismatchError
from abele.graph.debug import DebugRecord
from abele.graph.expect import dimensions, expect
from abele.graph.intervals import cut_at, distinct, order_of
from abele.graph.mapping import TileMapping
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable
from abele.numerics import as_element_type, misfit, to_device
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.graph import Graph
    from abele.graph.regions import Regions

View = TypeVar("View", bound=Tensor)


# The elements of all variables of a graph in one space of addresses: making variables, finding them by address.

MOST_ELEMENTS = 2**63 - 1
"""Elements of all variables of a graph: addresses are 64-bit integers."""


class AddressSpace:
    """The variables of a graph, one after the other in a space of 64-bit element addresses.

    Attributes:
        variables: All of them, in order of their addresses.
        num_elements: Elements of all: one past the last address.
    """

    __slots__ = ("_bases", "num_elements", "variables")

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.num_elements = 0
        self._bases: Int64 = np.empty(0, dtype=np.int64)

    def new(self, dtype: Any, shape: Any, kind: str, initial: npt.ArrayLike | None, debug: DebugRecord) -> Variable:
        """A new variable behind those that there are; arguments as for :meth:`Graph.variable`.

        Raises:
            TensorCreationError: A negative dimension, more than 2^63 elements, or an initial value of another shape.
            TypeMismatchError: An element type that the machine lacks, or an initial value that does not fit it.
        """
        element = as_element_type(dtype)
        dims = dimensions(shape, f"variable {debug.name!r}")
        size = math.prod(dims)
        if self.num_elements + size > MOST_ELEMENTS:
            raise TensorCreationError(
                f"variable {debug.name!r} of shape {list(dims)} has {size:,} elements; "
                "all variables together can have 2^63",
                at=debug.location,
            )
        variable = Variable(
            id=len(self.variables),
            name=debug.full_name,
            dtype=element,
            shape=dims,
            base=self.num_elements,
            kind=kind,
            mapping=TileMapping.unmapped(size),
            initial=None,
            debug=debug,
        )
        if initial is not None:
            variable.initial = _contents(variable, initial, dims).copy()
        self.variables.append(variable)
        self.num_elements += size
        return variable

    def copy(
        self, source: Variable, mapping: TileMapping, initial: npt.NDArray[Any] | None, debug: DebugRecord
    ) -> Variable:
        """A new variable like another, behind those that there are, with a mapping and contents at load."""
        made = Variable(
            id=len(self.variables),
            name=debug.full_name,
            dtype=source.dtype,
            shape=source.shape,
            base=self.num_elements,
            kind=source.kind,
            mapping=mapping,
            initial=initial,
            debug=debug,
        )
        self.variables.append(made)
        self.num_elements += made.size
        return made

    def bases(self) -> Int64:
        """Address of the first element of each variable, ascending, int64[variables]."""
        known = len(self._bases)
        if known != len(self.variables):
            # Empty variables share their base with the next one, which searches from the right find.
            new = np.array([v.base for v in self.variables[known:]], dtype=np.int64)
            self._bases = np.concatenate([self._bases, new])
        return self._bases

    def locate(self, address: int) -> tuple[Variable, int]:
        """The variable and element that an address belongs to."""
        variable = self.variables[int(np.searchsorted(self.bases(), address, side="right")) - 1]
        return variable, address - variable.base

    def at(self, addresses: Int64) -> tuple[Variable, ...]:
        """The variables that hold the given addresses, in order of their own."""
        ids = distinct(np.searchsorted(self.bases(), addresses.reshape(-1), side="right") - 1)
        return tuple(self.variables[int(i)] for i in ids)

    def find(self, name: str) -> list[Variable]:
        """The variables called ``name``."""
        return [v for v in self.variables if v.name == name]


def initialise(tensor: Tensor, value: npt.ArrayLike) -> None:
    """Set the contents at load of the variable that ``tensor`` shows as a whole.

    Raises:
        TensorError: The view is not the whole of one variable.
        TensorCreationError: The shapes differ.
        TypeMismatchError: A value does not fit the element type.
    """
    strided = tensor.strided()
    if strided is None or strided.variable.size != tensor.size or tensor.contains_aliases:
        raise TensorError(f"only a whole variable can be initialised, not {tensor!r}")
    variable = strided.variable
    values = _contents(variable, value, tensor.shape)
    if np.ndim(value) == 0:
        # One number for all elements takes no memory until it is loaded.
        variable.initial = np.broadcast_to(to_device(value, variable.dtype), variable.shape)
        return
    contents = np.empty(variable.size, dtype=variable.dtype.np)
    placed = strided.of(contents)
    placed[...] = values.reshape(placed.shape)
    variable.initial = contents.reshape(variable.shape)


def _contents(variable: Variable, value: npt.ArrayLike, shape: Sequence[int]) -> npt.NDArray[Any]:
    """A value for all elements, or an array of them, as device elements of ``shape``."""
    given = np.shape(value)
    if given not in ((), tuple(shape)):
        raise TensorCreationError(
            f"{variable!r} cannot start as an array of shape {list(given)}",
            at=variable.debug.location or None,
            remedy=f"one number, or an array of shape {list(shape)}",
        )
    wrong = misfit(value, variable.dtype)
    if wrong is not None:
        raise TypeMismatchError(
            f"{variable!r} holds {variable.dtype}, it cannot start as {wrong}",
            at=variable.debug.location or None,
            remedy=f"values that fit, or another type; array.astype({variable.dtype.np.name!r}) cuts them",
        )
    return np.broadcast_to(to_device(value, variable.dtype), tuple(shape))


_MIN_BYTES_PER_TILE = 128
_GRAIN_BYTES = 8


class Placement(NamedTuple):
    """Intervals of elements, each with the tile that it goes to.

    Attributes:
        begin: First element of each interval, int64[k].
        length: Elements of each, int64[k].
        tile: Tile of each, int32[k].
    """

    begin: Int64
    length: Int64
    tile: Int32


def map_view(graph: Graph, tensor: View, mapping: Any) -> View:
    """Place a view's elements and return the view: on one tile, ``"linear"``, or by intervals of the view.

    Intervals are ``{tile: [intervals]}``, a list of intervals per tile, or a :class:`TileMapping`.

    Raises:
        TileMappingError: A tile that the graph lacks, or an interval outside the view.
    """
    expect(tensor, Tensor, "a mapping places a tensor")
    if isinstance(mapping, str):
        if mapping != "linear":
            raise InvalidOptionError(f"no mapping is called {mapping!r}", remedy='"linear", a tile, or intervals')
        return graph.map_linear(tensor)
    if isinstance(mapping, TileMapping) and _takes(graph, tensor, mapping):
        graph.check_tiles(mapping.tile, f"variable {tensor.name!r}", tensor.variables[0].debug)
        tensor.variables[0].mapping = mapping
        return tensor
    return graph.place(tensor, _given_placement(tensor, mapping))


def _takes(graph: Graph, tensor: Tensor, mapping: TileMapping) -> bool:
    """True if a mapping is that of the view's only variable as it is: variables that are mapped alike share one."""
    if graph.top_level is not graph or mapping.size != tensor.size or len(tensor.variables) != 1:
        return False
    variable = tensor.variables[0]
    at, size = tensor.intervals()
    is_all = len(at) == 1 and int(at[0]) == variable.base and int(size[0]) == variable.size
    return is_all and mapping.is_whole


def _given_placement(tensor: Tensor, mapping: Any) -> Placement:
    """Placement of a flattened view by a mapping: one tile, ``{tile: [intervals]}``, or a list of intervals per tile.

    Raises:
        TypeMismatchError: It is none of these, and no :class:`TileMapping`.
    """
    if isinstance(mapping, TileMapping):
        return Placement(mapping.begin, mapping.length, mapping.tile)
    if isinstance(mapping, (int, np.integer)):
        size = np.array([tensor.size], np.int64)
        return Placement(np.zeros(1, np.int64), size, np.array([mapping], np.int32))
    expect(mapping, Iterable, "a mapping is a tile, or lists of intervals")
    items = mapping.items() if isinstance(mapping, Mapping) else enumerate(mapping)
    flat = [(tile, *interval) for tile, intervals in items for interval in intervals]
    table = np.array(flat, dtype=np.int64).reshape(-1, 3)
    return Placement(table[:, 1], table[:, 2] - table[:, 1], table[:, 0].astype(np.int32))


def map_rows(graph: Graph, tensor: View, tiles: Sequence[int]) -> View:
    """Place row i of a view on ``tiles[i]``. Returns the view.

    Raises:
        TileMappingError: A tile that the graph lacks, or another number of tiles than rows.
    """
    debug = graph.origin("")
    tile = np.asarray(tiles, dtype=np.int32)
    if tensor.ndim == 0 or len(tile) != tensor.shape[0]:
        raise TileMappingError(f"{counted(len(tile), 'tile')} for the rows of {tensor!r}", at=debug.location)
    width = tensor.size // max(1, tensor.shape[0])
    begin = np.arange(len(tile), dtype=np.int64) * width
    return graph.place(tensor, Placement(begin, np.full(len(tile), width, dtype=np.int64), tile))


def map_linear(
    graph: Graph, tensor: View, min_elements: int | None = None, grain: int | None = None, first_tile: int = 0
) -> View:
    """Spread a view over all tiles in equal chunks and return it; arguments as for :meth:`Tensor.map_linear`."""
    size = tensor.dtype.bytes
    grain = grain or max(1, _GRAIN_BYTES // size)
    smallest = min_elements if min_elements is not None else max(1, _MIN_BYTES_PER_TILE // size)
    grains = -(-tensor.size // grain)
    tiles = max(1, min(graph.num_tiles, grains, tensor.size // max(1, smallest)))
    edges = np.arange(tiles + 1, dtype=np.int64) * grains // tiles * grain
    edges[-1] = tensor.size
    tile = ((np.arange(tiles) + first_tile) % graph.num_tiles).astype(np.int32)
    return graph.place(tensor, Placement(edges[:-1], np.diff(edges), tile))


def map_regions(graph: Graph, regions: Regions, tiles: npt.ArrayLike) -> None:
    """Place region r of a view on ``tiles[r]``, int[num].

    Raises:
        TileMappingError: A tile that the graph lacks, or two tiles for one element.
    """
    tile = np.asarray(tiles, dtype=np.int32)[regions.row]
    debug = graph.origin("")
    graph.check_tiles(tile, regions.tensor, debug)
    graph.place_addresses(Placement(regions.begin, regions.length, tile), debug)


def map_unmapped(graph: Graph) -> list[Variable]:
    """Spread every variable that is not mapped completely over all tiles, with a warning; returns them."""
    missing = [v for v in graph.variables if not v.mapping.is_complete]
    for variable in missing:
        graph.map_linear(graph.whole(variable))
        warnings.warn(
            f"{variable!r} is not mapped; it was spread over all tiles ({variable.debug.location or 'no line'})",
            stacklevel=2,
        )
    return missing


def place(graph: Graph, tensor: View, placement: Placement) -> View:
    """Place intervals of a flattened view. Returns the view.

    Raises:
        TileMappingError: A tile that the graph lacks, an interval outside the view, or two tiles for one element.
    """
    debug = graph.origin(tensor.name)
    graph.check_tiles(placement.tile, f"variable {tensor.name!r}", debug)
    graph.place_addresses(_at_addresses(tensor, placement, debug), debug)
    return tensor


def _at_addresses(tensor: Tensor, placement: Placement, debug: DebugRecord) -> Placement:
    """A placement of elements of a flattened view, as one of global addresses.

    The view is a list of runs of addresses, the placement a list of intervals of the view; both are cut at the ends of
    either, so that each piece has one run and one tile. Searches find these for all pieces at once.

    Raises:
        TileMappingError: An interval outside the view, or two tiles for one element.
    """
    begin, length, tile = placement
    if len(begin) and (begin.min() < 0 or int((begin + length).max()) > tensor.size):
        raise TileMappingError(
            f"the mapping of {tensor!r} reaches outside its {counted(tensor.size, 'element')}", at=debug.location
        )
    at, size = tensor.intervals()
    if len(at) == 1:
        return Placement(at[0] + begin, length, tile)
    starts = np.concatenate([[0], np.cumsum(size)])
    cuts = distinct(np.concatenate([starts, begin, begin + length]))
    cuts = cuts[(cuts >= 0) & (cuts <= tensor.size)]
    pieces, lengths = cuts[:-1], np.diff(cuts)
    begin, length, tile = _disjoint(placement, lambda at: f"element {at} of {tensor!r}", debug)
    slot = np.searchsorted(begin, pieces, side="right") - 1
    inside = (slot >= 0) & (pieces < (begin + length)[np.maximum(slot, 0)])
    run = np.searchsorted(starts, pieces, side="right") - 1
    address = at[np.minimum(run, len(at) - 1)] + pieces - starts[run]
    return Placement(address[inside], lengths[inside], tile[slot[inside]])


def overlay(space: AddressSpace, placement: Placement, debug: DebugRecord) -> None:
    """Place global addresses: the mapping of every variable that they belong to changes there.

    Raises:
        TileMappingError: Two tiles for one element.
    """
    keep = placement.length > 0

    def element(address: int) -> str:
        variable, number = space.locate(address)
        return f"element {number} of {variable!r}"

    kept = Placement(placement.begin[keep], placement.length[keep], placement.tile[keep])
    address, length, tile = _disjoint(kept, element, debug)
    address, length, source = cut_at(space.bases(), address, length)
    tile = tile[source]
    owner = np.searchsorted(space.bases(), address, side="right") - 1
    numbers = distinct(owner)
    for number in numbers:
        variable = space.variables[int(number)]
        mine = slice(None) if len(numbers) == 1 else owner == number
        variable.mapping = variable.mapping.overlaid(address[mine] - variable.base, length[mine], tile[mine])


def _disjoint(placement: Placement, name: Callable[[int], str], debug: DebugRecord) -> Placement:
    """The intervals in ascending order, with those of one tile that overlap joined.

    Overlapping intervals form clusters; a cluster ends where an interval begins at or after the furthest end so far.
    Within a cluster all must go to one tile, and their union is one interval.

    Raises:
        TileMappingError: Two overlap and go to different tiles; ``name`` tells what lies at a position.
    """
    begin, length, tile = placement
    order = order_of(begin)
    begin, end, tile = begin[order], (begin + length)[order], tile[order]
    reach = np.maximum.accumulate(end) if len(end) else end
    overlaps = begin[1:] < reach[:-1]
    if not overlaps.any():
        return Placement(begin, end - begin, tile)
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
    return Placement(begin[first], np.maximum.reduceat(end, first) - begin[first], tile[first])
