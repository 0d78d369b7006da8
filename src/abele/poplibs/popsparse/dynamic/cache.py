"""Plans, kept by everything that decides them: sizes, block, type, machine, all options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from abele.machine.system import System
from abele.numerics import ElementType, as_element_type, f16
from abele.poplibs.popsparse.dynamic.options import DynamicOptions, read_dynamic_options
from abele.poplibs.popsparse.dynamic.params import (
    DynamicFullyConnectedParams,
    DynamicMatMulParams,
    SparseParams,
    layer_of,
)
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan, device_block
from abele.poplibs.popsparse.dynamic.planner import find_plan
from abele.poplibs.popsparse.target import Target, system_of
from abele.poplibs.poputil.kinds import PlanningCache
from abele.poplibs.poputil.options import Options

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
    function: str,
    params: SparseParams,
    dtype: ElementType | str,
    target: Target,
    options: Options,
    cache: DynamicPlanningCache | None = None,
) -> DynamicPlan:
    """The plan of a call, with its options; from a cache of the process where none is given.

    Args:
        function: The call, for errors.
        params: Parameters of the product or layer; a product is planned for S·X and, unless it is of 8-bit floats,
            Sᵀ·X.
        dtype: Type of the values.
        target: The machine.
        options: Values by PopLibs' names.
        cache: Plans, found once each.

    Raises:
        InvalidOptionError: An option or value that there is not.
        SparsePatternError: The batch is off the grain.
        TypeMismatchError: Elements of another type than f16 and f32; 8-bit floats without a vertex.
    """
    kind = as_element_type(dtype)
    by_element = (
        kind.is_float
        and not kind.is_quarter
        and device_block(layer_of(params).sparsity.blockDimensions, kind) == (1, 1)
    )
    # Products of 8-bit floats have one direction, and sums of halves (low_precision.md §1.3).
    both_ways = isinstance(params, DynamicMatMulParams) and not kind.is_quarter
    chosen = read_dynamic_options(function, options, by_element=by_element, both_ways=both_ways)
    if kind.is_quarter:
        chosen = replace(chosen, partials=f16)
    return (_ALL if cache is None else cache).plan(params, kind, target, chosen)
