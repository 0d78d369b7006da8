"""Attention as PyTorch's transformer layers call it."""

from __future__ import annotations

import math

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import select
from abele.numerics import bool_
from abele.parallel import Value
from abele.parallel.ops import build


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
    """softmax(query · keyᵀ · scale + mask) · value; a bool mask leaves only the places where it is true."""
    if enable_gqa:
        raise call.refuse("with enable_gqa has no lowering", "repeat keys and values for every query head")
    net = call.net
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    scores = build.matmul(net, build.map_(net, arg(0) * factor, [query]), build.transpose(net, key))
    if is_causal:
        mask = net.constant(np.tri(query.shape[-2], key.shape[-2]), bool_, "causal")
    if mask is not None:
        masked = select(arg(1), arg(0), -math.inf) if mask.dtype == bool_ else arg(0) + arg(1)
        scores = build.map_(net, masked, [scores, mask])
    shares = build.softmax(net, scores, -1)
    return build.matmul(net, build.dropout(net, shares, dropout) if dropout else shares, value)
