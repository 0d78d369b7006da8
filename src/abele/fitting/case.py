"""Cases of a search: one number of IPUs per replica, one micro-batch and one choice of recomputation.

What changes nothing but memory moves only as far as it has to: the code of equal layers is shared, and the optimiser's
state is sharded or leaves the chip, where a plan does not fit otherwise, or its products would plan with less memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from abele.fitting.costs import ChainCosts
from abele.fitting.cutting import best_cuts, nearest_cuts
from abele.fitting.estimate import estimated, ipu_bytes
from abele.fitting.plan import Estimate, Miss, Spreading, StatePlace
from abele.fitting.space import FitSpace
from abele.fitting.stages import Stages

FULL = 0.95
"""Part of an update that a free batch spends in full ticks of the pipeline."""
MOST_ACCUMULATION = 4096
"""The most micro-batches that a free batch is made of on one replica."""

Found = tuple[Spreading, Estimate]


@dataclass
class Case:
    """One case of a search: its base plan, and the best plan found.

    Attributes:
        space: The plans to search.
        plan: The plan without cuts, on which all memory lies as usual.
        is_free: True if the batch may be any.
        found: The best plan that fits.
        miss: Nearest miss where no plan fits.
    """

    space: FitSpace
    plan: Spreading
    is_free: bool
    found: Found | None = field(default=None, init=False)
    miss: Miss | None = field(default=None, init=False)

    def solve(self, costs: Mapping[float | None, ChainCosts]) -> None:
        """Look for the best plan.

        Args:
            costs: Costs of segments, by the proportion of a tile's memory that products plan with.
        """
        self.found, self.miss = None, None
        for plan, stages in self._ways(costs):
            cut = best_cuts(plan, stages)
            if cut is None:
                continue
            made = self._finished(cut, stages)
            if self.found is None or made[1].samples_per_second > self.found[1].samples_per_second:
                self.found = made
            # Off the chip, a share of the state takes less time than all of it; on the chip it saves memory alone.
            if not cut.plans_smaller and not plan.state.is_off_chip:
                return
        if self.found is None:
            self.miss = self._nearest(costs)

    def _finished(self, cut: Spreading, stages: Stages) -> Found:
        plan = _free_batch(cut, stages) if self.is_free else cut
        return plan, estimated(plan, stages)

    def _ways(self, costs: Mapping[float | None, ChainCosts]) -> Iterator[tuple[Spreading, Stages]]:
        """The plan with its memory as it is, and then moved step by step, where it can fit at all."""
        system = self.space.system
        room = system.ipu.tile.usable_bytes * system.ipu.num_tiles * self.plan.ipus
        for state in self._states(next(iter(costs.values()))):
            for plan in self._sharing(replace(self.plan, state=state), costs):
                stages = self._stages(plan, costs)
                if min(of.memory.least_bytes for of in stages.by_proportion.values()) <= room:
                    yield plan, stages

    def _stages(self, plan: Spreading, costs: Mapping[float | None, ChainCosts]) -> Stages:
        apart = self.space.settings.sync_pattern != "full"
        return Stages.of(plan, costs, self.space.system, hosts_apart=apart)

    def _states(self, costs: ChainCosts) -> list[StatePlace]:
        """Places for the optimiser's state; on the chip where it can be nowhere else."""
        has_state = costs.training and any(s.state_bytes for s in costs.segments)
        possible = [
            state
            for state in self.space.states
            if (has_state or state == StatePlace.ON_CHIP)
            and (self.plan.replicas > 1 or not state.is_sharded)
            and (self.space.system.dram is not None or not state.is_off_chip)
        ]
        return possible or [StatePlace.ON_CHIP]

    def _sharing(self, plan: Spreading, costs: Mapping[float | None, ChainCosts]) -> list[Spreading]:
        """The plan, and where layers repeat the same with one copy of their code."""
        kinds = next(iter(costs.values())).kinds
        repeated = len(set(kinds)) < len(kinds)
        return [plan, replace(plan, shared_functions=True)] if repeated else [plan]

    def _nearest(self, costs: Mapping[float | None, ChainCosts]) -> Miss:
        """Cuts nearest to fitting, with the stage that lacks most."""
        *_, state = self._states(next(iter(costs.values())))
        ways = [(p, self._stages(p, costs)) for p in self._sharing(replace(self.plan, state=state), costs)]
        return min((missed(nearest_cuts(*way), way[1]) for way in ways), key=lambda miss: miss.lacking_bytes)


def missed(plan: Spreading, stages: Stages) -> Miss:
    """Why a plan does not fit.

    Args:
        plan: The plan with cuts.
        stages: Costs of its stages.
    """
    by_ipu = ipu_bytes(plan, stages)
    stage = int(np.argmax(by_ipu))
    memory = stages.on(plan, plan.ipu_of(stage)).memory
    begin, end = plan.bounds(stages.costs.count)[stage]
    return Miss(
        plan=plan,
        stage=stage,
        needed_bytes=by_ipu[stage],
        available_bytes=stages.available_bytes,
        product_bytes=memory.product_bytes(begin, end),
        parts=_parts(plan, stages, stage),
    )


def _parts(plan: Spreading, stages: Stages, stage: int) -> dict[str, int]:
    """Largest parts of the fullest tile of a stage, most first; evenly spread data counts as its mean."""
    on, n = stages.on(plan, plan.ipu_of(stage)), plan.stages
    begin, end = plan.bounds(stages.costs.count)[stage]
    held, memory = on.costs.segments[begin:end], on.memory
    rows = 2 * (n - 1 - stage) if stages.costs.training else 0
    share = 0.0 if plan.state.is_off_chip else memory.state_share
    parts = {
        "weights": sum(float(c.resident.mean()) for c in held),
        "sums of gradients": sum(float(c.accumulators.mean()) for c in held),
        "optimiser state": sum(float(c.state.mean()) for c in held) * share,
        "code": float(memory.code_bytes(begin, end)),
        "temporaries": float(memory.temporary_bytes(begin, end, last=stage == n - 1)),
        "activations on their way": float(rows * memory.rows_on_tile[begin, end]),
    }
    return {name: round(parts[name]) for name in sorted(parts, key=lambda name: -parts[name]) if parts[name] >= 1}


def _free_batch(plan: Spreading, stages: Stages) -> Spreading:
    """The plan with as many micro-batches to an update that the rest of it hardly counts, a power of two."""
    accumulation = plan.accumulation
    while accumulation & (accumulation - 1):
        accumulation += 1
    while accumulation < MOST_ACCUMULATION:
        made = replace(plan, accumulation=accumulation)
        estimate = estimated(made, stages)
        full = (estimate.tick_cycles + estimate.exchange_cycles) * accumulation
        if full >= FULL * estimate.cycles:
            return made
        accumulation *= 2
    return replace(plan, accumulation=accumulation)
