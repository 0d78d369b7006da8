"""Account of tiles: work of each in each phase and program, and its part of each variable.

The relations are made when somebody looks into them, for all phases at once. Tiles of different phases are kept apart
by numbering them through: tile t of phase p is p × (tiles + 1) + t, and the one number that is left out between phases
keeps a run of tiles from reaching into the next phase. Sums and joins of runs (``report.tile_runs``) then work on one
long axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from abele.arrays import Int64
from abele.compiler.lower import Lowered
from abele.compiler.memory import MemoryPlan
from abele.compiler.superstep import Superstep
from abele.compiler.tile_vector import TileRows, TileSet, TileVector
from abele.compiler.timeline import Part
from abele.graph.graph import Graph
from abele.graph.intervals import distinct
from abele.graph.variable import Variable
from abele.report import (
    ADDRESSES,
    BUFFER_TILES,
    CATEGORIES,
    LIFETIMES,
    PHASE_TILES,
    PROGRAM_TILES,
    SENT_TILES,
    VARIABLE_TILES,
    VARIABLES,
    Memory,
    Table,
)
from abele.report.tiles import Runs, joined, summed

# Account of variables: how large each is, when it lives, where it was made, and why it is there.

_CONSTANTS = {"constant": "constant", "replica_index": "replica index"}


def variables_table(
    graph: Graph,
    memory: MemoryPlan,
    rows: tuple[Int64, Int64],
    first_op: Int64,
    roles: Mapping[str, str],
) -> Table:
    """The table of the variables that programs use.

    Args:
        graph: Graph of the variables.
        memory: The memory plan.
        rows: First row of each step in the steps table, and the number of rows, int64[steps + 1]; and the row of its
            vertices, int64[steps].
        first_op: The operation that writes each variable of the graph first, int64[variables]; −1 for none.
        roles: Roles of host handles, by the part of their names before the first ``/``, digits left out.
    """
    live = memory.liveness
    used = np.flatnonzero(live.used)
    first, last = np.full((2, len(graph.variables)), -1, dtype=np.int64)
    first[live.candidates], last[live.candidates] = live.span()
    late = np.zeros(len(graph.variables), dtype=bool)
    some = np.diff(live.ptr) > 0
    late[live.candidates[some]] = live.late[live.ptr[:-1][some]]
    first_row, vertex_row = rows
    steps = len(vertex_row)
    variables = [graph.variables[int(v)] for v in used]
    rows_of = np.append(first_row[:steps], -1)
    ends_of = np.append(first_row[1:] - 1, -1)
    always = live.always_live[used]
    handles = _handles(graph)
    names = [handles.get(v.id, "") for v in variables]
    interleaved = np.zeros(len(graph.variables), dtype=bool)
    interleaved[memory.are_interleaved] = True
    return VARIABLES.table(
        name=[v.name for v in variables],
        type=[v.dtype.name for v in variables],
        bytes=[v.bytes for v in variables],
        tiles=np.diff(memory.shares.ptr)[used],
        always_live=always,
        first_step=np.where(late[used], np.append(vertex_row, -1)[first[used]], rows_of[first[used]]),
        last_step=ends_of[last[used]],
        shape=[" x ".join(map(str, v.shape)) for v in variables],
        role=[
            _role(v, handle, roles) if lives else "temporary"
            for v, handle, lives in zip(variables, names, always.tolist(), strict=True)
        ],
        handle=names,
        file=[v.debug.file for v in variables],
        line=[v.debug.line for v in variables],
        op=first_op[used],
        alignment_bytes=memory.alignment_bytes[used],
        interleaved=interleaved[used],
    )


def first_writers(lowered: Lowered, plan: Sequence[Superstep], op_of: Int64, num_variables: int) -> Int64:
    """The operation of the first step that writes each variable, int64[variables]; −1 where none does.

    Args:
        lowered: The steps; supersteps are numbered in the order in which these reach them.
        plan: Supersteps of these.
        op_of: The operation of each step, int64[steps].
        num_variables: Variables of the graph.
    """
    result = np.full(num_variables, -1, dtype=np.int64)
    # The last of several assignments to one place stays, so the first writer comes last.
    for step, superstep in zip(reversed(lowered.distinct), reversed(plan), strict=True):
        result[superstep.access.writes] = op_of[step.index]
    return result


def _handles(graph: Graph) -> dict[int, str]:
    """The first handle of each variable that the host reaches, by its position in the graph."""
    found: dict[int, str] = {}
    for handle in graph.host_handles.values():
        for variable in handle.tensor.variables:
            found.setdefault(variable.id, handle.name)
    return found


def _role(variable: Variable, handle: str, roles: Mapping[str, str]) -> str:
    """Why a variable always lives, as far as that is known."""
    if variable.kind in _CONSTANTS:
        return _CONSTANTS[variable.kind]
    if handle:
        return roles.get(handle.partition("/")[0].rstrip("0123456789"), "host handle")
    return "kept" if variable.initial is None else "initial data"


def phase_tiles(parts: Sequence[Part], num_tiles: int) -> Table:
    """The relation of phases and tiles.

    Args:
        parts: The parts of all supersteps, in the order in which the steps table numbers them.
        num_tiles: Tiles of the machine.
    """
    columns = {
        "compute_cycles": [p.work for p in parts],
        "sent_bytes": [p.sent for p in parts],
        "received_bytes": [p.received for p in parts],
    }
    return PHASE_TILES.table(**apart("phase", runs_of_vectors(columns, num_tiles), num_tiles))


def program_tiles(phases: Table, times: Sequence[Int64], num_tiles: int) -> Table:
    """The relation of programs and tiles.

    Args:
        phases: The relation of phases and tiles.
        times: Times that a run of each program goes through each phase, int64[phases].
        num_tiles: Tiles of the machine.
    """
    names = ("compute_cycles", "sent_bytes", "received_bytes")
    first, count = [], []
    values: dict[str, list[Int64]] = {name: [] for name in names}
    for program, runs in enumerate(times):
        # How often the program goes through the phase of each row.
        weight = runs[phases["phase"]]
        here = weight > 0
        first.append(phases["first_tile"][here] + program * (num_tiles + 1))
        count.append(phases["num_tiles"][here])
        for name in names:
            values[name].append(phases[name][here] * weight[here])
    everything = summed(_one(first), _one(count), **{name: _one(each) for name, each in values.items()})
    return PROGRAM_TILES.table(**apart("program", everything, num_tiles))


def buffer_tiles(supersteps: Sequence[Superstep], num_tiles: int) -> Table:
    """The relation of supersteps and the tiles on which they need room for data in motion."""
    runs = runs_of_vectors({"bytes": [s.buffer_bytes for s in supersteps]}, num_tiles)
    return BUFFER_TILES.table(**apart("superstep", runs, num_tiles))


def memory_of(plan: MemoryPlan, num_tiles: int) -> Memory:
    """Bytes of each category on the tiles; equal neighbours are one run."""
    vectors = [plan.categories[name] for name in CATEGORIES]
    listed = TileSet.of([v.tile_set.tiles for v in vectors], num_tiles).tiles
    begin = distinct(np.concatenate([np.zeros(1, np.int64), listed, listed + np.int64(1)]))
    begin = begin[begin < num_tiles]
    held = np.stack([v.at(begin) for v in vectors])
    differs = np.append(True, (held[:, 1:] != held[:, :-1]).any(axis=0))
    tiles = np.diff(np.append(begin[differs], num_tiles))
    return Memory(held[:, differs], plan.available_bytes, CATEGORIES, tiles)


def variable_tiles(memory: MemoryPlan, num_tiles: int) -> Table:
    """Relation of the variables in use, in their order, and their tiles."""
    shares, used = memory.shares, memory.liveness.used
    row_of = np.cumsum(used) - 1
    kept = used[shares.variable]
    first = row_of[shares.variable[kept]] * (num_tiles + 1) + shares.tile[kept]
    held, padded = shares.bytes[kept], shares.padded_bytes[kept]
    runs = joined(first, np.ones(len(first), dtype=np.int64), bytes=held, padded_bytes=padded)
    return VARIABLE_TILES.table(**apart("variable", runs, num_tiles))


def addresses(memory: MemoryPlan) -> Table:
    """Addresses on one tile of each kind that was packed."""
    row_of = np.cumsum(memory.liveness.used) - 1
    columns: dict[str, list[Int64]] = {name: [np.empty(0, np.int64)] for name in ADDRESSES.columns}
    for placed in memory.addresses:
        order = np.argsort(placed.address, kind="stable")
        count = len(order) + 1
        columns["tile"].append(np.full(count, int(placed.tiles[0])))
        columns["like_tiles"].append(np.full(count, len(placed.tiles)))
        columns["variable"].append(np.append(-1, row_of[placed.variable[order]]))
        columns["address"].append(np.append(0, placed.address[order]))
        columns["bytes"].append(np.append(placed.program_bytes, placed.bytes[order]))
    return ADDRESSES.table(**{name: np.concatenate(each) for name, each in columns.items()})


def lifetimes(memory: MemoryPlan, first_row: Int64, vertex_row: Int64) -> Table:
    """Relation of variables that are not always live, and their rows of the steps table.

    Args:
        memory: The memory plan.
        first_row: First row of each step in the steps table, and the number of rows, int64[steps + 1].
        vertex_row: Row of the vertices of each step, int64[steps].
    """
    live = memory.liveness
    row_of = np.cumsum(live.used) - 1
    first, last = np.where(live.late, vertex_row[live.begin], first_row[live.begin]), first_row[live.end] - 1
    some = first <= last
    return LIFETIMES.table(
        variable=row_of[live.candidates[live.owner]][some], first_step=first[some], last_step=last[some]
    )


def sent_tiles(memory: MemoryPlan, first_row: Int64, vertex_row: Int64, num_tiles: int) -> Table:
    """Relation of variables and the tiles whose shares end before the vertices of the last step of a life.

    Args:
        memory: The memory plan.
        first_row: First row of each step in the steps table, and the number of rows, int64[steps + 1].
        vertex_row: Row of the vertices of each step, int64[steps].
        num_tiles: Tiles of the machine.
    """
    live, shares = memory.liveness, memory.shares
    variable, row_of = live.candidates[live.owner], np.cumsum(live.used) - 1
    lifetime = np.fromiter(live.stays, np.int64, len(live.stays))
    rows = [int(shares.ptr[variable[n]]) + np.flatnonzero(~stays) for n, stays in live.stays.items()]
    owner = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    row = _one(rows)
    runs = joined(
        owner * (num_tiles + 1) + shares.tile[row], np.ones(len(row), dtype=np.int64), bytes=shares.padded_bytes[row]
    )
    made = apart("variable", runs, num_tiles)
    life = lifetime[made["variable"]]
    last = live.end[life] - 1
    return SENT_TILES.table(
        **{**made, "variable": row_of[variable[life]]},
        first_step=vertex_row[last],
        last_step=first_row[last + 1] - 1,
    )


def runs_of_vectors(columns: Mapping[str, Sequence[TileVector | None]], num_tiles: int) -> Runs:
    """Runs of the numbered-through tiles of several vectors, owner after owner; a value of all tiles is one run."""
    first, count = [], []
    values: dict[str, list[Int64]] = {name: [] for name in columns}
    for name, vectors in columns.items():
        rows = TileRows.of(vectors)
        owner = np.repeat(np.arange(len(vectors)), np.diff(rows.ptr))
        everywhere = np.flatnonzero(rows.elsewhere)
        first += [owner * (num_tiles + 1) + rows.tile, everywhere * (num_tiles + 1)]
        count += [np.ones(len(owner), dtype=np.int64), np.full(len(everywhere), num_tiles)]
        own = [rows.value - rows.elsewhere[owner], rows.elsewhere[everywhere]]
        for other in columns:
            # All columns share one list of runs, so each vector adds zeros to the columns of others.
            values[other] += own if other == name else [np.zeros_like(each) for each in own]
    return summed(_one(first), _one(count), **{name: _one(each) for name, each in values.items()})


def apart(owner: str, runs: Runs, num_tiles: int) -> dict[str, Int64]:
    """The columns of a relation from runs of tiles that are numbered through."""
    first, count, values = runs
    return {owner: first // (num_tiles + 1), "first_tile": first % (num_tiles + 1), "num_tiles": count, **values}


def _one(parts: Sequence[Int64]) -> Int64:
    return np.concatenate([np.zeros(0, np.int64), *parts])
