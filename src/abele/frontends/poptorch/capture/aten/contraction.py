"""Matrix products."""

from __future__ import annotations

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.parallel import Value
from abele.parallel.ops import build


@aten("aten.linear")
def linear(call: OperatorCall, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x · weightᵀ + bias."""
    return build.linear(call.net, x, weight, bias)


@aten("aten.matmul", "aten.mm.default", "aten.bmm.default", "aten.mv", "aten.dot")
def matmul(call: OperatorCall, a: Value, b: Value) -> Value:
    """The matrix product."""
    return build.matmul(call.net, a, b)


@aten("aten.addmm.default", "aten.baddbmm.default")
def addmm(call: OperatorCall, c: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """beta · c + alpha · (a · b); a plain bias is added in place."""
    if alpha == beta == 1 and c.ndim == 1 and b.ndim == 2:
        return build.linear(call.net, a, build.transpose(call.net, b), c)
    product = build.matmul(call.net, a, b)
    return build.map_(call.net, arg(0) * float(beta) + arg(1) * float(alpha), [c, product], call.dtype)
