"""Compute sets: the vertices that run in one superstep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import GraphConnectionError, TileMappingError
from abele.graph.connect import shared, wire
from abele.graph.debug import DebugInfo
from abele.graph.regions import Regions
from abele.graph.tensor import Tensor
from abele.graph.vertices import Edge, StateData, VertexGroup

if TYPE_CHECKING:
    from abele.codelet import CodeletDef
    from abele.graph.graph import Graph


@dataclass(eq=False)
class VertexRef:
    """One vertex that is still being wired: ``v["field"] = tensor``, tile and state one by one."""

    compute_set: ComputeSet
    codelet: CodeletDef
    tile: int | None
    values: dict[str, Any]
    debug: DebugInfo
    cycles: int | None = None
    origins: dict[str, str] = field(default_factory=dict)

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self.values:
            raise GraphConnectionError(
                f"field {self.codelet.name}.{name} is connected twice",
                at=self.compute_set.graph.origin(name).location,
                because=f"it was first connected at {self.origins.get(name) or self.debug.location}",
                remedy="connect each field once; concat() joins several tensors",
            )
        self.values[name] = value
        self.origins[name] = self.compute_set.graph.origin(name).location

    def __getitem__(self, name: str) -> FieldRef:
        return FieldRef(self, name)


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field of a vertex, to be connected later."""

    vertex: VertexRef
    name: str


class ComputeSet:
    """Vertices that run in parallel, on all tiles, in one superstep.

    No element may be written by two vertices of a compute set, nor written by one and read by another.
    """

    def __init__(self, graph: Graph, id_: int, debug: DebugInfo) -> None:
        self.graph = graph
        self.id = id_
        self.debug = debug
        self._groups: list[VertexGroup] = []
        self._pending: list[VertexRef] = []

    @property
    def name(self) -> str:
        """The name it was made under, scopes included."""
        return self.debug.full_name

    def vertices(
        self,
        codelet: Any,
        *,
        tile: npt.ArrayLike,
        cycles: npt.ArrayLike | None = None,
        **fields: Any,
    ) -> VertexGroup:
        """Add one vertex for every entry of ``tile``.

        Args:
            codelet: A class decorated with ``@codelet``.
            tile: Tile of each vertex, int[N] or a range.
            cycles: What each vertex costs, instead of counting it: issue slots, or tile cycles for multi-worker kinds.
            **fields: A value for every field. An edge takes a tensor whose first dimension is N (row i goes to vertex
                i), ``shared(tensor)``, ``Regions``, ``(Regions, index[N])`` or a list of N tensors; state takes a
                number or an array.

        Returns:
            The group of new vertices.

        Raises:
            GraphConnectionError: A field is missing, unknown, or its value does not fit N vertices.
            TypeMismatchError: A tensor's element type differs from its field's.
            ConstantWriteError: An output is wired to a constant or an aliasing view.
            TileMappingError: A tile that the system lacks.
        """
        definition = definition_of(codelet)
        debug = self.graph.origin(definition.name)
        tiles = np.asarray(tile, dtype=np.int32).reshape(-1)
        self._check_tiles(tiles, definition, debug)
        edges, state = wire(definition, fields, len(tiles), debug)
        cost = None if cycles is None else np.broadcast_to(np.asarray(cycles, dtype=np.int64), tiles.shape).copy()
        group = VertexGroup(definition, tiles, edges, state, cost, debug)
        self._groups.append(group)
        return group

    def vertex(self, codelet: Any, *, tile: int | None = None, cycles: int | None = None, **fields: Any) -> VertexRef:
        """Add one vertex; fields left out here are wired later by ``v["field"] = tensor``."""
        definition = definition_of(codelet)
        debug = self.graph.origin(definition.name)
        ref = VertexRef(self, definition, tile, dict(fields), debug, cycles, dict.fromkeys(fields, debug.location))
        self._pending.append(ref)
        return ref

    @property
    def groups(self) -> tuple[VertexGroup, ...]:
        """All vertices, in groups; single vertices are gathered by codelet."""
        return (*self._groups, *self._gathered())

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return sum(g.num for g in self._groups) + len(self._pending)

    def _gathered(self) -> list[VertexGroup]:
        by_codelet: dict[CodeletDef, list[VertexRef]] = {}
        for ref in self._pending:
            by_codelet.setdefault(ref.codelet, []).append(ref)
        return [self._group_of(definition, refs) for definition, refs in by_codelet.items()]

    def _group_of(self, definition: CodeletDef, refs: Sequence[VertexRef]) -> VertexGroup:
        for ref in refs:
            if ref.tile is None:
                raise TileMappingError(
                    f"vertex {definition.name} in compute set {self.name!r} is mapped to no tile",
                    at=ref.debug.location,
                    remedy="give tile=… or call graph.setTileMapping(vertex, tile)",
                )
        tiles = np.array([r.tile for r in refs], dtype=np.int32)
        self._check_tiles(tiles, definition, refs[0].debug)
        wired = [wire(definition, {n: _lone(definition, n, v) for n, v in r.values.items()}, 1, r.debug) for r in refs]
        edges = {name: _joined_edges([w[0][name] for w in wired]) for name in wired[0][0]}
        state = {name: _joined_state([w[1][name] for w in wired]) for name in wired[0][1]}
        known = [r.cycles for r in refs]
        cost = None if any(c is None for c in known) else np.array(known, dtype=np.int64)
        origins = tuple(r.debug for r in refs)
        return VertexGroup(definition, tiles, edges, state, cost, refs[0].debug, origins)

    def _check_tiles(self, tiles: npt.NDArray[np.int32], definition: CodeletDef, debug: DebugInfo) -> None:
        self.graph.check_tiles(tiles, f"a vertex {definition.name} of compute set {self.name!r}", debug)

    def __repr__(self) -> str:
        return f"ComputeSet({self.name!r}, {self.num_vertices} vertices)"


def definition_of(codelet: Any) -> CodeletDef:
    """The codelet definition behind a decorated class.

    Raises:
        GraphConnectionError: The class is not decorated with ``@codelet``.
    """
    definition = getattr(codelet, "codelet", codelet)
    if not hasattr(definition, "fields"):
        name = getattr(codelet, "__name__", repr(codelet))
        raise GraphConnectionError(f"{name} is no codelet", remedy=f"decorate class {name}(Vertex) with @codelet")
    return definition  # type: ignore[no-any-return]


def _lone(definition: CodeletDef, name: str, value: Any) -> Any:
    """A single vertex's value in the form that a group of one takes."""
    field_def = next((f for f in definition.fields if f.name == name), None)
    if field_def is None or not isinstance(value, (Tensor, list, tuple)):
        return value
    if field_def.direction == "state":
        return [value] if field_def.rank else value
    if isinstance(value, Tensor):
        if field_def.rank == 2:
            return value.expand_dims(0)
        return shared(value) if field_def.rank == 1 and value.ndim == 1 else value.expand_dims(0)
    return [value] if field_def.rank == 2 else value


def _joined_edges(edges: Sequence[Edge]) -> Edge:
    regions = Regions.concat([e.regions for e in edges])
    offsets = np.cumsum([0] + [e.regions.num for e in edges])
    index = np.concatenate([e.index + o for e, o in zip(edges, offsets, strict=False)])
    if edges[0].row_begin is None:
        return Edge(regions, index)
    counts = np.concatenate([np.diff(e.row_begin) for e in edges if e.row_begin is not None])
    return Edge(regions, index, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def _joined_state(parts: Sequence[StateData]) -> StateData:
    values = np.concatenate([p.values for p in parts])
    if parts[0].row_begin is None:
        return StateData(values)
    counts = np.concatenate([np.diff(p.row_begin) for p in parts if p.row_begin is not None])
    return StateData(values, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
