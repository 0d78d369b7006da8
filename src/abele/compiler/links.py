"""Links: the time that traffic between IPUs takes on the busiest bundle of links."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np

from abele.graph.intervals import Int64
from abele.machine import System

_RACK_IPUS = 64

Hop = tuple[int, int]


def link_cycles(link_bytes: Int64, system: System) -> int:
    """Tile cycles until the last byte between IPUs has arrived.

    Args:
        link_bytes: Bytes from each IPU to each other, int64[ipus, ipus].
        system: The machine whose links are used.

    Model: two rails of IPUs, joined by rungs: IPU ``i`` is on rail ``i % 2``, rung ``i // 2``. Traffic crosses the rung
    first, then runs along the rail (the shorter way round on a torus); a directed bundle of links is shared by all that
    is routed through it. Between racks of 64 the gateway links of a machine are shared by its IPUs.
    Source: PL lib/poplibs_test/Util.cpp:360-427 (IPUModel's ladder and routing).
    """
    load: Counter[Hop] = Counter()
    far: Counter[int] = Counter()
    for source, target in np.argwhere(link_bytes):
        amount = int(link_bytes[source, target])
        if system.gateway is not None and source // _RACK_IPUS != target // _RACK_IPUS:
            far[int(source) // system.gateway.ipus_per_machine] += amount
            continue
        for hop in _route(int(source), int(target), system):
            load[hop] += amount
    links = system.ipu_links
    seconds = [n / links.bundle_bytes_per_second(_num_links(hop, system)) for hop, n in load.items()]
    if system.gateway is not None:
        seconds += [n / system.gateway.bytes_per_second for n in far.values()]
    return math.ceil(max(seconds, default=0.0) * system.ipu.clock_hz)


def _route(source: int, target: int, system: System) -> Iterator[Hop]:
    """The directed hops from one IPU to another."""
    at = source
    if source % 2 != target % 2:
        at = source ^ 1
        yield source, at
    rungs = -(-min(system.num_ipus, _RACK_IPUS) // 2)
    steps = target // 2 - at // 2
    if system.ipu_links.topology == "torus" and abs(steps) > rungs // 2:
        steps -= int(math.copysign(rungs, steps))
    rack = at // _RACK_IPUS * _RACK_IPUS
    for _ in range(abs(steps)):
        local = (at - rack) // 2 + (1 if steps > 0 else -1)
        following = rack + local % rungs * 2 + at % 2
        yield at, following
        at = following


def _num_links(hop: Hop, system: System) -> int:
    links = system.ipu_links
    if hop[0] // 2 != hop[1] // 2:
        return links.rail_links
    return links.pair_links if system.num_ipus == 2 else links.cross_links
