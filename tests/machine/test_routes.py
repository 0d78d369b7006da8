"""Routes and the busiest bundle, against hand computation."""

from __future__ import annotations

import numpy as np
import pytest

from abele.errors import MachineError
from abele.machine import System, systems
from abele.machine.routes import check_joined, link_seconds

RAIL = systems.get("bow-2000").ipu_links.bundle_bytes_per_second(2)
"""Two links of a rail or a rung."""
MB = 10**6


def seconds(system: System, *traffic: tuple[int, int, int]) -> float:
    source, target, amount = np.array(traffic, dtype=np.int64).T
    return link_seconds(source, target, amount, system)


def test_link_seconds__ladder__crosses_the_rung_first_and_shares_the_rail() -> None:
    m2000 = systems.get("m2000")
    assert seconds(m2000, (0, 2, MB)) == pytest.approx(MB / RAIL)
    assert seconds(m2000, (0, 1, MB)) == pytest.approx(MB / RAIL)
    # 1 → 2 crosses to rail 0 and goes up with 0 → 2.
    assert seconds(m2000, (0, 2, MB), (1, 2, MB)) == pytest.approx(2 * MB / RAIL)
    # The ring 0 2 3 1 has every hop on a bundle of its own.
    assert seconds(m2000, (0, 2, MB), (2, 3, MB), (3, 1, MB), (1, 0, MB)) == pytest.approx(MB / RAIL)
    # In the order of numbers, 1 → 2 and 3 → 0 go over rails and rungs that others use.
    assert seconds(m2000, (0, 1, MB), (1, 2, MB), (2, 3, MB), (3, 0, MB)) == pytest.approx(MB / RAIL)
    assert seconds(m2000, (0, 3, MB), (1, 3, MB), (2, 3, MB)) == pytest.approx(2 * MB / RAIL)


def test_link_seconds__torus_of_a_pod64__closes_the_rails() -> None:
    pod = systems.get("bow-pod64")
    # Rung 31 to rung 0 is one hop, which no other hop of the ring uses.
    ring = [(2 * r, 2 * ((r + 1) % 32), MB) for r in range(32)]
    assert seconds(pod, *ring) == pytest.approx(MB / RAIL)
    # On the open ladder of a part, the last hop goes all the way back, against the others: still one each.
    part = pod.with_ipus(32)
    assert part.ipu_links.topology == "ladder"
    open_ring = [(2 * r, 2 * ((r + 1) % 16), MB) for r in range(16)]
    assert seconds(part, *open_ring) == pytest.approx(MB / RAIL)
    both = [*open_ring, *((b, a, n) for a, b, n in open_ring)]
    assert seconds(part, *both) == pytest.approx(2 * MB / RAIL)
    assert seconds(pod, *ring, *((b, a, n) for a, b, n in ring)) == pytest.approx(MB / RAIL)


def test_link_seconds__gateway_ring__hops_over_racks_and_shares_a_machines_links() -> None:
    pod = systems.get("bow-pod256")
    assert pod.gateway is not None
    half, hop = pod.gateway.bytes_per_second * pod.gateway.efficiency_proportion / 2, pod.gateway.hop_seconds
    assert seconds(pod, (0, 64, MB)) == pytest.approx(MB / half + hop)
    assert seconds(pod, (0, 192, MB)) == pytest.approx(MB / half + hop)
    # Opposite racks: two hops, of which the second is shared with what starts in between.
    assert seconds(pod, (0, 128, MB), (65, 129, MB)) == pytest.approx(2 * MB / half + 2 * hop)
    # Other machines have links of their own.
    assert seconds(pod, (0, 64, MB), (4, 68, MB)) == pytest.approx(MB / half + hop)
    assert seconds(pod, (0, 64, MB), (1, 65, MB)) == pytest.approx(2 * MB / half + hop)
    two = pod.with_ipus(128)
    # Of two racks, all links lead to the other; one IPU's way to its gateway is narrower than these.
    assert seconds(two, (0, 64, MB)) == pytest.approx(MB / two.host.ipu_bytes_per_second + hop)
    assert seconds(two, *((i, 64 + i, MB) for i in range(4))) == pytest.approx(4 * MB / (2 * half) + hop)
    # To another place of the rack it goes on over IPU-Links, which may be the busiest.
    many = [(4 * m, 64 + 2, MB) for m in range(16)]
    assert seconds(two, *many) > 7 * MB / RAIL


def test_sync__over_racks__goes_to_the_farthest_and_back() -> None:
    pod64, pod256 = systems.get("bow-pod64"), systems.get("bow-pod256")
    assert pod256.gateway is not None
    way = round(2 * 2 * pod256.gateway.hop_seconds * pod256.ipu.clock_hz)
    assert pod256.sync_cycles == pod64.sync_cycles + way
    # Half of a ring of 16 racks is 8 hops away, half of one of 4 is 2.
    assert systems.get("bow-pod1024").sync_cycles == pod64.sync_cycles + 4 * way
    assert pod256.sync_cycles_of(64) == pod64.sync_cycles


@pytest.mark.parametrize(
    ("system", "ipus", "text"),
    [
        (systems.get("bow-pod64").evolve(num_ipus=128, name="two racks"), [0, 64], "two racks: .* no gateway links"),
        (systems.get("bow-2000").evolve(ipu_links={"rail_links": 0}, name="odd"), [0, 2], "odd: .* IPUs 0 and 2"),
        (systems.get("bow-2000").evolve(ipu_links={"cross_links": 0}, name="odd"), [0, 1], "cross_links is 0"),
        (
            systems.get("bow-2000").evolve(ipu_links={"link_bytes_per_second": 0}, name="odd"),
            [0, 1],
            "link_bytes_per_second is 0",
        ),
    ],
)
def test_check_joined__links_that_are_missing__are_named(system: System, ipus: list[int], text: str) -> None:
    with pytest.raises(MachineError, match=f"(?s){text}"):
        check_joined(np.array(ipus), system, "an all-reduce")
    with pytest.raises(MachineError, match=system.name):
        seconds(system, (ipus[0], ipus[1], MB))


def test_check_joined__ipus_that_links_join__is_silent() -> None:
    check_joined(np.array([0, 1]), systems.get("bow-2000").evolve(ipu_links={"rail_links": 0}), "an all-reduce")
    check_joined(np.arange(256), systems.get("bow-pod256"), "an all-reduce")
    for alone in ([], [3], [3, 3]):
        check_joined(np.array(alone, np.int64), systems.get("c600"), "an all-reduce")
