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
    """What every run of segments costs as a stage of a pipeline, or as all of one.

    Attributes:
        costs: What the segments cost.
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
        by_proportion: What stages cost whose products plan with a share, the libraries' own first.
        hosts_apart: True if IPUs meet the host without one another.
    """

    by_proportion: Mapping[float | None, StageCosts]
    hosts_apart: bool

    @staticmethod
    def of(
        plan: Spreading, costs: Mapping[float | None, ChainCosts], system: System, *, hosts_apart: bool = False
    ) -> Stages:
        """What stages cost.

        Args:
            plan: The plan, whose cuts are not looked at.
            costs: What segments cost, by the share of a tile's memory.
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
        """What stages cost whose products plan with the libraries' own share."""
        return next(iter(self.by_proportion.values()))

    @property
    def system(self) -> System:
        """The machine."""
        return self.usual.memory.system

    @property
    def available_bytes(self) -> int:
        """What a tile has."""
        return self.usual.memory.available_bytes

    @property
    def costs(self) -> ChainCosts:
        """What the segments cost with the libraries' own share."""
        return self.usual.costs

    def on(self, plan: Spreading, ipu: int) -> StageCosts:
        """What stages cost on an IPU of a plan."""
        share = plan.proportion_of(ipu)
        return self.usual if share is None else self.by_proportion[share]
