"""Attention over caches, as models call PopTorch's own functions for it."""

from __future__ import annotations

from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import Value
from abele.network.ops import build
from abele.numerics import i32
from abele.poplibs.popnn.attention import CacheView


@aten("abele.cached_attention")
def cached_attention(
    call: OperatorCall,
    q: Value,
    keys: Value,
    values: Value,
    table: Value,
    first: Value,
    page: int,
    scale: float,
    window: int,
    softcap: float,
) -> Value:
    """Mixed values of the queries."""
    net = call.net
    table, first = build.cast(net, table, i32), build.cast(net, first, i32)
    return build.cached_attention(net, q, keys, values, table, first, view=CacheView(page, scale, window, softcap))
