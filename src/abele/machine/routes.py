"""Routes between IPUs, and how long traffic takes on the busiest bundle of links.

Two rails of IPUs are joined by rungs: IPU ``i`` of a rack is on rail ``i % 2``, rung ``i // 2``. Traffic crosses the
rung first, then runs along the rail (the shorter way round on a torus). Racks lie on a ring of gateway links, each
machine of a rack joined with the machine at the same place of the next; traffic takes the shorter way round and enters
the other rack at the place where it left its own. Routing is fixed, so which bundles a pair of IPUs uses is arithmetic,
and nothing is searched. An exchange is scheduled statically: all bundles carry their traffic at the same time, so it
lasts as long as the bundle that has most to carry.
Source: IPUModel's ladder and routing, PL lib/poplibs_test/Util.cpp:360-427; racks and gateway ring: §2.5. That gateway
traffic keeps its place is assumed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import MachineError
from abele.machine.system import System
from abele.words import counted


def link_seconds(source: Int64, target: Int64, amount: Int64, system: System) -> float:
    """Seconds until the last byte between IPUs has arrived.

    Args:
        source: Sending IPUs, int64[n].
        target: Receiving IPUs, each another than its sender, int64[n].
        amount: Bytes from one to the other, int64[n].
        system: The machine whose links are used.

    Raises:
        MachineError: The system has no links between two of the IPUs.
    """
    if len(source) == 0:
        return 0.0
    rack = system.ipu_links.ipus_per_rack
    far = source // rack != target // rack
    seconds = 0.0
    if far.any():
        seconds = _gateway_seconds(source[far], target[far], amount[far], system)
        source = np.where(far, _entry(source, target, system), source)
        inside = source != target
        source, target, amount = source[inside], target[inside], amount[inside]
    return max(seconds, _rung_seconds(source, target, amount, system), _rail_seconds(source, target, amount, system))


class LinkLoads(NamedTuple):
    """Bytes over each bundle of links, for those that carry any.

    Attributes:
        kind: 0 for a rung, 1 for a rail, 2 for a gateway link; int64[n].
        source: IPU that sends, or the first of the machine that does, int64[n].
        target: IPU, or first of a machine, that receives, int64[n].
        bytes: Bytes that are sent, int64[n].
    """

    kind: Int64
    source: Int64
    target: Int64
    bytes: Int64


LINK_KINDS = ("rung", "rail", "gateway")
"""Kinds of links: between IPUs of a pair, neighbours on a rail, machines of neighbouring racks."""


def link_loads(source: Int64, target: Int64, amount: Int64, system: System) -> LinkLoads:
    """Bytes over each directed bundle of links for some traffic, in order of kinds and IPUs; arguments as above."""
    rack, lines = system.ipu_links.ipus_per_rack, [np.empty((4, 0), dtype=np.int64)]
    far = source // rack != target // rack
    if far.any() and system.gateway is not None:
        bundle, carried = _gateway_traffic(source[far], target[far], amount[far], system)
        each = system.gateway.ipus_per_machine
        machines, racks = -(-rack // each), -(-system.num_ipus // rack)
        machine, way = bundle // 2 % machines, bundle % 2
        at = bundle // 2 // machines
        # The number of a bundle has its way, but with two racks, where both ways lead to the other one.
        onward = (at + np.where((way == 0) & (racks > 2), -1, 1)) % racks
        lines.append(_loads(2, at * rack + machine * each, onward * rack + machine * each, carried))
        source = np.where(far, _entry(source, target, system), source)
    inside = np.flatnonzero(source != target)
    source, target, amount = source[inside], target[inside], amount[inside]
    crossing = source % 2 != target % 2
    lines.append(_loads(0, source[crossing], source[crossing] ^ 1, amount[crossing]))
    along = source // 2 != target // 2
    number, carried = _rail_traffic(source[along], target[along], amount[along], system)
    place = number % (4 * rack) - 1
    ipu, way = number // (4 * rack) * rack + place // 2, np.where(place % 2, 2, -2)
    size = min(system.num_ipus, rack)
    # Only a torus has rails that go round.
    onward = ipu // rack * rack + (ipu % rack + way) % (2 * (-(-size // 2)))
    lines.append(_loads(1, ipu, onward, carried))
    return LinkLoads(*np.concatenate(lines, axis=1)[:, np.lexsort(np.concatenate(lines, axis=1)[2::-1])])


def _loads(kind: int, source: Int64, target: Int64, amount: Int64) -> Int64:
    """Kind, IPUs and bytes of each bundle that carries anything, int64[4, n]."""
    some = np.flatnonzero(amount)
    ends, number = np.unique(np.stack([source[some], target[some]]), axis=1, return_inverse=True)
    total = np.bincount(number.ravel(), weights=amount[some], minlength=ends.shape[1]).astype(np.int64)
    return np.stack([np.full(ends.shape[1], kind), *ends, total]).astype(np.int64)


def check_joined(ipus: Int64, system: System, user: str) -> None:
    """Refuse to let IPUs exchange data that no links join.

    Args:
        ipus: Those that exchange data with each other, int64[n].
        system: The machine.
        user: Name of the traffic in errors.

    Raises:
        MachineError: Links are missing; it names the fields of a system's description.
    """
    if len(ipus) < 2 or ipus.min() == ipus.max():
        return
    links, rack = system.ipu_links, system.ipu_links.ipus_per_rack
    needed = {"IpuLinks.link_bytes_per_second": links.link_bytes_per_second, **_bundles_needed(ipus, system)}
    missing = [name for name, value in needed.items() if not value]
    if links.topology == "none":
        missing = ["IpuLinks.topology = 'none'"]
    if missing:
        raise MachineError(
            f"{system.name}: {user} needs links between IPUs {ipus.min()} and {ipus.max()}, and there are none",
            because=missing[0] if "none" in missing[0] else f"{missing[0]} is 0",
            remedy="give ipu_links a topology, links and a rate; or run replicas that exchange nothing",
        )
    if system.gateway is None and len(np.unique(ipus // rack)) > 1:
        raise MachineError(
            f"{system.name}: {user} goes between racks, and the system has no gateway links",
            because=f"IPU-Links join {counted(rack, 'IPU')}; it is among IPUs {ipus.min()} to {ipus.max()}",
            remedy="give the system a gateway, or groups of replicas that stay in a rack",
        )


def _bundles_needed(ipus: Int64, system: System) -> dict[str, int]:
    links, place = system.ipu_links, ipus % system.ipu_links.ipus_per_rack
    needed = {}
    if len(np.unique(place % 2)) > 1:
        name = _across(system)
        needed[f"IpuLinks.{name}"] = getattr(links, name)
    if len(np.unique(place // 2)) > 1:
        needed["IpuLinks.rail_links"] = links.rail_links
    return needed


def shorter_way(steps: Int64, around: int) -> Int64:
    """Signed steps on a ring of ``around`` places, the shorter way; half of it keeps its sign."""
    return np.asarray(np.where(np.abs(steps) > around // 2, steps - np.sign(steps) * around, steps), np.int64)


def _entry(source: Int64, target: Int64, system: System) -> Int64:
    """IPU at which traffic from another rack enters: the target if its machine is at the sender's place."""
    assert system.gateway is not None
    rack, each = system.ipu_links.ipus_per_rack, system.gateway.ipus_per_machine
    same = source % rack // each == target % rack // each
    return np.asarray(np.where(same, target, target // rack * rack + source % rack), np.int64)


def _gateway_seconds(source: Int64, target: Int64, amount: Int64, system: System) -> float:
    """Time of traffic between racks: the latency of its hops, and the busiest gateway link or way to it."""
    gateway, rack = system.gateway, system.ipu_links.ipus_per_rack
    if gateway is None:
        raise MachineError(
            f"{system.name}: IPUs {source[0]} and {target[0]} are in different racks, and the system has no gateway",
            because=f"IPU-Links join {counted(rack, 'IPU')}",
            remedy="give the system a gateway, or fewer IPUs",
        )
    racks = -(-system.num_ipus // rack)
    ways, hops = _ways(racks), np.abs(shorter_way(target // rack - source // rack, racks)).max()
    rate = gateway.bytes_per_second * gateway.efficiency_proportion / ways
    busiest = _largest_sum(*_gateway_traffic(source, target, amount, system)) / rate
    into = _entry(source, target, system)
    port = max(_largest_sum(source, amount), _largest_sum(into, amount)) / system.host.ipu_bytes_per_second
    return float(int(hops) * gateway.hop_seconds + max(busiest, port))


def _ways(racks: int) -> int:
    """Ways round the ring of racks; with two racks all links of a machine lead to the other one."""
    return 1 if racks == 2 else 2


def _gateway_traffic(source: Int64, target: Int64, amount: Int64, system: System) -> tuple[Int64, Int64]:
    """Gateway bundles that traffic between racks goes through, and bytes, int64[k] each; some carry none."""
    gateway, rack = system.gateway, system.ipu_links.ipus_per_rack
    assert gateway is not None
    racks = -(-system.num_ipus // rack)
    steps = shorter_way(target // rack - source // rack, racks)
    machine, machines = source % rack // gateway.ipus_per_machine, -(-rack // gateway.ipus_per_machine)
    hop, way = np.arange(int(np.abs(steps).max())), np.sign(steps)
    at = ((source // rack)[:, None] + way[:, None] * hop) % racks
    bundle = (at * machines + machine[:, None]) * 2 + ((way > 0) & (_ways(racks) == 2))[:, None]
    carried = np.asarray(np.where(hop < np.abs(steps)[:, None], amount[:, None], 0), np.int64)
    return bundle.astype(np.int64).ravel(), carried.ravel()


def _rung_seconds(source: Int64, target: Int64, amount: Int64, system: System) -> float:
    """Time of the rung with most traffic: bytes of an IPU for all on the other rail."""
    crossing = source % 2 != target % 2
    name = _across(system)
    busiest = _largest_sum(source[crossing], amount[crossing])
    return _seconds(busiest, getattr(system.ipu_links, name), name, system)


def _across(system: System) -> str:
    """The field with the links between the IPUs of a rung."""
    return "pair_links" if system.num_ipus == 2 else "cross_links"


def _rail_seconds(source: Int64, target: Int64, amount: Int64, system: System) -> float:
    """Time of the busiest bundle between neighbours of a rail."""
    along = np.flatnonzero(source // 2 != target // 2)
    if len(along) == 0:
        return 0.0
    busiest = _largest_sum(*_rail_traffic(source[along], target[along], amount[along], system))
    return _seconds(busiest, system.ipu_links.rail_links, "rail_links", system)


def _rail_traffic(source: Int64, target: Int64, amount: Int64, system: System) -> tuple[Int64, Int64]:
    """Bundles between neighbours of a rail that traffic goes through, and bytes, int64[k] each; some carry none."""
    links = system.ipu_links
    rack = links.ipus_per_rack
    table = _rack_bundles(min(system.num_ipus, rack), links.topology == "torus")
    bundles = table[source % rack, target % rack]
    # A rack has fewer than 4 bundles per IPU. Hops that a route does not have are bundle 0, and nothing passes there.
    number = bundles + (source // rack * (4 * rack))[:, None]
    return number.ravel(), np.where(bundles, amount[:, None], 0).ravel()


def _seconds(amount: int, num_links: int, name: str, system: System) -> float:
    rate = system.ipu_links.bundle_bytes_per_second(num_links)
    if amount and not rate:
        raise MachineError(
            f"{system.name}: data goes between IPUs that no links join",
            because=f"IpuLinks.{name} or its rate is 0",
            remedy="give ipu_links this bundle, or fewer IPUs",
        )
    return amount / rate if amount else 0.0


@lru_cache(maxsize=8)
def _rack_bundles(num_ipus: int, is_torus: bool) -> npt.NDArray[np.int16]:
    """Bundles between each two IPUs of a rack, int16[source, target, hops]; 0 is no hop.

    Made once for each kind of rack: most exchanges on a Pod are between a few IPUs, and to find their routes anew
    each time took longer than the rest of such an exchange.
    """
    everyone = np.arange(num_ipus)
    source, target = everyone[:, None], everyone[None, :]
    rungs = -(-num_ipus // 2)
    steps = target // 2 - source // 2
    if is_torus:
        steps = shorter_way(steps, rungs)
    hop, way = np.arange(np.abs(steps).max(initial=0)), np.sign(steps)[..., None]
    rung = ((source // 2)[..., None] + way * hop) % rungs
    bundle = 1 + (rung * 2 + target[..., None] % 2) * 2 + (way > 0)
    bundles = np.where(hop < np.abs(steps)[..., None], bundle, 0).astype(np.int16)
    bundles.flags.writeable = False
    return bundles


def _largest_sum(number: npt.NDArray[np.integer[Any]], amount: Int64) -> int:
    """The largest sum of ``amount`` over entries of one number; 0 where there are none."""
    return int(np.bincount(number, weights=amount, minlength=1).max()) if len(number) else 0
