"""Durations: cycles of exchange phases, copies on tiles and host transfers, from the machine's constants."""

from __future__ import annotations

import math

import numpy as np

from abele.compiler.links import link_cycles
from abele.compiler.traffic import Moves, Phase
from abele.graph.intervals import Int64
from abele.machine import Ipu, System

_KIB = 1024


def exchange_cycles_by_tile(phase: Phase, ipu: Ipu) -> Int64:
    """Cycles that each tile is busy sending or receiving, int64[tiles].

    Model: a tile sends and receives one word per cycle at the same time; what both tiles of a
    pair want arrives at them two words per cycle. Each piece that arrives needs control events of its receiver.
    Source: machine.md §2.1 to 2.3 (PopLibs ExchangeEstimator; fragments after OSM PLANNER_SUGGESTIONS.md).
    """
    exchange = ipu.exchange
    alone = phase.received_bytes - phase.paired_bytes
    receiving = -(-alone // exchange.bytes_per_cycle) + -(-phase.paired_bytes // exchange.pair_bytes_per_cycle)
    sending = -(-phase.sent_bytes // exchange.bytes_per_cycle)
    control = phase.received_fragments * exchange.fragment_cycles
    return np.asarray(np.maximum(np.maximum(receiving, sending), control), dtype=np.int64)


def exchange_cycles(phase: Phase, system: System) -> int:
    """Cycles of one exchange phase, from the end of its sync to the last word received.

    Model: start of the phase, one mean route, the busiest tile, and what crosses between IPUs.
    Source: machine.md §2.3: a point-to-point phase of the SDK takes about 170 cycles plus its words.
    """
    exchange = system.ipu.exchange
    busiest = int(exchange_cycles_by_tile(phase, system.ipu).max(initial=0))
    if busiest == 0:
        return 0
    across = link_cycles(phase.link_bytes, system) if phase.link_bytes.any() else 0
    return exchange.phase_overhead_cycles + exchange.route_mean_cycles + max(busiest, across)


def copy_cycles_by_tile(moves: Moves, ipu: Ipu, num_tiles: int) -> Int64:
    """Cycles that each tile spends on copies within its memory, int64[num_tiles].

    Model: a fixed cost on a tile that copies at all; each contiguous piece costs its bytes at the copy rate plus what
    makes pieces of just 8, 4 or 2 bytes cost what PopLibs' regression says. All six workers share the work.
    Source: machine.md §1.1 (copy rate, fixed cost), §2.6 (regression by width of the pieces).
    """
    result = np.zeros(num_tiles, dtype=np.int64)
    if len(moves.tile) == 0:
        return result
    rate = ipu.tile.memcpy_bytes_per_cycle
    overhead = np.zeros(9)
    for granule in (1, 2, 4, 8):
        overhead[granule] = max(ipu.rearrange.cycles_per_kib(granule) * granule / _KIB - granule / rate, 0.0)
    cost = overhead[moves.granule] + moves.bytes / rate
    busy = np.bincount(moves.tile, weights=cost, minlength=num_tiles)
    return np.where(busy > 0, ipu.rearrange.local_copy_cycles + np.ceil(busy), 0).astype(np.int64)


def host_cycles(num_bytes: int, num_ipus: int, system: System, *, rendezvous: bool = True) -> int:
    """Tile cycles of one host stream copy of ``num_bytes`` by ``num_ipus`` IPUs.

    Model: a rendezvous with the host, and the bytes at the links' bandwidth. Copies in one direction that follow each
    other meet the host once, for the first of them.
    Source: that Poplar merges neighbouring stream copies is known of it, what a merged one costs is guessed; constants:
    ``HostLink``, ``Sync``.
    """
    seconds = num_bytes / system.host.bandwidth_bytes_per_second(num_ipus)
    if rendezvous:
        seconds += system.ipu.sync.host_seconds + system.host.latency_seconds
    return math.ceil(seconds * system.ipu.clock_hz)
