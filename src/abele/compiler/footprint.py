"""Footprint: bytes of vertex state and of code, tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.codelet.layouts import COMPACT_PTR, DELTA_BYTES, FieldLayout
from abele.compiler.cost import record_bytes
from abele.compiler.exchange import ExchangePlan
from abele.compiler.tile_vector import TileSet, TileVector, added
from abele.compiler.traffic import ExchangePhase
from abele.graph.vertices import Edge, VertexGroup
from abele.machine import Exchange, Ipu

if TYPE_CHECKING:
    from abele.codelet import CodeletDef, FieldDef

POINTER_BYTES = 4
"""A pointer of a vertex's state into the memory of its tile. Source: §1.1, addresses have 32 bits."""


def vertex_state_bytes(groups: Sequence[VertexGroup], ipu: Ipu, num_tiles: int) -> TileVector:
    """Bytes of the vertices' own records on each tile.

    Model: what the codelet says of its record, where that is another than its fields make. Otherwise an edge of one
    element is a pointer; a vector what its layout says (a pointer and a size by default); a vector of vectors that for
    the rows, and again for each; elements that are wired one by one a pointer each; scalar state its value, vector
    state its layout and its values. Records are whole words.
    Source: Poplar's vector layouts (poplar_api §6.2); ``abele.codelet.layouts``.
    """
    tiles = TileSet.of([g.tile for g in groups], num_tiles)
    total = tiles.zeros()
    for group in groups:
        size = record_bytes(group, ipu)
        size = _bytes_of_fields(group, ipu) if size is None else size
        total += tiles.sum(tiles.positions(group.tile), -(-size // 4) * 4)
    return TileVector(tiles, total)


def _bytes_of_fields(group: VertexGroup, ipu: Ipu) -> Int64:
    size = np.zeros(group.num, dtype=np.int64)
    for field in group.codelet.fields:
        if field.direction != "state":
            size += _edge_bytes(group.edges[field.name], field, ipu)
            continue
        data = group.state[field.name]
        if data.row_begin is None:
            size += field.type.bytes
        else:
            size += _layout_bytes(field.layout(), ipu) + np.diff(data.row_begin) * field.type.bytes
    return size


def _edge_bytes(edge: Edge, field: FieldDef, ipu: Ipu) -> Int64 | int:
    if not field.rank:
        return POINTER_BYTES
    outer = _layout_bytes(field.layout(), ipu)
    if field.is_scattered:
        return outer + edge.row_sizes * POINTER_BYTES
    if edge.row_begin is None:
        return outer
    each = DELTA_BYTES.get(field.layout().name, _layout_bytes(field.layout(1), ipu))
    return outer + np.diff(edge.row_begin) * each


def _layout_bytes(layout: FieldLayout, ipu: Ipu) -> int:
    return ipu.tile.compact_pointer_bytes if layout == COMPACT_PTR else layout.bytes


def exchange_code_bytes(plan: ExchangePlan, exchange: Exchange, num_tiles: int) -> TileVector:
    """Bytes of exchange instructions of one superstep on each tile.

    Model: a tile that takes part enters the phase and returns from it; each piece that it sends, or that arrives from
    another place than the one before, is an instruction. Source: ``Exchange.message_code_bytes``.
    """
    phases = (p for p in (plan.before, plan.after) if p is not None)
    return added((_phase_code_bytes(p, exchange) for p in phases), num_tiles)


def _phase_code_bytes(phase: ExchangePhase, exchange: Exchange) -> TileVector:
    # A send instruction takes so many words at most: long messages need several.
    longest = exchange.max_words_per_send * exchange.granule_bytes
    fragments = phase.received_fragments.values + phase.sent_fragments.values + phase.sent_bytes.values // longest
    further = np.maximum(fragments - 1, 0) * exchange.fragment_code_bytes
    return TileVector(phase.sent_bytes.tile_set, np.where(fragments > 0, exchange.message_code_bytes + further, 0))


class ExchangeProgram(NamedTuple):
    """Exchange code of equal supersteps on the same tiles.

    Equal supersteps move the same pieces between the same tiles, at the same places of their variables. So they differ
    in where these variables begin, and one program serves all of them that finds each beginning in a register.

    Attributes:
        code: Bytes on each tile.
        num_bases: Variables and buffers that it moves pieces of, at most.
        supersteps: Numbers of the supersteps.
    """

    code: TileVector
    num_bases: int
    supersteps: list[int]

    def placed(self, exchange: Exchange) -> tuple[TileVector, TileVector]:
        """Bytes on each tile of the first of its supersteps, and of each further one.

        Model: a tile has the program once, and for each superstep an instruction that sets the register of each
        variable; or every superstep has a program of its own, where these are shorter.
        Source: sends name their data by the offset from a register (``sendoff``, SAG); that receivers' pointers do, and
        that Poplar shares programs beyond those in functions, is guessed: ``Exchange.base_code_bytes``.
        """
        code, users = self.code, len(self.supersteps)
        setting = np.minimum(code.values, self.num_bases * exchange.base_code_bytes)
        # A tile on which the registers cost more than the code has a program for each superstep.
        is_shared = code.values + users * setting < users * code.values
        first = np.where(is_shared, code.values + setting, code.values)
        further = np.where(is_shared, setting, code.values)
        return TileVector(code.tile_set, first), TileVector(code.tile_set, further)


def control_code_bytes(working: TileVector, exchanges: Sequence[TileVector], ipu: Ipu) -> TileVector:
    """Bytes of control code of one program step on each tile.

    Args:
        working: More than zero on the tiles that have vertices or copies.
        exchanges: For each exchange phase, more than zero on the tiles that take part.
        ipu: The chip.

    Model: a tile that has no part in a step has no code for it: it answers syncs without being told of each (``sans``).
    Source: steps on 1 to 12 tiles have no bytes beyond those of these tiles (POPLINER).
    """
    memory = ipu.tile
    parts = [(working, memory.control_step_bytes), *((phase, memory.control_exchange_bytes) for phase in exchanges)]
    return added((TileVector(v.tile_set, np.where(v.values > 0, size, 0)) for v, size in parts), working.num_tiles)


def code_bytes_of(codelet: CodeletDef) -> int:
    """Bytes of IPU instructions of a codelet.

    Model: what its compiler makes of its meaning, and no less than what hand-written code is known to take.
    """
    from abele.codelet import compile_codelet

    return max(compile_codelet(codelet).code_bytes, codelet.least_code_bytes)


def stack_bytes_of(codelet: CodeletDef, ipu: Ipu) -> int:
    """Bytes of stacks that a tile needs to run a codelet: its supervisor's, and its workers' for compiled code.

    Model: a codelet with a formula of its own is one that is written by hand, and such code keeps to registers.
    Source: the assembly of PL declares a stack usage of 0; sizes of the others are ``TileMemory``'s.
    """
    memory = ipu.tile
    return memory.supervisor_stack_bytes + (0 if codelet.formula else ipu.num_workers * memory.worker_stack_bytes)
