"""Stages: what every run of segments costs, for each share of a tile's memory that its products may plan with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from abele.fitting.costs import ChainCosts
from abele.fitting.plan import Spreading
from abele.fitting.stage_cycles import StageCycles
from abele.fitting.stage_memory import StageMemory
from abele.fitting.traffic import collective_costs
from abele.machine import System


@dataclass(frozen=True, eq=False)
class StageCosts:
    """Costs of every run of segments as a stage of a pipeline, or as all of one.

    Attributes:
        costs: Costs of the segments.
        memory: Bytes.
        cycles: Cycles.
    """

    costs: ChainCosts
    memory: StageMemory
    cycles: StageCycles

    def update_cycles(self, begin: int, end: int) -> int:
        """Cycles of the update of a stage's weights."""
        return round(sum(s.update_cycles for s in self.costs.segments[begin:end]) * self.memory.state_share)


@dataclass(frozen=True, eq=False)
class Stages:
    """The same for each share of a tile's memory.

    Attributes:
        by_proportion: Costs of stages by the proportion that products plan with, the libraries' own first.
        hosts_apart: True if IPUs meet the host without one another.
    """

    by_proportion: Mapping[float | None, StageCosts]
    hosts_apart: bool

    @staticmethod
    def of(
        plan: Spreading, costs: Mapping[float | None, ChainCosts], system: System, *, hosts_apart: bool = False
    ) -> Stages:
        """Costs of all stages of a plan.

        Args:
            plan: The plan, whose cuts are not looked at.
            costs: Costs of segments, by the proportion of a tile's memory that products plan with.
            system: The machine.
            hosts_apart: True if IPUs meet the host without one another.
        """
        reduces = plan.replicas > 1 and next(iter(costs.values())).training
        code = collective_costs(plan.ipus, plan.replicas, system).code_bytes if reduces else 0

        def made(of: ChainCosts) -> StageCosts:
            memory = StageMemory(
                costs=of,
                system=system,
                recompute=plan.recompute,
                state=plan.state,
                replicas=plan.replicas,
                functions=plan.shared_functions,
                collective_code=code,
            )
            cycles = StageCycles(
                costs=of,
                system=system,
                recompute=plan.recompute,
                ipus=plan.ipus,
                replicas=plan.replicas,
                functions=plan.shared_functions,
                hosts_apart=hosts_apart,
            )
            return StageCosts(of, memory, cycles)

        return Stages({share: made(of) for share, of in costs.items()}, hosts_apart)

    @property
    def usual(self) -> StageCosts:
        """Costs of stages whose products plan with the libraries' own proportion."""
        return next(iter(self.by_proportion.values()))

    @property
    def system(self) -> System:
        """The machine."""
        return self.usual.memory.system

    @property
    def available_bytes(self) -> int:
        """Bytes that a tile has."""
        return self.usual.memory.available_bytes

    @property
    def costs(self) -> ChainCosts:
        """Costs of the segments with the libraries' own proportion."""
        return self.usual.costs

    def on(self, plan: Spreading, ipu: int) -> StageCosts:
        """Costs of stages on an IPU of a plan."""
        share = plan.proportion_of(ipu)
        return self.usual if share is None else self.by_proportion[share]
