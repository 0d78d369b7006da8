"""Durations: cycles of exchange phases, copies on tiles and host transfers, from the machine's constants."""

from __future__ import annotations

import math

import numpy as np

from abele.compiler.moves import GRANULES, Moves
from abele.compiler.tile_vector import TileSet, TileVector
from abele.compiler.traffic import ExchangePhase, LinkBytes
from abele.errors import StreamMemoryError
from abele.graph.graph import Graph
from abele.machine import Ipu, System
from abele.machine.routes import link_seconds
from abele.words import counted

# Links: the time that traffic between IPUs takes on the busiest bundle of links.


def link_cycles(link_bytes: LinkBytes, system: System) -> int:
    """Tile cycles until the last byte between IPUs has arrived.

    Args:
        link_bytes: Bytes from each IPU to each other.
        system: The machine whose links are used.

    Raises:
        MachineError: The system has no links between two of the IPUs.

    Model: the routes of :mod:`abele.machine.routes`; a directed bundle of links is shared by all that is routed
    through it, and the busiest decides.
    """
    return math.ceil(link_seconds(*link_bytes, system) * system.ipu.clock_hz)


_KIB = 1024
"""Bytes of a KiB, which rates of the machine are given by. Source: §2.6."""


def exchange_cycles_by_tile(phase: ExchangePhase, ipu: Ipu) -> TileVector:
    """Cycles that each tile is busy sending or receiving.

    Model: a tile sends and receives one word per cycle at the same time; what both tiles of a
    pair want arrives at them two words per cycle. Each piece that arrives needs control events of its receiver.
    Source: machine.md §2.1 to 2.3 (PopLibs ExchangeEstimator; fragments after OSM PLANNER_SUGGESTIONS.md).
    """
    exchange = ipu.exchange
    paired = phase.paired_bytes.values
    alone = phase.received_bytes.values - paired
    receiving = -(-alone // exchange.bytes_per_cycle) + -(-paired // exchange.pair_bytes_per_cycle)
    sending = -(-phase.sent_bytes.values // exchange.bytes_per_cycle)
    control = phase.received_fragments.values * exchange.fragment_cycles
    # Sending, receiving and the control events of arriving pieces go on at the same time: the slowest of them counts.
    return TileVector(phase.sent_bytes.tile_set, np.maximum(np.maximum(receiving, sending), control))


def exchange_cycles(phase: ExchangePhase, system: System) -> int:
    """Cycles of one exchange phase, from the end of its sync to the last word received.

    Model: start of the phase, one mean route, the busiest tile, and what crosses between IPUs. What stays on chips is
    exchanged in a phase of its own, which starts anew; its words are counted with those that cross.
    Source: machine.md §2.3: a point-to-point phase of the SDK takes about 170 cycles plus its words.
    """
    exchange = system.ipu.exchange
    busiest = exchange_cycles_by_tile(phase, system.ipu).max()
    if busiest == 0:
        return 0
    across = link_cycles(phase.link_bytes, system)
    start = exchange.phase_overhead_cycles + exchange.route_mean_cycles
    return start * phase.num_phases + max(busiest, across)


def copy_cycles_by_tile(moves: Moves, ipu: Ipu, num_tiles: int) -> TileVector:
    """Cycles that each tile spends on copies within its memory.

    Model: a fixed cost on a tile that copies at all; each contiguous piece costs its bytes at the copy rate plus what
    makes pieces of just 8, 4 or 2 bytes cost what PopLibs' regression says. All six workers share the work.
    Source: machine.md §1.1 (copy rate, fixed cost), §2.6 (regression by width of the pieces).
    """
    tiles = TileSet.of([moves.tile], num_tiles)
    rate = ipu.tile.memcpy_bytes_per_cycle
    # Costs are fractions of cycles, rounded up once per tile: they are added up as whole numbers of this part of one.
    parts = _KIB * rate
    overhead = np.zeros(GRANULES[-1] + 1, dtype=np.int64)
    for granule in GRANULES:
        # The regression gives cycles per KiB of pieces of one width; what exceeds the copy rate is the cost per piece.
        overhead[granule] = max(granule * (ipu.rearrange.cycles_per_kib(granule) * rate - _KIB), 0)
    cost = overhead[moves.granule] * moves.pieces + moves.bytes * _KIB
    busy = tiles.sum(tiles.positions(moves.tile), cost)
    return TileVector(tiles, np.where(busy > 0, ipu.rearrange.local_copy_cycles - (-busy // parts), 0))


def host_cycles(num_bytes: int, num_ipus: int, system: System, *, rendezvous: bool = True) -> int:
    """Tile cycles of one host stream copy of ``num_bytes`` by ``num_ipus`` IPUs.

    Model: a rendezvous with the host, or the last of several, and the bytes at the links' bandwidth. Copies in one
    direction that follow each other meet the host once, for the first of them.
    Source: that Poplar merges neighbouring stream copies is known of it, what a merged one costs is guessed; constants:
    ``HostLink``, ``Sync``.
    """
    seconds = num_bytes / system.host.bandwidth_bytes_per_second(num_ipus)
    if rendezvous:
        meeting = system.ipu.sync.host_seconds + system.host.latency_seconds
        seconds += meeting * system.host.longest_proportion(num_ipus)
    return math.ceil(seconds * system.ipu.clock_hz)


# Remote buffers: time and room of streaming memory.


def remote_cycles(num_bytes: int, num_ipus: int, graph: Graph) -> int:
    """Tile cycles of one copy between tiles and a remote buffer.

    Args:
        num_bytes: Bytes that one replica moves.
        num_ipus: IPUs of one replica that take part.
        graph: The graph, whose replicas move their rows at the same time.

    Model: the latency of the host link, then each IPU's bytes at the rate that it reaches while all that take part use
    the memory of their machine. A system without streaming memory keeps the rows in the host's.
    Source: ``Dram``, ``HostLink``; that both ways have one latency is guessed.
    """
    system, replicas = graph.whole_system, graph.replicas
    if system.dram is None:
        return host_cycles(num_bytes * replicas, num_ipus * replicas, system)
    rate = system.dram_bytes_per_second(_busy_on_machine(num_ipus, graph))
    seconds = system.host.latency_seconds + num_bytes / num_ipus / rate
    return math.ceil(seconds * system.ipu.clock_hz)


def dram_cycles(num_bytes: int, num_ipus: int, graph: Graph) -> int:
    """Tile cycles for which one such copy keeps a machine's streaming memory from others; the host's without any."""
    system = graph.whole_system
    if system.dram is None:
        return host_cycles(num_bytes * graph.replicas, num_ipus * graph.replicas, system, rendezvous=False)
    moved = num_bytes / num_ipus * _busy_on_machine(num_ipus, graph)
    return math.ceil(moved / system.dram.bytes_per_second * system.ipu.clock_hz)


def _busy_on_machine(num_ipus: int, graph: Graph) -> int:
    """IPUs of one machine that take part when ``num_ipus`` of each replica do: small replicas share a machine."""
    dram = graph.whole_system.dram
    assert dram is not None
    replicas = min(graph.replicas, max(1, dram.ipus_per_dram // graph.system.num_ipus))
    return min(dram.ipus_per_dram, num_ipus * replicas)


def check_remote_memory(graph: Graph) -> None:
    """All remote buffers of all replicas fit the streaming memory.

    Raises:
        StreamMemoryError: They do not.
    """
    system, buffers = graph.whole_system, list(graph.remote_buffers.values())
    needed = graph.replicas * sum(b.bytes for b in buffers)
    if system.dram is None or needed <= system.dram_bytes:
        return
    largest = max(buffers, key=lambda b: b.bytes)
    raise StreamMemoryError(
        f"remote buffers need {needed:,} B of streaming memory, {system.name} has {system.dram_bytes:,} B",
        at=largest.debug.location or None,
        because=f"{counted(len(buffers), 'buffer')} in each of {graph.replicas} replicas; the largest is {largest!r}, "
        f"{largest.bytes:,} B",
        remedy="fewer rows, fewer replicas, or a larger system",
    )
