"""A fully connected layer whose product is one of 8-bit floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array
from abele.frontends import popxl
from abele.frontends.popxl import ops
from abele.frontends.popxl.dtypes import as_dtype
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.fp8_utils import host_pow2scale_cast_to_fp8
from abele.frontends.popxl.replicas import ReplicaGrouping
from abele.frontends.popxl.tensors import Tensor
from abele.frontends.popxl_addons.layers.initial import together, truncated_normal
from abele.frontends.popxl_addons.layers.linear import Linear
from abele.frontends.popxl_addons.ops.fp8_mse_scale import LARGEST, format_name, fp8_mse_scale


class LinearFP8(Linear):
    """A :class:`Linear` whose weights and inputs are 8-bit floats in the product, for inference.

    Its variables are ``weight`` [in, out] in 8 bits and ``weight_log2_scale`` int32, as ``compress(w)`` makes them of a
    weight w, and ``bias`` [out] in the type of the input. The product is in float16.

    Args:
        out_features: Features that it makes.
        bias: False for none.
        replica_grouping: Replicas that hold the same weights.
        dtype: ``popxl.float8_143`` or ``popxl.float8_152``.
        input_log2_scale: Power of two that inputs are multiplied by before they are narrowed; by default the one with
            the least mean square error, found anew for each input.
        cache: Give the graph made before where arguments are like those before.
    """

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        replica_grouping: ReplicaGrouping | None = None,
        *,
        dtype: Any = "float8_143",
        input_log2_scale: int | None = None,
        cache: bool = False,
    ) -> None:
        super().__init__(out_features, bias, replica_grouping, cache=cache)
        self.dtype, self.input_log2_scale = as_dtype(dtype), input_log2_scale
        format_name(self.dtype)

    def build(self, x: Tensor) -> Tensor:
        """[..., out] of [..., in], float16 or float32."""
        if x.rank < 2:
            raise GraphArgumentError(f"LinearFP8 takes [..., in] of two dimensions or more, not {list(x.shape)}")
        draw = truncated_normal((x.shape[-1], self.out_features), np.dtype(np.float32))
        narrow, power = together(lambda: self.compress(draw()), 2)
        same = self.replica_grouping
        weight = self.add_variable_input("weight", narrow, self.dtype, replica_grouping=same)
        scale = self.add_variable_input("weight_log2_scale", power, popxl.int32, replica_grouping=same)
        given = self.input_log2_scale
        by = fp8_mse_scale(x, self.dtype) if given is None else popxl.constant(given, popxl.int32)
        product = ops.matmul_pow2scaled(
            ops.pow2scale_cast_to_fp8(x, by, self.dtype), weight, ops.negate(ops.add(by, scale))
        )
        made = ops.cast(product, x.dtype)
        return made + self.bias_input(x.dtype) if self.bias else made

    def compress(self, weight: Any) -> tuple[Array, Array]:
        """A weight in 8 bits, and the largest power of two at which nothing of it overflows."""
        numbers = np.asarray(weight, np.float64)
        most = float(np.abs(numbers).max(initial=0.0))
        room = np.floor(np.log2(LARGEST[format_name(self.dtype)] / most)) if most else 0
        scale = int(np.clip(room, -16, 15))
        return host_pow2scale_cast_to_fp8(numbers, self.dtype, scale), np.array(scale, np.int32)


__all__ = ["LinearFP8"]
