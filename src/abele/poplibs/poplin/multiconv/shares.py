"""Shares of the tiles for convolutions that run at the same time, so that they end together.

A convolution's time falls a little more slowly than its tiles grow, so shares are found in rounds: each is planned on
its share, and the shares are rescaled by the times that are expected. The best round is taken. Steps of the same kind
run at once, so a round takes the sum over kinds of steps of what the longest of them takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

from abele.errors import AbeleError, InvalidOptionError, OutOfMemoryError
from abele.graph import Graph
from abele.poplibs.poplin.contract import Call
from abele.poplibs.poplin.multiconv.args import MultiPlanning

Phases = dict[str, int]
"""Expected cycles by kind of step."""
Estimate = Callable[[int], Phases]
"""What a convolution is expected to take on so many tiles."""

_ROUNDS = 4


def phases_of(call: Call) -> Phases:
    """What a contraction is expected to take, by kind of step."""
    phases = {"before": call.cycles - call.schedule.cycles}
    for number, plan in enumerate(call.schedule.plans):
        phases |= {f"{number} {name}": n for name, n in plan.terms}
    return phases


@dataclass(frozen=True)
class Share:
    """Tiles of one convolution.

    Attributes:
        graph: The graph with its tiles numbered so that those of the share come first. It has all, as operands may lie
            on any.
        tiles: How many belong to the share.
    """

    graph: Graph
    tiles: int


def share_tiles(name: str, graph: Graph, estimates: Sequence[Estimate], planning: MultiPlanning) -> list[Share]:
    """For each convolution its share of the tiles of the first IPU.

    Args:
        name: The multi-convolution, for errors.
        graph: The graph.
        estimates: What each convolution is expected to take.
        planning: What the search keeps to.

    Raises:
        InvalidOptionError: There are more convolutions than tiles.
        OutOfMemoryError, InvalidOptionError: A convolution fits no share that was tried.
    """
    tiles, count = graph.system.ipu.num_tiles, len(estimates)
    if count > tiles:
        raise InvalidOptionError(
            f"{name}: {count} convolutions cannot each have tiles of their own, there are {tiles}",
            remedy="planType='serial', or fewer at a time",
        )
    if count == 1:
        return [Share(graph, tiles)]
    least = min(planning.reserved_tiles, tiles // count)
    sizes = _scaled(np.ones(count), tiles, least)
    rounds: list[_Round] = []
    for _ in range(_ROUNDS):
        rounds.append(_Round(sizes, tuple(_expected(e, int(n)) for e, n in zip(estimates, sizes, strict=True))))
        if rounds[-1].is_even(least, planning.back_off):
            break
        sizes = _scaled(sizes * rounds[-1].cycles, tiles, least)
    fitting = [r for r in rounds if r.unfit is None]
    if not fitting:
        raise _unfit(name, rounds[-1])
    return _cut(graph, min(fitting, key=lambda r: r.together).sizes)


@dataclass(frozen=True)
class _Round:
    """Shares that were tried, and what each convolution is expected to take on its own, or why it does not fit."""

    sizes: npt.NDArray[np.int64]
    found: tuple[Phases | AbeleError, ...]

    @property
    def unfit(self) -> int | None:
        """The first convolution that does not fit its share."""
        return next((i for i, found in enumerate(self.found) if isinstance(found, AbeleError)), None)

    @property
    def together(self) -> int:
        """Cycles of all, steps of the same kind at once."""
        fitting = [found for found in self.found if isinstance(found, dict)]
        kinds = dict.fromkeys(kind for phases in fitting for kind in phases)
        return sum(max(phases.get(kind, 0) for phases in fitting) for kind in kinds)

    @property
    def cycles(self) -> npt.NDArray[np.float64]:
        """Cycles of each; twice the most where one does not fit, so that its share grows."""
        alone = [sum(found.values()) if isinstance(found, dict) else -1 for found in self.found]
        return np.array([2 * max(1, *alone) if n < 0 else n for n in alone], dtype=np.float64)

    def is_even(self, least: int, back_off: float) -> bool:
        """Whether all fit and end together, but for those that have the least tiles and are ready before."""
        cycles = self.cycles
        larger = cycles[(self.sizes > least) | (cycles == cycles.max())]
        return self.unfit is None and bool(cycles.max() <= (1 + back_off) * larger.min())


def _expected(estimate: Estimate, tiles: int) -> Phases | AbeleError:
    try:
        return estimate(tiles)
    except (OutOfMemoryError, InvalidOptionError) as error:
        return error


def _unfit(name: str, tried: _Round) -> AbeleError:
    """The error of a convolution that does not fit its share."""
    number = tried.unfit
    assert number is not None
    error = tried.found[number]
    assert isinstance(error, AbeleError)
    return type(error)(
        f"{name}: convolution {number} does not fit its share of {tried.sizes[number]:,} tiles: {error}",
        remedy="planType='serial', or fewer convolutions at a time",
    )


def _scaled(work: npt.NDArray[np.float64], tiles: int, least: int) -> npt.NDArray[np.int64]:
    """Shares that add up to ``tiles``, each ``least`` at least, in which the most work a tile is as little as can be.

    Even ones where there is room: tiles 2i and 2i + 1 are a pair that receives the same data faster.
    """
    grain = 2 if tiles >= 4 * len(work) else 1
    sizes = [max(least // grain, 1) * grain] * len(work)
    waiting = [(-n / size, i) for i, (n, size) in enumerate(zip(work.tolist(), sizes, strict=True))]
    heapify(waiting)
    while left := tiles - sum(sizes):
        i = waiting[0][1]
        sizes[i] += min(grain, left)
        heapreplace(waiting, (-float(work[i]) / sizes[i], i))
    return np.array(sizes, dtype=np.int64)


def _cut(graph: Graph, sizes: npt.NDArray[np.int64]) -> list[Share]:
    ends = np.cumsum(sizes)
    ipu, others = np.split(np.arange(graph.num_tiles), ends[-1:])
    return [
        Share(graph.virtual(tiles=np.concatenate([np.roll(ipu, size - end), others])), size)
        for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)
    ]
