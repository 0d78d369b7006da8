"""Programs of made-up reports: tree, supersteps, whole runs, and senders and receivers."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.report import Table
from abele.report.schema import (
    CODELETS,
    EXCHANGE_BLOCKS,
    PHASE_IPUS,
    PHASE_LINKS,
    PROGRAM_TREE,
    RUN_LOOPS,
    RUN_SPANS,
    STEP_KINDS,
    SUPERSTEP_VARIABLES,
    SUPERSTEPS,
    VERTICES,
)
from abele.report.text_column import Text

_NODE_KINDS = ("Program", "Sequence", "Repeat", "LibraryCall", "Execute", "Copy", "StreamCopy", "If")
_SUPERSTEP_KINDS = ("execute", "copy", "copy", "stream_in", "decide")
_NUM_CODELETS = 40
_BLOCK_TILES = 46
_MOST_BLOCKED = 200
"""Number of phases whose senders and receivers are told."""


def program_tree(steps: Table, ops: Table, stage: Int64, trips: int) -> Table:
    """A Repeat for each stage, in it a library call for each operation, in that a node for each step.

    Args:
        steps: The steps.
        ops: The operations.
        stage: Stage of each step, -1 for none, int64[steps].
        trips: Of each Repeat.
    """
    count = len(steps)
    rows = np.arange(count)
    program, op = steps["program"].astype(np.int64), steps["op"].astype(np.int64)
    inside = np.where(stage >= 0, 2, 0)
    roots = _first_of(program)
    stages = _first_of(np.where(stage >= 0, stage, -2 - program))
    stages = stages[stage[stages] >= 0]
    calls = _first_of(op)
    # A node stands before another if its first step comes first, or is the same and it lies further out.
    first = np.concatenate([roots, roots, stages, stages, calls, rows])
    depth = np.concatenate([roots * 0, roots * 0 + 1, stages * 0 + 2, stages * 0 + 3, 2 + inside[calls], 3 + inside])
    leaf = np.array([4, 5, 5, 6, 7])[_codes(steps.columns["kind"])]
    kind = np.concatenate([roots * 0, roots * 0 + 1, stages * 0 + 2, stages * 0 + 1, calls * 0 + 3, leaf])
    order = np.lexsort((depth, first))
    first, depth, kind = first[order], depth[order], kind[order]
    parent = np.full(len(first), -1, np.int64)
    for level in range(1, int(depth.max()) + 1):
        mine, outer = np.flatnonzero(depth == level), np.flatnonzero(depth == level - 1)
        parent[mine] = outer[np.searchsorted(outer, mine) - 1]
    after = np.full(len(first), count)
    for level in range(int(depth.max()) + 1):
        here = np.flatnonzero(depth <= level)
        ends = np.append(first[here][1:], count)
        mine = depth[here] == level
        after[here[mine]] = ends[mine]
    step_names, op_names = steps["name"], ops["name"]
    name = np.where(kind >= 4, step_names[first], op_names[op[first]])
    name[kind <= 2] = np.array(["program", "sequence", "repeat"], dtype=object)[kind[kind <= 2]]
    return PROGRAM_TREE.table(
        parent=parent,
        kind=Text(kind.astype(np.int32), _NODE_KINDS),
        name=name,
        file=ops["file"][op[first]],
        line=ops["line"][op[first]],
        count=np.where(kind == 2, trips, 1),
        op=np.where(kind >= 3, op[first], -1),
        first_step=first,
        num_steps=after - first,
    )


def _first_of(values: Int64) -> Int64:
    """Indices of values that differ from the one before."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1]))


def _codes(column: Any) -> Int64:
    """Codes of a column of kinds of steps, as STEP_KINDS has them."""
    return np.array([STEP_KINDS.index(word) for word in column.words])[column.codes]


def supersteps(steps: Table, ops: Table, buffer_bytes: Int64) -> Table:
    """One for each step.

    Args:
        steps: The steps.
        ops: The operations.
        buffer_bytes: For data in motion, int64[steps].
    """
    names: Any = steps.columns["name"]
    return SUPERSTEPS.table(
        name=names,
        kind=Text(_codes(steps.columns["kind"]).astype(np.int32), _SUPERSTEP_KINDS),
        file=ops["file"][steps["op"]],
        line=ops["line"][steps["op"]],
        num_vertices=steps["num_vertices"],
        num_edges=4 * steps["num_vertices"],
        vertex_state_bytes=24 * steps["num_vertices"],
        exchange_code_bytes=steps["exchanged_bytes"] // 16,
        buffer_bytes=buffer_bytes,
    )


def codelets(tiles: int) -> Table:
    """Some codelets on all tiles."""
    numbers = np.arange(_NUM_CODELETS)
    return CODELETS.table(
        name=[f"Codelet{i}" for i in range(_NUM_CODELETS)],
        kind=Text((numbers % 3).astype(np.int32), ("vertex", "multi", "supervisor")),
        file="vertices.py",
        line=10 + 20 * numbers,
        code_bytes=64 + numbers * 24,
        stack_bytes=128,
        tiles=tiles,
    )


def vertices(steps: Table, first_tile: Int64) -> Table:
    """One codelet for each step that computes.

    Args:
        steps: The steps.
        first_tile: A tile of each, int64[steps].
    """
    rows = np.flatnonzero(steps["num_vertices"])
    return VERTICES.table(
        superstep=rows,
        codelet=rows % _NUM_CODELETS,
        num_vertices=steps["num_vertices"][rows],
        tiles=steps["active_tiles"][rows],
        state_bytes=24 * steps["num_vertices"][rows],
        cycles=steps["num_vertices"][rows] * steps["compute_cycles"][rows] // 2,
        max_cycles=steps["compute_cycles"][rows],
        slowest_tile=first_tile[rows],
        assumed=rows % 9 == 0,
        file="model/transformer.py",
        line=10 + rows % 300,
    )


def superstep_variables(variables: Table, num_steps: int) -> Table:
    """Accesses of variables: written where they are born, read where they die; of weights, one step in some reads."""
    rows = np.arange(len(variables))
    alive = variables["first_step"] >= 0
    size = variables["bytes"]
    step = np.concatenate([variables["first_step"][alive], variables["last_step"][alive], rows[~alive] % num_steps])
    variable = np.concatenate([rows[alive], rows[alive], rows[~alive]])
    read = np.concatenate([size[alive] * 0, size[alive], size[~alive]])
    written = np.concatenate([size[alive], size[alive] * 0, size[~alive] * 0])
    # A variable may die where it was born: one row that does both.
    pair, place = np.unique(step.astype(np.int64) * len(variables) + variable, return_inverse=True)
    sums = [np.bincount(place, column).astype(np.int64) for column in (read, written)]
    return SUPERSTEP_VARIABLES.table(
        superstep=pair // len(variables), variable=pair % len(variables), read_bytes=sums[0], written_bytes=sums[1]
    )


def whole_runs(steps: Table, stage: Int64, trips: int, periods: Int64) -> tuple[Table, Table]:
    """Every execution of every step: a loop for each stage.

    Args:
        steps: The steps.
        stage: Stage of each step, -1 for none, int64[steps].
        trips: Of each loop.
        periods: Cycles from trip to trip of each stage, int64[stages].
    """
    program = steps["program"].astype(np.int64)
    order = np.lexsort((steps["start_cycle"], program))
    alone = stage >= 0
    groups = len(periods)
    spans = RUN_SPANS.table(
        program=program[order],
        step=order,
        first_group=np.where(alone, stage, program * groups)[order],
        num_groups=np.where(alone, 1, groups)[order],
        start_cycle=steps["start_cycle"][order],
        cycles=steps["cycles"][order],
        loop=np.where(alone, stage, -1)[order],
    )
    return spans, RUN_LOOPS.table(parent=np.full(groups, -1), trips=trips, period_cycles=periods)


def between_ipus(steps: Table, stage: Int64, num_ipus: int) -> tuple[Table, Table]:
    """Traffic between IPUs: from stage to stage in some steps, round in a ring in those of all IPUs; and its links."""
    moves = np.flatnonzero((steps["exchanged_bytes"] > 0) & (steps["kind"] == "exchange"))
    if num_ipus == 1:
        return PHASE_IPUS.empty(), PHASE_LINKS.empty()
    own = moves[(stage[moves] >= 0) & (stage[moves] < num_ipus - 1) & (moves % 10 == 0)]
    shared = np.repeat(moves[stage[moves] < 0], num_ipus)
    source = np.concatenate([stage[own], np.arange(len(shared)) % num_ipus])
    phase = np.concatenate([own, shared])
    order = np.lexsort((source, phase))
    phase, source = phase[order], source[order]
    target = (source + 1) % num_ipus
    sent = steps["exchanged_bytes"][phase] // np.where(stage[phase] >= 0, 4, num_ipus)
    ends: dict[str, Any] = {"phase": phase, "source_ipu": source, "target_ipu": target, "bytes": sent}
    pair = (source // 2 == target // 2).astype(np.int32)
    return PHASE_IPUS.table(**ends), PHASE_LINKS.table(**ends, kind=Text(1 - pair, ("rung", "rail")))


def exchange_blocks(rng: np.random.Generator, steps: Table, stage: Int64, tiles_per_ipu: int, times: Int64) -> Table:
    """Senders and receivers in the phases with most time, each block to every block of its IPU.

    Args:
        rng: Random numbers.
        steps: The steps.
        stage: Stage of each step, -1 for none, int64[steps].
        tiles_per_ipu: Tiles of an IPU.
        times: Executions of each step, int64[steps].
    """
    cost = np.where((stage >= 0) & (steps["exchanged_bytes"] > 0), steps["exchange_cycles"] * times, 0)
    phases = np.sort(np.argsort(cost, kind="stable")[::-1][:_MOST_BLOCKED])
    phases = phases[cost[phases] > 0]
    blocks = tiles_per_ipu // _BLOCK_TILES
    phase = np.repeat(phases, blocks * blocks)
    pair = np.tile(np.arange(blocks * blocks), len(phases))
    begin = stage[phase] * tiles_per_ipu
    return EXCHANGE_BLOCKS.table(
        phase=phase,
        source_tile=begin + pair // blocks * _BLOCK_TILES,
        target_tile=begin + pair % blocks * _BLOCK_TILES,
        block_tiles=_BLOCK_TILES,
        bytes=(steps["exchanged_bytes"][phase] // blocks**2 * rng.uniform(0, 2, len(phase))).astype(np.int64) & ~3,
    )
