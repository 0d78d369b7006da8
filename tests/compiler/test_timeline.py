from __future__ import annotations

import numpy as np
import pytest

from abele.compiler.durations import host_cycles, link_cycles
from abele.machine import systems
from compiler.support import link_bytes, small_system


def test_host_cycles__more_bytes__is_latency_plus_bandwidth() -> None:
    system = systems.get("bow")
    fixed = host_cycles(0, 1, system)
    assert host_cycles(10**9, 1, system) - fixed == pytest.approx(
        1e9 / system.host.bandwidth_bytes_per_second(1) * system.ipu.clock_hz, rel=1e-6
    )


def test_link_cycles__ring_of_sixteen__goes_the_shorter_way_on_a_torus() -> None:
    ladder = small_system(4, 16)
    torus = ladder.evolve(ipu_links={"topology": "torus"})
    links = link_bytes({(0, 14): 10**6, (2, 14): 10**6})
    assert link_cycles(links, torus) == link_cycles(links, ladder)
    links = link_bytes({(0, 14): 10**6, (4, 6): 10**6})
    assert 2 * link_cycles(links, torus) == pytest.approx(link_cycles(links, ladder), abs=2)


def test_link_cycles__between_racks__is_bound_by_the_gateway() -> None:
    system = systems.get("bow-pod256")
    assert system.gateway is not None
    links = link_bytes({(0, 100): 10**6, (3, 200): 10**6})
    # Racks 1 and 3 are the neighbours of rack 0 on a ring of four: half of a machine's links lead to each.
    rate = system.gateway.bytes_per_second * system.gateway.efficiency_proportion / 2
    seconds = 1e6 / rate + system.gateway.hop_seconds
    assert link_cycles(links, system) == np.ceil(seconds * system.ipu.clock_hz)


def test_link_cycles__nothing_to_send__is_zero() -> None:
    assert link_cycles(link_bytes({}), systems.get("bow-2000")) == 0
