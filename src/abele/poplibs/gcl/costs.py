"""Costs of collectives: seconds of the steps of a method, from the machine's constants and the routes between IPUs.

Each step is a barrier of all IPUs, the start of an exchange, and the busiest link; one that
combines what arrives launches a compute set, in which every tile reads and writes its part. A program's report says
more exactly what it takes; here methods are compared before anything is built.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np

from abele.arrays import Int64
from abele.machine import System
from abele.machine.routes import link_seconds
from abele.poplibs.gcl.methods import METHODS, Lane, Method, Move, gather_steps, lanes_of, num_parts, scatter_steps
from abele.poplibs.gcl.order import hops

_AS_LONG = 1e-6
"""Relative difference up to which methods count as equally fast: rounding. Chosen."""
Groups = tuple[tuple[int, ...], ...]
Kind = tuple[tuple[tuple[int, int], int], ...]
"""Traffic of a step: ways and bytes of lanes, and the number of equal lanes."""


def cheapest(members: Int64, order: Int64, num_ipus: int, system: System, row_bytes: int) -> Method:
    """The method that takes least time for a reduce-scatter and an all-gather; the first of those that take as long.

    Args:
        members: Replicas of each group by rank, int64[groups, size].
        order: Ranks in the order of the ring.
        num_ipus: IPUs of a replica.
        system: The machine of all replicas.
        row_bytes: Bytes of one replica's part.
    """
    seconds = {m: sum(ring_seconds(m, members, order, num_ipus, system, row_bytes)) for m in METHODS}
    least = min(seconds.values())
    return next(method for method in METHODS if seconds[method] <= least * (1 + _AS_LONG))


def ring_seconds(
    method: Method, members: Int64, order: Int64, num_ipus: int, system: System, row_bytes: int
) -> tuple[float, float]:
    """Seconds of a reduce-scatter and of an all-gather by a method; arguments as of :func:`cheapest`."""
    size = members.shape[1]
    if size == 1:
        return 0.0, 0.0
    lanes = lanes_of(method, size)
    key = (tuple(map(tuple, members.tolist())), tuple(order.tolist()), num_ipus, system)
    found = []
    for steps, combines in ((scatter_steps(lanes, size), True), (gather_steps(lanes, size), False)):
        # Steps in which the same lanes run take the same time.
        kinds = Counter(_kind(Counter(_sent(lanes, move, row_bytes) for move in step)) for step in steps)
        seconds = sum(count * _step_seconds(kind, *key) for kind, count in kinds.items())
        if combines:
            arriving = sum(_sent(lanes, move, row_bytes)[1] for step in steps for move in step)
            seconds += _combining_seconds(len(steps), arriving, num_ipus, system)
        found.append(seconds)
    return found[0], found[1]


def _sent(lanes: tuple[Lane, ...], move: Move, row_bytes: int) -> tuple[int, int]:
    """The way and the bytes of a move."""
    return move.way, -(-row_bytes // num_parts(lanes))


def _kind(sent: Counter[tuple[int, int]]) -> Kind:
    return tuple(sorted(sent.items()))


@lru_cache(maxsize=4096)
def _step_seconds(kind: Kind, groups: Groups, order: tuple[int, ...], num_ipus: int, system: System) -> float:
    """Seconds of a step with given numbers of lanes and bytes each way."""
    members, ring = np.array(groups, dtype=np.int64), np.array(order, dtype=np.int64)
    ends, amounts = [], []
    for (way, size), count in kind:
        ends.append(hops(members, ring, way, num_ipus))
        # The tiles of all IPUs of a replica share a row.
        amounts.append(np.full(len(ends[-1][0]), -(-size * count // num_ipus), dtype=np.int64))
    source, target = (np.concatenate(side) for side in zip(*ends, strict=True))
    return _exchange_seconds(source, target, np.concatenate(amounts), system)


def _exchange_seconds(source: Int64, target: Int64, amount: Int64, system: System) -> float:
    """Seconds of the barrier, and of what is sent: senders, receivers and bytes."""
    exchange = system.ipu.exchange
    start = system.sync_cycles + exchange.phase_overhead_cycles + exchange.route_mean_cycles
    return system.seconds(start) + link_seconds(source, target, amount, system)


def pairwise_seconds(members: Int64, num_ipus: int, system: System, num_bytes: int) -> float:
    """Seconds of an all-reduce in which replicas swap tensors of so many bytes two by two, for each bit of their ranks.

    Args:
        members: Replicas of each group by rank, int64[groups, size]; the size is a power of two.
        num_ipus: IPUs of a replica.
        system: The machine of all replicas.
        num_bytes: Bytes of the tensor.
    """
    return _pairwise_seconds(tuple(map(tuple, members.tolist())), num_ipus, system, num_bytes)


@lru_cache(maxsize=1024)
def _pairwise_seconds(groups: Groups, num_ipus: int, system: System, num_bytes: int) -> float:
    members = np.array(groups, dtype=np.int64)
    ranks, of_ipu = np.arange(members.shape[1]), np.arange(num_ipus)
    seconds, distance, steps = 0.0, 1, 0
    while distance < len(ranks):
        source, target = (
            (side[..., None] * num_ipus + of_ipu).reshape(-1) for side in (members, members[:, ranks ^ distance])
        )
        amount = np.full(len(source), -(-num_bytes // num_ipus), dtype=np.int64)
        seconds += _exchange_seconds(source, target, amount, system)
        distance, steps = distance * 2, steps + 1
    return seconds + _combining_seconds(steps, steps * num_bytes, num_ipus, system)


def _combining_seconds(num_steps: int, num_bytes: int, num_ipus: int, system: System) -> float:
    """Seconds of adding received data to the data there, all tiles sharing the work."""
    ipu = system.ipu
    launch = ipu.launch.compute_set_cycles + ipu.launch.run_all_cycles + ipu.sync.on_chip_cycles
    per_tile = num_bytes / (num_ipus * ipu.num_tiles)
    return system.seconds(num_steps * launch + 2 * per_tile / ipu.data_path_bytes)
