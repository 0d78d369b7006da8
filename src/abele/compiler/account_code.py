"""Account of code: bytes of vertex state and of code by operation and tile.

What several operations share counts for the first of them: a compute set for the operation that runs it first, a
codelet on a tile for the first that has a vertex of it there, a step of a function for the operation that it is part
of, once. So the sums over operations are the memory categories to the byte.

Operations of equal layers have equal bytes, at times on tiles of another IPU. They share a pattern, which is known by
the columns that the analysis shares between equal supersteps (``equal_steps``); only patterns have rows for tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.compiler.account_tiles import apart, runs_of_vectors
from abele.compiler.footprint import control_code_bytes
from abele.compiler.lower import Lowered
from abele.compiler.superstep import Superstep
from abele.compiler.tile_vector import TileVector
from abele.machine import Ipu
from abele.report import CODE_COLUMNS, CODE_TILES, CODE_USES, Table

Vectors = tuple[TileVector | None, ...]


class CodeTables(NamedTuple):
    """Tables of the report about code, and columns of its operations.

    Attributes:
        code_uses: Supersteps of which each operation has code or state.
        code_tiles: Their bytes by tile.
        of_ops: Bytes over all tiles by name of the column, int64[ops].
    """

    code_uses: Table
    code_tiles: Table
    of_ops: Mapping[str, Int64]


def code_tables(lowered: Lowered, plan: Sequence[Superstep], op_of: Int64, ipu: Ipu, num_tiles: int) -> CodeTables:
    """The tables of state and code by operation and tile.

    Args:
        lowered: The steps.
        plan: Supersteps of these.
        op_of: The operation of each step, int64[steps].
        ipu: The chip.
        num_tiles: Tiles of the machine.
    """
    ops = op_of.tolist()
    owner = {(ops[step.index], number) for number, step in enumerate(lowered.distinct)}
    nodes = _control_nodes(lowered, ops)
    uses = sorted(owner | nodes.keys())
    patterns: dict[tuple[Any, ...], int] = {}
    columns: list[list[TileVector | None]] = [[] for _ in CODE_COLUMNS]
    pattern, shift, base_of = [], [], list[int]()
    for use in uses:
        superstep = plan[use[1]]
        own: Vectors = (superstep.vertex_state, superstep.vertex_code, superstep.exchange_code)
        own = own if use in owner else (None, None, None)
        everywhere = superstep.everywhere and nodes[use] > 0
        likeness, base = _likeness((*own, *(_busy(superstep) if nodes[use] else ())), moves=not everywhere)
        key = nodes[use], everywhere, superstep.is_between_replicas, likeness
        number = patterns.setdefault(key, len(patterns))
        if number == len(base_of):
            base_of.append(base)
            state, code, exchange = own
            control = control_code_bytes(*superstep.control_by_tile(num_tiles), ipu).times(nodes[use])
            for column, vector in zip(columns, (state, code, control, exchange), strict=True):
                column.append(vector)
        pattern.append(number)
        shift.append(base - base_of[number])
    held = [np.array([0 if v is None else v.sum() for v in column], dtype=np.int64) for column in columns]
    op, superstep_of = np.array(uses, dtype=np.int64).reshape(-1, 2).T
    at, num_ops = np.array(pattern, dtype=np.int64), int(op_of.max(initial=-1)) + 1
    some = (np.stack(held)[:, at] > 0).any(axis=0) if len(at) else np.zeros(0, dtype=bool)
    of_ops = {name: _sums(op, sizes[at], num_ops) for name, sizes in zip(CODE_COLUMNS, held, strict=True)}
    names = [name.removesuffix("_bytes") for name in CODE_COLUMNS]
    runs = runs_of_vectors(dict(zip(names, columns, strict=True)), num_tiles)
    return CodeTables(
        CODE_USES.table(
            op=op[some], superstep=superstep_of[some], pattern=at[some], shift_tiles=np.array(shift, np.int64)[some]
        ),
        CODE_TILES.table(**apart("pattern", runs, num_tiles)),
        of_ops,
    )


def _control_nodes(lowered: Lowered, ops: Sequence[int]) -> Counter[tuple[int, int]]:
    """Program nodes whose control code each operation has for each superstep; those of a function count once."""
    first: dict[int, tuple[int, int]] = {}
    for step in lowered.steps:
        first.setdefault(id(step.node), (ops[step.index], step.superstep))
    return Counter(first.values())


def _busy(superstep: Superstep) -> Vectors:
    """Vectors of the tiles with a part in a superstep."""
    parts = [None if p is None else p.by_tile for p in (superstep.gather, superstep.compute, superstep.scatter)]
    for phase in (superstep.before, superstep.after):
        parts += [None, None] if phase is None else [phase.received_bytes, phase.sent_bytes]
    return tuple(parts)


def _likeness(vectors: Vectors, *, moves: bool) -> tuple[tuple[Any, ...], int]:
    """Key that vectors of equal supersteps have in common wherever these lie, and the first tile of them.

    Numbers of all other tiles, and vectors over all tiles, cannot lie elsewhere: such supersteps begin at tile 0.
    """
    found = [v for v in vectors if v is not None]
    moves = moves and not any(v.elsewhere or v.tile_set.is_all for v in found)
    base = min((v.first_tile for v in found if len(v.tile_set)), default=0) if moves else 0
    return tuple(None if v is None else (id(v.values), v.first_tile - base) for v in vectors), base


def _sums(op: Int64, sizes: Int64, num_ops: int) -> Int64:
    total = np.zeros(num_ops, dtype=np.int64)
    np.add.at(total, op, sizes)
    return total
