"""Memory that is always live, tile by tile: weights, accumulators, state and code of every run of segments.

It depends on neither what stages compute again nor, but for shares of the optimiser's state, on how many replicas there
are; so many cases have it in common.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from abele.fitting.costs import Borrowed, ChainCosts
from abele.fitting.measure import Bytes
from abele.fitting.plan import StatePlace


def always_live(costs: ChainCosts, tiles: int, state: StatePlace, state_share: float, *, functions: bool) -> AlwaysLive:
    """Always-live memory of every run of segments.

    Args:
        costs: Costs of the segments.
        tiles: Tiles of an IPU.
        state: Place of the optimiser's state.
        state_share: The part of it that a replica has.
        functions: True if the machine holds equal segments of a stage once.
    """
    return _always_live(costs, tiles, state_share, is_off_chip=state.is_off_chip, functions=functions)


@lru_cache(maxsize=12)
def _always_live(
    costs: ChainCosts, tiles: int, state_share: float, *, is_off_chip: bool, functions: bool
) -> AlwaysLive:
    return AlwaysLive(costs, tiles, state_share, is_off_chip, functions)


@dataclass(frozen=True, eq=False)
class AlwaysLive:
    """Always-live memory of runs of segments; see :func:`always_live`."""

    costs: ChainCosts
    tiles: int
    state_share: float
    is_off_chip: bool
    functions: bool

    def segments(self, begin: int) -> Bytes:
        """Bytes of the segments from ``begin`` up to each end, int64[ends, columns]."""
        if begin not in self._known:
            self._known[begin] = self._segments(begin)
        return self._known[begin]

    @cached_property
    def spared(self) -> list[int]:
        """Bytes on each tile that a segment need not have, since an earlier one has them anyway, but for weights."""
        return [sum(self._rest(b) for b in of) // self.tiles for of in self.costs.borrowed]

    @cached_property
    def _known(self) -> dict[int, Bytes]:
        return {}

    @cached_property
    def _held(self) -> Bytes:
        """Weights, accumulators and state of the first segments of each number, [segments + 1, columns]."""
        arrays, share = self.costs.arrays, 0.0 if self.is_off_chip else self.state_share
        return running(arrays["resident"] + arrays["accumulators"] + (arrays["state"] * share).astype(np.int64))

    def _segments(self, begin: int) -> Bytes:
        arrays, segments = self.costs.arrays, self.costs.segments[begin:]
        always = self._held[begin + 1 :] - self._held[begin]
        if self.functions:
            kinds = self.costs.kinds[begin:]
            again = np.array([kind in kinds[:n] for n, kind in enumerate(kinds)])[:, None]
            always += np.cumsum(np.where(again, 0, arrays["code"][begin:]), axis=0)
            # The function's own copy of the weights that calls bring along.
            always += np.maximum.accumulate(np.where(again, arrays["resident"][begin:], 0), axis=0)
        else:
            always += np.cumsum(arrays["code"][begin:], axis=0)
        for name in ("vertex_code", "overhead"):
            always += np.maximum.accumulate(arrays[name][begin:], axis=0)
        uniform = -np.cumsum([sum(self._spared(b, begin) for b in of) for of in self.costs.borrowed[begin:]])
        if self.is_off_chip:
            # One parameter's state at a time is on the chip.
            held = np.maximum.accumulate([s.largest_state_bytes * self.state_share for s in segments])
            uniform = uniform + (held / self.tiles).astype(np.int64)
        return np.asarray(always + uniform[:, None], np.int64)

    def _spared(self, parameter: Borrowed, begin: int) -> int:
        """Bytes per tile that a stage saves on a parameter shared with an earlier segment."""
        here = parameter.weight_bytes if parameter.owner >= begin else 0
        return (here + self._rest(parameter)) // self.tiles

    def _rest(self, parameter: Borrowed) -> int:
        """Bytes of a parameter besides its elements, of which there is one copy however many segments read it."""
        return parameter.sum_bytes + (0 if self.is_off_chip else int(parameter.state_bytes * self.state_share))


def running(rows: Bytes) -> Bytes:
    """Sums of the first rows of each number, none first."""
    return np.concatenate([np.zeros_like(rows[:1]), np.cumsum(rows, axis=0)])
