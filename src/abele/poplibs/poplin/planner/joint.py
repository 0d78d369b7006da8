"""One split for all passes of a fully connected layer.

Forward pass, backward pass and weight update are products of the same three extents: rows of the weights, their
columns and the batch. Cut alike, with tiles numbered alike, every tile keeps its share of the weights through all of
them: the backward pass turns it around in place, and the update leaves the gradient where the weights are. So the sum
of the three costs is looked at, split by split, and what moving weights and gradient would take falls away.

The weights stream past the matrix units, as they do in PopLibs: their columns are the batch of the contraction, and the
batch of the layer its out-channels.
Source: machine.md §5.15; which dimension of a pass is which of another, and that parts of the weights' columns are
whole groups of in-channels of the backward pass, from memory of PopLibs' ConvPlan.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

import numpy as np

from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.options import TRAINING_PASSES, Planning, SharedSplit
from abele.poplibs.poplin.planner import search
from abele.poplibs.poplin.planner.target import PlanningTarget

_ROLES = (
    {"g": "g", "b": "b", "ci": "ci", "co": "co"},
    {"g": "g", "b": "ci", "ci": "b", "co": "co"},
    {"g": "g", "b": "b", "ci": "co", "co": "ci"},
)
"""Name of each dimension of the forward pass in each pass."""
_NUMBERED = ("g", "b", "ci", "co")
"""Dimensions of the forward pass in which tiles are numbered."""


def joint_split(
    problems: Sequence[Contraction],
    grains: Sequence[tuple[int, ...]],
    target: PlanningTarget,
    planning: Planning,
) -> tuple[int, dict[str, SharedSplit]] | None:
    """Split of a layer's three passes that takes the fewest cycles in all: those cycles and the split by pass, or None.

    Args:
        problems: The forward pass, the backward pass and the weight update.
        grains: Smallest factor that parts of the split dimensions are multiples of, for each problem.
        target: The machine.
        planning: Constraints that the planner obeys.
    """
    given = [dict(zip(p.split_dims, g, strict=True)) for p, g in zip(problems, grains, strict=True)]
    common = {dim: lcm(*(g[role[dim]] for g, role in zip(given, _ROLES, strict=True))) for dim in _NUMBERED}
    forward = problems[0].split_dims
    parts = search.candidates(problems[0], tuple(common[dim] for dim in forward), target.tiles)
    total, needed = np.zeros(len(parts), dtype=np.int64), np.zeros(len(parts), dtype=np.int64)
    for problem, role in zip(problems, _ROLES, strict=True):
        own = {role[dim]: dim for dim in _NUMBERED}
        columns = [forward.index(own[dim]) for dim in problem.split_dims]
        wanted = tuple(common[own[dim]] for dim in problem.split_dims)
        cycles, temporary = search.split_costs(problem, wanted, parts[:, columns], target, planning)
        total, needed = total + cycles, np.maximum(needed, temporary)
    fits = np.flatnonzero(needed <= target.tile_bytes * planning.proportion)
    if len(fits) == 0:
        return None
    best = fits[np.lexsort((needed[fits], total[fits]))[0]]
    chosen = dict(zip(forward, parts[best].tolist(), strict=True))
    return int(total[best]), {
        name: SharedSplit(
            tuple((role[dim], int(chosen[dim])) for dim in _NUMBERED),
            tuple((role[dim], common[dim]) for dim in _NUMBERED),
            tuple(role[dim] for dim in _NUMBERED),
        )
        for name, role in zip(TRAINING_PASSES, _ROLES, strict=True)
    }
