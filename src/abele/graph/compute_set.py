"""Compute sets: the vertices that run in one superstep."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import AbeleError, GraphConnectionError, TileMappingError, UnknownFieldError, VectorSizeError, nearest
from abele.graph.connect import shared, wire
from abele.graph.debug import DebugRecord
from abele.graph.introspect import VertexIntrospector
from abele.graph.regions import Regions
from abele.graph.tensor import Tensor, concat
from abele.graph.vertices import Edge, StateData, VertexGroup
from abele.words import counted

if TYPE_CHECKING:
    from abele.codelet import CodeletDef, FieldDef
    from abele.graph.graph import Graph
    from abele.graph.substitution import Substitution


@dataclass(eq=False)
class VertexRef:
    """One vertex that is still being wired: ``v["field"] = tensor``, tile and state one by one."""

    compute_set: ComputeSet
    codelet: CodeletDef
    tile: int | None
    values: dict[str, Any]
    debug: DebugRecord
    cycles: int | None = None
    origins: dict[str, str] = field(default_factory=dict)
    pieces: dict[str, list[Tensor | None]] = field(default_factory=dict)

    def __setitem__(self, name: str, value: Any) -> None:
        is_state = self._declared(name).direction == "state"
        self._check_free(name, not is_state and (name in self.values or name in self.pieces))
        self.values[name] = value
        self.origins[name] = self._here()

    def __getitem__(self, name: str) -> FieldRef:
        self._declared(name)
        return FieldRef(self, name)

    def id(self) -> int:
        """Number of the vertex among those that were added to its compute set one by one."""
        return self.compute_set.number_of(self)

    def info(self) -> VertexIntrospector:
        """View of the vertex for a cost estimator: sizes of its fields, values of its state.

        Raises:
            TileMappingError: It has no tile yet.
            GraphConnectionError: A field is not connected yet.
        """
        return self.compute_set.graph.kinds.introspector(*self.compute_set.place_of(self))

    def set_size(self, name: str, size: int) -> None:
        """Give a field a number of elements or rows, to be connected or set one by one.

        State of that many elements starts as zeros until it is set.
        """
        declared = self._declared(name)
        if declared.direction == "state":
            self.values.setdefault(name, np.zeros(size, dtype=declared.type.np))
            return
        self._check_free(name, name in self.values or name in self.pieces)
        self.pieces[name] = [None] * size
        self.origins[name] = self._here()

    def connect_piece(self, name: str, index: int, tensor: Tensor) -> None:
        """Connect one element or row of a field whose size was set.

        Raises:
            VectorSizeError: The field was given no size, or has no such piece.
            GraphConnectionError: The piece is connected already.
        """
        pieces, full = self.pieces.get(name), f"{self.codelet.name}.{name}"
        if pieces is None:
            raise VectorSizeError(
                f"field {full} has no size, so its piece {index} cannot be connected",
                at=self._here(),
                remedy=f'graph.setFieldSize(v["{name}"], n) first, or connect a list of tensors at once',
            )
        if not 0 <= index < len(pieces):
            raise VectorSizeError(
                f"field {full} has {counted(len(pieces), 'piece')}, there is no piece {index}",
                at=self._here(),
                because=f"its size was set at {self.origins[name]}",
            )
        key = f"{name}[{index}]"
        self._check_free(key, pieces[index] is not None)
        pieces[index] = tensor
        self.origins[key] = self._here()

    def connected(self) -> dict[str, Any]:
        """The values of all fields, with those that were connected in pieces put together.

        Raises:
            GraphConnectionError: A piece is missing.
        """
        if not self.pieces:
            return self.values
        joined: dict[str, Any] = dict(self.values)
        for name, pieces in self.pieces.items():
            tensors = [t for t in pieces if t is not None]
            if len(tensors) != len(pieces):
                missing = next(i for i, t in enumerate(pieces) if t is None)
                raise GraphConnectionError(
                    f"field {self.codelet.name}.{name}[{missing}] is not connected",
                    at=self.debug.location or None,
                    because=f"the size {len(pieces)} was set at {self.origins[name]}",
                    remedy="connect every piece",
                )
            joined[name] = (
                tensors if self._declared(name).rank == 2 or not tensors else concat([t.flatten() for t in tensors])
            )
        return joined

    def _here(self) -> str:
        return self.compute_set.graph.origin("").location

    def _check_free(self, name: str, taken: bool) -> None:
        if taken:
            raise GraphConnectionError(
                f"field {self.codelet.name}.{name} is connected twice",
                at=self._here(),
                because=f"it was first connected at {self.origins.get(name) or self.debug.location}",
                remedy="connect each field once; concat() joins several tensors",
            )

    def _declared(self, name: str) -> FieldDef:
        for declared in self.codelet.fields:
            if declared.name == name:
                return declared
        names, codelet = [f.name for f in self.codelet.fields], self.codelet
        guess = nearest(name, names)
        raise UnknownFieldError(
            f"vertex {codelet.name} has no field {name!r}",
            at=self._here(),
            because=f"{codelet.name} is declared at {codelet.file}:{codelet.line}",
            remedy=f"did you mean {guess!r}?" if guess else "its fields are " + ", ".join(names),
        )


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field of a vertex, or one piece of it, to be connected later."""

    vertex: VertexRef
    name: str
    piece: int | None = None

    def __getitem__(self, piece: int) -> FieldRef:
        return FieldRef(self.vertex, self.name, int(piece))

    def connect(self, value: Any) -> None:
        """Wire the field, or the piece, to a tensor."""
        if self.piece is None:
            self.vertex[self.name] = value
        else:
            self.vertex.connect_piece(self.name, self.piece, value)


@dataclass(frozen=True, eq=False, slots=True)
class CopiedVertices:
    """Vertices that are those of another compute set, on other variables.

    Attributes:
        source: The compute set.
        groups: Its vertices.
        by: The variables in place of its own.
    """

    source: ComputeSet
    groups: tuple[VertexGroup, ...]
    by: Substitution


class ComputeSet:
    """Vertices that run in parallel, on all tiles, in one superstep.

    No element may be written by two vertices of a compute set, nor written by one and read by another.
    """

    def __init__(self, graph: Graph, id_: int, debug: DebugRecord, stage: Hashable = None) -> None:
        self.graph = graph
        self.id = id_
        self.debug = debug
        self._made: list[VertexGroup] = []
        self.stage = stage
        self._pending: list[VertexRef] = []
        self._copied: CopiedVertices | None = None
        self._others = 0

    @property
    def _groups(self) -> list[VertexGroup]:
        """The vertices that were added in groups."""
        # Made when first asked for: many copies are only run, and known by their source.
        if self._copied is not None and not self._made:
            self._made = [self._copied.by.group(g) for g in self._copied.groups]
        return self._made

    def copy_from(self, source: ComputeSet, by: Substitution) -> None:
        """Take the vertices of another compute set, on other variables; they are made on first use.

        Args:
            source: The compute set; what is added to it from now on is not copied.
            by: The variables in place of those of ``source``.
        """
        assert not self._groups, "a compute set with vertices of its own cannot be a copy"
        source._others += 1
        self.stage = source.stage
        self._copied = CopiedVertices(source, tuple(source._groups), by)

    @property
    def copied(self) -> CopiedVertices | None:
        """Compute set that it copies; None where it has vertices of its own, or the other has got further ones."""
        copied = self._copied
        if copied is None or self._pending or copied.source._pending:
            return None
        own = bool(self._made) and len(self._made) != len(copied.groups)
        return None if own or copied.source.num_groups != len(copied.groups) else copied

    @property
    def has_copies(self) -> bool:
        """True if others are copies of it."""
        return self._others > 0

    @property
    def is_wired_in_groups(self) -> bool:
        """True if no vertex was added alone."""
        return not self._pending

    @property
    def num_groups(self) -> int:
        """Groups of vertices that were added as such."""
        return len(self._copied.groups) if self._copied is not None and not self._made else len(self._made)

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
            cycles: Cost of each vertex, instead of counting it: issue slots, or tile cycles for multi-worker kinds.
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
        definition = self.graph.codelet(codelet)
        debug = self.graph.origin(definition.name)
        tiles = np.asarray(tile, dtype=np.int32).reshape(-1)
        self._check_tiles(tiles, definition, debug)
        edges, state = wire(definition, fields, len(tiles), debug)
        cost = None if cycles is None else np.broadcast_to(np.asarray(cycles, dtype=np.int64), tiles.shape).copy()
        return self.add_group(VertexGroup(definition, tiles, edges, state, cost, debug))

    def add_group(self, group: VertexGroup) -> VertexGroup:
        """Add vertices that are wired already."""
        self._groups.append(group)
        return group

    def vertex(self, codelet: Any, *, tile: int | None = None, cycles: int | None = None, **fields: Any) -> VertexRef:
        """Add one vertex; fields left out here are wired later by ``v["field"] = tensor``."""
        definition = self.graph.codelet(codelet)
        debug = self.graph.origin(definition.name)
        own = {f.name: f.initial(1)[0] for f in definition.fields if f.initial is not None and f.name not in fields}
        ref = VertexRef(
            compute_set=self,
            codelet=definition,
            tile=tile,
            values=fields | own,
            debug=debug,
            cycles=cycles,
            origins=dict.fromkeys(fields, debug.location),
        )
        self._pending.append(ref)
        return ref

    @property
    def groups(self) -> tuple[VertexGroup, ...]:
        """All vertices, in groups; single vertices are gathered by codelet."""
        groups = (*self._groups, *self._gathered())
        for group in groups:
            group.estimator = self.graph.perf_estimators.of(group.codelet)
        return groups

    def number_of(self, vertex: VertexRef) -> int:
        """Position of a vertex among those that were added one by one."""
        return next(i for i, ref in enumerate(self._pending) if ref is vertex)

    def place_of(self, vertex: VertexRef) -> tuple[VertexGroup, int]:
        """A vertex that was added alone, as a group of one."""
        return self._group_of(vertex.codelet, [vertex]), 0

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        groups = self._copied.groups if self._copied is not None and not self._made else self._made
        return sum(g.num for g in groups) + len(self._pending)

    def _gathered(self) -> list[VertexGroup]:
        by_codelet: dict[tuple[CodeletDef, bool], list[VertexRef]] = {}
        for ref in self._pending:
            # A group has cycles for all of its vertices, or for none.
            by_codelet.setdefault((ref.codelet, ref.cycles is None), []).append(ref)
        return [self._group_of(definition, refs) for (definition, _), refs in by_codelet.items()]

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
        edges, state = _wired(definition, refs)
        cost = None if refs[0].cycles is None else np.array([r.cycles for r in refs], dtype=np.int64)
        origins = tuple(r.debug for r in refs)
        return VertexGroup(
            codelet=definition, tile=tiles, edges=edges, state=state, cycles=cost, debug=refs[0].debug, origins=origins
        )

    def _check_tiles(self, tiles: npt.NDArray[np.int32], definition: CodeletDef, debug: DebugRecord) -> None:
        self.graph.check_tiles(tiles, f"a vertex {definition.name} of compute set {self.name!r}", debug)

    def __repr__(self) -> str:
        return f"ComputeSet({self.name!r}, {counted(self.num_vertices, 'vertex')})"


def definition_of(codelet: Any) -> CodeletDef:
    """The codelet definition behind a decorated class.

    Raises:
        GraphConnectionError: The class is not decorated with ``@codelet``.
    """
    definition: CodeletDef = getattr(codelet, "codelet", codelet)
    if not hasattr(definition, "fields"):
        name = getattr(codelet, "__name__", repr(codelet))
        raise GraphConnectionError(f"{name} is no codelet", remedy=f"decorate class {name}(Vertex) with @codelet")
    return definition


def _wired(definition: CodeletDef, refs: Sequence[VertexRef]) -> tuple[dict[str, Edge], dict[str, StateData]]:
    """Edges and state of vertices that were added one by one."""
    values = [r.connected() for r in refs]
    columns = _columns(definition, values)
    if columns is not None:
        try:
            return wire(definition, columns, len(refs), refs[0].debug)
        except AbeleError:
            pass  # One of them is wrong: wiring each alone finds which, and names its line.
    wired = [
        wire(definition, {n: _lone(definition, n, v) for n, v in each.items()}, 1, r.debug)
        for r, each in zip(refs, values, strict=True)
    ]
    edges = {name: _joined_edges([w[0][name] for w in wired]) for name in wired[0][0]}
    state = {name: _joined_state([w[1][name] for w in wired]) for name in wired[0][1]}
    return edges, state


def _columns(definition: CodeletDef, values: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The values of all vertices field by field, or None where they are not plain tensors and numbers of all fields."""
    columns: dict[str, Any] = {}
    for declared in definition.fields:
        try:
            column = [each[declared.name] for each in values]
        except KeyError:
            return None
        is_state = declared.direction == "state"
        plain = not any(isinstance(v, Tensor) for v in column) if is_state else declared.rank < 2
        if not plain or (not is_state and not all(isinstance(v, Tensor) for v in column)):
            return None
        columns[declared.name] = column
    return columns if sum(map(len, values)) == len(columns) * len(values) else None


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
    return [value] if field_def.rank == 2 or field_def.is_scattered else value


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
