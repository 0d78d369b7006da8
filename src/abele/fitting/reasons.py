"""Reasons: why a plan is slower than the best, in IPU time for each sample."""

from __future__ import annotations

from abele.fitting.plan import Estimate, Recomputation, Spreading

_WORDS = {
    "work": "more work for each sample",
    "imbalance": "stages of unequal length",
    "exchange": "exchanges between stages",
    "bubble": "the pipeline fills and empties",
    "all_reduce": "sums of gradients over replicas",
    "update": "updates of weights",
    "streaming": "optimiser state from streaming memory",
}


def reason(plan: Spreading, estimate: Estimate, best: Spreading, best_estimate: Estimate) -> str:
    """Largest losses of time of a plan beside the best one.

    Args:
        plan: The plan.
        estimate: Its expected cost.
        best: The best plan.
        best_estimate: The expected cost of that.
    """
    own, other = estimate.shares(plan), best_estimate.shares(best)
    whole = sum(other.values())
    excess = {name: (own[name] - other[name]) / whole for name in own}
    slower = sum(excess.values())
    found = []
    for name in sorted(excess, key=lambda n: -excess[n])[:2]:
        if excess[name] >= max(0.2 * slower, 0.001):
            found.append(f"{_said(name, plan, best)} +{100 * excess[name]:.1f} %")
    return ", ".join(found) or "as fast"


def _said(name: str, plan: Spreading, best: Spreading) -> str:
    if name != "work":
        return _WORDS[name]
    if plan.stages > 1 and plan.recompute != Recomputation.NOTHING and best.recompute == Recomputation.NOTHING:
        return "activations computed again"
    if plan.stages > 1 and plan.recompute != Recomputation.NOTHING and best.stages == 1:
        return "activations computed again"
    if plan.micro_batch < best.micro_batch:
        return "smaller micro-batches"
    if plan.plans_smaller and not best.plans_smaller:
        return "less memory for products"
    return _WORDS[name]
