"""The graph by Poplar's names: for a target or a device, with a replication factor."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import IO, Any, ClassVar

import numpy as np
import numpy.typing as npt

from abele import graph as g
from abele import machine
from abele.arrays import Int64
from abele.errors import EngineError, GraphReplicationError, MachineError, TypeMismatchError
from abele.graph import dot
from abele.graph.debug_context import name_of
from abele.graph.expect import dimensions, expect, whole_number
from abele.graph.kinds import Kinds
from abele.machine import System
from abele.numerics import as_element_type, f16
from abele.poplar.codelets import Estimator, as_edge, compiler_flags, largest_dimension, largest_value
from abele.poplar.device import Device
from abele.poplar.host import DataStream, HostFunction, RemoteBuffer, ReplicatedStreamMode, buffering_depth, expose
from abele.poplar.introspect import VertexIntrospector
from abele.poplar.target import Target
from abele.poplar.tensor import Tensor
from abele.poplar.values import Interval
from abele.words import counted


class VariableMappingMethod(Enum):
    """Initial mapping of a new variable: none yet, or spread over all tiles."""

    NONE = "none"
    LINEAR = "linear"


@dataclass(frozen=True, slots=True)
class replication_factor:  # noqa: N801
    """Number of replicas, as an argument of :class:`Graph`.

    Attributes:
        value: The number.
    """

    value: int


class Graph(g.Graph):
    """A static description of a tile program for one system, under Poplar's names and our own.

    ``Graph(target)``, ``Graph(device)`` and ``Graph(target, replication_factor(4))`` are Poplar's forms, and
    ``Graph(system, replicas=4)`` is ours. Tensors, streams and whatever else is made for it have both sets of names.
    Where Poplar takes a debug context, these methods take a name, a :class:`DebugContext`, or a list of both.

    Args:
        target: A target, a device, a system, the name of a system, or a file that describes one.
        replication: Copies of the program that run side by side, each on an equal share of the system's IPUs, with
            state and streams of its own. The graph describes one of them.
        replicas: The same by our name.
        auto_map: Spread variables that are mapped nowhere over all tiles when the graph is compiled, with a warning.

    Raises:
        MachineError: The argument is none of these.
        GraphReplicationError: The IPUs cannot be shared out equally.
    """

    TileToTensorMapping = list
    """Poplar's type of a mapping: a list of intervals for each tile."""

    kinds: ClassVar[Kinds] = Kinds(
        tensor=Tensor,
        stream=DataStream,
        remote_buffer=RemoteBuffer,
        host_function=HostFunction,
        introspector=VertexIntrospector,
        target=Target,
    )

    def __init__(
        self,
        target: machine.Target | Device | System | str = "",
        replication: replication_factor | int = 1,
        *,
        replicas: int | None = None,
        auto_map: bool = False,
    ) -> None:
        if isinstance(target, str) and not target:
            raise MachineError("a Graph is for a target, a device or a system", remedy="Graph(device.getTarget())")
        if replicas is None:
            replicas = replication.value if isinstance(replication, replication_factor) else replication
        system = target.system if isinstance(target, (machine.Target, Device)) else target
        super().__init__(system, replicas=replicas, auto_map=auto_map)

    # --- variables ---------------------------------------------------------------------------------------------------

    def addVariable(self, type: Any, shape: Sequence[int], *mapping_and_name: Any, name: Any = None) -> Tensor:
        """A new variable: ``addVariable(type, shape[, VariableMappingMethod][, name])``; see :meth:`Graph.variable`."""
        methods = [item for item in mapping_and_name if isinstance(item, VariableMappingMethod)]
        names = [item for item in mapping_and_name if not isinstance(item, VariableMappingMethod)]
        tensor = self.variable(type, shape, name_of(name or names, "variable"))
        if VariableMappingMethod.LINEAR in methods:
            self.map_linear(tensor)
        return _spoken(tensor)

    def addConstant(self, type: Any, shape: Sequence[int], value: Any, name: Any = "constant") -> Tensor:
        """As Poplar's: a constant on no tile until :meth:`setTileMapping` puts it on one; :meth:`Graph.constant` is on
        tile 0. A flat list of values fills the shape in row-major order."""
        dims = dimensions(shape, "a constant")
        made = self.new_variable(type, dims, name_of(name, "constant"), "constant", _shaped(value, dims))
        return _spoken(made)

    def addConstantHalf(self, type: Any, shape: Sequence[int], value: Any, name: Any = "constant") -> Tensor:
        """A constant from the bit patterns of half-precision numbers."""
        return self.addConstant(type, shape, _half(value), name)

    def addReplicationIndexConstant(self, name: Any = "replica_index") -> Tensor:
        """A constant that holds the number of the replica; see :meth:`Graph.replica_index`."""
        return _spoken(self.replica_index(name_of(name, "replica_index")))

    def setInitialValue(self, item: g.Tensor | g.FieldRef, value: Any) -> None:
        """Set a tensor's contents at load, or the initial value of a vertex's state field."""
        expect(item, (g.FieldRef, g.Tensor), "setInitialValue takes a tensor or a field")
        if isinstance(item, g.FieldRef):
            item.connect(value)
        else:
            self.initialise(item, _shaped(value, item.shape))

    def setInitialValueHalf(self, item: g.Tensor | g.FieldRef, value: Any) -> None:
        """As :meth:`setInitialValue`, from the bit patterns of half-precision numbers."""
        self.setInitialValue(item, _half(value))

    def isConstant(self, t: g.Tensor) -> bool:
        """True if all elements of a tensor belong to constants."""
        return all(v.is_constant for v in t.variables)

    def clone(self, *given: Any, **options: Any) -> Tensor:
        """A new variable like a tensor: ``clone(t)``, ``clone(type, t)``, each with a name and a method after it.

        See :meth:`abele.graph.Graph.clone`, whose ``clone(t, type, name, method)`` is taken as well.
        """
        found = dict(options)
        for item in given:
            if item is None:
                continue
            if isinstance(item, g.Tensor):
                found["tensor"] = item
            elif isinstance(item, g.TensorCloneMethod):
                found["method"] = item
            elif "dtype" not in found and _names_a_type(item):
                found["dtype"] = item
            else:
                found["name"] = name_of(item, "") or None
        expect(found.get("tensor"), g.Tensor, "clone takes a tensor")
        return _spoken(super().clone(**found))

    # --- mapping -----------------------------------------------------------------------------------------------------

    def setTileMapping(self, item: g.Tensor | g.VertexRef, tile: Any) -> None:
        """Place a view (on a tile, or by intervals per tile) or a vertex; the last placing counts."""
        expect(item, (g.VertexRef, g.Tensor), "setTileMapping places a tensor or a vertex")
        if isinstance(item, g.VertexRef):
            self.place_vertex(item, whole_number(tile, "a vertex is placed on a tile"))
        else:
            self.map(item, tile)

    def getTileMapping(self, tensor: g.Tensor) -> list[list[Interval]]:
        """Intervals of the flattened view on each tile."""
        expect(tensor, g.Tensor, "getTileMapping is of a tensor")
        mapping = self.mapping_of(tensor)
        result: list[list[Interval]] = [[] for _ in range(self.num_tiles)]
        for begin, end, tile in zip(mapping.begin.tolist(), mapping.end.tolist(), mapping.tile.tolist(), strict=True):
            if tile >= 0:
                result[tile].append(Interval(begin, end))
        return result

    def reorderToSimplify(
        self, t: g.Tensor, others: Iterable[g.Tensor] = (), requireSimplestOrder: bool = True
    ) -> tuple[g.Tensor, list[g.Tensor]]:
        """One-dimensional views in an order in which ``t`` has the fewest regions.

        Poplar changes its arguments; these are returned: ``t`` and ``others``, all permuted alike.
        """
        return g.reorder_to_simplify(t, list(others))

    def getSortedContiguousRegions(
        self, t: g.Tensor, regions: Sequence[Any], removeAliasedIntervals: bool = False
    ) -> list[Any]:
        """Intervals of a flattened view, sorted and grouped so that each group is contiguous in memory."""
        return g.sorted_contiguous_regions(t, regions, removeAliasedIntervals)

    # --- parts of the machine ----------------------------------------------------------------------------------------

    def getTarget(self) -> Target:
        """The machine of one replica."""
        return Target(self.system)

    def getReplicationFactor(self) -> int:
        """Number of replicas."""
        return self.replicas

    def getTopLevelGraph(self) -> g.Graph:
        """The whole graph that a virtual graph was made from; otherwise the graph itself."""
        return self.top_level

    def virtual(
        self, first: int | None = None, end: int | None = None, *, tiles: npt.ArrayLike | None = None
    ) -> VirtualGraph:
        """A view of this graph that has some of its tiles only; see :meth:`abele.graph.Graph.virtual`."""
        return VirtualGraph(self, self._chosen(first, end, tiles))

    def createVirtualGraph(self, tiles: int | Sequence[int], end: int | None = None) -> g.VirtualGraph:
        """A view of the graph with some of its tiles, numbered from 0.

        ``createVirtualGraph(lower, upper)``, ``createVirtualGraph(tiles)`` with a list, and
        ``createVirtualGraph(tilesPerIPU)``.
        """
        if not isinstance(tiles, (int, np.integer)):
            return self.virtual(tiles=np.array(dimensions(tiles, "the tiles of a virtual graph"), dtype=np.int64))
        return self.virtual_tiles_per_ipu(int(tiles)) if end is None else self.virtual(int(tiles), end)

    def convertVirtualTileToPhysicalTile(self, virtualTileId: int) -> int:
        """The number of a tile in the whole graph.

        Raises:
            TileMappingError: The graph does not have it.
        """
        return int(self.in_top_level([virtualTileId])[0])

    def convertPhysicalTileToVirtualTile(self, *ipu_and_tile: int) -> int:
        """The number in this graph of a tile of the whole graph: ``(tile)``, or ``(ipu, tile of the IPU)``.

        Raises:
            TileMappingError: The graph does not have it.
        """
        *ipu, tile = ipu_and_tile
        top = self.top_level
        number = top.in_top_level([tile + sum(ipu) * top.system.ipu.num_tiles])
        return int(self.own_numbers(number, "something")[0])

    def createReplicatedGraph(self, replicationFactor: int) -> Graph:
        """Refused: replicas are made with the graph.

        Raises:
            GraphReplicationError: Always.
        """
        raise GraphReplicationError(
            f"a graph cannot be replicated {counted(replicationFactor, 'time')} after it was made",
            at=self.origin("").location or None,
            remedy=f"Graph(target, replication_factor({replicationFactor})), or Graph(system, replicas=…)",
        )

    # --- codelets ----------------------------------------------------------------------------------------------------

    def addCodelets(self, codelets: Any, fileType: Any = None, flags: Any = "") -> None:
        """Make codelets known by name: classes, a mapping from names to classes, a module, or C++ sources.

        ``addCodelets("file.cpp", "-O3")``, ``addCodelets("file.cpp", CodeletFileType.Auto, "-O3")`` and, as for
        Poplar's streams, ``addCodelets(text, "-O3", CodeletFileType.Cpp)`` all work.

        Args:
            codelets: Codelets to add: see :meth:`Codelets.add`. Several files, ``["a.cpp", "b.cpp"]``, are linked: one
                may call what another defines.
            fileType: A :class:`CodeletFileType`, or compiler flags.
            flags: The other of the two.

        Raises:
            CodeletError: A file cannot be read or compiled, or a name is taken.
        """
        self.add_codelets(codelets, compiler_flags(codelets, fileType, flags))

    def hasCodelet(self, name: str) -> bool:
        """True if the graph knows a codelet by this name."""
        return name in self.codelets

    def registerPerfEstimator(self, name: str, estimator: Estimator) -> None:
        """Say what vertices of a codelet cost: ``estimator(introspector, target)`` gives the cycles of one.

        Cycles are issue slots of a worker for a ``Vertex``, cycles of the tile for the other kinds.
        """
        self.register_perf_estimator(name, estimator, per_vertex=True)

    def registerCycleEstimator(self, name: str, estimator: Estimator) -> None:
        """The older name of :meth:`registerPerfEstimator`."""
        self.registerPerfEstimator(name, estimator)

    def getMaxFieldDim(self, vertexName: str, fieldName: str, dimIndex: int = 0) -> int:
        """Largest size that a dimension of a field may have.

        Raises:
            UnknownFieldError: The codelet does not declare the field.
            FieldOverflowError: The field has no such dimension.
        """
        return largest_dimension(self.codelet(vertexName), fieldName, dimIndex)

    def getMaxVertexFieldValue(self, vertexName: str, fieldName: str) -> int:
        """Largest whole number that a field holds."""
        return largest_value(self.codelet(vertexName), fieldName)

    # --- vertices ----------------------------------------------------------------------------------------------------

    def addComputeSet(self, name: Any = "compute_set") -> g.ComputeSet:
        """A new, empty compute set."""
        return self.compute_set(name_of(name, "compute_set"))

    def getComputeSet(self, id: int) -> g.ComputeSet:
        """The compute set of a number."""
        return self.compute_sets[id]

    def addVertex(self, cs: g.ComputeSet, codelet: Any, values: Mapping[str, Any] | None = None) -> g.VertexRef:
        """Add one vertex to a compute set; fields left out are connected or set later.

        Args:
            cs: The compute set.
            codelet: A codelet that the graph knows by name, or a decorated class.
            values: Tensors, lists of tensors or numbers by field. A number for an edge becomes a constant.

        Raises:
            UnknownVertexTypeError: The graph knows no such codelet.
        """
        expect(cs, g.ComputeSet, "addVertex adds to a compute set")
        vertex = cs.vertex(self.codelet(codelet))
        for name, value in (values or {}).items():
            self.connect(vertex[name], value)
        return vertex

    def connect(self, field: Any, tensor: Any) -> None:
        """Wire a field of a vertex to a tensor, a list of tensors or a number; in either order.

        Raises:
            GraphConnectionError: The field is connected already.
        """
        if isinstance(tensor, g.FieldRef):
            field, tensor = tensor, field
        expect(field, g.FieldRef, "connect takes a field of a vertex", remedy='graph.connect(vertex["field"], tensor)')
        field.connect(as_edge(self, field, tensor))

    def setFieldSize(self, field: g.FieldRef, size: int) -> None:
        """Give a field of several pieces its size; then each is connected by ``v["field"][i]``."""
        field.vertex.set_size(field.name, int(size))

    def setPerfEstimate(self, vertex: g.VertexRef, cycles: int, flops: int = 0) -> None:
        """Say what a vertex costs instead of counting it; operations are not reported by vertex."""
        expect(vertex, g.VertexRef, "setPerfEstimate is of a vertex")
        vertex.cycles = whole_number(cycles, "the cycles of a vertex are a whole number")

    def setCycleEstimate(self, vertex: g.VertexRef, cycles: int) -> None:
        """The older name of :meth:`setPerfEstimate`."""
        self.setPerfEstimate(vertex, cycles)

    def getPerfEstimate(self, vertex: g.VertexRef) -> int | None:
        """The cost that a vertex was given, or None when it is counted."""
        return vertex.cycles

    def createVertexIntrospector(self, vertex: g.VertexRef) -> VertexIntrospector:
        """View of a vertex as an estimator has it."""
        return VertexIntrospector(*vertex.compute_set.place_of(vertex))

    # --- programs and the host ---------------------------------------------------------------------------------------

    def addFunction(self, body: g.Program, name: Any = "function") -> g.Function:
        """A body that ``Call`` runs; the machine holds it once."""
        expect(body, g.Program, "addFunction takes a program")
        return self.function(body, name_of(name, "function"))

    def addHostToDeviceFIFO(
        self,
        handle: str,
        elementType: Any,
        numElements: int,
        replicatedMode: ReplicatedStreamMode | Mapping[str, Any] = ReplicatedStreamMode.REPLICATE,
        options: Mapping[str, Any] | None = None,
    ) -> g.Stream:
        """A stream from the host; see :meth:`Graph.host_stream_in`."""
        if isinstance(replicatedMode, Mapping):
            return self.addHostToDeviceFIFO(handle, elementType, numElements, options=replicatedMode)
        return self.host_stream_in(
            handle,
            elementType,
            numElements,
            replicated=replicatedMode is ReplicatedStreamMode.REPLICATE,
            buffering_depth=buffering_depth(handle, options),
        )

    def addDeviceToHostFIFO(
        self, handle: str, elementType: Any, numElements: int, options: Mapping[str, Any] | None = None
    ) -> g.Stream:
        """A stream to the host; see :meth:`Graph.host_stream_out`."""
        return self.host_stream_out(handle, elementType, numElements, buffering_depth=buffering_depth(handle, options))

    def addRemoteBuffer(
        self,
        handle: str,
        elementType: Any,
        numElements: int,
        repeats: int = 1,
        rearrangeOnHost: bool = False,
        optimiseMemory: bool = False,
    ) -> g.RemoteBuffer:
        """Rows in streaming memory; see :meth:`Graph.remote_buffer`. The two flags change nothing."""
        return self.remote_buffer(handle, elementType, numElements, repeats)

    def addHostFunction(
        self,
        handle: str,
        inputs: Iterable[tuple[Any, int]] = (),
        outputs: Iterable[tuple[Any, int]] = (),
    ) -> g.HostFunction:
        """A function on the host, by type and number of elements of its inputs and outputs."""
        return self.host_function(handle, inputs, outputs)

    def createHostWrite(self, handle: str, t: g.Tensor, rearrangeOnHost: bool = False) -> None:
        """Let the host write a tensor by ``engine.writeTensor(handle, …)``."""
        expose(self, handle, t, writable=True)

    def createHostRead(self, handle: str, t: g.Tensor, rearrangeOnHost: bool = False) -> None:
        """Let the host read a tensor by ``engine.readTensor(handle, …)``."""
        expose(self, handle, t, writable=False)

    # --- files -------------------------------------------------------------------------------------------------------

    def outputComputeGraph(self, os: IO[str], progs: Iterable[g.Program] = ()) -> None:
        """Write variables, compute sets and copies of programs as Graphviz text."""
        os.write(dot.compute_graph(self, progs))

    def outputVertexGraph(self, os: IO[str], progs: Iterable[g.Program] = ()) -> None:
        """Write variables and every vertex of programs as Graphviz text."""
        steps = g.Sequence(*progs)
        os.write(self.to_dot(steps if len(steps) else None, sys.maxsize))

    def serialize(self, *arguments: Any) -> None:
        """Refused: executables are kept on disk, not graphs.

        Raises:
            EngineError: Always.
        """
        raise EngineError(
            "a graph is not serialised",
            because="its codelets are Python or C++ sources, which a file of tensors and vertices would not hold",
            remedy="compile it and serialise the executable",
        )


class VirtualGraph(Graph, g.VirtualGraph):
    """A view of a graph that has some of its tiles only, numbered from 0, under both sets of names.

    What it does is :class:`abele.graph.VirtualGraph`'s; Poplar's names are :class:`Graph`'s.
    """

    def __init__(self, parent: g.Graph, tiles: Int64) -> None:
        g.VirtualGraph.__init__(self, parent, tiles)


def concat(first: g.Tensor | Sequence[g.Tensor], second: Any = None, dim: int = 0) -> g.Tensor:
    """The view of tensors after each other: ``concat(a, b[, dim])`` or ``concat([a, b, …][, dim])``.

    Raises:
        TensorError: Shapes that differ along other dimensions, or tensors of two graphs.
        TensorIndexError: No such dimension.
        TypeMismatchError: Element types that differ.
    """
    if isinstance(first, g.Tensor):
        both: list[g.Tensor] = [first, second]
        return g.concat(both, dim)
    return g.concat(list(first), dim if second is None else int(second))


def append(t: g.Tensor, x: g.Tensor, dim: int = 0) -> g.Tensor:
    """The view of ``t`` and, after it along ``dim``, one more index that is ``x``.

    Raises:
        TensorError: ``x`` does not have the shape of one index of ``t``.
        TypeMismatchError: Element types that differ.
    """
    return g.concat([t, x.expand_dims(dim)], dim)


def _spoken(tensor: g.Tensor) -> Tensor:
    """A tensor of this graph, under Poplar's names."""
    assert isinstance(tensor, Tensor)
    return tensor


def _shaped(value: Any, shape: Sequence[int]) -> Any:
    """A flat list of values in a shape of as many elements; anything else as it is."""
    values = np.asarray(value)
    return values.reshape(shape) if values.ndim and values.size == math.prod(shape) else value


def _half(bits: npt.ArrayLike) -> npt.NDArray[np.float16]:
    return np.asarray(bits, dtype=np.uint16).view(f16.np)


def _names_a_type(item: Any) -> bool:
    try:
        as_element_type(item)
    except TypeMismatchError:
        return False
    return True
