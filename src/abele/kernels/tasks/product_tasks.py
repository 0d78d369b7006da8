"""Tasks that run as matrix products: those need no copies of operands, and no parts of long sums."""

from __future__ import annotations

from collections.abc import Mapping

from abele.kernels.nest.merge_dims import merged_dims
from abele.kernels.products.choose import choose_product
from abele.kernels.target import HostTarget
from abele.kernels.tasks.flatten import flatten
from abele.kernels.tasks.layout import SpaceLayout
from abele.kernels.tasks.program import SpaceTable, Task, layout_of


def runs_as_product(task: Task, spaces: SpaceTable, layouts: Mapping[int, SpaceLayout], target: HostTarget) -> bool:
    """True if ``task``, run whole, is a matrix product that runs as one."""
    if target.products is None or len(task.reductions) != 1 or not task.reduced:
        return False
    nest, _ = flatten(task, spaces.all(), lambda number: layout_of(layouts, spaces[number]))
    return choose_product(merged_dims(nest), target) is not None
