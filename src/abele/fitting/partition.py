"""Partitions: where a chain is cut so that the slowest part of a tick is as fast as can be, exactly.

Stage ``s`` of ``n`` keeps ``2·(n − 1 − s)`` micro-batches for its backward stage, so whether a run of segments fits
depends on which stage it is. First and last stage are costed together, since they may share an IPU; so the end of the
first stage is tried in turn. Behind it, with ``best[s][j]`` the fastest that the stages up to ``s`` can
be on the segments up to ``j``, ``best[s + 1][j]`` is the least over ``i`` of the larger of ``best[s][i]`` and stage
``s + 1`` on ``i`` to ``j``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Costs = npt.NDArray[np.int64]
NEVER = np.int64(1) << 60
"""Cost of an impossible choice."""


@dataclass(frozen=True)
class Partition:
    """Cuts of a chain.

    Attributes:
        cuts: The first segment of each stage but the first.
        slowest: Cost of the slowest stage, or of first and last together.
    """

    cuts: tuple[int, ...]
    slowest: int


def partition(stages: int, middle: Callable[[int], Costs], ends: Costs) -> Partition | None:
    """Cuts with the least cost of the costliest stage; None where there are none.

    Args:
        stages: Number of stages, at least two.
        middle: For a stage that is neither first nor last, its cost for each run of segments, int64[segments + 1,
            segments + 1]; :data:`NEVER` where it does not fit.
        ends: Cost of the first stage up to a segment and the last one from a segment on together, int64[segments,
            segments].
    """
    count = len(ends)
    firsts = np.arange(1, count)
    # [first, end]: what the stages so far cost at least on the segments up to an end, behind each end of the first.
    best = np.full((count - 1, count + 1), NEVER)
    best[firsts - 1, firsts] = 0
    choices: list[npt.NDArray[np.intp]] = []
    for stage in range(1, stages - 1):
        reached = np.maximum(best[:, :, None], middle(stage)[None])
        choices.append(reached.argmin(axis=1))
        best = reached.min(axis=1)
    whole = np.maximum(best[:, :count], ends[1:])
    place = int(whole.argmin())
    row, begin = divmod(place, count)
    if whole.flat[place] >= NEVER:
        return None
    cuts = [begin]
    for choice in reversed(choices):
        cuts.append(int(choice[row, cuts[-1]]))
    return Partition(tuple(reversed(cuts)), int(whole.flat[place]))
