"""``gradient_accumulation``: reductions of the gradients of an update's micro-batches."""

from abele.frontends.keras.ipu.enums import GradientAccumulationReductionMethod

__all__ = ["GradientAccumulationReductionMethod"]
