"""The graph: variables, compute sets and streams for one system."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from abele.arrays import Int32, Int64
from abele.codelet.names import normalised
from abele.errors import (
    GraphReplicationError,
    InvalidOptionError,
    TileMappingError,
)
from abele.graph import host_interface
from abele.graph import place as placing
from abele.graph import program as programs
from abele.graph.block import whole as whole_block
from abele.graph.block_list import BlockList
from abele.graph.clone import TensorCloneMethod, clone
from abele.graph.codelets import Codelets
from abele.graph.compute_set import ComputeSet, VertexRef, definition_of
from abele.graph.content import Content
from abele.graph.debug import DebugRecord
from abele.graph.expect import whole_number
from abele.graph.host_interface import HostFunction, HostHandle
from abele.graph.interval_map import IntervalMap
from abele.graph.introspect import VertexIntrospector
from abele.graph.kinds import Kinds
from abele.graph.mapping import TileMapping
from abele.graph.origins import Origins
from abele.graph.place import AddressSpace, Placement, initialise, overlay
from abele.graph.remote import RemoteBuffer
from abele.graph.sparse_operand import SparseNote
from abele.graph.stream import Stream
from abele.graph.sync_group import SyncGroup, new_sync_group
from abele.graph.tensor import Tensor, stack
from abele.graph.variable import Variable
from abele.graph.vertices import PerfEstimator, PerfEstimators
from abele.machine import System, Target, systems
from abele.numerics import ElementType, as_element_type
from abele.words import counted

if TYPE_CHECKING:
    from abele.codelet import CodeletDef
    from abele.graph.substitution import Substitution
    from abele.graph.virtual import VirtualGraph
    from abele.kernels.nest.ir import HostKernel

SyncPattern = Literal["full", "single_pipeline"]
"""Patterns of barriers, by their names in Poplar."""


class Graph:
    """A static description of a tile program for one system.

    Args:
        system: The machine, its name, or a file that describes it.
        replicas: Copies of the program that run side by side, each on an equal share of the system's IPUs, with state
            and streams of its own. The graph describes one of them.
        auto_map: Spread variables that are mapped nowhere over all tiles when the graph is compiled, with a warning.

    Attributes:
        system: The machine of one replica.
        whole_system: The machine of all.
        replicas: Number of replicas.
        compute_sets: All compute sets, in the order in which they were made.
        sync_groups: Tiles that meet at barriers of their own.
        sync_pattern: IPUs at the barrier of a transfer from or to the host: all with ``full``, those alone that take
            part with ``single_pipeline``. All are at that of an exchange between IPUs.
        codelets: The codelets that vertices can be added of by name.
        perf_estimators: Users' estimators of the cost of some codelets' vertices.
        streams: Host streams by name.
        remote_buffers: Remote buffers by name.
        host_functions: Host functions by name.
        host_handles: Named tensors by name.
        sparse_operands: Notes on sparse matrices of library calls, by what makes one of them.

    Raises:
        GraphReplicationError: The IPUs cannot be shared out equally.
    """

    kinds: ClassVar[Kinds] = Kinds(
        tensor=Tensor,
        stream=Stream,
        remote_buffer=RemoteBuffer,
        host_function=HostFunction,
        introspector=VertexIntrospector,
        target=Target,
    )
    """The classes that it makes its objects of."""

    def __init__(self, system: System | str, *, replicas: int = 1, auto_map: bool = False) -> None:
        self.auto_map = auto_map
        self.whole_system: System = systems.resolve(system)
        self.replicas = replicas
        self.system: System = _share(self.whole_system, whole_number(replicas, "replicas are a whole number"))
        self.compute_sets: list[ComputeSet] = []
        self.sync_groups: list[SyncGroup] = []
        self._sync_pattern: SyncPattern = "full"
        self.codelets = Codelets()
        self.perf_estimators = PerfEstimators()
        self.streams: dict[str, Stream] = {}
        self.remote_buffers: dict[str, RemoteBuffer] = {}
        self.host_functions: dict[str, HostFunction] = {}
        self.host_handles: dict[str, HostHandle] = {}
        self.sparse_operands: dict[Hashable, SparseNote] = {}
        self._origins = Origins()
        self._space = AddressSpace()

    @property
    def sync_pattern(self) -> SyncPattern:
        """IPUs at the barrier of a transfer from or to the host: all (``full``), or those that take part."""
        return self._sync_pattern

    @sync_pattern.setter
    def sync_pattern(self, pattern: SyncPattern) -> None:
        if pattern not in get_args(SyncPattern):
            raise InvalidOptionError(
                f"no barriers are of the pattern {pattern!r}", remedy=" or ".join(map(repr, get_args(SyncPattern)))
            )
        self._sync_pattern = pattern

    @property
    def num_tiles(self) -> int:
        """Tiles of one replica."""
        return self.system.num_tiles

    def __repr__(self) -> str:
        from abele.graph.display import graph_line

        return graph_line(self)

    def _repr_html_(self) -> str:
        from abele.graph.display import graph_card

        return graph_card(self)

    def describe(self, max_items: int = 100) -> str:
        """Counts, variables with their mapping, and compute sets, as text."""
        from abele.graph.display import describe

        return describe(self, max_items)

    def to_dot(self, program: programs.Program | None = None, max_items: int = 200) -> str:
        """Variables, vertices by compute set and edges as Graphviz text; see :func:`abele.graph.clusters.to_dot`."""
        from abele.graph.clusters import to_dot

        return to_dot(self, program, max_items)

    def vertex_graph(self, program: programs.Program | None = None, max_items: int = 200) -> str:
        """Vertices and their data flow as Graphviz text; see :func:`abele.graph.clusters.vertex_graph`."""
        from abele.graph.clusters import vertex_graph

        return vertex_graph(self, program, max_items)

    # --- origins -----------------------------------------------------------------------------------------------------

    def origin(self, name: str) -> DebugRecord:
        """Debug information for something made now under ``name``."""
        return self._origins.of(name)

    def scope(
        self, name: str = "", *, location: tuple[str, int] | None = None, text: str = ""
    ) -> AbstractContextManager[None]:
        """Prefix names made inside with ``name``; pin their source line to ``location`` if given."""
        return self._origins.scope(name, location, text)

    # --- parts of the machine ----------------------------------------------------------------------------------------

    @property
    def top_level(self) -> Graph:
        """The whole graph: itself, unless it is a virtual graph."""
        return self

    def virtual(
        self, first: int | None = None, end: int | None = None, *, tiles: npt.ArrayLike | None = None
    ) -> VirtualGraph:
        """A view of this graph that has some of its tiles only, numbered from 0: ``[first, end)``, or ``tiles``.

        Raises:
            TileMappingError: A tile that this graph lacks, one that is named twice, or none at all.
        """
        from abele.graph.virtual import VirtualGraph

        return VirtualGraph(self, self._chosen(first, end, tiles))

    def _chosen(self, first: int | None, end: int | None, tiles: npt.ArrayLike | None) -> Int64:
        if tiles is None:
            tiles = np.arange(first or 0, self.num_tiles if end is None else end)
        return np.asarray(tiles, dtype=np.int64).reshape(-1)

    def ipu(self, number: int) -> VirtualGraph:
        """The view of this graph that has the tiles of one IPU.

        Raises:
            TileMappingError: There is no such IPU.
        """
        each, count = self.system.ipu.num_tiles, self.system.num_ipus
        if not 0 <= number < count:
            raise TileMappingError(
                f"there is no IPU {number}: {self.system.name} has {count}", at=self.origin("").location or None
            )
        return self.virtual(number * each, (number + 1) * each)

    def virtual_tiles_per_ipu(self, count: int) -> VirtualGraph:
        """The view of this graph that has the first ``count`` tiles of every IPU.

        Raises:
            TileMappingError: An IPU has fewer.
        """
        each = self.system.ipu.num_tiles
        if not 1 <= count <= each:
            raise TileMappingError(
                f"{counted(count, 'tile')} of every IPU of {self.system.name}, which have {each}",
                at=self.origin("").location or None,
            )
        return self.virtual(tiles=(np.arange(self.system.num_ipus)[:, None] * each + np.arange(count)).reshape(-1))

    def check_tiles(self, tiles: Int32, what: object, debug: DebugRecord) -> None:
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

    def in_top_level(self, tiles: npt.ArrayLike, what: str = "something") -> Int32:
        """The whole graph's numbers of tiles, int32[n].

        Raises:
            TileMappingError: This graph lacks one; ``what`` is placed there.
        """
        numbers = np.asarray(tiles, dtype=np.int32)
        self.check_tiles(numbers.reshape(-1), what, self.origin(""))
        return numbers

    def own_numbers(self, tiles: Int32, what: object) -> Int32:
        """This graph's numbers of the whole graph's tiles, int32[n]; −1 (mapped nowhere) stays.

        Raises:
            TileMappingError: One is outside; ``what`` lies there.
        """
        return tiles

    def note_sparse(self, operand: SparseNote) -> None:
        """Note a sparse matrix for reports, once for all calls that spread it alike."""
        noted = replace(operand, tile=self.in_top_level(operand.tile, operand.name))
        self.sparse_operands.setdefault(noted.key, noted)

    def sync_group(self, tiles: npt.ArrayLike, name: str = "sync group") -> SyncGroup:
        """Tiles that meet at barriers of their own, such as IO tiles; all others of an IPU are one group.

        Raises:
            TileMappingError: A tile that the system lacks, or that is in another group.
        """
        debug = self.origin(name)
        numbers = np.unique(np.asarray(tiles, dtype=np.int32).reshape(-1))
        self.check_tiles(numbers, f"sync group {name!r}", debug)
        group = new_sync_group(self.sync_groups, name, numbers, debug)
        self.sync_groups.append(group)
        return group

    # --- variables ---------------------------------------------------------------------------------------------------

    @property
    def variables(self) -> list[Variable]:
        """All variables, in order of their addresses."""
        return self._space.variables

    @property
    def num_elements(self) -> int:
        """Elements of all variables: one past the last address."""
        return self._space.num_elements

    def variable(
        self,
        dtype: Any,
        shape: int | Sequence[int],
        name: str = "variable",
        *,
        initial: npt.ArrayLike | None = None,
        map: Any = None,
    ) -> Tensor:
        """A new variable, as the view of all its elements.

        Args:
            dtype: Element type.
            shape: Dimensions; row-major in memory.
            name: Its name; scopes are prefixed.
            initial: Contents at load; undefined when left out.
            map: Tiles: ``"linear"`` spreads it over all tiles, anything else is as :meth:`Graph.map` takes it; left
                out, it is mapped nowhere yet.

        Raises:
            TensorCreationError: A negative dimension, more than 2^63 elements, or an initial value of another shape.
            TypeMismatchError: An element type that the machine lacks, or an initial value that does not fit it.
            TileMappingError: A tile that the graph lacks.
        """
        tensor = self.new_variable(dtype, shape, name, "variable", initial)
        return tensor if map is None else self.map(tensor, map)

    def constant(
        self, dtype: Any, shape: int | Sequence[int] | None, value: npt.ArrayLike, name: str = "constant"
    ) -> Tensor:
        """A read-only tensor with its value; on tile 0 until mapped elsewhere.

        ``value`` is one number for all elements, or an array of ``shape`` (``None``: the shape of the value).
        """
        if shape is None:
            shape = np.shape(value)
        return self.map(self.new_variable(dtype, shape, name, "constant", value), 0)

    def replica_index(self, name: str = "replica_index") -> Tensor:
        """A constant u32 scalar that holds the number of the replica."""
        return self.map(self.new_variable("u32", (), name, "replica_index", None), 0)

    def new_variable(self, dtype: Any, shape: Any, name: str, kind: str, initial: npt.ArrayLike | None) -> Tensor:
        """A new variable of a kind (see :class:`Variable`) that is mapped nowhere, as the view of all its elements.

        Raises:
            TensorCreationError: As for :meth:`variable`.
            TypeMismatchError: As for :meth:`variable`.
        """
        return self.whole(self._space.new(dtype, shape, kind, initial, self.origin(name)))

    def whole(self, variable: Variable) -> Tensor:
        """The view of all elements of a variable."""
        return self.tensor(variable.dtype, variable.shape, BlockList((whole_block(variable),)))

    def tensor(self, dtype: ElementType, shape: Sequence[int], content: Content) -> Tensor:
        """A view of elements of the whole graph, of the class that the graph makes tensors of."""
        return self.kinds.tensor(self.top_level, dtype, shape, content)

    def initialise(self, tensor: Tensor, value: npt.ArrayLike) -> None:
        """Set the contents at load of the variable that ``tensor`` shows as a whole.

        Raises:
            TensorError: The view is not the whole of one variable.
            TensorCreationError: The shapes differ.
            TypeMismatchError: A value does not fit the element type.
        """
        initialise(tensor, value)

    def clone(
        self,
        tensor: Tensor,
        dtype: Any = None,
        name: str | None = None,
        method: TensorCloneMethod = TensorCloneMethod.PRESERVE_ORDER_UNLESS_ALIASES,
    ) -> Tensor:
        """A view of a new variable with the shape and mapping of ``tensor``; contents are undefined.

        Elements that are mapped nowhere stay so.

        Args:
            tensor: Tensor to clone.
            dtype: Element type; by default that of ``tensor``.
            name: Name of the new variable; by default that of the first one cloned, with ``/clone``.
            method: Memory order and repeated elements that are kept.

        Raises:
            TileMappingError: This is a virtual graph, and an element lies on a tile outside it.
        """
        element = tensor.dtype if dtype is None else as_element_type(dtype)
        return clone(self, tensor, element, name or f"{tensor.name}/clone", method)

    def clone_n(self, tensor: Tensor, count: int, name: str | None = None, **options: Any) -> Tensor:
        """``count`` clones along a new first dimension: each has the layout and the mapping of ``tensor``."""
        base = name or f"{tensor.name}/clone"
        return stack([self.clone(tensor, name=f"{base}{i}", **options) for i in range(count)])

    def find(self, name: str) -> list[Variable]:
        """The variables called ``name``."""
        return self._space.find(name)

    def locate(self, address: int) -> tuple[Variable, int]:
        """The variable and element that a global address belongs to."""
        return self._space.locate(address)

    def variables_at(self, addresses: Int64) -> tuple[Variable, ...]:
        """The variables that hold the given addresses."""
        return self._space.at(addresses)

    # --- mapping -----------------------------------------------------------------------------------------------------

    map = placing.map_view
    map_rows = placing.map_rows
    map_linear = placing.map_linear
    map_regions = placing.map_regions
    map_unmapped = placing.map_unmapped
    place = placing.place

    def place_addresses(self, placement: Placement, debug: DebugRecord) -> None:
        """Place intervals of the global space, on tiles that the graph has.

        Raises:
            TileMappingError: Two tiles for one element.
        """
        overlay(self._space, placement, debug)

    def place_vertex(self, vertex: VertexRef, tile: int) -> None:
        """Place a vertex that was added alone; the last placing counts."""
        vertex.tile = tile

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

    # --- codelets and vertices ---------------------------------------------------------------------------------------

    def codelet(self, codelet: Any) -> CodeletDef:
        """The definition behind a decorated class, or the codelet that the graph knows by a name.

        Raises:
            UnknownVertexTypeError: The graph knows no codelet of this name.
            GraphConnectionError: The class is no codelet.
        """
        return self.codelets[codelet] if isinstance(codelet, str) else definition_of(codelet)

    def add_codelets(self, codelets: Any, flags: str = "") -> None:
        """Make codelets known by name; arguments as for :meth:`Codelets.add`.

        Raises:
            CodeletError: A file cannot be read or compiled, or a name is taken.
        """
        self.codelets.add(codelets, flags)

    def register_perf_estimator(self, codelet: Any, function: Callable[..., Any], *, per_vertex: bool = False) -> None:
        """Set the cost of a codelet's vertices in this graph; cycles given with a vertex come before it.

        Args:
            codelet: A decorated class, or the name of a codelet.
            function: ``function(view, ipu)`` gives one number per vertex, as ``cycles`` of a codelet does: issue slots
                for a ``Vertex``, cycles of the tile for the other kinds. Or a pair: these, and floating-point
                operations.
            per_vertex: ``function(introspector, target)`` is asked vertex by vertex instead, as in Poplar.

        Raises:
            GraphConnectionError: The class is no codelet.
        """
        key = normalised(codelet) if isinstance(codelet, str) else definition_of(codelet)
        target = self.kinds.target(self.system)
        self.perf_estimators[key] = PerfEstimator(function, per_vertex, target, self.kinds.introspector)

    def compute_set(self, name: str = "compute_set", stage: Hashable = None) -> ComputeSet:
        """A new, empty compute set.

        Args:
            name: Name in reports and errors.
            stage: Stage of a library function that has several. Functions that run side by side merge compute sets of
                one stage.
        """
        compute_set = ComputeSet(self, len(self.compute_sets), self.origin(name), stage)
        self.compute_sets.append(compute_set)
        return compute_set

    # --- what there is already, for other variables ------------------------------------------------------------------

    def copy_variable(
        self, source: Variable, mapping: TileMapping, initial: npt.NDArray[Any] | None, debug: DebugRecord
    ) -> Variable:
        """A new variable like another; see :class:`~abele.graph.substitution.Substitution`."""
        return self._space.copy(source, mapping, initial, debug)

    def add_compute_set(self, debug: DebugRecord, stage: Hashable = None) -> ComputeSet:
        """An empty compute set with debug information of its own."""
        made = ComputeSet(self, len(self.compute_sets), debug, stage)
        self.compute_sets.append(made)
        return made

    def copy_compute_set(self, source: ComputeSet, debug: DebugRecord, by: Substitution) -> ComputeSet:
        """A new compute set with the vertices of another, on the variables that ``by`` puts in place of its own."""
        made = ComputeSet(self, len(self.compute_sets), debug)
        made.copy_from(source, by)
        self.compute_sets.append(made)
        return made

    # --- programs ----------------------------------------------------------------------------------------------------

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
        call = programs.LibraryCall(
            name=name,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            body=body,
            kernel=kernel,
            flops=flops,
            debug=debug,
        )
        with self.scope(debug.name, location=(debug.file, debug.line), text=debug.text):
            yield body
        prog.add(call)

    # --- the host ----------------------------------------------------------------------------------------------------

    host_stream_in = host_interface.host_stream_in
    host_stream_out = host_interface.host_stream_out
    remote_buffer = host_interface.remote_buffer
    host_function = host_interface.host_function
    expose = host_interface.expose


def _share(system: System, replicas: int) -> System:
    """The part of a system that one of ``replicas`` has."""
    if replicas < 1 or system.num_ipus % replicas:
        raise GraphReplicationError(
            f"{counted(replicas, 'replica')} cannot share the {system.num_ipus} IPUs of {system.name} equally",
            remedy=f"a divisor of {system.num_ipus}, or a larger system",
        )
    return system.with_ipus(system.num_ipus // replicas)
