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


@aten("abele.sampled_product")
def sampled_product(call: OperatorCall, a: Value, b: Value, pattern: str) -> Value:
    """Values of a · bᵀ at the places of a pattern."""
    return build.sampled_matmul(call.net, a, b, PATTERNS[pattern])


@aten("abele.block_scores")
def block_scores(call: OperatorCall, q: Value, k: Value, stack: str) -> Value:
    """Scores at the places of a pattern."""
    return build.block_scores(call.net, q, k, STACKS[stack])


@aten("abele.block_softmax")
def block_softmax(call: OperatorCall, scores: Value, stack: str, heads: int, causal: bool) -> Value:
    """Shares of the held scores of each row."""
    return build.block_softmax(call.net, scores, STACKS[stack], heads, mask=CAUSAL if causal else NO_MASK)


@aten("abele.block_product")
def block_product(call: OperatorCall, shares: Value, v: Value, stack: str, heads: int) -> Value:
    """Held shares times values."""
    return build.block_product(call.net, shares, v, STACKS[stack])
