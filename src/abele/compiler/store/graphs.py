"""Graphs in a file: variables with mapping and contents, ends towards the host, compute sets with their vertices.

Reading is written as the inverse of writing, but trusts nothing: each table is held against those that it refers to
(tiles against the system, mappings against variables, indices against regions, element types against fields) before an
object is made of it, since native code will later follow these numbers without asking. Sums are taken in floating point
where integers could wrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, fields
from typing import Any

import msgspec
import numpy as np

from abele.codelet import CodeletDef, FieldDef, compile_codelet
from abele.codelet.layouts import LIST_LAYOUTS, VECTOR_LAYOUTS
from abele.codelet.printing import check_format
from abele.codelet.stored import StoredCode
from abele.codelet.tree import Element, For, Helper, HelperCall, Print, Stmt, StoreStmt, all_expressions, walk
from abele.codelet.vertex import NUM_WORKERS, Constraint
from abele.compiler.cost import record_bytes, vertex_costs
from abele.compiler.store import format as stored
from abele.compiler.store.format import CodeletTable, FieldRow
from abele.compiler.store.records import CODELET_TREE, decode, encode
from abele.compiler.store.views import ViewsIn, ViewsOut, Writer
from abele.errors import FileFormatError, MachineError
from abele.graph import (
    BucketWords,
    ComputeSet,
    DebugRecord,
    Edge,
    Graph,
    Regions,
    SparseNote,
    StateData,
    Stream,
    TileMapping,
    Variable,
    VertexGroup,
)
from abele.graph.host_interface import Argument, HostFunction, HostHandle
from abele.graph.remote import RemoteBuffer
from abele.graph.sync_group import SyncGroup
from abele.machine import System
from abele.machine.spec import Spec
from abele.numerics import as_element_type
from abele.report.archive import Archive, part
from abele.words import counted

# Rules that the front end enforces while it reads source, checked on codelets from a file.


def check_tree(compute: Helper) -> None:
    """A codelet writes only fields that it may, counts its loops in steps, and prints numbers as numbers.

    Raises:
        ValueError: It does not.
    """
    for statement in _statements(compute):
        match statement:
            case StoreStmt(field=field) if field.is_edge and not field.writable:
                raise ValueError(f"line {statement.line} writes {field.name!r}, which is an input")
            case StoreStmt(field=field, index=index) if len(index) != field.rank:
                raise ValueError(f"line {statement.line} indexes {field.name!r} with {len(index)} numbers")
            case For(step=0):
                raise ValueError(f"line {statement.line} counts in steps of 0")
            case Print():
                _check_print(statement)
    for expression in all_expressions(compute.body):
        if isinstance(expression, Element) and len(expression.index) != expression.field.rank:
            raise ValueError(
                f"line {expression.line} indexes {expression.field.name!r} with {len(expression.index)} numbers"
            )


def _statements(compute: Helper) -> Iterator[Stmt]:
    called = {e.helper: None for e in all_expressions(compute.body) if isinstance(e, HelperCall)}
    for function in (compute, *called):
        yield from walk(function.body)


def _check_print(statement: Print) -> None:
    if not len(statement.specs) == len(statement.values) == len(statement.text) - 1:
        raise ValueError(f"line {statement.line} prints values without a place")
    for spec, value in zip(statement.specs, statement.values, strict=True):
        check_format(spec, value.type)


# Systems as nested tables, and back.

_MOST_TILES = 1 << 20
_MOST_NUMBER = 1 << 53


def system_table(spec: Spec) -> dict[str, Any]:
    """Every field of a system, nested as its parts are; sources are left out."""
    return {f.name: _plain(getattr(spec, f.name)) for f in fields(spec) if f.name != "cited"}


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return system_table(value)
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def system_of(table: Mapping[str, Any]) -> System:
    """The system that a table describes.

    Raises:
        MachineError: It is impossible.
        ValueError: It has fields that systems lack.
    """
    system: System = _built(System, table)
    if system.num_tiles > _MOST_TILES:
        raise MachineError(
            f"{counted(system.num_tiles, 'tile')}, more than the {_MOST_TILES:,} that a file may ask for"
        )
    return system


def _built(kind: type[Spec], table: Mapping[str, Any]) -> Any:
    known = {f.name: f for f in fields(kind) if f.name != "cited"}
    unknown = set(table) - set(known)
    if unknown:
        raise ValueError(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")
    return kind(**{name: _part(known[name].metadata.get("kind"), value) for name, value in table.items()})


def _part(kind: Any, value: Any) -> Any:
    if isinstance(value, int) and abs(value) > _MOST_NUMBER:
        raise MachineError(f"{value}: too large to be a figure of a machine")
    if isinstance(value, Mapping) and kind is not None:
        return _built(kind, value)
    if isinstance(value, list):
        return tuple(_part(kind, item) for item in value)
    return value


# Codelets in a file: their read source, as data.

_LAYOUTS = {**VECTOR_LAYOUTS, **LIST_LAYOUTS}


def codelet_table(definition: CodeletDef, path: Callable[[str], str]) -> dict[str, Any]:
    """Codelet as JSON; ``path`` gives the text of its source file's path.

    Raises:
        FileFormatError: It is C++, of which only native code is known.
    """
    if definition.language not in ("python", "stored"):
        raise FileFormatError(
            f"codelet {definition.name} is written in {definition.language}: it cannot be kept in a file as data",
            at=definition.location,
            remedy="save the program's source with it, or write the codelet in Python",
        )
    return {
        "name": definition.name,
        "kind": definition.kind,
        "fields": [_field_row(f) for f in definition.fields],
        "file": path(definition.file),
        "line": definition.line,
        "constraints": [[c.kind, c.one, c.other] for c in definition.constraints],
        "tree": encode(compile_codelet(definition).tree, CODELET_TREE, path),
        "overlays": definition.overlays,
        "least_code_bytes": definition.least_code_bytes,
    }


def _field_row(field: FieldDef) -> list[Any]:
    layouts = [layout.name for layout in field.layouts]
    described = [field.min_align, field.interleaved, field.is_scattered]
    return [field.name, field.direction, field.type.name, field.rank, layouts, *described]


def codelet_of(table: CodeletTable, *, trusted: bool) -> CodeletDef:
    """The codelet that a table describes; without trust its vertices run with every access checked.

    Raises:
        ValueError: It describes none.
    """
    fields = tuple(map(_field, table.fields))
    by_name = {f.name: f for f in fields}
    if len(by_name) != len(fields):
        raise ValueError("two fields have one name")
    helper = decode(table.tree, CODELET_TREE, by_name)
    if not isinstance(helper, Helper):
        raise ValueError("it has no code")
    check_tree(helper)
    edges = {f.name for f in fields if f.is_edge}
    if any({one, other} - edges for _, one, other in table.constraints):
        raise ValueError("a constraint names what is no edge")
    if any({one, other} - edges for one, other in table.overlays):
        raise ValueError("an overlay names what is no edge")
    code = StoredCode(helper, msgspec.json.encode(table.tree).decode(), trusted)
    made = CodeletDef(
        name=table.name,
        kind=table.kind,
        fields=fields,
        file=table.file,
        line=table.line,
        formula=None,
        compute=None,
        attributes={"num_workers": NUM_WORKERS},
        constraints=tuple(Constraint(*each) for each in table.constraints),
        overlays=tuple(table.overlays),
        least_code_bytes=table.least_code_bytes,
        language="stored",
        source=code,
    )
    if not trusted:
        # What cannot be compiled is found here, where it is known to come from a file.
        _ = compile_codelet(made).run
    return made


def _field(row: FieldRow) -> FieldDef:
    layouts = tuple(_LAYOUTS[layout] for layout in row.layouts)
    type_ = as_element_type(row.type)
    return FieldDef(
        name=row.name,
        direction=row.direction,
        type=type_,
        rank=row.rank,
        layouts=layouts,
        min_align=row.min_align,
        interleaved=row.interleaved,
        is_scattered=row.scattered,
    )


_MOST_ELEMENTS = 1 << 40
"""Elements of a variable, stream or remote buffer: sums of as many as a document can name stay below 2^63."""
_MOST_CYCLES = 1 << 48


class GraphOut:
    """Describes a graph.

    Args:
        graph: The graph.
        writer: Keeps arrays.
        path: Text of the path of a source file.

    Attributes:
        views: Views by number.
        compute_sets: Compute sets by number.
    """

    def __init__(self, graph: Graph, writer: Writer, path: Callable[[str], str]) -> None:
        self.graph = graph
        self.path = path
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
        sets = [[self.debug(c.debug), [self._group(g) for g in c.groups if g.num]] for c in compute_sets]
        handles = graph.host_handles.values()
        return {
            "system": system_table(graph.whole_system),
            "replicas": graph.replicas,
            "sync_pattern": graph.sync_pattern,
            "variables": [self._variable(v) for v in graph.variables],
            "streams": [self._stream(s) for s in graph.streams.values()],
            "remote_buffers": [
                [b.name, b.dtype.name, b.num_elements, b.repeats, self.debug(b.debug)]
                for b in graph.remote_buffers.values()
            ],
            "host_functions": [
                [f.name, _arguments(f.inputs), _arguments(f.outputs), self.debug(f.debug)]
                for f in graph.host_functions.values()
            ],
            "handles": [
                [h.name, self.views.number(h.tensor), h.readable, h.writable, self.debug(h.debug)] for h in handles
            ],
            "sync_groups": [[g.name, self._writer.array(g.tiles), self.debug(g.debug)] for g in graph.sync_groups],
            "compute_sets": sets,
            "codelets": self._codelet_rows,
            "regions": self._region_rows,
            "sparse_operands": [self._sparse(o) for o in graph.sparse_operands.values()],
        }

    def debug(self, debug: DebugRecord) -> list[Any]:
        """Name and source line of an object."""
        return [debug.name, debug.path, self.path(debug.file), debug.line, debug.text]

    def _sparse(self, operand: SparseNote) -> list[Any]:
        o, buckets = operand, operand.buckets
        sizes = [list(o.shape), list(o.block), o.blocks]
        arrays = [self._writer.array(o.tile), self._writer.array(o.values)]
        words = None if o.words is None else self.views.number(o.words)
        place = None if buckets is None else list(astuple(buckets))
        room = [o.groups, o.capacity, o.worst_passes]
        return [o.name, o.library, o.dtype, *sizes, *arrays, *room, words, place]

    def _stream(self, stream: Stream) -> list[Any]:
        place = [stream.direction, stream.replicated, stream.buffering_depth, self.debug(stream.debug)]
        return [stream.name, stream.dtype.name, list(stream.shape), *place]

    def _variable(self, variable: Variable) -> list[Any]:
        mapping = [self._writer.array(variable.mapping.begin), self._writer.array(variable.mapping.tile)]
        initial = None if variable.initial is None else self._writer.array(variable.initial)
        row = [variable.name, variable.dtype.name, list(variable.shape), variable.kind]
        return [*row, mapping, initial, self.debug(variable.debug)]

    def _group(self, group: VertexGroup) -> dict[str, Any]:
        cost = vertex_costs(group, self.graph.system.ipu)
        record = record_bytes(group, self.graph.system.ipu)
        return {
            "codelet": self._codelet(group.codelet),
            "tile": self._writer.array(group.tile),
            "edges": {name: self._edge(edge) for name, edge in group.edges.items()},
            "state": {name: self._state(data) for name, data in group.state.items()},
            "cycles": None if cost.is_estimate else self._writer.array(cost.amount),
            "debug": self.debug(group.debug),
            "state_bytes": None if record is None else self._writer.array(record),
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
            self._codelet_rows.append(codelet_table(definition, self.path))
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
        table: Result of :meth:`GraphOut.table`.
        views: Rows of the views.
        archive: Gives arrays.
        trusted: True if codelets may run without checks.

    Attributes:
        graph: The graph.
        views: Its views by number.

    Raises:
        ValueError: The tables do not fit together.
    """

    def __init__(
        self, table: stored.GraphTable, views: list[stored.ViewRow], archive: Archive, *, trusted: bool
    ) -> None:
        with part("system"):
            self.graph = Graph(system_of(table.system), replicas=table.replicas)
            self.graph.sync_pattern = table.sync_pattern
        self._archive = archive
        for number, row in enumerate(table.variables):
            with part(f"variable {number}"):
                self._add_variable(row)
        self.views = ViewsIn(self.graph, archive, views)
        self._add_ends(table)
        self._codelets = [self._codelet(n, row, trusted) for n, row in enumerate(table.codelets)]
        self._regions = [self._region(n, row) for n, row in enumerate(table.regions)]
        for number, made in enumerate(table.compute_sets):
            compute_set = ComputeSet(self.graph, number, debug_of(made.debug))
            self.graph.compute_sets.append(compute_set)
            for group in made.groups:
                with part(f"compute set {number}"):
                    compute_set.add_group(self._group(group))
        for number, noted in enumerate(table.sparse_operands):
            with part(f"sparse operand {number}"):
                self._add_sparse(number, noted)

    def _add_sparse(self, number: int, row: stored.SparseNoteRow) -> None:
        tile, values = self._archive.vector(row.tile, np.int32), self._archive.vector(row.values, np.int64)
        area = float(row.groups) * row.shape[0] * row.shape[1]
        held = float(row.blocks) * row.block[0] * row.block[1]
        if len(tile) != len(values) or len(np.unique(tile)) != len(tile) or (values < 0).any():
            raise ValueError("its values are not those of tiles")
        if (tile < 0).any() or (tile >= self.graph.num_tiles).any():
            raise ValueError("it is on a tile that the system lacks")
        if max(area, held, float(row.capacity), values.astype(float).sum()) > _MOST_ELEMENTS:
            raise ValueError("it has more elements than can be counted")
        operand = SparseNote(
            name=row.name,
            library=row.library,
            dtype=row.dtype,
            shape=row.shape,
            block=row.block,
            blocks=row.blocks,
            tile=tile,
            values=values,
            groups=row.groups,
            capacity=row.capacity,
            worst_passes=row.worst_passes,
            words=None if row.words is None else self.views.tensor(row.words),
            buckets=None if row.buckets is None else BucketWords(*row.buckets),
        )
        self.graph.sparse_operands[number, operand.key] = operand

    def _codelet(self, number: int, table: stored.CodeletTable, trusted: bool) -> CodeletDef:
        with part(f"codelet {number}, {table.name!r:.80}"):
            return codelet_of(table, trusted=trusted)

    def _region(self, number: int, table: stored.RegionsTable) -> Regions:
        with part(f"regions {number}"):
            return self.views.regions(table)

    def _add_variable(self, row: stored.VariableRow) -> None:
        shape = tuple(row.shape)
        if math.prod(shape) > _MOST_ELEMENTS:
            raise ValueError(f"it is of shape {list(shape)}")
        self.graph.new_variable(as_element_type(row.dtype), shape, row.name, row.kind, None)
        variable = self.graph.variables[-1]
        variable.name, variable.debug = row.name, debug_of(row.debug)
        begin, tile = (self._archive.vector(n, t) for n, t in zip(row.mapping, (np.int64, np.int32), strict=True))
        # A mapping is pieces in order that begin at 0: each ends where the next begins, so they cover the variable
        # once.
        good = len(begin) == len(tile) and (len(begin) == 0 or begin[0] == 0) and (begin[1:] > begin[:-1]).all()
        if not good or (len(begin) == 0) != (variable.size == 0) or (begin >= max(1, variable.size)).any():
            raise ValueError("its mapping does not cover it")
        if (tile < -1).any() or (tile >= self.graph.num_tiles).any():
            raise ValueError("it is mapped to a tile that the system lacks")
        variable.mapping = TileMapping(variable.size, begin, tile)
        if row.initial is not None:
            variable.initial = self._archive.array(row.initial, variable.dtype.np, shape)

    def _add_ends(self, table: stored.GraphTable) -> None:
        graph = self.graph
        for row in table.streams:
            graph.streams[row.name] = Stream(
                name=row.name,
                dtype=as_element_type(row.dtype),
                shape=_shape(row.shape),
                direction=row.direction,
                debug=debug_of(row.debug),
                replicated=row.replicated,
                buffering_depth=row.depth,
            )
        for buffer in table.remote_buffers:
            size = _shape([buffer.repeats, buffer.elements])
            dtype, debug = as_element_type(buffer.dtype), debug_of(buffer.debug)
            graph.remote_buffers[buffer.name] = RemoteBuffer(buffer.name, dtype, size[1], size[0], debug)
        for function in table.host_functions:
            arguments = (_arguments_of(function.inputs), _arguments_of(function.outputs))
            graph.host_functions[function.name] = HostFunction(function.name, *arguments, debug_of(function.debug))
        for handle in table.handles:
            tensor, debug = self.views.tensor(handle.view), debug_of(handle.debug)
            graph.host_handles[handle.name] = HostHandle(
                handle.name, tensor, handle.readable, handle.writable and tensor.writable, debug
            )
        for group in table.sync_groups:
            with part(f"sync group {group.name!r:.80}"):
                graph.sync_group(self._archive.vector(group.tiles, np.int32))
                made = graph.sync_groups.pop()
                graph.sync_groups.append(SyncGroup(group.name, made.tiles, debug_of(group.debug)))

    def _group(self, table: stored.GroupTable) -> VertexGroup:
        codelet = self._codelets[table.codelet]
        tile = self._archive.vector(table.tile, np.int32)
        if (tile < 0).any() or (tile >= self.graph.num_tiles).any():
            raise ValueError(f"a vertex {codelet.name} is on a tile that the system lacks")
        edges, state = {}, {}
        for field in codelet.fields:
            with part(f"field {field.name!r:.80} of {codelet.name!r:.80}"):
                if field.is_edge:
                    edges[field.name] = self._edge(field, table.edges[field.name], len(tile))
                else:
                    state[field.name] = self._state(field, table.state[field.name], len(tile))
        cycles = None if table.cycles is None else self._archive.array(table.cycles, np.int64, (len(tile),))
        # In float, as the sum of hostile integers may wrap to something small.
        if cycles is not None and ((cycles < 0).any() or cycles.astype(float).sum() > _MOST_CYCLES):
            raise ValueError(f"vertices {codelet.name} take more cycles than there are, or fewer than none")
        record = None if table.state_bytes is None else self._archive.array(table.state_bytes, np.int64, (len(tile),))
        if record is not None and ((record < 0).any() or record.astype(float).sum() > _MOST_CYCLES):
            raise ValueError(f"vertices {codelet.name} take more memory than there is, or less than none")
        return VertexGroup(codelet, tile, edges, state, cycles, debug_of(table.debug), state_bytes=record)

    def _edge(self, field: FieldDef, row: stored.EdgeRow, num: int) -> Edge:
        regions, index = self._regions[row.regions], self._archive.vector(row.index, np.int64)
        begin = None if row.row_begin is None else self._archive.vector(row.row_begin, np.int64)
        if len(index) and (int(index.min()) < 0 or int(index.max()) >= regions.num):
            raise ValueError("it is wired to regions that do not exist")
        if (field.rank == 2) != (begin is not None) or not _counts(begin, len(index), num):
            raise ValueError(f"it is not wired to {counted(num, 'vertex')}")
        sizes = regions.sizes[index]
        if regions.tensor.dtype != field.type or (field.rank == 0 and (sizes != 1).any()):
            raise ValueError("it is wired to elements of another kind")
        if sizes.astype(float).sum() > _MOST_ELEMENTS:
            raise ValueError("it is wired to more elements than can be counted")
        if field.writable and any(v.is_constant for v in regions.tensor.variables):
            raise ValueError("it writes a constant")
        return Edge(regions, index, begin)

    def _state(self, field: FieldDef, row: stored.StateRow, num: int) -> StateData:
        values = self._archive.vector(row.values, field.type.np)
        begin = None if row.row_begin is None else self._archive.vector(row.row_begin, np.int64)
        if (field.rank == 1) != (begin is not None) or not _counts(begin, len(values), num):
            raise ValueError(f"it is not that of {counted(num, 'vertex')}")
        return StateData(values, begin)


def _counts(begin: Any, rows: int, num: int) -> bool:
    """True if rows belong to ``num`` vertices: one each, or as ``begin`` says."""
    if begin is None:
        return rows == num
    return len(begin) == num + 1 and begin[0] == 0 and begin[-1] == rows and bool((begin[1:] >= begin[:-1]).all())


def debug_of(row: stored.Debug) -> DebugRecord:
    """Debug record of a row."""
    return DebugRecord(row.name, row.path, row.file, row.line, row.text)


def _arguments(arguments: tuple[Argument, ...]) -> list[Any]:
    return [[a.dtype.name, list(a.shape)] for a in arguments]


def _arguments_of(rows: Iterable[stored.ArgumentRow]) -> tuple[Argument, ...]:
    return tuple(Argument(as_element_type(row.dtype), _shape(row.shape)) for row in rows)


def _shape(shape: list[int]) -> tuple[int, ...]:
    if math.prod(shape) > _MOST_ELEMENTS:
        raise ValueError(f"{shape} is too large to be a shape")
    return tuple(shape)
