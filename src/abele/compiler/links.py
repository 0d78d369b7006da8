"""Links: the time that traffic between IPUs takes on the busiest bundle of links.

Per-bundle sums are enough because the exchange is scheduled statically: all bundles carry their traffic at the same
time, without contention elsewhere, so the phase lasts as long as the bundle that has most to carry. Routing is fixed
(rung first, then rail), so which bundles a pair of IPUs uses is arithmetic, and nothing is searched.
"""

from __future__ import annotations

import math

import numpy as np

from abele.compiler.traffic import LinkBytes
from abele.graph.intervals import Int64
from abele.machine import System

_RACK_IPUS = 64


def link_cycles(link_bytes: LinkBytes, system: System) -> int:
    """Tile cycles until the last byte between IPUs has arrived.

    Args:
        link_bytes: Bytes from each IPU to each other.
        system: The machine whose links are used.

    Model: two rails of IPUs, joined by rungs: IPU ``i`` is on rail ``i % 2``, rung ``i // 2``. Traffic crosses the rung
    first, then runs along the rail (the shorter way round on a torus); a directed bundle of links is shared by all that
    is routed through it. Between racks of 64 the gateway links of a machine are shared by its IPUs.
    Source: PL lib/poplibs_test/Util.cpp:360-427 (IPUModel's ladder and routing).
    """
    source, target, amount = link_bytes
    if len(source) == 0:
        return 0
    seconds, gateway = [0.0], system.gateway
    if gateway is not None:
        far = source // _RACK_IPUS != target // _RACK_IPUS
        if far.any():
            busiest = _largest_sum(source[far] // gateway.ipus_per_machine, amount[far])
            seconds.append(busiest / gateway.bytes_per_second)
            source, target, amount = source[~far], target[~far], amount[~far]
    links = system.ipu_links
    across = links.pair_links if system.num_ipus == 2 else links.cross_links
    for busiest, count in (
        (_busiest_rung(source, target, amount), across),
        (_busiest_rail(source, target, amount, system), links.rail_links),
    ):
        seconds.append(busiest / links.bundle_bytes_per_second(count))
    return math.ceil(max(seconds) * system.ipu.clock_hz)


def _busiest_rung(source: Int64, target: Int64, amount: Int64) -> int:
    """Most bytes that cross a rung in one direction: those of an IPU for all that are on the other rail."""
    crossing = source % 2 != target % 2
    return _largest_sum(source[crossing], amount[crossing])


def _busiest_rail(source: Int64, target: Int64, amount: Int64, system: System) -> int:
    """Most bytes that pass between neighbours of a rail in one direction."""
    rungs = -(-min(system.num_ipus, _RACK_IPUS) // 2)
    steps = target // 2 - source // 2
    if system.ipu_links.topology == "torus":
        # On a torus a way of more than half the rail is shorter the other way round.
        steps = np.where(np.abs(steps) > rungs // 2, steps - np.copysign(rungs, steps).astype(np.int64), steps)
    count = np.abs(steps)
    if not count.any():
        return 0
    rack, first = source // _RACK_IPUS, source % _RACK_IPUS // 2
    pair = np.repeat(np.arange(len(count)), count)
    # One entry for each hop of each pair: hop h of a pair leaves the rung h places along its way.
    hop = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
    way = np.sign(steps)[pair]
    rung = (first[pair] + way * hop) % rungs
    # Rack, rung, rail and direction as one number.
    bundle = ((rack[pair] * rungs + rung) * 2 + target[pair] % 2) * 2 + (way > 0)
    return _largest_sum(bundle, amount[pair])


def _largest_sum(number: Int64, amount: Int64) -> int:
    """The largest sum of ``amount`` over entries of one number; 0 where there are none."""
    return int(np.bincount(number, weights=amount, minlength=1).max())
