"""Products with sparse weights (``poptorch.sparse``)."""

from __future__ import annotations

from abele.frontends.poptorch.capture.block_attention import STACKS
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.frontends.poptorch.capture.sparse_products import PATTERNS, PLANS
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.block_attention import CAUSAL, NO_MASK


@aten("abele.sparse_linear")
def sparse_linear(call: OperatorCall, x: Value, values: Value, pattern: str, transposed: bool) -> Value:
    """x · Sᵀ, or x · S."""
    return build.sparse_linear(call.net, x, values, PATTERNS[pattern], transposed=transposed)


@aten("abele.dynamic_sparse_linear")
def dynamic_sparse_linear(call: OperatorCall, x: Value, words: Value, slots: Value, plan: str) -> Value:
    """x · Sᵀ of slots."""
    return build.dynamic_sparse_linear(call.net, x, words, slots, PLANS[plan])


@aten("abele.block_attention")
def block_attention(
    call: OperatorCall, q: Value, k: Value, v: Value, pattern: str, causal: bool, scale: float
) -> Value:
    """Attention over the blocks of a pattern."""
    mask = CAUSAL if causal else NO_MASK
    return build.block_attention(call.net, q, k, v, STACKS[pattern], mask=mask, scale=scale)
