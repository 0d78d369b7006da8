"""Pruning: weights that are given up for good, by a schedule or in groups.

Source: the schedule of :class:`MagnitudePruning`: Zhu and Gupta, "To prune, or not to prune", 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from abele.counts import check_counts
from abele.errors import InvalidOptionError
from abele.frontends.poptorch.models.executor import PoplarExecutor
from abele.frontends.poptorch.sparse.patterns import largest, places_of
from abele.frontends.poptorch.sparse.training import SparseTraining
from abele.frontends.poptorch.values.checks import check_numbers


class MagnitudePruning(SparseTraining):
    """Blocks of the smallest magnitude are dropped for good, until a density is reached.

    The density follows a cubic from that of the layer at ``start`` to ``density`` at ``end``. Layers keep the slots of
    their first density, of which more and more are unused.

    Args:
        model: The model, or its training wrapper.
        optimizer: On the host, the optimiser whose moments move with the weights.
        density: Share of the blocks that are held at the end.
        end: Step at which it is reached.
        interval: Steps between changes.
        start: First step after which patterns change.
        schedule: From the share of the way from start to end, 0 to 1, to the share of the pruning that is done; by
            default 1 − (1 − t)³.

    Raises:
        InvalidOptionError: Numbers outside their ranges, or no dynamic layer.
    """

    def __init__(
        self,
        model: torch.nn.Module | PoplarExecutor,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        density: float,
        end: int,
        interval: int = 100,
        start: int = 0,
        schedule: Callable[[float], float] = lambda t: 1 - (1 - t) ** 3,
    ) -> None:
        super().__init__(model, optimizer, interval=interval, start=start, end=end)
        check_numbers(density=density)
        if not 0 < density <= 1:
            raise InvalidOptionError(f"pruning ends at a density above 0 and at most 1, got {density}")
        self.density, self.schedule = density, schedule
        self._first = {name: layer.density for name, layer in self.carrier.layers.items()}

    @property
    def is_due(self) -> bool:
        """True at every interval, and at the end."""
        return super().is_due or self.steps == self.end

    def density_at(self, step: int, name: str) -> float:
        """Density of a layer after a step."""
        assert self.end is not None
        way = min(max((step - self.start) / max(self.end - self.start, 1), 0.0), 1.0)
        first = self._first[name]
        return first - (first - min(self.density, first)) * self.schedule(way)

    def update(self, *batch: Any) -> None:
        """Drop down to the density of this step; what was dropped does not come back."""
        for name, layer in self.carrier.layers.items():
            pattern = layer.pattern
            wanted = math.ceil(round(self.density_at(self.steps, name) * pattern.grid[0] * pattern.grid[1], 6))
            held = places_of(pattern)
            kept = held[largest(self._magnitudes(name), min(max(wanted, 1), len(held)))]
            self._carry(name, np.sort(kept), np.zeros(0, np.int64))

    def state_dict(self) -> dict[str, Any]:
        """Steps, and the densities at the start."""
        return {**super().state_dict(), "first": dict(self._first)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        super().load_state_dict(state)
        self._first = {name: float(d) for name, d in state["first"].items()}


class NofM(SparseTraining):
    """At most ``n`` of every ``m`` neighbours in a row of the weight are held, as 2:4 sparsity has it.

    The first update keeps the ``n`` of largest magnitude in each group; later ones find nothing to drop.

    Args:
        model: The model, or its training wrapper; its layers have blocks of 1 and inputs that divide by ``m``.
        optimizer: On the host, the optimiser whose moments move with the weights.
        n: Weights of a group that are held.
        m: Neighbours that are a group.
        at: Step after which the pattern is cut.

    Raises:
        InvalidOptionError: ``n`` is not between 1 and ``m``; larger blocks, inputs that do not divide by ``m``.
    """

    def __init__(
        self,
        model: torch.nn.Module | PoplarExecutor,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        n: int = 2,
        m: int = 4,
        at: int = 1,
    ) -> None:
        check_counts(n=n, m=m)
        check_counts(0, at=at)
        super().__init__(model, optimizer, interval=max(at, 1), start=at, end=at)
        if not 1 <= n <= m:
            raise InvalidOptionError(f"of every {m} weights between 1 and {m} are held, got {n}")
        for name, layer in self.carrier.layers.items():
            if layer.pattern.block != (1, 1) or layer.in_features % m:
                raise InvalidOptionError(
                    f"{name!r} has blocks of {layer.pattern.block[0]} and {layer.in_features:,} inputs",
                    because=f"{n} of {m} are of single weights, in groups of {m} along a row",
                    remedy=f"block=1, and inputs that are a multiple of {m}",
                )
        self.n, self.m = n, m

    def update(self, *batch: Any) -> None:
        """Keep the largest of each group."""
        for name, layer in self.carrier.layers.items():
            held = places_of(layer.pattern)
            order = np.lexsort((-self._magnitudes(name), held // self.m))
            group = held[order] // self.m
            # Rank within the group: how far behind its first.
            first = np.searchsorted(group, group)
            kept = held[order][np.arange(len(held)) - first < self.n]
            self._carry(name, np.sort(kept), np.zeros(0, np.int64))
