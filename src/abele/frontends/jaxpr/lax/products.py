"""Products of matrices.

A product with one matrix for all rows becomes a ``linear`` op, whose matrix lies as the product wants it if nothing has
laid it out before: weights do so, whichever side of a ``dot_general`` they are on and however they are turned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from jax._src.lax import lax as jax_lax

from abele.frontends.jaxpr.lax.whole import multiplied_type, pieces, whole_product
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.frontends.jaxpr.types import element_type
from abele.network import BlockBuilder, Value
from abele.network.ops import build

_Dims = Sequence[int]
_Numbers = tuple[tuple[_Dims, _Dims], tuple[_Dims, _Dims]]


@primitive("dot_general")
def dot_general(
    call: PrimitiveCall,
    left: Value,
    right: Value,
    *,
    dimension_numbers: _Numbers,
    preferred_element_type: Any = None,
) -> Value:
    """Sums of products over contracted dimensions, for each index of the batch dimensions.

    The result has the batch dimensions, then those that are left of the first operand, then those of the second.
    """
    (left_sum, right_sum), (left_batch, right_batch) = dimension_numbers
    net, dtype = call.net, element_type(preferred_element_type) if preferred_element_type is not None else call.dtype
    left_free = [d for d in range(left.ndim) if d not in (*left_sum, *left_batch)]
    right_free = [d for d in range(right.ndim) if d not in (*right_sum, *right_batch)]
    if 0 in (left.size, right.size):
        return build.full(net, 0.0 if call.dtype.is_float else 0, call.shape, call.dtype)
    batch = [left.shape[d] for d in left_batch]
    inner = math.prod(left.shape[d] for d in left_sum)
    rows, columns = math.prod(left.shape[d] for d in left_free), math.prod(right.shape[d] for d in right_free)
    # Both as [groups, rows, inner]: rows of one times rows of the other. One group is no dimension.
    groups = (math.prod(batch),) if batch else ()
    first = build.reshape(net, build.permute(net, left, (*left_batch, *left_free, *left_sum)), (*groups, rows, inner))
    second = build.permute(net, right, (*right_batch, *right_free, *right_sum))
    second = build.reshape(net, second, (*groups, columns, inner))
    if dtype.is_float:
        computed = multiplied_type(dtype)
        made = _of_rows(net, build.cast(net, first, computed), build.cast(net, second, computed))
    else:
        made = whole_product(net, first, second, dtype, _in_pieces(net))
    free = [left.shape[d] for d in left_free] + [right.shape[d] for d in right_free]
    return build.cast(net, build.reshape(net, made, (*batch, *free)), call.dtype)


def _of_rows(net: BlockBuilder, first: Value, second: Value) -> Value:
    """[…, m, k] times [n, k] transposed: […, m, n]."""
    if first.ndim == 3:
        return build.matmul(net, first, build.transpose(net, second))
    if _enters(net, first) and not _enters(net, second):
        return build.transpose(net, build.linear(net, second, first))
    if _enters(net, second):
        return build.linear(net, first, second)
    return build.matmul(net, first, build.transpose(net, second))


def _enters(net: BlockBuilder, value: Value) -> bool:
    """True for what enters the block, such as weights, in another type or view."""
    while (maker := net.makers.get(value)) is not None and maker.kind in ("reshape", "permute", "cast", "detach"):
        value = maker.inputs[0]
    return maker is None


def _in_pieces(net: BlockBuilder) -> Any:
    def partial(first: Value, second: Value, most: int) -> list[Value]:
        made = []
        for begin, end in pieces(first.shape[-1], most):
            cut = [build.slice_(net, v, v.ndim - 1, begin, end) for v in (first, second)]
            made.append(_of_rows(net, *cut))
        return made

    return partial


@primitive("ragged_dot_general")
def ragged_dot_general(
    call: PrimitiveCall,
    left: Value,
    right: Value,
    sizes: Value,
    *,
    ragged_dot_dimension_numbers: Any,
    preferred_element_type: Any = None,
    group_offset: Any = None,
) -> Value:
    """Products of groups of rows with a matrix each: all rows, with zeros in the place of the other groups'.

    JAX's own dense form, which takes as many times the work as there are groups.
    """
    if group_offset is not None:
        raise call.refuse("with group_offset has no lowering", "leave it out", "JAX has no meaning for it on a CPU")
    dense = partial(
        jax_lax._ragged_dot_general_impl,
        ragged_dot_dimension_numbers=ragged_dot_dimension_numbers,
        preferred_element_type=preferred_element_type,
    )
    return call.traced(dense, left, right, sizes)[0]
