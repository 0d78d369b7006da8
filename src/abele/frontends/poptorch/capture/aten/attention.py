"""Attention as PyTorch's transformer layers call it."""

from __future__ import annotations

import math

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import bool_


@aten("aten.scaled_dot_product_attention")
def attention(
    call: OperatorCall,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """softmax(query · keyᵀ · scale + mask) · value; a bool mask leaves only the places where it is true.

    A query from which a mask hides every key gives zeros.

    Query heads that share keys (grouped queries) are further rows of one product, so that keys and values are not
    repeated.
    """
    net = call.net
    rows = _rows_of_shared_heads(query, key) if enable_gqa else query.shape
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    queries = build.reshape(net, build.map_(net, arg(0) * factor, [query]), rows)
    scores = build.matmul(net, queries, build.transpose(net, key))
    if rows != query.shape:
        scores = build.reshape(net, scores, (*query.shape[:-1], key.shape[-2]))
    if is_causal:
        mask = net.constant(np.tri(query.shape[-2], key.shape[-2]), bool_, "causal")
    if mask is not None:
        masked = select(arg(1), arg(0), -math.inf) if mask.dtype == bool_ else arg(0) + arg(1)
        scores = build.map_(net, masked, [scores, mask])
    shares = (build.safe_softmax if _may_hide_all(net, mask) else build.softmax)(net, scores, -1)
    shares = build.dropout(net, shares, dropout) if dropout else shares
    if rows == query.shape:
        return build.matmul(net, shares, value)
    mixed = build.matmul(net, build.reshape(net, shares, (*rows[:-1], key.shape[-2])), value)
    return build.reshape(net, mixed, (*query.shape[:-1], value.shape[-1]))


def _may_hide_all(net: BlockBuilder, mask: Value | None) -> bool:
    """True if a mask may hide all keys from a query: one that is not known, or does."""
    known = None if mask is None else net.contents(mask)
    if mask is None or known is None:
        return mask is not None
    visible = known if mask.dtype == bool_ else known > -math.inf
    return not bool(np.broadcast_to(visible, mask.shape).any(-1).all())


def _rows_of_shared_heads(query: Value, key: Value) -> tuple[int, ...]:
    """Shape of the queries with those that share keys one after the other; PyTorch has seen that heads divide."""
    heads, shared = query.shape[-3], key.shape[-3]
    return (*query.shape[:-3], shared, heads // shared * query.shape[-2], query.shape[-1])
