"""Products: of matrices, with biases, and sums by letters of indices."""

from __future__ import annotations

from abele.expr.derivative import arg
from abele.frontends.onnx.ops.einsum import einsum
from abele.frontends.onnx.registry import NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.numerics import f16, f32, i32

x, y = arg(0), arg(1)


def product(call: NodeCall, first: Value, second: Value) -> Value:
    """The product of two values as NumPy's ``matmul`` has it, of integers too."""
    if first.ndim == 0 or second.ndim == 0:
        raise call.wrong("takes no single numbers")
    inner = second.shape[-2] if second.ndim > 1 else second.shape[0]
    if first.shape[-1] != inner:
        raise call.wrong(f"multiplies {list(first.shape)} by {list(second.shape)}, whose inner dimensions differ")
    if first.ndim == 1 and second.ndim == 1:
        row, column = (build.reshape(call.net, v, s) for v, s in ((first, (1, inner)), (second, (inner, 1))))
        return build.reshape(call.net, product(call, row, column), ())
    if first.dtype in (f16, f32):
        return build.matmul(call.net, first, build.cast(call.net, second, first.dtype))
    if first.dtype.is_float:
        # The units have no products of these: they are made of f32.
        made = product(call, *(build.cast(call.net, v, f32) for v in (first, second)))
        return build.cast(call.net, made, first.dtype)
    # Sums of products of integers are exact in f32 up to 2²⁴.
    floats = (build.cast(call.net, v, f32) for v in (first, second))
    return build.cast(call.net, build.matmul(call.net, *floats), first.dtype if first.dtype.bits == 32 else i32)


@op("MatMul")
def matmul(call: NodeCall, first: Value, second: Value) -> Value:
    """The product of matrices, or of stacks of them."""
    if second.ndim == 2 and first.ndim >= 2 and first.dtype in (f16, f32) and first.shape[-1] == second.shape[0]:
        # A layer's weights: [inputs, outputs], which lie as PyTorch's would, turned.
        return build.linear(call.net, first, build.transpose(call.net, second), None)
    return product(call, first, second)


@op("Gemm")
def gemm(
    call: NodeCall,
    first: Value,
    second: Value,
    addend: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 1,
) -> Value:
    """α A B + β C, of which either matrix may be turned."""
    net = call.net
    if first.ndim != 2 or second.ndim != 2:
        raise call.wrong(f"takes matrices, got {list(first.shape)} and {list(second.shape)}")
    rows = build.transpose(net, first) if transA else first
    weight = second if transB else build.transpose(net, second)
    if rows.shape[1] != weight.shape[1]:
        raise call.wrong(f"multiplies {list(rows.shape)} by {list(weight.shape[::-1])}, whose inner dimensions differ")
    bias = addend is not None and addend.shape == weight.shape[:1] and beta == 1.0
    if rows.dtype in (f16, f32) and alpha == 1.0 and bias:
        return build.linear(net, rows, weight, addend)
    if rows.dtype in (f16, f32):
        made = build.linear(net, rows, weight, None)
    else:
        made = product(call, rows, build.transpose(net, weight))
    if alpha != 1.0:
        made = call.map(x * alpha, made)
    if addend is None or beta == 0.0:
        return made
    return call.map(x + y if beta == 1.0 else x + y * beta, made, addend)


@op("Einsum")
def einsum_(call: NodeCall, *values: Value, equation: str) -> Value:
    """Products summed over the indices that the result does not have."""
    return einsum(call, equation, values)
