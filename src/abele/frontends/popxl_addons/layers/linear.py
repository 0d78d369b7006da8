"""A fully connected layer."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from abele.frontends.popxl.replicas import ReplicaGrouping
from abele.frontends.popxl.tensors import Tensor
from abele.frontends.popxl_addons.layers.initial import truncated_normal
from abele.frontends.popxl_addons.module import Module


class Linear(Module):
    """``x @ weight + bias``, with the variables ``weight`` [in, out] and ``bias`` [out].

    Args:
        out_features: Features that it makes; of one shard, where groups of replicas have weights of their own.
        bias: False for none.
        replica_grouping: Replicas that hold the same weights.
        cache: Give the graph made before where arguments are like those before.
    """

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        replica_grouping: ReplicaGrouping | None = None,
        *,
        cache: bool = False,
    ) -> None:
        super().__init__(cache=cache)
        self.out_features, self.bias, self.replica_grouping = out_features, bias, replica_grouping

    def build(self, x: Tensor) -> Tensor:
        """[..., out] of [..., in]."""
        shape = (x.shape[-1], self.out_features)
        draw = truncated_normal(shape, x.dtype.as_numpy())
        made = x @ self.add_variable_input("weight", draw, x.dtype, replica_grouping=self.replica_grouping)
        return made + self.bias_input(x.dtype) if self.bias else made

    def bias_input(self, dtype: Any) -> Tensor:
        """The input for the bias."""
        zeros = partial(np.zeros, self.out_features)
        return self.add_variable_input("bias", zeros, dtype, replica_grouping=self.replica_grouping)


__all__ = ["Linear"]
