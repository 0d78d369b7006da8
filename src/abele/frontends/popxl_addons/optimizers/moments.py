"""States of optimisers, and gradients as they use them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from abele.frontends import popxl
from abele.frontends.popxl import ops
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import tensor_of
from abele.frontends.popxl.tensors import Tensor
from abele.frontends.popxl_addons.module import Module


class OptimizerStep(Module):
    """A module that changes one variable by its gradient.

    Its graph is the same for all variables of a shape: with ``cache`` it is made once.
    """

    def __init__(self, cache: bool = True) -> None:
        super().__init__(cache=cache)

    def moment(self, name: str, var: Tensor, dtype: Any, replica_grouping: Any) -> Tensor:
        """The input for a state of the variable's shape; a shard of it, where the variable is a shard."""
        shape = tuple(var.meta_shape) or var.shape
        zeros = partial(np.zeros, shape)
        add = self.add_replica_sharded_variable_input if var.meta_shape else self.add_variable_input
        made: Tensor = add(name, zeros, dtype, by_ref=True, replica_grouping=replica_grouping)
        return made

    def moments(
        self, var: Tensor, grad: Tensor, beta1: Any, beta2: Any, first_order_dtype: Any, *, replica_grouping: Any
    ) -> tuple[Tensor, Tensor]:
        """Adam's states ``first_order`` and ``second_order``: means of gradients and of squares, with this one."""
        first = self.moment("first_order", var, first_order_dtype, replica_grouping)
        second = self.moment("second_order", var, popxl.float32, replica_grouping)
        ops.var_updates.accumulate_moving_average_(first, grad, beta1)
        ops.var_updates.accumulate_moving_average_square_(second, grad, beta2)
        return first, second

    def step_count(self) -> Tensor:
        """The input for the number of updates so far."""
        return self.add_variable_input("step", partial(np.zeros, ()), popxl.float32, by_ref=True)


def prepared(var: Tensor, grad: Tensor, loss_scaling: Any, clip_factor: Any) -> Tensor:
    """The gradient without the loss scale, and clipped.

    Args:
        var: The variable.
        grad: Its gradient, times the loss scale.
        loss_scaling: The loss scale.
        clip_factor: A factor for all gradients, such as :func:`clip_factor` makes; None for none.

    Raises:
        GraphArgumentError: The gradient has another shape than the variable.
    """
    if grad.shape != var.shape:
        raise GraphArgumentError(f"the gradient {list(grad.shape)} is of another shape than {var!r}")
    if isinstance(loss_scaling, Tensor) or loss_scaling != 1:
        wide = ops.cast(grad, popxl.float32)
        grad = wide / _factor(loss_scaling)
    if clip_factor is not None:
        grad = ops.cast(grad, popxl.float32) * _factor(clip_factor)
    return grad


def _factor(value: Any) -> Tensor:
    made = tensor_of(value, popxl.float32)
    if made.nelms != 1:
        raise GraphArgumentError(f"a factor has one element, {made!r} has {made.nelms}")
    return ops.cast(made.reshape(()), popxl.float32)


def learned(var: Tensor, step: Tensor, lr: Any) -> None:
    """Change the variable by minus the learning rate times a step."""
    rate = ops.negate(lr) if isinstance(lr, Tensor) else -float(lr)
    ops.var_updates.accumulate_(var, step, rate)


__all__ = ["OptimizerStep", "learned", "prepared"]
