"""Poplar's names for the graph's methods, so that a C++ program ports line by line."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import EngineError, GraphReplicationError, TypeMismatchError
from abele.graph import dot
from abele.graph.clone import TensorCloneMethod
from abele.graph.compute_set import ComputeSet, FieldRef, VertexRef
from abele.graph.debug_context import name_of
from abele.graph.expect import dimensions, expect, whole_number
from abele.graph.gather import reorder_to_simplify, sorted_contiguous_regions
from abele.graph.host_names import HostNames
from abele.graph.intervals import Interval
from abele.graph.program import Program
from abele.graph.program import Sequence as Steps
from abele.graph.tensor import Tensor
from abele.graph.vertex_names import VertexNames
from abele.machine import Target
from abele.numerics import as_element_type, f16
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.graph import Graph
    from abele.graph.program import Function
    from abele.graph.virtual import VirtualGraph


class VariableMappingMethod(Enum):
    """Where a new variable goes: nowhere yet, or spread over all tiles."""

    NONE = "none"
    LINEAR = "linear"


class CppNames(VertexNames, HostNames):
    """Mix-in of :class:`Graph`: each method is Poplar's name for one that the graph has.

    Where Poplar takes a debug context, these take a name, a :class:`DebugContext`, or a list of both.
    """

    # --- variables ---------------------------------------------------------------------------------------------------

    def addVariable(  # type: ignore[misc]
        self: Graph, type: Any, shape: Sequence[int], *mapping_and_name: Any, name: Any = None
    ) -> Tensor:
        """Poplar's name for :meth:`Graph.variable`: ``addVariable(type, shape[, VariableMappingMethod][, name])``."""
        methods = [item for item in mapping_and_name if isinstance(item, VariableMappingMethod)]
        names = [item for item in mapping_and_name if not isinstance(item, VariableMappingMethod)]
        tensor = self.variable(type, shape, name_of(name or names, "variable"))
        if VariableMappingMethod.LINEAR in methods:
            self.map_linear(tensor)
        return tensor

    def addConstant(  # type: ignore[misc]
        self: Graph, type: Any, shape: Sequence[int], value: Any, name: Any = "constant"
    ) -> Tensor:
        """As Poplar's: a constant on no tile until :meth:`setTileMapping` puts it on one; :meth:`Graph.constant` is on
        tile 0. A flat list of values fills the shape in row-major order."""
        dims = dimensions(shape, "a constant")
        return self._new(type, dims, name_of(name, "constant"), "constant", _shaped(value, dims))

    def addConstantHalf(  # type: ignore[misc]
        self: Graph, type: Any, shape: Sequence[int], value: Any, name: Any = "constant"
    ) -> Tensor:
        """A constant from the bit patterns of half-precision numbers."""
        return self.addConstant(type, shape, _half(value), name)

    def addReplicationIndexConstant(self: Graph, name: Any = "replica_index") -> Tensor:  # type: ignore[misc]
        """Poplar's name for :meth:`Graph.replica_index`."""
        return self.replica_index(name_of(name, "replica_index"))

    def setInitialValue(self: Graph, item: Tensor | FieldRef, value: Any) -> None:  # type: ignore[misc]
        """Set a tensor's contents at load, or the initial value of a vertex's state field."""
        expect(item, (FieldRef, Tensor), "setInitialValue takes a tensor or a field")
        if isinstance(item, FieldRef):
            item.connect(value)
        else:
            self.initialise(item, _shaped(value, item.shape))

    def setInitialValueHalf(self: Graph, item: Tensor | FieldRef, value: Any) -> None:  # type: ignore[misc]
        """As :meth:`setInitialValue`, from the bit patterns of half-precision numbers."""
        self.setInitialValue(item, _half(value))

    def isConstant(self: Graph, t: Tensor) -> bool:  # type: ignore[misc]
        """Whether all elements of a tensor belong to constants."""
        return all(v.is_constant for v in t.variables)

    # --- mapping -----------------------------------------------------------------------------------------------------

    def setTileMapping(self: Graph, item: Tensor | VertexRef, tile: Any) -> None:  # type: ignore[misc]
        """Place a view (on a tile, or by intervals per tile) or a vertex; the last placing counts."""
        expect(item, (VertexRef, Tensor), "setTileMapping places a tensor or a vertex")
        if isinstance(item, VertexRef):
            item.tile = whole_number(tile, "a vertex is placed on a tile")
        else:
            self.map(item, tile)

    def getTileMapping(self: Graph, tensor: Tensor) -> list[list[Interval]]:  # type: ignore[misc]
        """Intervals of the flattened view on each tile."""
        expect(tensor, Tensor, "getTileMapping is of a tensor")
        mapping = self.mapping_of(tensor)
        result: list[list[Interval]] = [[] for _ in range(self.num_tiles)]
        for begin, end, tile in zip(mapping.begin.tolist(), mapping.end.tolist(), mapping.tile.tolist(), strict=True):
            if tile >= 0:
                result[tile].append(Interval(begin, end))
        return result

    def reorderToSimplify(  # type: ignore[misc]
        self: Graph, t: Tensor, others: Iterable[Tensor] = (), requireSimplestOrder: bool = True
    ) -> tuple[Tensor, list[Tensor]]:
        """One-dimensional views in an order in which ``t`` has the fewest regions.

        Poplar changes its arguments; these are returned: ``t`` and ``others``, all permuted alike.
        """
        simple, rest = reorder_to_simplify(t, list(others))
        return simple, rest

    def getSortedContiguousRegions(  # type: ignore[misc]
        self: Graph, t: Tensor, regions: Sequence[Any], removeAliasedIntervals: bool = False
    ) -> list[Any]:
        """Intervals of a flattened view, sorted and grouped so that each group is contiguous in memory."""
        return sorted_contiguous_regions(t, regions, removeAliasedIntervals)

    def clone(self: Graph, *given: Any, **options: Any) -> Tensor:  # type: ignore[misc]
        """A new variable like a tensor: ``clone(t)``, ``clone(type, t)``, each with a name and a method after it.

        See :meth:`Cloning.clone`, whose ``clone(t, type, name, method)`` is taken as well.
        """
        found = dict(options)
        for item in given:
            if item is None:
                continue
            if isinstance(item, Tensor):
                found["tensor"] = item
            elif isinstance(item, TensorCloneMethod):
                found["method"] = item
            elif "dtype" not in found and _names_a_type(item):
                found["dtype"] = item
            else:
                found["name"] = name_of(item, "") or None
        expect(found.get("tensor"), Tensor, "clone takes a tensor")
        return super().clone(**found)

    # --- the graph itself --------------------------------------------------------------------------------------------

    def getTarget(self: Graph) -> Target:  # type: ignore[misc]
        """The machine of one replica, by Poplar's names."""
        return Target(self.system)

    def getReplicationFactor(self: Graph) -> int:  # type: ignore[misc]
        """Number of replicas."""
        return self.replicas

    def getTopLevelGraph(self: Graph) -> Graph:  # type: ignore[misc]
        """The whole graph that a virtual graph was made from; otherwise the graph itself."""
        return self.top_level

    def createVirtualGraph(  # type: ignore[misc]
        self: Graph, tiles: int | Sequence[int], end: int | None = None
    ) -> VirtualGraph:
        """A view of the graph with some of its tiles, numbered from 0.

        ``createVirtualGraph(lower, upper)``, ``createVirtualGraph(tiles)`` with a list, and
        ``createVirtualGraph(tilesPerIPU)``.
        """
        if not isinstance(tiles, (int, np.integer)):
            return self.virtual(tiles=np.array(dimensions(tiles, "the tiles of a virtual graph"), dtype=np.int64))
        return self.virtual_tiles_per_ipu(int(tiles)) if end is None else self.virtual(int(tiles), end)

    def convertVirtualTileToPhysicalTile(self: Graph, virtualTileId: int) -> int:  # type: ignore[misc]
        """The number of a tile in the whole graph; tiles have no other numbers."""
        self.check_tiles(np.array([virtualTileId], np.int32), "something", self.origin(""))
        return virtualTileId

    def convertPhysicalTileToVirtualTile(self: Graph, *ipu_and_tile: int) -> int:  # type: ignore[misc]
        """The number in this graph of a tile of the whole graph: ``(tile)``, or ``(ipu, tile of the IPU)``.

        Raises:
            TileMappingError: The graph does not have it.
        """
        *ipu, tile = ipu_and_tile
        number = tile + sum(ipu) * self.top_level.system.ipu.num_tiles
        return self.convertVirtualTileToPhysicalTile(number)

    def createReplicatedGraph(self: Graph, replicationFactor: int) -> Graph:  # type: ignore[misc]
        """Refused: replicas are made with the graph.

        Raises:
            GraphReplicationError: Always.
        """
        raise GraphReplicationError(
            f"a graph cannot be replicated {counted(replicationFactor, 'time')} after it was made",
            at=self.origin("").location or None,
            remedy=f"Graph(target, replication_factor({replicationFactor})), or Graph(system, replicas=…)",
        )

    def addComputeSet(self: Graph, name: Any = "compute_set") -> ComputeSet:  # type: ignore[misc]
        """Poplar's name for :meth:`Graph.compute_set`."""
        return self.compute_set(name_of(name, "compute_set"))

    def addFunction(self: Graph, body: Program, name: Any = "function") -> Function:  # type: ignore[misc]
        """Poplar's name for :meth:`Graph.function`."""
        expect(body, Program, "addFunction takes a program")
        return self.function(body, name_of(name, "function"))

    def outputComputeGraph(self: Graph, os: IO[str], progs: Iterable[Program] = ()) -> None:  # type: ignore[misc]
        """Write variables, compute sets and copies of programs as Graphviz text."""
        os.write(dot.compute_graph(self, progs))

    def outputVertexGraph(self: Graph, os: IO[str], progs: Iterable[Program] = ()) -> None:  # type: ignore[misc]
        """Write variables and every vertex of programs as Graphviz text."""
        steps = Steps(*progs)
        os.write(self.to_dot(steps if len(steps) else None, sys.maxsize))

    def serialize(self: Graph, *arguments: Any) -> None:  # type: ignore[misc]
        """Refused: what is kept on disk is the executable.

        Raises:
            EngineError: Always.
        """
        raise EngineError(
            "a graph is not serialised",
            because="its codelets are Python or C++ sources, which a file of tensors and vertices would not hold",
            remedy="compile it and serialise the executable",
        )


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
