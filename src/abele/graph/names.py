"""Poplar's names for the graph's methods, so that a C++ program ports line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from abele.graph.codelets import Codelets
from abele.graph.compute_set import ComputeSet, FieldRef, VertexRef, definition_of
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor

if TYPE_CHECKING:
    from abele.codelet import CodeletDef
    from abele.graph.graph import Graph


class CppNames:
    """Mix-in of :class:`Graph`: each method is Poplar's name for one that the graph has.

    Attributes:
        codelets: The codelets that vertices can be added of by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.codelets = Codelets()

    def codelet(self, codelet: Any) -> CodeletDef:
        """The definition behind a decorated class, or the codelet that the graph knows by a name.

        Raises:
            UnknownVertexTypeError: The graph knows no codelet of this name.
            GraphConnectionError: The class is no codelet.
        """
        return self.codelets[codelet] if isinstance(codelet, str) else definition_of(codelet)

    def addVariable(self: Graph, type: Any, shape: Sequence[int], name: str = "variable") -> Tensor:  # type: ignore[misc]
        """Poplar's name for :meth:`Graph.variable`."""
        return self.variable(type, shape, name)

    def addConstant(  # type: ignore[misc]
        self: Graph, type: Any, shape: Sequence[int], value: Any, name: str = "constant"
    ) -> Tensor:
        """Poplar's name for :meth:`Graph.constant`."""
        return self.constant(type, shape, value, name)

    def addComputeSet(self: Graph, name: str = "compute_set") -> ComputeSet:  # type: ignore[misc]
        """Poplar's name for :meth:`Graph.compute_set`."""
        return self.compute_set(name)

    def addVertex(  # type: ignore[misc]
        self: Graph, cs: ComputeSet, codelet: Any, values: Mapping[str, Any] | None = None
    ) -> VertexRef:
        """Add one vertex to a compute set; fields left out are connected later."""
        return cs.vertex(codelet, **dict(values or {}))

    def connect(self: Graph, field: FieldRef | Tensor, tensor: Tensor | FieldRef | Any) -> None:  # type: ignore[misc]
        """Wire a field of a vertex to a tensor; either order."""
        if isinstance(tensor, FieldRef):
            field, tensor = tensor, field
        assert isinstance(field, FieldRef)
        field.vertex[field.name] = tensor

    def setTileMapping(self: Graph, item: Tensor | VertexRef, tile: Any) -> None:  # type: ignore[misc]
        """Place a view (on a tile, or by intervals a tile) or a vertex."""
        if isinstance(item, VertexRef):
            item.tile = int(tile)
        else:
            self.map(item, tile)

    def getTileMapping(self: Graph, tensor: Tensor) -> list[list[tuple[int, int]]]:  # type: ignore[misc]
        """Intervals of the flattened view on each tile."""
        mapping = tensor.mapping
        result: list[list[tuple[int, int]]] = [[] for _ in range(self.num_tiles)]
        for begin, end, tile in zip(mapping.begin, mapping.end, mapping.tile, strict=True):
            if tile >= 0:
                result[tile].append((int(begin), int(end)))
        return result

    def setInitialValue(self: Graph, item: Tensor | FieldRef, value: Any) -> None:  # type: ignore[misc]
        """Set a tensor's contents at load, or the initial value of a vertex's state field."""
        if isinstance(item, FieldRef):
            item.vertex[item.name] = value
        else:
            self.initialise(item, value)

    def setPerfEstimate(self: Graph, vertex: VertexRef, cycles: int) -> None:  # type: ignore[misc]
        """Say what a vertex costs instead of counting it."""
        vertex.cycles = int(cycles)

    def addHostToDeviceFIFO(self: Graph, handle: str, type: Any, num_elements: int) -> Stream:  # type: ignore[misc]
        """Poplar's name for :meth:`Graph.host_stream_in`."""
        return self.host_stream_in(handle, type, num_elements)

    def addDeviceToHostFIFO(self: Graph, handle: str, type: Any, num_elements: int) -> Stream:  # type: ignore[misc]
        """Poplar's name for :meth:`Graph.host_stream_out`."""
        return self.host_stream_out(handle, type, num_elements)

    def addFunction(self: Graph, body: Any) -> Any:  # type: ignore[misc]
        """Poplar's name for :meth:`Graph.function`."""
        return self.function(body)
