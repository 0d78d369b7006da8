"""Loads of bundles of links, against traffic that is sent hop by hop."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.machine import System, systems
from abele.machine.routes import LINK_KINDS, link_loads, link_seconds

SYSTEMS = ("bow-2000", "bow-2000:2", "bow-pod16", "bow-pod64", "bow-pod256:128", "bow-pod256")


def shorter(steps: int, around: int) -> int:
    return steps - int(np.sign(steps)) * around if abs(steps) > around // 2 else steps


def hops(source: int, target: int, system: System) -> list[tuple[str, int, int]]:
    """Every hop of the way from one IPU to another: over gateways, across the rung, along the rail."""
    links, rack, found = system.ipu_links, system.ipu_links.ipus_per_rack, []
    if source // rack != target // rack:
        assert system.gateway is not None
        each, racks = system.gateway.ipus_per_machine, -(-system.num_ipus // rack)
        steps = shorter(target // rack - source // rack, racks)
        place, at = source % rack // each * each, source // rack
        for _ in range(abs(steps)):
            onward = (at + int(np.sign(steps))) % racks
            found.append(("gateway", at * rack + place, onward * rack + place))
            at = onward
        same = place == target % rack // each * each
        source = target if same else target // rack * rack + source % rack
    if source % 2 != target % 2:
        found.append(("rung", source, source ^ 1))
        source ^= 1
    rungs = -(-min(system.num_ipus, rack) // 2)
    steps = target // 2 - source // 2
    if links.topology == "torus":
        steps = shorter(steps, rungs)
    for _ in range(abs(steps)):
        begin = source // rack * rack
        onward = begin + (source - begin + 2 * int(np.sign(steps))) % (2 * rungs)
        found.append(("rail", source, onward))
        source = onward
    assert source == target
    return found


@given(data=st.data())
def test_link_loads__any_traffic__is_what_goes_over_each_hop(data: st.DataObject) -> None:
    system = systems.get(data.draw(st.sampled_from(SYSTEMS)))
    ipu = st.integers(0, system.num_ipus - 1)
    traffic = data.draw(
        st.lists(st.tuples(ipu, ipu, st.integers(1, 1000)).filter(lambda t: t[0] != t[1]), min_size=1, max_size=12)
    )
    expected: Counter[tuple[str, int, int]] = Counter()
    for source, target, amount in traffic:
        for hop in hops(source, target, system):
            expected[hop] += amount
    columns = np.array(traffic, dtype=np.int64).T
    found = link_loads(*columns, system)
    bundles = list(zip(found.kind.tolist(), found.source.tolist(), found.target.tolist(), strict=True))
    assert bundles == sorted(bundles)
    names = (LINK_KINDS[k] for k in found.kind.tolist())
    assert (
        dict(
            zip(
                zip(names, found.source.tolist(), found.target.tolist(), strict=True), found.bytes.tolist(), strict=True
            )
        )
        == expected
    )
    rails = [n for (kind, _, _), n in expected.items() if kind == "rail"]
    if rails:
        slowest = max(rails) / system.ipu_links.bundle_bytes_per_second(system.ipu_links.rail_links)
        assert link_seconds(*columns, system) >= slowest * (1 - 1e-12)


@pytest.mark.parametrize("name", SYSTEMS)
def test_link_loads__nothing__is_carried_by_none(name: str) -> None:
    nothing = np.empty(0, dtype=np.int64)
    assert all(len(column) == 0 for column in link_loads(nothing, nothing, nothing, systems.get(name)))
