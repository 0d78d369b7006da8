"""A fully connected layer with weights of 4 bits."""

from __future__ import annotations

import numpy as np

from abele.frontends import popxl
from abele.frontends.popxl import ops
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.replicas import ReplicaGrouping
from abele.frontends.popxl.tensors import Tensor
from abele.frontends.popxl_addons.layers.initial import together, truncated_normal
from abele.frontends.popxl_addons.layers.linear import Linear
from abele.frontends.popxl_addons.ops.group_quantize_decompress import (
    group_quantize_compress,
    group_quantize_decompress,
)


class LinearGQ(Linear):
    """A :class:`Linear` whose weights are 4 bits in groups: memory of a quarter of float16, for inference.

    Its variables are ``weight`` uint16[out, in / group_size, group_size / 4], ``decompression_scale`` and
    ``decompression_bias`` [out, in / group_size, 1], as ``group_quantize_compress(w.T, group_size)`` makes them of a
    weight w [in, out], and ``bias`` [out].

    Args:
        out_features: Features that it makes.
        bias: False for none.
        replica_grouping: Replicas that hold the same weights.
        group_size: Inputs of one scale, a multiple of 4 that divides them.
        cache: Give the graph made before where arguments are like those before.
    """

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        replica_grouping: ReplicaGrouping | None = None,
        *,
        group_size: int = 64,
        cache: bool = False,
    ) -> None:
        super().__init__(out_features, bias, replica_grouping, cache=cache)
        self.group_size = group_size

    def build(self, x: Tensor) -> Tensor:
        """[..., out] of [..., in]."""
        if self.group_size % 4 or not 0 < self.group_size <= x.shape[-1] or x.shape[-1] % self.group_size:
            raise GraphArgumentError(
                f"LinearGQ has groups of {self.group_size}, its input {x.shape[-1]} features",
                remedy="group_size, a multiple of 4 that divides the features",
            )
        draw = truncated_normal((self.out_features, x.shape[-1]), np.dtype(np.float32))
        host, same = x.dtype.as_numpy(), self.replica_grouping
        parts = together(lambda: group_quantize_compress(draw(), self.group_size, host), 3)
        names = {"weight": popxl.uint16, "decompression_scale": x.dtype, "decompression_bias": x.dtype}
        words, scale, shift = (
            self.add_variable_input(name, part, kind, replica_grouping=same)
            for part, (name, kind) in zip(parts, names.items(), strict=True)
        )
        made = x @ ops.transpose(group_quantize_decompress(words, scale, shift))
        return made + self.bias_input(x.dtype) if self.bias else made


__all__ = ["LinearGQ"]
