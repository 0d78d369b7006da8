"""A convolution of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from abele.frontends.popxl import ops
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.replicas import ReplicaGrouping
from abele.frontends.popxl.tensors import Tensor
from abele.frontends.popxl_addons.layers.initial import truncated_normal
from abele.frontends.popxl_addons.module import Module

Pair = int | Sequence[int]


class Conv2D(Module):
    """A convolution of [batch, channels, rows, columns], with the variables ``weight`` and ``bias``.

    The weight is [out_channels, channels / groups, *kernel], as PyTorch's.

    Args:
        out_channels: Channels that it makes.
        kernel_size: Rows and columns of the kernel, or one number for both.
        stride: Distance between windows.
        padding: Rows and columns of zeros around: one number, two, or four (before both, then after both).
        dilation: Distance between elements of the kernel.
        groups: Groups of channels that are convolved on their own.
        bias: False for none.
        replica_grouping: Replicas that hold the same variables.
        cache: Give the graph made before where arguments are like those before.
    """

    def __init__(
        self,
        out_channels: int,
        kernel_size: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        replica_grouping: ReplicaGrouping | None = None,
        cache: bool = False,
    ) -> None:
        super().__init__(cache=cache)
        self.out_channels, self.groups, self.bias, self.replica_grouping = out_channels, groups, bias, replica_grouping
        self.kernel_size, self.stride, self.dilation = (_pair(v) for v in (kernel_size, stride, dilation))
        self.padding = (*_pair(padding), *_pair(padding)) if _count(padding) != 4 else tuple(padding)  # type: ignore[arg-type]

    def build(self, x: Tensor) -> Tensor:
        """[batch, out_channels, …]."""
        if x.rank != 4 or x.shape[1] % self.groups or self.out_channels % self.groups:
            raise GraphArgumentError(f"Conv2D makes {self.out_channels} channels in {self.groups} of {list(x.shape)}")
        same = self.replica_grouping
        draw = truncated_normal((self.out_channels, x.shape[1] // self.groups, *self.kernel_size), x.dtype.as_numpy())
        weight = self.add_variable_input("weight", draw, x.dtype, replica_grouping=same)
        made = ops.conv(x, weight, stride=self.stride, padding=self.padding, dilation=self.dilation, groups=self.groups)
        if not self.bias:
            return made
        zeros = partial(np.zeros, self.out_channels)
        bias = self.add_variable_input("bias", zeros, x.dtype, replica_grouping=same)
        return made + bias.reshape((self.out_channels, 1, 1))


def _count(value: Pair) -> int:
    return 1 if isinstance(value, int) else len(value)


def _pair(value: Pair) -> tuple[int, int]:
    found = (value, value) if isinstance(value, int) else tuple(value)
    if len(found) != 2:
        raise GraphArgumentError(f"Conv2D takes one number or two, not {list(found)}")
    return int(found[0]), int(found[1])


__all__ = ["Conv2D"]
