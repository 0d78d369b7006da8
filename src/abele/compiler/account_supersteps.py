"""Account of supersteps: vertices of each by codelet, and its variables.

All of it is worked out when somebody looks into the tables. Supersteps that equal one another but for their variables
and their IPU share the column of cycles that was found of the first (``equal_steps``), which is how they are known
here: the vertices of the first are looked at, and the others get its figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.compiler.access import Access, covered, united
from abele.compiler.cost import vertex_costs
from abele.compiler.footprint import code_bytes_of, stack_bytes_of, vertex_state_bytes
from abele.compiler.lower import Step
from abele.compiler.superstep import Superstep
from abele.compiler.tile_vector import TileSet
from abele.compiler.uses import field_uses
from abele.graph.intervals import order_of
from abele.graph.program import Execute
from abele.graph.variable import Variable
from abele.graph.vertices import VertexGroup
from abele.machine import Ipu
from abele.report import CODELETS, SUPERSTEP_VARIABLES, SUPERSTEPS, VERTICES, Table

if TYPE_CHECKING:
    from abele.codelet import CodeletDef


class EqualVertices(NamedTuple):
    """For each superstep the first that has equal vertices, perhaps itself, and by how many tiles it is further on.

    Attributes:
        first: Number of the superstep, int64[supersteps].
        shift: Tiles, int64[supersteps].
    """

    first: Int64
    shift: Int64

    @staticmethod
    def of(plan: Sequence[Superstep]) -> EqualVertices:
        """The likeness of the supersteps of a program."""
        first, shift = np.arange(len(plan)), np.zeros(len(plan), dtype=np.int64)
        known: dict[tuple[Any, ...], int] = {}
        for number, superstep in enumerate(plan):
            if superstep.compute is None:
                continue
            by_tile = superstep.compute.by_tile
            # An array of its own is made for every compute set that is analysed, and shared by those that equal it.
            like = known.setdefault((id(by_tile.values), superstep.codelets), number)
            other = plan[like].compute
            if like != number and other is not None:
                first[number] = like
                if len(by_tile.tile_set):
                    shift[number] = int(by_tile.tile_set.tiles[0]) - int(other.by_tile.tile_set.tiles[0])
        return EqualVertices(first, shift)


class SuperstepTables(NamedTuple):
    """Tables of the report about supersteps and their vertices.

    Attributes:
        supersteps: The supersteps.
        codelets: The codelets of their vertices.
        vertices: Their vertices by codelet.
    """

    supersteps: Table
    codelets: Table
    vertices: Table


def superstep_tables(plan: Sequence[Superstep], distinct: Sequence[Step], ipu: Ipu, num_tiles: int) -> SuperstepTables:
    """The tables of supersteps, codelets and vertices.

    Args:
        plan: The supersteps.
        distinct: The first step of each.
        ipu: The chip.
        num_tiles: Tiles of the machine.
    """
    like = EqualVertices.of(plan)
    lines: dict[int, list[dict[str, Any]]] = {}
    codelets: dict[CodeletDef, int] = {}
    state = np.zeros(len(plan), dtype=np.int64)
    columns: dict[str, list[Any]] = {name: [] for name in VERTICES.columns}
    on_tiles: list[np.ndarray] = []
    tiles_of: dict[int, list[tuple[int, np.ndarray]]] = {}
    for number, superstep in enumerate(plan):
        first, shift = int(like.first[number]), int(like.shift[number])
        if first == number:
            groups = superstep.node.compute_set.groups if isinstance(superstep.node, Execute) else ()
            found = [_line(mine, codelets, ipu, num_tiles) for mine in _by_codelet(groups)]
            lines[number] = [line for line, _ in found]
            tiles_of[number] = [(line["codelet"], tiles) for line, tiles in found]
            on_tiles += [np.zeros(num_tiles, dtype=bool) for _ in range(len(codelets) - len(on_tiles))]
        for line in lines[first]:
            for name, value in line.items():
                columns[name].append(value + shift if name == "slowest_tile" else value)
            columns["superstep"].append(number)
            state[number] += line["state_bytes"]
        for codelet, tiles in tiles_of[first]:
            on_tiles[codelet][tiles + shift] = True
    return SuperstepTables(
        _supersteps_table(plan, distinct, state),
        CODELETS.table(
            name=[c.name for c in codelets],
            kind=[c.kind for c in codelets],
            file=[c.file for c in codelets],
            line=[c.line for c in codelets],
            code_bytes=[code_bytes_of(c) for c in codelets],
            stack_bytes=[stack_bytes_of(c, ipu) for c in codelets],
            tiles=[int(np.count_nonzero(tiles)) for tiles in on_tiles],
        ),
        VERTICES.table(**columns),
    )


def _supersteps_table(plan: Sequence[Superstep], distinct: Sequence[Step], state: Int64) -> Table:
    debug = [s.node.compute_set.debug if isinstance(s.node, Execute) else s.node.debug for s in plan]
    return SUPERSTEPS.table(
        name=[step.name for step in distinct],
        kind=[s.kind for s in plan],
        file=[d.file for d in debug],
        line=[d.line for d in debug],
        num_vertices=[s.num_vertices for s in plan],
        num_edges=[s.num_edges for s in plan],
        vertex_state_bytes=state,
        exchange_code_bytes=[s.exchange_code_bytes for s in plan],
        buffer_bytes=[0 if s.buffer_bytes is None else s.buffer_bytes.sum() for s in plan],
    )


def _by_codelet(groups: Sequence[VertexGroup]) -> list[list[VertexGroup]]:
    found: dict[int, list[VertexGroup]] = {}
    for group in groups:
        if group.num:
            found.setdefault(id(group.codelet), []).append(group)
    return list(found.values())


def _line(
    groups: Sequence[VertexGroup], codelets: dict[CodeletDef, int], ipu: Ipu, num_tiles: int
) -> tuple[dict[str, Any], np.ndarray]:
    """Row of the table for the vertices of one codelet in one compute set, and their tiles."""
    codelet = groups[0].codelet
    costs = [vertex_costs(group, ipu) for group in groups]
    # A worker issues in every sixth cycle; what all workers do together is told in cycles already.
    cycles = np.concatenate([c.amount for c in costs]) * (ipu.num_workers if codelet.kind == "vertex" else 1)
    tile = np.concatenate([group.tile for group in groups])
    tiles = TileSet.of([tile], num_tiles)
    positions = tiles.positions(tile)
    count, busy = tiles.count(positions)[:-1], tiles.sum(positions, cycles)[:-1]
    used = tiles.tiles[count > 0]
    line = {
        "codelet": codelets.setdefault(codelet, len(codelets)),
        "num_vertices": len(tile),
        "tiles": len(used),
        "state_bytes": vertex_state_bytes(groups, ipu, num_tiles).sum(),
        "cycles": int(cycles.sum()),
        "max_cycles": int(cycles.max()),
        "slowest_tile": int(tiles.tiles[np.where(count > 0, busy, -1).argmax()]),
        "assumed": any(c.is_estimate for c in costs),
        "file": groups[0].debug.file,
        "line": groups[0].debug.line,
    }
    return line, used.astype(np.int64)


class _Extents(NamedTuple):
    """Addresses and sizes of variables in the element space of their graph.

    Attributes:
        base: First address of each, int64[variables].
        size: Elements of each, int64[variables].
        width: Bytes of an element of each, int64[variables].
    """

    base: Int64
    size: Int64
    width: Int64


def superstep_variables(plan: Sequence[Superstep], variables: Sequence[Variable], used: np.ndarray) -> Table:
    """The relation of supersteps and the variables that they touch.

    Args:
        plan: The supersteps.
        variables: The variables of the graph.
        used: Those that the report tells of, bool[variables].
    """
    columns_of = ([v.base for v in variables], [v.size for v in variables], [v.dtype.bytes for v in variables])
    extents = _Extents(*(np.array(column, dtype=np.int64) for column in columns_of))
    like = EqualVertices.of(plan)
    row_of = np.cumsum(used) - 1
    read_elements: dict[int, Int64] = {}
    superstep, variable, read, written = ([np.empty(0, np.int64)] for _ in range(4))
    for number, each in enumerate(plan):
        access, first = each.access, int(like.first[number])
        if first not in read_elements:
            read_elements[first] = _read_elements(plan[first], extents)
        touched = access.touched
        for column, numbers, amount in (
            (read, access.reads, read_elements[first]),
            (written, access.writes, _written_elements(access, extents)),
        ):
            elements = np.zeros(len(touched), dtype=np.int64)
            elements[np.searchsorted(touched, numbers)] = amount
            column.append(elements * extents.width[touched])
        superstep.append(np.full(len(touched), number))
        variable.append(row_of[touched])
    names = ("superstep", "variable", "read_bytes", "written_bytes")
    columns = (np.concatenate(column) for column in (superstep, variable, read, written))
    return SUPERSTEP_VARIABLES.table(**dict(zip(names, columns, strict=True)))


def _read_elements(superstep: Superstep, extents: _Extents) -> Int64:
    """Distinct elements that a superstep may read of each variable, in the order of its reads, int64[n]."""
    node, reads = superstep.node, superstep.access.reads
    if isinstance(node, Execute):
        regions = {id(u.edge.regions): u.edge.regions for u in field_uses(node.compute_set.groups) if u.reads}
        pieces = [(r.begin, r.length) for r in regions.values()]
    else:
        pieces = [tensor.content.footprint()[:2] for tensor in node.reads()]
    if not pieces or len(reads) == 0:
        return np.zeros(len(reads), dtype=np.int64)
    begin, length = (np.concatenate(side) for side in zip(*pieces, strict=True))
    if bool((begin[1:] < begin[:-1]).any()):
        order = order_of(begin)
        begin, length = begin[order], length[order]
    return _inside(reads, *united(begin, begin + length), extents)


def _written_elements(access: Access, extents: _Extents) -> Int64:
    """Elements that a superstep writes of each variable, in the order of its writes, int64[n]."""
    elements = extents.size[access.writes].copy()
    for variable, (begin, end) in access.partial.items():
        elements[np.searchsorted(access.writes, variable)] = int((end - begin).sum())
    return elements


def _inside(variables: Int64, begin: Int64, end: Int64, extents: _Extents) -> Int64:
    """Elements of disjoint intervals in order that lie in each of some variables, int64[n]."""
    base = extents.base[variables]
    return covered(base + extents.size[variables], begin, end) - covered(base, begin, end)
