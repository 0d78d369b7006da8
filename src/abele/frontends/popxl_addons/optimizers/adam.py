"""Adam, with decay of weights beside it (AdamW)."""

from __future__ import annotations

from typing import Any

from abele.frontends import popxl
from abele.frontends.popxl import ops
from abele.frontends.popxl.tensors import Tensor, TensorByRef
from abele.frontends.popxl_addons.optimizers.moments import OptimizerStep, learned, prepared


class AdamOptimizerStep(OptimizerStep):
    """One update of a variable by Adam, with the states ``first_order``, ``second_order`` and ``step``.

    m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², w ← w − lr (m̂ / (√v̂ + ε) + decay · w), where m̂ and v̂ are
    corrected for their beginning at zero.
    """

    @popxl.in_sequence()
    def build(
        self,
        var: TensorByRef,
        grad: Tensor,
        replica_grouping: Any = None,
        *,
        lr: float | Tensor,
        beta1: float | Tensor = 0.9,
        beta2: float | Tensor = 0.999,
        weight_decay: float | Tensor = 1e-2,
        first_order_dtype: Any = popxl.float16,
        bias_correction: bool = True,
        eps: float = 1e-5,
        loss_scaling: float | Tensor = 1.0,
        clip_factor: Tensor | None = None,
    ) -> None:
        """Change a variable in place.

        Args:
            var: The variable.
            grad: Its gradient.
            replica_grouping: Replicas that hold the same variable, for the states.
            lr: Learning rate.
            beta1: Part of the mean of gradients that stays.
            beta2: Part of the mean of their squares that stays.
            weight_decay: Part of the variable that leaves it, times the learning rate.
            first_order_dtype: Type of the mean of gradients; that of squares is float32.
            bias_correction: Correct for beginnings at zero, by a count of updates.
            eps: Added to the root of the mean of squares.
            loss_scaling: Number that the gradient is divided by.
            clip_factor: Factor of the gradient after that.
        """
        given = prepared(var, grad, loss_scaling, clip_factor)
        first, second = self.moments(var, given, beta1, beta2, first_order_dtype, replica_grouping=replica_grouping)
        step = self.step_count() if bias_correction else None
        learned(
            var,
            ops.var_updates.adam_updater(
                first,
                second,
                weight=var,
                time_step=step,
                weight_decay=weight_decay,
                beta1=beta1,
                beta2=beta2,
                epsilon=eps,
            ),
            lr,
        )


__all__ = ["AdamOptimizerStep"]
