"""Shares of the tiles for convolutions that run at the same time, so that they end together.

A convolution's time falls more slowly than its tiles grow, so shares are found in rounds: each convolution is planned
on its share, and the shares are rescaled by the times that are expected. In a round the longest convolution leads. The
others are planned beside it: whatever in them takes no longer than the same kind of step of the first costs nothing.
So all together take the sum over kinds of steps of what the longest takes; the round in which that is least is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

from abele.errors import AbeleError, InvalidOptionError, OutOfMemoryError
from abele.graph import Graph
from abele.poplibs.poplin.multiconv.args import MultiPlanning
from abele.words import counted

Phases = dict[str, int]
"""Expected cycles by kind of step."""


@dataclass(frozen=True)
class Limits:
    """Limits of a convolution that leave room for others at the same time.

    Attributes:
        tiles: Tiles that it uses at most; 0 for all.
        beside: Cycles of another that runs at the same time, by kind of step.
    """

    tiles: int = 0
    beside: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Share:
    """Tiles of one convolution.

    Attributes:
        graph: The graph with its tiles numbered so that those of the share come first. It has all, as operands may lie
            on any.
        limits: Limits of the convolution.
    """

    graph: Graph
    limits: Limits = Limits()


Estimate = Callable[[Limits], Phases]
"""Estimate of a convolution's cycles within limits."""

_ROUNDS = 5


def share_tiles(name: str, graph: Graph, estimates: Sequence[Estimate], planning: MultiPlanning) -> list[Share]:
    """For each convolution its share of the tiles of the first IPU.

    Args:
        name: The multi-convolution, for errors.
        graph: The graph.
        estimates: Estimated cycles of each convolution under given limits.
        planning: Limits of the search.

    Raises:
        InvalidOptionError: There are more convolutions than tiles.
        OutOfMemoryError, InvalidOptionError: A convolution fits no share that was tried.
    """
    tiles, count = graph.system.ipu.num_tiles, len(estimates)
    if count > tiles:
        raise InvalidOptionError(
            f"{name}: {counted(count, 'convolution')} cannot each have tiles of their own, there are {tiles}",
            remedy="planType='serial', or fewer at a time",
        )
    if count == 1:
        return [Share(graph)]
    least = min(planning.reserved_tiles, tiles // count)
    sizes = _scaled(np.ones(count), tiles, least)
    rounds: list[_TriedShares] = []
    for _ in range(_ROUNDS):
        rounds.append(_tried(estimates, sizes))
        if rounds[-1].is_even(least, planning.back_off):
            break
        sizes = _scaled(sizes * rounds[-1].cycles, tiles, least)
    fitting = [r for r in rounds if r.unfit is None]
    if not fitting:
        raise _unfit(name, rounds[-1])
    return _cut(graph, min(fitting, key=lambda r: r.together))


@dataclass(frozen=True)
class _TriedShares:
    """Shares that were tried.

    Attributes:
        sizes: Tiles of each convolution.
        found: Estimated phases of each on its own, or the error if it does not fit.
        limits: Limits of each beside the longest.
        together: Cycles of all, steps of the same kind at once.
    """

    sizes: npt.NDArray[np.int64]
    found: tuple[Phases | AbeleError, ...]
    limits: tuple[Limits, ...]
    together: int

    @property
    def unfit(self) -> int | None:
        """The first convolution that does not fit its share."""
        return next((i for i, found in enumerate(self.found) if isinstance(found, AbeleError)), None)

    @property
    def cycles(self) -> npt.NDArray[np.float64]:
        """Cycles of each; twice the most where one does not fit, so that its share grows."""
        alone = [sum(found.values()) if isinstance(found, dict) else -1 for found in self.found]
        return np.array([2 * max(1, *alone) if n < 0 else n for n in alone], dtype=np.float64)

    def is_even(self, least: int, back_off: float) -> bool:
        """True if all fit and end together, but for those that have the least tiles and are ready before."""
        cycles = self.cycles
        larger = cycles[(self.sizes > least) | (cycles == cycles.max())]
        return self.unfit is None and bool(cycles.max() <= (1 + back_off) * larger.min())


def _tried(estimates: Sequence[Estimate], sizes: npt.NDArray[np.int64]) -> _TriedShares:
    """A round with these shares."""
    alone = [Limits(int(n)) for n in sizes]
    found = tuple(_expected(e, limits) for e, limits in zip(estimates, alone, strict=True))
    fitting = [phases for phases in found if isinstance(phases, dict)]
    if len(fitting) < len(found):
        return _TriedShares(sizes, found, tuple(alone), 0)
    lead = max(range(len(fitting)), key=lambda i: sum(fitting[i].values()))
    beside = tuple(fitting[lead].items())
    limits = tuple(own if i == lead else replace(own, beside=beside) for i, own in enumerate(alone))
    joint = [e(limit) if limit.beside else fitting[lead] for e, limit in zip(estimates, limits, strict=True)]
    kinds = dict.fromkeys(kind for phases in joint for kind in phases)
    return _TriedShares(sizes, found, limits, sum(max(phases.get(kind, 0) for phases in joint) for kind in kinds))


def _expected(estimate: Estimate, limits: Limits) -> Phases | AbeleError:
    try:
        return estimate(limits)
    except (OutOfMemoryError, InvalidOptionError) as error:
        return error


def _unfit(name: str, tried: _TriedShares) -> AbeleError:
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
    """Shares that add up to ``tiles``, each ``least`` at least, with the least maximum of work per tile.

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


def _cut(graph: Graph, chosen: _TriedShares) -> list[Share]:
    ends = np.cumsum(chosen.sizes)
    ipu, others = np.split(np.arange(graph.num_tiles), ends[-1:])
    return [
        Share(graph.virtual(tiles=np.concatenate([np.roll(ipu, limits.tiles - end), others])), limits)
        for end, limits in zip(ends.tolist(), chosen.limits, strict=True)
    ]
