"""Links: the time that traffic between IPUs takes on the busiest bundle of links.

Per-bundle sums are enough because the exchange is scheduled statically: all bundles carry their traffic at the same
time, without contention elsewhere, so the phase lasts as long as the bundle that has most to carry. Routing is fixed
(rung first, then rail), so which bundles a pair of IPUs uses is arithmetic, and nothing is searched.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.compiler.traffic import LinkBytes
from abele.graph.intervals import Int64
from abele.machine import System

_RACK_IPUS = 64
"""IPUs that IPU-Links join; beyond, gateway links do. Source: §2.5 (Pod64)."""


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
    """Most bytes that pass between neighbours of a rail in one direction. Source of the rack's size: §2.5."""
    along = np.flatnonzero(source // 2 != target // 2)
    if len(along) == 0:
        return 0
    source, target, amount = source[along], target[along], amount[along]
    bundles: npt.NDArray[np.integer[Any]]
    is_torus = system.ipu_links.topology == "torus"
    if system.gateway is None and system.num_ipus > _RACK_IPUS:
        bundles = _rail_bundles(source, target, _RACK_IPUS, is_torus)
    else:
        bundles = _rack_bundles(min(system.num_ipus, _RACK_IPUS), is_torus)[source % _RACK_IPUS, target % _RACK_IPUS]
    # A rack has fewer than 4 bundles per IPU. Hops that a route does not have are bundle 0, and nothing passes there.
    number = bundles + (source // _RACK_IPUS * (4 * _RACK_IPUS))[:, None]
    return _largest_sum(number.ravel(), np.where(bundles, amount[:, None], 0).ravel())


@lru_cache(maxsize=8)
def _rack_bundles(num_ipus: int, is_torus: bool) -> npt.NDArray[np.int16]:
    """The bundles between each two IPUs of a rack, int16[source, target, hops].

    Made once for each kind of rack: most exchanges on a Pod are between a few IPUs, and to find their routes anew
    each time took longer than the rest of such an exchange.
    """
    everyone = np.arange(num_ipus)
    bundles = _rail_bundles(everyone[:, None], everyone[None, :], num_ipus, is_torus).astype(np.int16)
    bundles.flags.writeable = False
    return bundles


def _rail_bundles(source: Int64, target: Int64, num_ipus: int, is_torus: bool) -> Int64:
    """The directed bundles of links on the way along a rail of a rack, one more axis for the hops.

    Bundles are numbered from 1; 0 stands for the hops that a route does not have.
    """
    rungs = -(-num_ipus // 2)
    steps = target // 2 - source // 2
    if is_torus:
        # On a torus a way of more than half the rail is shorter the other way round.
        steps = np.where(np.abs(steps) > rungs // 2, steps - np.sign(steps) * rungs, steps)
    hop, way = np.arange(np.abs(steps).max(initial=0)), np.sign(steps)[..., None]
    rung = ((source % _RACK_IPUS // 2)[..., None] + way * hop) % rungs
    bundle = 1 + (rung * 2 + target[..., None] % 2) * 2 + (way > 0)
    return np.where(hop < np.abs(steps)[..., None], bundle, 0)


def _largest_sum(number: Int64, amount: Int64) -> int:
    """The largest sum of ``amount`` over entries of one number; 0 where there are none."""
    return int(np.bincount(number, weights=amount, minlength=1).max()) if len(number) else 0
