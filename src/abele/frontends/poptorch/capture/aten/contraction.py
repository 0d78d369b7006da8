"""Matrix products."""

from __future__ import annotations

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Expr
from abele.network import Value
from abele.network.ops import build


@aten("aten.linear")
def linear(call: OperatorCall, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x · weightᵀ + bias."""
    if not call.dtype.is_float:
        product = _whole_product(call, x, weight if weight.ndim == 1 else build.transpose(call.net, weight))
        return product if bias is None else call.map(arg(0) + arg(1), product, bias)
    return build.linear(call.net, x, weight, bias)


@aten("aten.matmul", "aten.mm.default", "aten.bmm.default", "aten.mv", "aten.dot", "aten.vdot")
def matmul(call: OperatorCall, a: Value, b: Value) -> Value:
    """The matrix product."""
    if not call.dtype.is_float:
        return _whole_product(call, a, b)
    return build.reshape(call.net, build.matmul(call.net, a, b), call.shape)


def _whole_product(call: OperatorCall, a: Value, b: Value) -> Value:
    """The matrix product of integers, which matrix units do not have: products, and their sums."""
    return build.reshape(call.net, _whole_rows(call, a, b), call.shape)


def _whole_rows(call: OperatorCall, a: Value, b: Value) -> Value:
    """The product of integers, in which vectors are matrices of one row or column."""
    net = call.net
    rows = build.reshape(net, a, (1, *a.shape)) if a.ndim == 1 else a
    columns = build.reshape(net, b, (*b.shape, 1)) if b.ndim == 1 else b
    left = build.reshape(net, rows, (*rows.shape, 1))
    right = build.reshape(net, columns, (*columns.shape[:-2], 1, *columns.shape[-2:]))
    products = build.map_(net, arg(0) * arg(1), [left, right], call.dtype)
    return build.reduce(net, products, [products.ndim - 2])


@aten("aten.addbmm")
def addbmm(call: OperatorCall, c: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """beta · c + alpha · the sum of the products of all pairs of matrices: one product along both dimensions."""
    net = call.net
    pairs, rows, inner = a.shape
    left = build.reshape(net, build.permute(net, a, (1, 0, 2)), (rows, pairs * inner))
    right = build.reshape(net, b, (pairs * inner, b.shape[-1]))
    product = build.matmul(net, left, right) if call.dtype.is_float else _whole_product(call, left, right)
    return call.map(_added(call, beta, alpha), c, product)


@aten("aten.bilinear")
def bilinear(call: OperatorCall, a: Value, b: Value, weight: Value, bias: Value | None = None) -> Value:
    """aᵀ · weight[o] · b for every output o, and the bias."""
    net = call.net
    outputs, first, second = weight.shape
    outer = a.shape[:-1]
    by_first = build.reshape(net, build.permute(net, weight, (1, 0, 2)), (first, outputs * second))
    rows = build.reshape(net, a, (a.size // first, first))
    product = build.matmul(net, rows, by_first) if call.dtype.is_float else _whole_rows(call, rows, by_first)
    half = build.reshape(net, product, (rows.shape[0], outputs, second))
    other = build.reshape(net, b, (rows.shape[0], 1, second))
    total = build.reduce(net, build.map_(net, arg(0) * arg(1), [half, other]), [2])
    total = build.reshape(net, total, (*outer, outputs))
    return total if bias is None else call.map(arg(0) + arg(1), total, bias)


def _added(call: OperatorCall, beta: float, alpha: float) -> Expr:
    """beta · a + alpha · b; where beta is zero, a does not count even if it is no number."""
    if not call.dtype.is_float:
        beta, alpha = int(beta), int(alpha)
    scaled = arg(1) if alpha == 1 else arg(1) * alpha
    return scaled if beta == 0 else (arg(0) if beta == 1 else arg(0) * beta) + scaled


@aten("aten.addmm.default", "aten.baddbmm.default")
def addmm(call: OperatorCall, c: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """beta · c + alpha · (a · b); a plain bias is added in place."""
    if alpha == beta == 1 and c.shape == b.shape[1:] and b.ndim == 2 and call.dtype.is_float:
        return build.linear(call.net, a, build.transpose(call.net, b), c)
    product = build.matmul(call.net, a, b) if call.dtype.is_float else _whole_product(call, a, b)
    return call.map(_added(call, beta, alpha), c, product)
