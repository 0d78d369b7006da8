"""Graphs in a file: variables with mapping and contents, ends towards the host, compute sets with their vertices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from abele.codelet import CodeletDef, FieldDef
from abele.compiler.cost import vertex_costs
from abele.compiler.store.archive import Reader, Writer
from abele.compiler.store.codelets import codelet_of, codelet_table
from abele.compiler.store.systems import system_of, system_table
from abele.compiler.store.views import ViewsIn, ViewsOut
from abele.graph import (
    ComputeSet,
    DebugInfo,
    Edge,
    Graph,
    Regions,
    StateData,
    Stream,
    TileMapping,
    Variable,
    VertexGroup,
)
from abele.graph.host import Argument, HostFunction, HostHandle
from abele.graph.remote import RemoteBuffer
from abele.graph.sync_group import SyncGroup
from abele.numerics import as_element_type


class GraphOut:
    """Describes a graph.

    Args:
        graph: The graph.
        writer: Keeps arrays.

    Attributes:
        views: Views by number.
        compute_sets: Compute sets by number.
    """

    def __init__(self, graph: Graph, writer: Writer) -> None:
        self.graph = graph
        self.views = ViewsOut(writer)
        self._writer = writer
        self._codelets: dict[CodeletDef, int] = {}
        self._codelet_rows: list[Any] = []
        self._regions: dict[int, int] = {}
        self._region_rows: list[Any] = []
        self._kept: list[Regions] = []

    def table(self, compute_sets: list[ComputeSet]) -> dict[str, Any]:
        """Everything but the programs."""
        graph = self.graph
        sets = [[debug_row(c.debug), [self._group(g) for g in c.groups if g.num]] for c in compute_sets]
        handles = graph.host_handles.values()
        return {
            "system": system_table(graph.whole_system),
            "replicas": graph.replicas,
            "variables": [self._variable(v) for v in graph.variables],
            "streams": [_stream_row(s) for s in graph.streams.values()],
            "remote_buffers": [
                [b.name, b.dtype.name, b.num_elements, b.repeats, debug_row(b.debug)]
                for b in graph.remote_buffers.values()
            ],
            "host_functions": [
                [f.name, _arguments(f.inputs), _arguments(f.outputs), debug_row(f.debug)]
                for f in graph.host_functions.values()
            ],
            "handles": [
                [h.name, self.views.number(h.tensor), h.readable, h.writable, debug_row(h.debug)] for h in handles
            ],
            "sync_groups": [[g.name, self._writer.array(g.tiles), debug_row(g.debug)] for g in graph.sync_groups],
            "compute_sets": sets,
            "codelets": self._codelet_rows,
            "regions": self._region_rows,
        }

    def _variable(self, variable: Variable) -> list[Any]:
        mapping = [self._writer.array(variable.mapping.begin), self._writer.array(variable.mapping.tile)]
        initial = None if variable.initial is None else self._writer.array(variable.initial)
        row = [variable.name, variable.dtype.name, list(variable.shape), variable.kind]
        return [*row, mapping, initial, debug_row(variable.debug)]

    def _group(self, group: VertexGroup) -> dict[str, Any]:
        cost = vertex_costs(group, self.graph.system.ipu)
        return {
            "codelet": self._codelet(group.codelet),
            "tile": self._writer.array(group.tile),
            "edges": {name: self._edge(edge) for name, edge in group.edges.items()},
            "state": {name: self._state(data) for name, data in group.state.items()},
            "cycles": None if cost.is_estimate else self._writer.array(cost.amount),
            "debug": debug_row(group.debug),
        }

    def _edge(self, edge: Edge) -> list[Any]:
        row_begin = None if edge.row_begin is None else self._writer.array(edge.row_begin)
        return [self._region(edge.regions), self._writer.array(edge.index), row_begin]

    def _state(self, data: StateData) -> list[Any]:
        row_begin = None if data.row_begin is None else self._writer.array(data.row_begin)
        return [self._writer.array(data.values), row_begin]

    def _codelet(self, definition: CodeletDef) -> int:
        if definition not in self._codelets:
            self._codelets[definition] = len(self._codelet_rows)
            self._codelet_rows.append(codelet_table(definition))
        return self._codelets[definition]

    def _region(self, regions: Regions) -> int:
        if id(regions) not in self._regions:
            self._regions[id(regions)] = len(self._region_rows)
            self._kept.append(regions)
            arrays = {n: self._writer.array(getattr(regions, n)) for n in ("ptr", "begin", "length")}
            self._region_rows.append({**arrays, "view": self.views.number(regions.tensor)})
        return self._regions[id(regions)]


class GraphIn:
    """Makes a graph anew.

    Args:
        table: What :meth:`GraphOut.table` gave.
        views: What the views' rows are.
        reader: Gives arrays.
        trusted: Whether codelets may run without checks.

    Attributes:
        graph: The graph.
        views: Its views by number.

    Raises:
        ValueError: The tables do not fit together.
    """

    def __init__(self, table: Mapping[str, Any], views: Any, reader: Reader, *, trusted: bool) -> None:
        self.graph = Graph(system_of(table["system"]), replicas=int(table["replicas"]))
        self._reader = reader
        for row in table["variables"]:
            self._add_variable(row)
        self.views = ViewsIn(self.graph, reader, views)
        self._add_ends(table)
        self._codelets = [codelet_of(row, trusted=trusted) for row in table["codelets"]]
        self._regions = [self.views.regions(row) for row in table["regions"]]
        for debug, groups in table["compute_sets"]:
            compute_set = ComputeSet(self.graph, len(self.graph.compute_sets), debug_of(debug))
            self.graph.compute_sets.append(compute_set)
            for group in groups:
                compute_set.add_group(self._group(group))

    def _add_variable(self, row: Any) -> None:
        name, dtype, shape, kind, mapping, initial, debug = row
        if kind not in ("variable", "constant", "replica_index"):
            raise ValueError(f"{name!r} is of no kind that exists")
        tensor = self.graph._new(as_element_type(dtype), tuple(int(n) for n in shape), str(name), kind, None)
        variable = self.graph.variables[-1]
        variable.name, variable.debug = str(name), debug_of(debug)
        begin, tile = self._reader.int64(mapping[0]), self._reader.array(mapping[1], np.int32)
        good = len(begin) == len(tile) and (len(begin) == 0 or begin[0] == 0) and (np.diff(begin) > 0).all()
        if not good or (len(begin) == 0) != (variable.size == 0) or (begin >= max(1, variable.size)).any():
            raise ValueError(f"the mapping of {name!r} does not cover it")
        if (tile < -1).any() or (tile >= self.graph.num_tiles).any():
            raise ValueError(f"{name!r} is mapped to a tile that the system lacks")
        variable.mapping = TileMapping(variable.size, begin, tile)
        if initial is not None:
            variable.initial = self._reader.array(initial, variable.dtype.np, variable.shape)
        assert tensor.size == variable.size

    def _add_ends(self, table: Mapping[str, Any]) -> None:
        graph, view = self.graph, self.views.tensor
        for name, dtype, shape, direction, replicated, depth, debug in table["streams"]:
            if direction not in ("in", "out") or int(depth) < 1:
                raise ValueError(f"stream {name!r} runs nowhere")
            graph.streams[name] = Stream(
                name, as_element_type(dtype), _shape(shape), direction, debug_of(debug), bool(replicated), int(depth)
            )
        for name, dtype, elements, repeats, debug in table["remote_buffers"]:
            if int(elements) < 1 or int(repeats) < 1:
                raise ValueError(f"remote buffer {name!r} holds nothing")
            made = RemoteBuffer(name, as_element_type(dtype), int(elements), int(repeats), debug_of(debug))
            graph.remote_buffers[name] = made
        for name, inputs, outputs, debug in table["host_functions"]:
            graph.host_functions[name] = HostFunction(
                name, _arguments_of(inputs), _arguments_of(outputs), debug_of(debug)
            )
        for name, number, readable, writable, debug in table["handles"]:
            graph.host_handles[name] = HostHandle(name, view(number), bool(readable), bool(writable), debug_of(debug))
        for name, tiles, debug in table["sync_groups"]:
            graph.sync_groups.append(SyncGroup(name, self._reader.array(tiles, np.int32), debug_of(debug)))

    def _group(self, table: Mapping[str, Any]) -> VertexGroup:
        codelet = self._codelets[table["codelet"]]
        tile = self._reader.array(table["tile"], np.int32)
        if tile.ndim != 1 or (tile < 0).any() or (tile >= self.graph.num_tiles).any():
            raise ValueError(f"a vertex {codelet.name} is on a tile that the system lacks")
        edges, state = {}, {}
        for field in codelet.fields:
            if field.is_edge:
                edges[field.name] = self._edge(field, table["edges"][field.name], len(tile))
            else:
                state[field.name] = self._state(field, table["state"][field.name], len(tile))
        cycles = None if table["cycles"] is None else self._reader.array(table["cycles"], np.int64, (len(tile),))
        return VertexGroup(codelet, tile, edges, state, cycles, debug_of(table["debug"]))

    def _edge(self, field: FieldDef, row: Any, num: int) -> Edge:
        regions, index = self._regions[row[0]], self._reader.int64(row[1])
        begin = None if row[2] is None else self._reader.int64(row[2])
        if len(index) and (int(index.min()) < 0 or int(index.max()) >= regions.num):
            raise ValueError(f"field {field.name!r} is wired to regions that do not exist")
        if (field.rank == 2) != (begin is not None) or not _counts(begin, len(index), num):
            raise ValueError(f"field {field.name!r} is not wired to {num} vertices")
        if regions.tensor.dtype != field.type or (field.rank == 0 and (regions.sizes[index] != 1).any()):
            raise ValueError(f"field {field.name!r} is wired to elements of another kind")
        if field.writable and any(v.is_constant for v in regions.tensor.variables):
            raise ValueError(f"field {field.name!r} writes a constant")
        return Edge(regions, index, begin)

    def _state(self, field: FieldDef, row: Any, num: int) -> StateData:
        values = self._reader.array(row[0], field.type.np)
        begin = None if row[1] is None else self._reader.int64(row[1])
        if values.ndim != 1 or (field.rank == 1) != (begin is not None) or not _counts(begin, len(values), num):
            raise ValueError(f"state {field.name!r} is not that of {num} vertices")
        return StateData(values, begin)


def _counts(begin: Any, rows: int, num: int) -> bool:
    """Whether rows belong to ``num`` vertices: one each, or as ``begin`` says."""
    if begin is None:
        return rows == num
    return len(begin) == num + 1 and begin[0] == 0 and begin[-1] == rows and bool((np.diff(begin) >= 0).all())


def debug_row(debug: DebugInfo) -> list[Any]:
    """Where something comes from, as JSON."""
    return [debug.name, debug.path, debug.file, debug.line, debug.text]


def debug_of(row: Any) -> DebugInfo:
    """The same back."""
    name, path, file, line, text = row
    return DebugInfo(str(name), str(path), str(file), int(line), str(text))


def _stream_row(stream: Stream) -> list[Any]:
    shape = list(stream.shape)
    place = [stream.direction, stream.replicated, stream.buffering_depth, debug_row(stream.debug)]
    return [stream.name, stream.dtype.name, shape, *place]


def _arguments(arguments: tuple[Argument, ...]) -> list[Any]:
    return [[a.dtype.name, list(a.shape)] for a in arguments]


def _arguments_of(rows: Any) -> tuple[Argument, ...]:
    return tuple(Argument(as_element_type(dtype), _shape(shape)) for dtype, shape in rows)


def _shape(shape: Any) -> tuple[int, ...]:
    dims = tuple(int(n) for n in shape)
    if any(n < 0 for n in dims):
        raise ValueError(f"{list(dims)} is no shape")
    return dims
