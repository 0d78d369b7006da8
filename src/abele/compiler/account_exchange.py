"""Account of exchanges: bytes between IPUs, over links, and between tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.compiler.account_supersteps import EqualVertices
from abele.compiler.exchange import plan_copy, plan_exchange
from abele.compiler.exchange_blocks import BlockBytes, TileBlocks
from abele.compiler.layout import Layout
from abele.compiler.superstep import Exchanged, Superstep
from abele.compiler.timeline import Part
from abele.compiler.traffic import ExchangePhase
from abele.compiler.uses import field_uses
from abele.graph.graph import Graph
from abele.graph.program import Copy, Execute
from abele.graph.tensor import Tensor
from abele.machine import System
from abele.machine.routes import LINK_KINDS, link_loads
from abele.report import EXCHANGE_BLOCKS, PHASE_IPUS, PHASE_LINKS, Table, Text

BLOCKS_PER_IPU = 32
"""Blocks of tiles per IPU."""
MOST_PLANNED = 32
"""Supersteps that are planned again for the table of blocks."""
MOST_ROWS = 1 << 17
"""Rows of that table, but for those of the last phase in it."""


class PhaseOf(NamedTuple):
    """A phase of a superstep.

    Attributes:
        superstep: Number of the superstep.
        part: Its line of the timeline.
    """

    superstep: int
    part: Part

    @property
    def is_outward(self) -> bool:
        """True for the exchange that sends outputs home."""
        return self.part.name == "send outputs"

    def exchanged(self, plan: Sequence[Superstep]) -> Exchanged | None:
        """The exchange that the phase is, if it is one."""
        if self.part.kind not in ("exchange", "control"):
            return None
        superstep = plan[self.superstep]
        return superstep.after if self.is_outward else superstep.before


def ipu_tables(
    phases: Sequence[PhaseOf], plan: Sequence[Superstep], system: System, whole: System
) -> tuple[Table, Table]:
    """Tables of the bytes between IPUs and over links.

    Args:
        phases: The phases by their numbers.
        plan: The supersteps.
        system: The machine of one replica.
        whole: The machine of all, whose IPUs are numbered where replicas exchange data.
    """
    crossing, carried = [np.empty((4, 0), dtype=np.int64)], [np.empty((5, 0), dtype=np.int64)]
    for number, phase in enumerate(phases):
        exchanged = phase.exchanged(plan)
        if exchanged is None or not len(exchanged.link_bytes.source):
            continue
        pairs = exchanged.link_bytes
        crossing.append(np.stack([np.full(len(pairs.source), number), *pairs]))
        machine = whole if plan[phase.superstep].kind == "cross_replica" else system
        loads = link_loads(*pairs, machine)
        carried.append(np.stack([np.full(len(loads.kind), number), *loads]))
    phase_, source, target, amount = np.concatenate(crossing, axis=1)
    owner, kind, begin, end, load = np.concatenate(carried, axis=1)
    return (
        PHASE_IPUS.table(phase=phase_, source_ipu=source, target_ipu=target, bytes=amount),
        PHASE_LINKS.table(
            phase=owner, kind=Text(kind.astype(np.int32), LINK_KINDS), source_ipu=begin, target_ipu=end, bytes=load
        ),
    )


def exchange_blocks(phases: Sequence[PhaseOf], cycles: Int64, plan: Sequence[Superstep], graph: Graph) -> Table:
    """Table of bytes between sender and receiver tiles, in the phases of most cycles, as far as there is room.

    Args:
        phases: The phases by their numbers.
        cycles: Cycles of all executions of each, int64[phases].
        plan: The supersteps.
        graph: Their graph.
    """
    like = EqualVertices.of(plan)
    tiles_per_ipu = graph.system.ipu.num_tiles
    blocks = TileBlocks.of(graph.num_tiles, tiles_per_ipu, -(-tiles_per_ipu // BLOCKS_PER_IPU))
    found: dict[int, tuple[BlockBytes | None, BlockBytes | None]] = {}
    told: dict[int, tuple[BlockBytes, int]] = {}
    rows = 0
    for number in np.argsort(-cycles, kind="stable").tolist():
        phase = phases[number]
        if phase.exchanged(plan) is None or rows >= MOST_ROWS or not cycles[number]:
            continue
        first = int(like.first[phase.superstep])
        if first not in found:
            if len(found) == MOST_PLANNED:
                continue
            found[first] = planned_blocks(plan[first], graph, blocks)
        pairs = found[first][1 if phase.is_outward else 0]
        if pairs is not None:
            told[number] = pairs, int(like.shift[phase.superstep])
            rows += len(pairs.source)
    columns = [np.empty((4, 0), dtype=np.int64)]
    for number in sorted(told):
        pairs, shift = told[number]
        sides = (blocks.first[pairs.source] + shift, blocks.first[pairs.target] + shift)
        columns.append(np.stack([np.full(len(pairs.source), number), *sides, pairs.bytes]))
    owner, source, target, amount = np.concatenate(columns, axis=1)
    return EXCHANGE_BLOCKS.table(
        phase=owner, source_tile=source, target_tile=target, block_tiles=blocks.width, bytes=amount
    )


def planned_blocks(
    superstep: Superstep, graph: Graph, blocks: TileBlocks
) -> tuple[BlockBytes | None, BlockBytes | None]:
    """Bytes between blocks of tiles before and after the vertices of a superstep, planned again; None where none move.

    Steps of control and copies between replicas have no such plan.
    """
    node, tiles_per_ipu = superstep.node, graph.system.ipu.num_tiles
    # A layout of what the superstep touches will do, and takes a fraction of the time.
    variables = [graph.variables[v] for v in superstep.access.touched.tolist()]
    layout = Layout.of(graph.interval_map(variables), variables, graph.num_tiles)
    if isinstance(node, Execute):
        plan = plan_exchange(field_uses(node.compute_set.groups), layout, tiles_per_ipu, blocks)
    elif isinstance(node, Copy) and isinstance(node.source, Tensor) and isinstance(node.destination, Tensor):
        plan = plan_copy(node.source, node.destination, layout, tiles_per_ipu, blocks)
    else:
        return None, None
    return _blocks(plan.before), _blocks(plan.after)


def _blocks(phase: ExchangePhase | None) -> BlockBytes | None:
    return None if phase is None else phase.blocks
