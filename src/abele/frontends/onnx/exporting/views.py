"""Views, constants and reductions."""

from __future__ import annotations

import math

import numpy as np

from abele.frontends.onnx.exporting.graph import GraphWriter, Written, code_of, wide, writer
from abele.network.ir import NetworkOp
from abele.network.ir.network import contents_of
from abele.numerics import bool_, f32, i32

_BEFORE_ALL = -(2**31)
"""End of a slice that runs backwards to the first index."""


@writer("constant")
def _constant(to: GraphWriter, op: NetworkOp) -> Written:
    return to.constant(contents_of(op), op.output.name or "constant")


@writer("detach", "barrier", "keep", "print", "transfer")
def _same(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    return name


@writer("own_gradient")
def _own_gradient(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    return names[: op.attrs["results"]]


@writer("reshape")
def _reshape(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    return to.reshape(name, op.output.shape)


@writer("permute")
def _permute(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    return to.node("Transpose", name, perm=list(op.attrs["order"]))


@writer("expand")
def _expand(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    return to.expand(name, op.output.shape)


@writer("slice")
def _slice(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    return to.slice(name, *(op.attrs[a] for a in ("dim", "begin", "end", "step")))


@writer("reverse")
def _reverse(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    return reversed_along(to, name, op.attrs["dims"])


def reversed_along(to: GraphWriter, name: str, dims: tuple[int, ...]) -> str:
    """Dimensions backwards."""
    count = len(dims)
    starts, ends, steps = ([n] * count for n in (-1, _BEFORE_ALL, -1))
    return to.node("Slice", name, *(to.ints(n) for n in (starts, ends, dims, steps))) if count else name


@writer("concat")
def _concat(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    return to.node("Concat", *names, axis=op.attrs["dim"])


@writer("bitcast")
def _bitcast(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    to.require_opset(26, "bits read as another type")
    return to.node("BitCast", name, to=code_of(op.output.dtype))


_REDUCED = {"add": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "mul": "ReduceProd"}
_LOGICAL = {"and": "ReduceMin", "or": "ReduceMax"}


@writer("reduce")
def _reduce(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    value, dims, operation = op.inputs[0], op.attrs["dims"], op.attrs["operation"]
    if operation in _LOGICAL:
        made = to.reduce(_LOGICAL[operation], to.cast(name, bool_, i32), dims)
        return to.cast(made, i32, op.output.dtype)
    computed = i32 if value.dtype == bool_ else wide(value.dtype)
    if op.output.dtype.is_float:
        computed = f32
    given, scale = to.cast(name, value.dtype, computed), float(op.attrs["scale"])
    count = math.prod(value.shape[d] for d in dims)
    if scale != 1 and np.float32(scale) == np.float32(1 / count):
        made = to.reduce("ReduceMean", given, dims)
    else:
        made = to.reduce(_REDUCED[operation], given, dims)
        made = made if scale == 1 else to.node("Mul", made, to.number(scale, computed))
    return to.cast(made, computed, op.output.dtype)


@writer("softmax", "log_softmax")
def _softmax(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    made = to.node("Softmax" if op.kind == "softmax" else "LogSoftmax", to.cast(name, op.inputs[0].dtype, f32), axis=-1)
    return to.cast(made, f32, op.output.dtype)


@writer("safe_softmax")
def _safe_softmax(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    given, zero = to.cast(name, op.inputs[0].dtype, f32), to.number(0, f32)
    largest = to.reduce("ReduceMax", given, [op.output.ndim - 1], keep=True)
    hidden = to.node("Equal", largest, to.number(-math.inf, f32))
    made = to.node("Softmax", to.node("Where", hidden, zero, given), axis=-1)
    return to.cast(to.node("Where", hidden, zero, made), f32, op.output.dtype)


@writer("softmax_grad", "log_softmax_grad")
def _softmax_grad(to: GraphWriter, op: NetworkOp, output: str, grad: str) -> Written:
    y, g = (to.cast(n, v.dtype, f32) for n, v in zip((output, grad), op.inputs, strict=True))
    last = [op.output.ndim - 1]
    if op.kind == "softmax_grad":
        total = to.reduce("ReduceSum", to.node("Mul", g, y), last, keep=True)
        made = to.node("Mul", y, to.node("Sub", g, total))
    else:
        made = to.node("Sub", g, to.node("Mul", to.node("Exp", y), to.reduce("ReduceSum", g, last, keep=True)))
    return to.cast(made, f32, op.output.dtype)
