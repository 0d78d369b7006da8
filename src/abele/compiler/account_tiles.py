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
from abele.compiler.memory import MemoryPlan
from abele.compiler.superstep import Superstep
from abele.compiler.tile_vector import TileRows, TileSet, TileVector
from abele.compiler.timeline import Part
from abele.graph.intervals import distinct
from abele.report import (
    BUFFER_TILES,
    CATEGORIES,
    LIFETIMES,
    PHASE_TILES,
    PROGRAM_TILES,
    VARIABLE_TILES,
    Memory,
    Table,
)
from abele.report.tile_runs import Runs, joined, summed


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
    return PHASE_TILES.table(**_apart("phase", _runs_of_vectors(columns, num_tiles), num_tiles))


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
    return PROGRAM_TILES.table(**_apart("program", everything, num_tiles))


def buffer_tiles(supersteps: Sequence[Superstep], num_tiles: int) -> Table:
    """The relation of supersteps and the tiles on which they need room for data in motion."""
    runs = _runs_of_vectors({"bytes": [s.buffer_bytes for s in supersteps]}, num_tiles)
    return BUFFER_TILES.table(**_apart("superstep", runs, num_tiles))


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
    return VARIABLE_TILES.table(**_apart("variable", runs, num_tiles))


def lifetimes(memory: MemoryPlan, first_row: Int64) -> Table:
    """Relation of variables that are not always live, and their rows of the steps table.

    Args:
        memory: The memory plan.
        first_row: First row of each step in the steps table, and the number of rows, int64[steps + 1].
    """
    live = memory.liveness
    row_of = np.cumsum(live.used) - 1
    first, last = first_row[live.begin], first_row[live.end] - 1
    some = first <= last
    return LIFETIMES.table(
        variable=row_of[live.candidates[live.owner]][some], first_step=first[some], last_step=last[some]
    )


def _runs_of_vectors(columns: Mapping[str, Sequence[TileVector | None]], num_tiles: int) -> Runs:
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


def _apart(owner: str, runs: Runs, num_tiles: int) -> dict[str, Int64]:
    """The columns of a relation from runs of tiles that are numbered through."""
    first, count, values = runs
    return {owner: first // (num_tiles + 1), "first_tile": first % (num_tiles + 1), "num_tiles": count, **values}


def _one(parts: Sequence[Int64]) -> Int64:
    return np.concatenate([np.zeros(0, np.int64), *parts])
