"""The graph: variables, compute sets and streams for one system."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import GraphReplicationError, TensorCreationError, TensorError, TileMappingError
from abele.graph import program as programs
from abele.graph.block import whole as whole_block
from abele.graph.block_list import BlockList
from abele.graph.compute_set import ComputeSet
from abele.graph.debug import DebugInfo, caller
from abele.graph.ends import HostEnds
from abele.graph.interval_map import IntervalMap
from abele.graph.intervals import Int64, distinct
from abele.graph.mapping import Int32, TileMapping
from abele.graph.names import CppNames
from abele.graph.regions import Regions
from abele.graph.sync_group import SyncGroup
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable
from abele.machine import System, systems
from abele.numerics import as_element_type, to_device

if TYPE_CHECKING:
    from abele.kernels.ir import HostKernel

_MIN_BYTES_A_TILE = 128
_GRAIN_BYTES = 8


class Graph(CppNames, HostEnds):
    """A static description of a tile program for one system.

    Args:
        system: The machine, its name, or a file that describes it.
        replicas: Copies of the program that run side by side, each on an equal share of the system's IPUs, with state
            and streams of its own. The graph describes one of them.

    Attributes:
        system: The machine of one replica.
        whole_system: The machine of all.

    Raises:
        GraphReplicationError: The IPUs cannot be shared out equally.
    """

    def __init__(self, system: System | str, *, replicas: int = 1) -> None:
        super().__init__()
        self.whole_system: System = systems.resolve(system)
        self.replicas = replicas
        self.system: System = _share(self.whole_system, replicas)
        self.variables: list[Variable] = []
        self.compute_sets: list[ComputeSet] = []
        self.sync_groups: list[SyncGroup] = []
        self._next_address = 0
        self._scopes: list[str] = []
        self._locations: list[tuple[str, int, str]] = []
        self._base_cache: Int64 = np.empty(0, dtype=np.int64)

    @property
    def num_tiles(self) -> int:
        """Tiles of one replica."""
        return self.system.num_tiles

    # --- origins -----------------------------------------------------------------------------------------------

    def origin(self, name: str) -> DebugInfo:
        """Debug information for something made now under ``name``."""
        if self._locations:
            file, line, text = self._locations[-1]
        else:
            (file, line), text = caller(), ""
        return DebugInfo(name, "/".join(self._scopes), file, line, text)

    @contextmanager
    def scope(self, name: str = "", *, location: tuple[str, int] | None = None, text: str = "") -> Iterator[None]:
        """Prefix names made inside with ``name``; pin their source line to ``location`` if given."""
        if name:
            self._scopes.append(name)
        if location is not None:
            self._locations.append((*location, text))
        try:
            yield
        finally:
            if location is not None:
                self._locations.pop()
            if name:
                self._scopes.pop()

    # --- variables -----------------------------------------------------------------------------------------------

    def variable(
        self, dtype: Any, shape: int | Sequence[int], name: str = "variable", *, initial: npt.ArrayLike | None = None
    ) -> Tensor:
        """A new variable, mapped nowhere yet, as the view of all its elements.

        Args:
            dtype: Element type.
            shape: Dimensions; row-major in memory.
            name: Its name; scopes are prefixed.
            initial: Contents at load; undefined when left out.

        Raises:
            TensorCreationError: A negative dimension, or an initial value of another shape.
            TypeMismatchError: An element type that the machine lacks.
        """
        return self._new(dtype, shape, name, "variable", initial)

    def constant(
        self, dtype: Any, shape: int | Sequence[int] | None, value: npt.ArrayLike, name: str = "constant"
    ) -> Tensor:
        """A read-only tensor with its value; on tile 0 until mapped elsewhere.

        ``value`` is one number for all elements, or an array of ``shape`` (``None``: the shape of the value).
        """
        if shape is None:
            shape = np.shape(value)
        tensor = self._new(dtype, shape, name, "constant", value)
        return tensor.map(0)

    def _new(self, dtype: Any, shape: Any, name: str, kind: str, initial: npt.ArrayLike | None) -> Tensor:
        element = as_element_type(dtype)
        dims = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
        debug = self.origin(name)
        if any(n < 0 for n in dims):
            raise TensorCreationError(f"variable {name!r} has a negative dimension: {list(dims)}", at=debug.location)
        size = math.prod(dims)
        variable = Variable(
            len(self.variables),
            debug.full_name,
            element,
            dims,
            self._next_address,
            kind,
            TileMapping.unmapped(size),
            None,
            debug,
        )
        if initial is not None:
            self._check_initial(variable, initial)
            variable.initial = np.broadcast_to(to_device(initial, element), dims).copy()
        self.variables.append(variable)
        self._next_address += size
        return Tensor(self, element, dims, BlockList((whole_block(variable),)))

    @staticmethod
    def _check_initial(variable: Variable, initial: npt.ArrayLike) -> None:
        given = np.shape(initial)
        if given not in ((), variable.shape):
            raise TensorCreationError(
                f"{variable!r} cannot start as an array of shape {list(given)}", at=variable.debug.location
            )

    def initialise(self, tensor: Tensor, value: npt.ArrayLike) -> None:
        """Set the contents at load of the variable that ``tensor`` shows as a whole.

        Raises:
            TensorError: The view is not the whole of one variable, or the shapes differ.
        """
        strided = tensor.strided()
        if strided is None or strided.variable.size != tensor.size or tensor.contains_aliases:
            raise TensorError(f"only a whole variable can be initialised, not {tensor!r}")
        variable = strided.variable
        contents = np.empty(variable.size, dtype=variable.dtype.np)
        values = np.broadcast_to(to_device(value, variable.dtype), tensor.shape)
        contents[tensor.addresses().reshape(-1) - variable.base] = values.reshape(-1)
        variable.initial = contents.reshape(variable.shape)

    def whole(self, variable: Variable) -> Tensor:
        """The view of all elements of a variable."""
        return Tensor(self, variable.dtype, variable.shape, BlockList((whole_block(variable),)))

    def find(self, name: str) -> list[Variable]:
        """The variables called ``name``."""
        return [v for v in self.variables if v.name == name]

    def locate(self, address: int) -> tuple[Variable, int]:
        """The variable and element that a global address belongs to."""
        bases = self._bases()
        variable = self.variables[int(np.searchsorted(bases, address, side="right")) - 1]
        return variable, address - variable.base

    def variables_at(self, addresses: Int64) -> tuple[Variable, ...]:
        """The variables that hold the given addresses."""
        ids = distinct(np.searchsorted(self._bases(), addresses.reshape(-1), side="right") - 1)
        return tuple(self.variables[int(i)] for i in ids)

    def _bases(self) -> Int64:
        if len(self._base_cache) != len(self.variables):
            # Empty variables share their base with the next one, which searches from the right find.
            self._base_cache = np.array([v.base for v in self.variables], dtype=np.int64)
        return self._base_cache

    # --- mapping -----------------------------------------------------------------------------------------------

    def map(self, tensor: Tensor, mapping: Any) -> None:
        """Place a view's elements on tiles; see :meth:`Tensor.map`."""
        debug = self.origin(tensor.name)
        if isinstance(mapping, TileMapping):
            self._place(tensor, mapping.begin, mapping.length, mapping.tile, debug)
        elif isinstance(mapping, (int, np.integer)):
            zero, size = np.zeros(1, np.int64), np.array([tensor.size], np.int64)
            self._place(tensor, zero, size, np.array([mapping], np.int32), debug)
        else:
            items = mapping.items() if isinstance(mapping, Mapping) else enumerate(mapping)
            flat = [(tile, *interval) for tile, intervals in items for interval in intervals]
            table = np.array(flat, dtype=np.int64).reshape(-1, 3)
            self._place(tensor, table[:, 1], table[:, 2] - table[:, 1], table[:, 0].astype(np.int32), debug)

    def map_rows(self, tensor: Tensor, tiles: Sequence[int]) -> None:
        """Place row i of a view on ``tiles[i]``."""
        count = np.asarray(tiles, dtype=np.int32)
        if tensor.ndim == 0 or len(count) != tensor.shape[0]:
            raise TileMappingError(f"{len(count)} tiles for the rows of {tensor!r}", at=self.origin("").location)
        width = tensor.size // max(1, tensor.shape[0])
        begin = np.arange(len(count), dtype=np.int64) * width
        self._place(tensor, begin, np.full(len(count), width, dtype=np.int64), count, self.origin(tensor.name))

    def map_linear(
        self, tensor: Tensor, min_elements: int | None = None, grain: int | None = None, first_tile: int = 0
    ) -> None:
        """Spread a view over all tiles in equal chunks; see :meth:`Tensor.map_linear`."""
        size = tensor.dtype.bytes
        grain = grain or max(1, _GRAIN_BYTES // size)
        smallest = min_elements if min_elements is not None else max(1, _MIN_BYTES_A_TILE // size)
        grains = -(-tensor.size // grain)
        tiles = max(1, min(self.num_tiles, grains, tensor.size // max(1, smallest)))
        edges = np.arange(tiles + 1, dtype=np.int64) * grains // tiles * grain
        edges[-1] = tensor.size
        tile = ((np.arange(tiles) + first_tile) % self.num_tiles).astype(np.int32)
        self._place(tensor, edges[:-1], np.diff(edges), tile, self.origin(tensor.name))

    def map_regions(self, regions: Regions, tiles: npt.ArrayLike) -> None:
        """Place region r of a view on ``tiles[r]``, int[num]; regions must not overlap where their tiles differ."""
        tile = np.asarray(tiles, dtype=np.int32)[regions.row]
        self.check_tiles(tile, f"{regions.tensor!r}", self.origin(""))
        self._overlay(regions.begin, regions.length, tile)

    def _place(self, tensor: Tensor, begin: Int64, length: Int64, tile: Int32, debug: DebugInfo) -> None:
        self.check_tiles(tile, f"variable {tensor.name!r}", debug)
        if len(begin) and (begin.min() < 0 or int((begin + length).max()) > tensor.size):
            raise TileMappingError(
                f"the mapping of {tensor!r} reaches outside its {tensor.size} elements", at=debug.location
            )
        at, size = tensor.intervals()
        if len(at) == 1:
            self._overlay(at[0] + begin, length, tile)
            return
        starts = np.concatenate([[0], np.cumsum(size)])
        cuts = distinct(np.concatenate([starts, begin, begin + length]))
        cuts = cuts[(cuts >= 0) & (cuts <= tensor.size)]
        pieces, lengths = cuts[:-1], np.diff(cuts)
        order = np.argsort(begin, kind="stable")
        slot = np.searchsorted(begin[order], pieces, side="right") - 1
        inside = (slot >= 0) & (pieces < (begin + length)[order][np.maximum(slot, 0)])
        run = np.searchsorted(starts, pieces, side="right") - 1
        address = at[np.minimum(run, len(at) - 1)] + pieces - starts[run]
        self._overlay(address[inside], lengths[inside], tile[order][slot[inside]])

    def _overlay(self, address: Int64, length: Int64, tile: Int32) -> None:
        """Place intervals of the global space, cut at variable boundaries by construction."""
        keep = length > 0
        address, length, tile = address[keep], length[keep], tile[keep]
        owner = np.searchsorted(self._bases(), address, side="right") - 1
        numbers = distinct(owner)
        for number in numbers:
            variable = self.variables[int(number)]
            mine = slice(None) if len(numbers) == 1 else owner == number
            variable.mapping = variable.mapping.overlaid(address[mine] - variable.base, length[mine], tile[mine])

    def check_tiles(self, tiles: Int32, what: str, debug: DebugInfo) -> None:
        """Raise unless the system has all these tiles.

        Raises:
            TileMappingError: It lacks one; the message names ``what`` was placed there.
        """
        if len(tiles) and (int(tiles.min()) < 0 or int(tiles.max()) >= self.num_tiles):
            wrong = int(tiles.max()) if int(tiles.max()) >= self.num_tiles else int(tiles.min())
            raise TileMappingError(
                f"{what} is mapped to tile {wrong}, but {self.system.name} has {self.num_tiles} tiles",
                at=debug.location,
                remedy=f"use tiles 0 to {self.num_tiles - 1}, or a larger system",
            )

    def mapping_of(self, tensor: Tensor) -> TileMapping:
        """Tile of every element of a flattened view."""
        begin, length = tensor.intervals()
        address, size, tile = self.interval_map(tensor.variables).split(begin, length)[:3]
        starts = np.cumsum(size) - size
        if not len(address):
            return TileMapping.unmapped(tensor.size)
        change = np.append(True, tile[1:] != tile[:-1])
        return TileMapping(tensor.size, starts[change], tile[change])

    def interval_map(self, variables: Sequence[Variable] | None = None) -> IntervalMap:
        """The tile of every element of the global space, or of some variables in it."""
        return IntervalMap.of(self.variables if variables is None else sorted(variables, key=lambda v: v.base))

    # --- compute sets, streams, programs ---------------------------------------------------------------------------

    def compute_set(self, name: str = "compute_set") -> ComputeSet:
        """A new, empty compute set."""
        compute_set = ComputeSet(self, len(self.compute_sets), self.origin(name))
        self.compute_sets.append(compute_set)
        return compute_set

    def function(
        self,
        body: programs.Program,
        name: str = "function",
        *,
        parameters: Sequence[Tensor] = (),
        results: Sequence[Tensor] = (),
    ) -> programs.Function:
        """A body that ``Call`` runs; the machine holds it once.

        A call with arguments copies them to ``parameters`` before the body, and ``results`` out after it.
        """
        return programs.Function(body, self.origin(name), tuple(parameters), tuple(results))

    def sync_group(self, tiles: npt.ArrayLike, name: str = "sync group") -> SyncGroup:
        """Tiles that meet at barriers of their own, such as IO tiles; all others of an IPU are one group.

        Raises:
            TileMappingError: A tile that the system lacks, or that is in another group.
        """
        debug = self.origin(name)
        numbers = np.unique(np.asarray(tiles, dtype=np.int32).reshape(-1))
        self.check_tiles(numbers, f"sync group {name!r}", debug)
        for other in self.sync_groups:
            common = np.intersect1d(numbers, other.tiles)
            if len(common):
                raise TileMappingError(
                    f"tile {common[0]} is in sync group {name!r} and in {other.name!r}",
                    at=debug.location,
                    because=f"{other.name!r} was made at {other.debug.location}" if other.debug.file else None,
                )
        group = SyncGroup(debug.full_name, numbers, debug)
        self.sync_groups.append(group)
        return group

    def replica_index(self, name: str = "replica_index") -> Tensor:
        """A constant u32 scalar that holds the number of the replica."""
        tensor = self._new("u32", (), name, "replica_index", None)
        return tensor.map(0)

    @contextmanager
    def library_call(
        self,
        prog: programs.Sequence,
        name: str,
        *,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        kernel: HostKernel | None = None,
        flops: int = 0,
        debug_name: str = "",
    ) -> Iterator[programs.Sequence]:
        """Append a library call to ``prog`` and give its body to be filled."""
        debug = self.origin(debug_name or name.rsplit(".", 1)[-1])
        body = programs.Sequence()
        call = programs.LibraryCall(name, tuple(inputs), tuple(outputs), body, kernel, flops, debug)
        with self.scope(debug.name, location=(debug.file, debug.line), text=debug.text):
            yield body
        prog.add(call)

    def __repr__(self) -> str:
        return f"Graph({self.system.name}, {len(self.variables)} variables, {len(self.compute_sets)} compute sets)"


def _share(system: System, replicas: int) -> System:
    """The part of a system that one of ``replicas`` has."""
    if replicas < 1 or system.num_ipus % replicas:
        raise GraphReplicationError(
            f"{replicas} replicas cannot share the {system.num_ipus} IPUs of {system.name} equally",
            remedy=f"a divisor of {system.num_ipus}, or a larger system",
        )
    return system.with_ipus(system.num_ipus // replicas)
