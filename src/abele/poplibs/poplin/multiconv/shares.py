"""Shares of the tiles for convolutions that run at the same time, so that they end together.

A convolution's time falls a little more slowly than its tiles grow, so shares are found in rounds: each is planned on
its share, and the shares are rescaled by the times that are expected. The best round is taken. Steps of the same kind
run at once, so a round takes the sum over kinds of steps of what the longest of them takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    tried: list[tuple[int, tuple[int, ...]]] = []
    failure: AbeleError | None = None
    for _ in range(_ROUNDS):
        found = [_expected(estimate, int(n)) for estimate, n in zip(estimates, sizes, strict=True)]
        fitting = [f for f in found if isinstance(f, dict)]
        failure = next(
            (_unfit(name, i, int(sizes[i]), f) for i, f in enumerate(found) if not isinstance(f, dict)), None
        )
        most = max((sum(f.values()) for f in fitting), default=1)
        cycles = np.array([sum(f.values()) if isinstance(f, dict) else 2 * most for f in found], dtype=np.float64)
        if failure is None:
            tried.append((_together(fitting), tuple(int(n) for n in sizes)))
            free = cycles[(sizes > least) | (cycles == most)]
            if most <= (1 + planning.back_off) * free.min():
                break
        sizes = _scaled(sizes * cycles, tiles, least)
    if not tried:
        assert failure is not None
        raise failure
    return _cut(graph, min(tried)[1])


def _expected(estimate: Estimate, tiles: int) -> Phases | AbeleError:
    try:
        return estimate(tiles)
    except (OutOfMemoryError, InvalidOptionError) as error:
        return error


def _unfit(name: str, number: int, tiles: int, error: AbeleError) -> AbeleError:
    """The error of a convolution that does not fit its share."""
    return type(error)(
        f"{name}: convolution {number} does not fit its share of {tiles:,} tiles: {error}",
        remedy="planType='serial', or fewer convolutions at a time",
    )


def _together(found: Sequence[Phases]) -> int:
    """Cycles of convolutions whose steps of the same kind run at once."""
    kinds = dict.fromkeys(kind for phases in found for kind in phases)
    return sum(max(phases.get(kind, 0) for phases in found) for kind in kinds)


def _scaled(weight: npt.NDArray[np.float64], tiles: int, least: int) -> npt.NDArray[np.int64]:
    """Shares by weight, each ``least`` at least, that add up to ``tiles``; even ones where there is room.

    Tiles 2i and 2i + 1 are a pair that receives the same data faster, so a pair belongs to one convolution.
    """
    grain = 2 if tiles >= 4 * len(weight) else 1
    free = tiles - least * len(weight)
    over = np.maximum(weight / weight.sum() * tiles - least, 0.0)
    sizes = least + (over / max(over.sum(), 1.0) * free).astype(np.int64)
    sizes = np.maximum(sizes // grain * grain, 1)
    sizes[int(weight.argmax())] += tiles - sizes.sum()
    return np.asarray(sizes, dtype=np.int64)


def _cut(graph: Graph, sizes: Sequence[int]) -> list[Share]:
    ends = np.cumsum(sizes)
    ipu, others = np.split(np.arange(graph.num_tiles), ends[-1:])
    return [
        Share(graph.virtual(tiles=np.concatenate([np.roll(ipu, size - end), others])), size)
        for end, size in zip(ends.tolist(), sizes, strict=True)
    ]
