"""Gradient descent, with momentum or without."""

from __future__ import annotations

from typing import Any

from abele.frontends import popxl
from abele.frontends.popxl import ops
from abele.frontends.popxl.tensors import Tensor, TensorByRef
from abele.frontends.popxl_addons.optimizers.moments import OptimizerStep, learned, prepared


class SGDOptimizerStep(OptimizerStep):
    """One update of a variable: g ← g + decay · w, v ← momentum · v + g, w ← w − lr · v, as PyTorch's SGD.

    With momentum it has the state ``velocity``.
    """

    @popxl.in_sequence()
    def build(
        self,
        var: TensorByRef,
        grad: Tensor,
        replica_grouping: Any = None,
        *,
        lr: float | Tensor,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        velocity_dtype: Any = popxl.float32,
        loss_scaling: float | Tensor = 1.0,
        clip_factor: Tensor | None = None,
    ) -> None:
        """Change a variable in place.

        Args:
            var: The variable.
            grad: Its gradient.
            replica_grouping: Replicas that hold the same variable, for the state.
            lr: Learning rate.
            momentum: Part of the velocity that stays; 0 for none.
            weight_decay: Part of the variable that is added to the gradient.
            velocity_dtype: Type of the velocity.
            loss_scaling: Number that the gradient is divided by.
            clip_factor: Factor of the gradient after that.
        """
        given = prepared(var, grad, loss_scaling, clip_factor)
        if weight_decay:
            decayed = ops.cast(var, popxl.float32) * weight_decay
            given = ops.cast(given, popxl.float32) + decayed
        if momentum:
            velocity = self.moment("velocity", var, velocity_dtype, replica_grouping)
            ops.var_updates.accumulator_scale_(velocity, momentum)
            ops.var_updates.accumulate_(velocity, given)
            given = velocity
        learned(var, given, lr)


__all__ = ["SGDOptimizerStep"]
