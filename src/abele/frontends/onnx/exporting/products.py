"""Products of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.frontends.onnx.exporting.graph import WRITERS, GraphWriter, Written, writer
from abele.frontends.onnx.exporting.views import reversed_along
from abele.network.ir import NetworkOp, Shape
from abele.poplibs.poplin.conv_params.params import ConvParams


@writer("linear")
def _linear(to: GraphWriter, op: NetworkOp, x: str, weight: str, *bias: str) -> Written:
    if op.output.dtype.is_float:
        return to.node("Gemm", x, weight, *bias, transB=1)
    made = to.node("MatMul", x, to.node("Transpose", weight, perm=[1, 0]))
    return to.node("Add", made, *bias) if bias else made


@writer("matmul")
def _matmul(to: GraphWriter, op: NetworkOp, a: str, b: str) -> Written:
    return to.cast(to.node("MatMul", a, b), op.inputs[0].dtype, op.output.dtype)


@writer("resample")
def _resample(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    """The matrix from the left, for which the dimension is last but one; alone it is the last."""
    value, dim, matrix = op.inputs[0], op.attrs["dim"], op.attrs["matrix"].contents
    weights, last = matrix.astype(value.dtype.np), value.ndim - 1
    if dim == last:
        return to.node("MatMul", name, to.constant(weights.T, "resample"))
    order = [*(d for d in range(value.ndim) if d not in (dim, last)), dim, last]
    turned = to.node("Transpose", name, perm=order) if order != list(range(value.ndim)) else name
    made = to.node("MatMul", to.constant(weights, "resample"), turned)
    back = np.argsort(order).tolist()
    return to.node("Transpose", made, perm=back) if back != list(range(value.ndim)) else made


# --- convolutions -----------------------------------------------------------------------------------------------------


def _kernel(to: GraphWriter, params: ConvParams, weight: str) -> str:
    return reversed_along(to, weight, tuple(2 + d for d, flipped in enumerate(params.flip) if flipped))


def _cut(to: GraphWriter, name: str, low: Sequence[int], high: Sequence[int], extents: Sequence[int]) -> str:
    """The field without what negative padding takes away."""
    for dim, (before, after, extent) in enumerate(zip(low, high, extents, strict=True)):
        if before < 0 or after < 0:
            name = to.slice(name, 2 + dim, max(0, -before), extent - max(0, -after))
    return name


def _spread(to: GraphWriter, name: str, shape: Shape, steps: Sequence[int], zero: str) -> tuple[str, Shape]:
    """The field with zeros between its elements."""
    for dim, step in enumerate(steps, 2):
        if step == 1:
            continue
        around = [0] * (len(shape) + 1)
        apart = to.reshape(name, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
        apart = to.pad(apart, around, [step - 1 if d == dim + 1 else 0 for d in range(len(around))], zero)
        wide = (*shape[:dim], shape[dim] * step, *shape[dim + 1 :])
        shape = (*shape[:dim], (shape[dim] - 1) * step + 1, *shape[dim + 1 :])
        name = to.slice(to.reshape(apart, wide), dim, 0, shape[dim])
    return name, shape


@writer("convolution")
def _convolution(to: GraphWriter, op: NetworkOp, x: str, weight: str, *bias: str) -> Written:
    given: ConvParams = op.attrs["params"]
    if not given.field:
        x, weight = to.reshape(x, (*given.input_shape, 1)), to.reshape(weight, (*given.weights_shape, 1))
        return to.reshape(to.node("Conv", x, weight, *bias, group=given.groups), given.output_shape)
    x, shape = _spread(to, x, given.input_shape, given.input_dilation, to.number(0, op.output.dtype))
    x = _cut(to, x, given.padding_lower, given.padding_upper, shape[2:])
    return to.node(
        "Conv",
        x,
        _kernel(to, given, weight),
        *bias,
        kernel_shape=list(given.kernel),
        strides=list(given.stride),
        dilations=list(given.dilation),
        pads=[max(0, n) for n in (*given.padding_lower, *given.padding_upper)],
        group=given.groups,
    )


@writer("convolution_grad_data")
def _transposed(to: GraphWriter, op: NetworkOp, grad: str, weight: str, *bias: str) -> Written:
    """A transposed convolution; where padding is negative, zeros around it."""
    given: ConvParams = op.attrs["params"]
    if not given.field:
        grad, weight = to.reshape(grad, (*given.output_shape, 1)), to.reshape(weight, (*given.weights_shape, 1))
        return to.reshape(to.node("ConvTranspose", grad, weight, *bias, group=given.groups), given.input_shape)
    low, high = given.padding_lower, given.padding_upper
    spread = [(n - 1) * step + 1 for n, step in zip(given.field, given.input_dilation, strict=True)]
    made = [n + min(0, a) + min(0, b) for n, a, b in zip(spread, low, high, strict=True)]
    pads = [max(0, n) for n in (*low, *high)]
    rank = len(made)
    covered = [
        (n - 1) * stride + (k - 1) * dilation + 1 - a - b
        for n, stride, k, dilation, a, b in zip(
            given.output_field, given.stride, given.kernel, given.dilation, pads[:rank], pads[rank:], strict=True
        )
    ]
    around = min((*low, *high)) < 0
    inside = [] if around else list(bias)
    out = to.node(
        "ConvTranspose",
        grad,
        _kernel(to, given, weight),
        *inside,
        kernel_shape=list(given.kernel),
        strides=list(given.stride),
        dilations=list(given.dilation),
        pads=pads,
        output_padding=[n - c for n, c in zip(made, covered, strict=True)],
        group=given.groups,
    )
    if around:
        lower, upper = ([0, 0, *(max(0, -n) for n in side)] for side in (low, high))
        out = to.pad(out, lower, upper, to.number(0, op.output.dtype))
    for dim, step in enumerate(given.input_dilation):
        if step > 1:
            out = to.slice(out, 2 + dim, 0, spread[dim], step)
    if bias and around:
        out = to.node("Add", out, to.reshape(bias[0], (-1, *[1] * rank)))
    return out


@writer("convolution_group")
def _convolution_group(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    """Its members, one after the other."""
    from abele.network.registry import RULES

    made: list[str | None] = []
    names_of = dict(zip(op.inputs, names, strict=True))
    for member in RULES[op.kind].members(op):  # type: ignore[attr-defined]
        if member.kind not in WRITERS:
            raise to.unsupported(f"operator for an op of kind {member.kind!r}")
        written = WRITERS[member.kind](to, member, *(names_of[v] for v in member.inputs))
        assert isinstance(written, str)
        made.append(written)
    return tuple(made)
