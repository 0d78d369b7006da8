"""``gradient_accumulation``: what an update makes of the gradients of its micro-batches."""

from abele.frontends.keras.ipu.enums import GradientAccumulationReductionMethod

__all__ = ["GradientAccumulationReductionMethod"]
