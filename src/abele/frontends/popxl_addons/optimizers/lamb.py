"""LAMB: Adam's step, as long as the variable is."""

from __future__ import annotations

from typing import Any

from abele.frontends import popxl
from abele.frontends.popxl import ops
from abele.frontends.popxl.tensors import Tensor, TensorByRef
from abele.frontends.popxl_addons.ops.replicated_all_reduce_TP import replicated_all_reduce
from abele.frontends.popxl_addons.optimizers.moments import OptimizerStep, prepared


class LambOptimizerStep(OptimizerStep):
    """One update of a variable by LAMB, with Adam's states.

    The step x = m̂ / (√v̂ + ε) + decay · w is multiplied by min(‖w‖, max_weight_norm) / ‖x‖.
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
        eps: float = 1e-6,
        loss_scaling: float | Tensor = 1.0,
        clip_factor: Tensor | None = None,
        max_weight_norm: float | None = None,
        shard_group: Any = None,
    ) -> None:
        """Change a variable in place; see :class:`AdamOptimizerStep`.

        Args:
            var: The variable.
            grad: Its gradient.
            replica_grouping: Replicas that hold the same variable, for the states.
            lr: Learning rate.
            beta1: Part of the mean of gradients that stays.
            beta2: Part of the mean of their squares that stays.
            weight_decay: Part of the variable in the step.
            first_order_dtype: Type of the mean of gradients.
            bias_correction: Correct for beginnings at zero.
            eps: Added to the root of the mean of squares.
            loss_scaling: Number that the gradient is divided by.
            clip_factor: Factor of the gradient after that.
            max_weight_norm: Largest norm of the variable that counts; None for no limit.
            shard_group: Replicas that have parts of the variable, over which norms are summed.
        """
        given = prepared(var, grad, loss_scaling, clip_factor)
        first, second = self.moments(var, given, beta1, beta2, first_order_dtype, replica_grouping=replica_grouping)
        step = self.step_count() if bias_correction else None
        x = ops.var_updates.lamb_updater(
            first,
            second,
            weight=var,
            time_step=step,
            weight_decay=weight_decay,
            beta1=beta1,
            beta2=beta2,
            epsilon=eps,
        )
        of_weight, of_step = ops.lamb_square(var), ops.lamb_square(x)
        if shard_group is not None:
            of_weight, of_step = (replicated_all_reduce(t, group=shard_group) for t in (of_weight, of_step))
        ops.var_updates.adam_var_update(var, x, of_weight, of_step, learning_rate=lr, max_weight_norm=max_weight_norm)


__all__ = ["LambOptimizerStep"]
