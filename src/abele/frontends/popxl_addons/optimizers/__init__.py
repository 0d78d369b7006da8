"""Optimisers of the addons: modules that change one variable in place."""

from abele.frontends.popxl_addons.optimizers.adam import AdamOptimizerStep
from abele.frontends.popxl_addons.optimizers.lamb import LambOptimizerStep
from abele.frontends.popxl_addons.optimizers.sgd import SGDOptimizerStep

__all__ = ["AdamOptimizerStep", "LambOptimizerStep", "SGDOptimizerStep"]
