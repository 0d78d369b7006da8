"""Plans, kept by everything that decides them: sizes, block, type, machine, all options."""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.machine.system import System
from abele.numerics import ElementType
from abele.poplibs.popsparse.dynamic.options import DynamicOptions
from abele.poplibs.popsparse.dynamic.params import DynamicFullyConnectedParams, SparseParams, layer_of
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.dynamic.planner import find_plan
from abele.poplibs.popsparse.target import Target, system_of
from abele.poplibs.poputil.kinds import PlanningCache

Key = tuple[DynamicFullyConnectedParams, ElementType, System, DynamicOptions]


@dataclass
class DynamicPlanningCache(PlanningCache):
    """Plans of dynamic sparse products; calls and the Partitioner may share one."""

    _plans: dict[Key, DynamicPlan] = field(default_factory=dict, repr=False)

    def plan(self, params: SparseParams, dtype: ElementType, target: Target, options: DynamicOptions) -> DynamicPlan:
        """The plan of a product, found once."""
        key = layer_of(params), dtype, system_of(target), options
        if key not in self._plans:
            self._plans[key] = find_plan(*key)
        return self._plans[key]

    def size(self) -> int:
        """Number of plans."""
        return len(self._plans)


_ALL = DynamicPlanningCache()


def plan_of(
    params: SparseParams,
    dtype: ElementType,
    target: Target,
    options: DynamicOptions,
    cache: DynamicPlanningCache | None = None,
) -> DynamicPlan:
    """The plan of a product; from a cache of the process where none is given."""
    return (_ALL if cache is None else cache).plan(params, dtype, target, options)
