"""Products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.frontends.jaxpr.types import element_type
from abele.network import Value
from abele.network.ops import build

_Dims = Sequence[int]


@primitive("dot_general")
def dot_general(
    call: PrimitiveCall,
    left: Value,
    right: Value,
    *,
    dimension_numbers: tuple[tuple[_Dims, _Dims], tuple[_Dims, _Dims]],
    preferred_element_type: Any,
) -> Value:
    """Sums of products over contracted dimensions, for each index of the batch dimensions.

    The result has the batch dimensions, then those that are left of the first operand, then those of the second.
    """
    (left_sum, right_sum), (left_batch, right_batch) = dimension_numbers
    net, dtype = call.net, element_type(preferred_element_type) if preferred_element_type is not None else call.dtype
    left_free = [d for d in range(left.ndim) if d not in (*left_sum, *left_batch)]
    right_free = [d for d in range(right.ndim) if d not in (*right_sum, *right_batch)]
    batch = [left.shape[d] for d in left_batch]
    inner = math.prod(left.shape[d] for d in left_sum)
    rows, columns = math.prod(left.shape[d] for d in left_free), math.prod(right.shape[d] for d in right_free)
    first = build.permute(net, left, (*left_batch, *left_free, *left_sum))
    second = build.permute(net, right, (*right_batch, *right_sum, *right_free))
    first = build.reshape(net, first, (*batch, rows, inner) if batch else (rows, inner))
    second = build.reshape(net, second, (*batch, inner, columns) if batch else (inner, columns))
    product = build.matmul(net, build.cast(net, first, dtype), build.cast(net, second, dtype))
    free = [left.shape[d] for d in left_free] + [right.shape[d] for d in right_free]
    return build.cast(net, build.reshape(net, product, (*batch, *free)), call.dtype)
