"""Cutting: the best cuts of a chain for a plan, and which products plan with less memory for that.

Every IPU has the largest share of a tile's memory for its products with which its stages fit and are fastest; so the
early stages of a pipeline, which keep most micro-batches, may plan with less than the later ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from abele.fitting.estimate import estimated
from abele.fitting.partition import NEVER, Costs, Partition, partition
from abele.fitting.plan import Spreading
from abele.fitting.stages import StageCosts, Stages

_Choice = npt.NDArray[np.intp]
"""For each of several places the number of a share of a tile's memory."""


def best_cuts(plan: Spreading, stages: Stages) -> Spreading | None:
    """The plan with the best cuts and shares of memory; None where none fit.

    Args:
        plan: The plan, with a stage for each IPU.
        stages: Costs of its stages.
    """
    if plan.ipus == 1:
        return _undivided(plan, stages)
    found = [_Cutter(plan, stages).best()]
    # Stages that have weights in common are best on one IPU, where these are the ends of the model.
    if any(stages.costs.borrowed) and plan.ipus + 1 <= stages.costs.count:
        found.append(_Cutter(replace(plan, returns=True), stages).best())
    fitting = [cut for cut in found if cut is not None]
    return max(fitting, key=lambda cut: estimated(cut, stages).samples_per_second) if fitting else None


def _undivided(plan: Spreading, stages: Stages) -> Spreading | None:
    count = stages.costs.count
    fitting = {
        share: on.cycles.last_work(0, count, 0).cycles
        for share, on in stages.by_proportion.items()
        if on.memory.whole_needed <= stages.available_bytes
    }
    return _with_shares(plan, [min(fitting, key=fitting.__getitem__)]) if fitting else None


def nearest_cuts(plan: Spreading, stages: Stages) -> Spreading:
    """The plan with the cuts and shares of memory that come nearest to fitting."""
    shares, on = list(stages.by_proportion), list(stages.by_proportion.values())
    n, count = plan.ipus, stages.costs.count
    if n == 1:
        return _with_shares(plan, [min(shares, key=lambda share: stages.by_proportion[share].memory.whole_needed)])
    last = np.stack([of.memory.last_needed for of in on])
    kept = [2 * (n - 1 - stage) if stages.costs.training else 0 for stage in range(n)]
    inner = np.stack([of.memory.inner_needed for of in on])
    rows = np.stack([of.memory.rows_on_tile for of in on])

    def needed(stage: int) -> Costs:
        return np.asarray(np.minimum(inner + kept[stage] * rows, NEVER), np.int64)

    ends = np.maximum(needed(0).min(axis=0)[0, :count, None], last.min(axis=0)[None, :])
    found = partition(n, lambda stage: np.asarray(needed(stage).min(axis=0)), ends)
    assert found is not None
    cut = replace(plan, cuts=found.cuts)
    by_stage = [
        last[:, begin] if stage == n - 1 else needed(stage)[:, begin, end]
        for stage, (begin, end) in enumerate(cut.bounds(count))
    ]
    return _with_shares(cut, [shares[int(of.argmin())] for of in by_stage])


def _with_shares(plan: Spreading, shares: list[float | None]) -> Spreading:
    return replace(plan, proportions=tuple(shares) if any(s is not None for s in shares) else ())


@dataclass(frozen=True, eq=False)
class _Cutter:
    """A pipeline with a stage for each IPU, and one more on the first IPU where the plan ``returns``.

    Attributes:
        plan: The plan.
        stages: Costs of its stages.
    """

    plan: Spreading
    stages: Stages

    def best(self) -> Spreading | None:
        """The plan with the best cuts; None where none fit."""
        found = partition(self._num_stages, lambda stage: self._middle(stage)[0], self._ends[0])
        return None if found is None else self._finished(found)

    @property
    def _num_stages(self) -> int:
        return self.plan.ipus + self.plan.returns

    @property
    def _on(self) -> list[StageCosts]:
        return list(self.stages.by_proportion.values())

    @property
    def _count(self) -> int:
        return self.stages.costs.count

    def _kept(self, stage: int) -> int:
        """Micro-batches on their way behind a stage."""
        return 2 * (self._num_stages - 1 - stage) if self.stages.costs.training else 0

    def _inner(self, stage: int, of: StageCosts) -> Costs:
        """Cycles of every run of segments as a stage, where it fits."""
        needed = of.memory.inner_needed + self._kept(stage) * of.memory.rows_on_tile
        return np.asarray(np.where(needed <= self.stages.available_bytes, of.cycles.inner, NEVER), np.int64)

    def _middle(self, stage: int) -> tuple[Costs, _Choice]:
        """The fastest of each run of segments, with the share of memory that it takes."""
        every = np.stack([self._inner(stage, of) for of in self._on])
        choice = every.argmin(axis=0)
        return np.take_along_axis(every, choice[None], axis=0)[0], choice

    @cached_property
    def _firsts(self) -> tuple[Costs, _Choice]:
        """Cycles of the first stage up to each end, where it fits, with the share of memory that it takes."""
        cycles, choice = self._middle(0)
        return cycles[0], choice[0]

    @cached_property
    def _lasts(self) -> tuple[Costs, _Choice]:
        """Cycles of the last stage from each begin on, where it fits, with the share of memory that it takes."""
        limit = self.stages.available_bytes
        every = np.stack([np.where(of.memory.last_needed <= limit, of.cycles.lasts, NEVER) for of in self._on])
        choice = every.argmin(axis=0)
        return np.take_along_axis(every, choice[None], axis=0)[0], choice

    @cached_property
    def _ends(self) -> tuple[Costs, _Choice]:
        """Cycles of first and last stage, [end of the first, begin of the last], and the share of an IPU with both."""
        every = np.stack([self._together(of) for of in self._on]) if self.plan.returns else self._apart[None]
        # Stages between the first and the last have at least a segment each.
        first, begin = np.ogrid[: self._count, : self._count]
        every = np.where((first >= 1) & (begin >= first + self._num_stages - 2), every, NEVER)
        choice = every.argmin(axis=0)
        return np.take_along_axis(every, choice[None], axis=0)[0], choice

    def _together(self, of: StageCosts) -> Costs:
        """Cycles of both on one IPU, where they fit."""
        count = self._count
        fits = of.memory.together_needed(self._kept(0))[:count] <= self.stages.available_bytes
        return np.where(fits, of.cycles.inner[0, :count, None] + of.cycles.lasts[None, :], NEVER)

    @property
    def _apart(self) -> Costs:
        """Cycles of both on an IPU each, where they fit."""
        return np.maximum(self._firsts[0][: self._count, None], self._lasts[0][None, :])

    def _finished(self, found: Partition) -> Spreading:
        """The plan with cuts, and with the share of memory of each IPU."""
        plan, shares = replace(self.plan, cuts=found.cuts), list(self.stages.by_proportion)
        bounds = plan.bounds(self._count)
        first, begin = bounds[0][1], bounds[-1][0]
        inner = [int(self._middle(stage)[1][bounds[stage]]) for stage in range(1, self._num_stages - 1)]
        if self.plan.returns:
            chosen = [int(self._ends[1][first, begin]), *inner]
        else:
            chosen = [int(self._firsts[1][first]), *inner, int(self._lasts[1][begin])]
        return _with_shares(plan, [shares[number] for number in chosen])
