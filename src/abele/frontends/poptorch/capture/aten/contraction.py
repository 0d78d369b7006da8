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


@aten("aten.addbmm")
def addbmm(call: OperatorCall, c: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """beta · c + alpha · the sum of all products: one product over what all of them sum over."""
    net = call.net
    rows = build.reshape(net, build.permute(net, a, [1, 0, 2]), (a.shape[1], a.shape[0] * a.shape[2]))
    product = build.matmul(net, rows, build.reshape(net, b, (b.shape[0] * b.shape[1], b.shape[2])))
    return build.map_(net, arg(0) * float(beta) + arg(1) * float(alpha), [c, product], call.dtype)


@aten("aten.bilinear")
def bilinear(call: OperatorCall, a: Value, b: Value, weight: Value, bias: Value | None = None) -> Value:
    """a · weight[n] · b for each n, plus bias: one product with all weights, then sums of products with b."""
    net, (outputs, left, right) = call.net, weight.shape
    rows = build.reshape(net, a, (-1, left))
    wide = build.reshape(net, build.permute(net, weight, [1, 0, 2]), (left, outputs * right))
    crossed = build.reshape(net, build.matmul(net, rows, wide), (rows.shape[0], outputs, right))
    beside = build.reshape(net, b, (rows.shape[0], 1, right))
    total = build.reduce(net, build.map_(net, arg(0) * arg(1), [crossed, beside]), [2])
    total = total if bias is None else build.map_(net, arg(0) + arg(1), [total, bias])
    return build.reshape(net, total, call.shape)
