"""The order of replicas on a ring: that in which the busiest link has least to carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from abele.arrays import Int64
from abele.machine import System
from abele.machine.routes import link_seconds

_PROBE_BYTES = 1 << 20
"""Bytes by which orders are compared; enough that links and not the latency of hops decide."""


def ring_order(members: Int64, num_ipus: int, system: System) -> Int64:
    """Ranks of groups in the order of their ring, int64[size].

    Args:
        members: Replicas of each group by rank, int64[groups, size].
        num_ipus: IPUs of a replica.
        system: The machine of all replicas.

    Up one rail of the ladder and down the other, every hop of a ring has links of its own; on a torus, or with replicas
    of several IPUs, the natural order may have them too. All groups communicate at the same time, so orders are
    compared by the routes of all of them, both ways round at once, and the first of the best is taken.
    """
    return np.array(_best_order(tuple(map(tuple, members.tolist())), num_ipus, system), dtype=np.int64)


def hops(members: Int64, order: Int64, way: int, num_ipus: int) -> tuple[Int64, Int64]:
    """Sending and receiving IPUs of one step round all rings, int64[groups × size × num_ipus] each.

    Args:
        members: Replicas of each group by rank.
        order: Ranks in the order of the ring.
        way: 1 for clockwise, −1 for anticlockwise; 2 passes every second replica, and so on.
        num_ipus: IPUs of a replica; each sends to the one at its place in the other.
    """
    ring = members[:, order]
    ends = (ring, np.roll(ring, -way, axis=1))
    source, target = ((side[..., None] * num_ipus + np.arange(num_ipus)).reshape(-1) for side in ends)
    return source, target


@lru_cache(maxsize=256)
def _best_order(members: tuple[tuple[int, ...], ...], num_ipus: int, system: System) -> tuple[int, ...]:
    groups = np.array(members, dtype=np.int64)
    size = groups.shape[1]
    if size < 4:
        return tuple(range(size))
    best, least = tuple(range(size)), np.inf
    for order in _candidates(groups[0] * num_ipus, num_ipus, system):
        seconds = _both_ways(groups, np.array(order, dtype=np.int64), num_ipus, system)
        if seconds < least * (1 - 1e-9):
            best, least = order, seconds
    return best


def _candidates(ipus: Int64, num_ipus: int, system: System) -> Iterator[tuple[int, ...]]:
    """Orders that may be good: up one rail and down the other, the natural one, and out by every second and back."""
    ranks = np.arange(len(ipus))
    if num_ipus == 1:
        yield tuple(_along_rails(ipus, system))
    yield tuple(ranks.tolist())
    yield (*ranks[::2].tolist(), *ranks[1::2][::-1].tolist())


def _along_rails(ipus: Int64, system: System) -> Sequence[int]:
    """Ranks rack by rack, up one rail and down the other; racks in turn begin on one rail and on the other."""
    per_rack = system.ipu_links.ipus_per_rack
    rack = ipus // per_rack
    number = np.unique(rack, return_inverse=True)[1]
    # A ring leaves a rack beside the place where it came in, and gateways lead to the same place of the next rack.
    is_back = (ipus + number) % 2
    rung = ipus % per_rack // 2
    order: list[int] = np.lexsort((np.where(is_back, -rung, rung), is_back, number)).tolist()
    return order


def _both_ways(groups: Int64, order: Int64, num_ipus: int, system: System) -> float:
    ends = [hops(groups, order, way, num_ipus) for way in (1, -1)]
    source, target = (np.concatenate(side) for side in zip(*ends, strict=True))
    return link_seconds(source, target, np.full(len(source), _PROBE_BYTES), system)
