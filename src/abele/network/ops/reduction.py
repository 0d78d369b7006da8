"""Reductions over dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import Const, derivative, select
from abele.expr.simplify import product
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Shape, Value
from abele.network.ir.part import ValuePart, whole_digits
from abele.network.ops.elementwise import cast, map_
from abele.network.ops.views import expand, reshape
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.numerics import ElementType, bool_, f32
from abele.poplibs import popops

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

_NUMPY: dict[str, Callable[..., Any]] = {"add": np.sum, "max": np.max, "min": np.min, "mul": np.prod}
_LOGICAL: dict[str, Callable[..., Any]] = {"and": np.all, "or": np.any}
_NUMPY |= _LOGICAL


def reduce(
    net: BlockBuilder,
    value: Value,
    dims: Sequence[int],
    operation: str = "add",
    *,
    keep: bool = False,
    scale: float = 1.0,
    dtype: ElementType | None = None,
) -> Value:
    """``value`` reduced over ``dims``.

    Args:
        net: The network to extend.
        value: Value to reduce.
        dims: Dimensions to reduce over; they disappear.
        operation: ``add``, ``max``, ``min`` or ``mul``; of bools ``and`` or ``or``.
        keep: Leave the reduced dimensions with one index.
        scale: Factor of the result (only with ``add``).
        dtype: Type of the result; by default that of ``value``.
    """
    dtype = dtype or value.dtype
    gone = sorted({d % value.ndim for d in dims}) if value.ndim else []
    shape = tuple(n for d, n in enumerate(value.shape) if d not in gone)
    kept = tuple(1 if d in gone else n for d, n in enumerate(value.shape))
    result = net.emit("reduce", [value], shape, dtype, dims=tuple(gone), operation=operation, scale=scale)
    return reshape(net, result, kept if keep else shape)


def mean(
    net: BlockBuilder, value: Value, dims: Sequence[int], *, keep: bool = False, dtype: ElementType | None = None
) -> Value:
    """The mean of ``value`` over ``dims``, in its own type or in ``dtype``."""
    return reduce(net, value, dims, keep=keep, scale=1 / math.prod(value.shape[d] for d in dims), dtype=dtype)


def sum_to(net: BlockBuilder, value: Value, shape: Shape) -> Value:
    """``value`` summed over the dimensions along which ``shape`` broadcasts to it."""
    if value.shape == shape:
        return value
    padded = (1,) * (value.ndim - len(shape)) + shape
    dims = [d for d, (have, want) in enumerate(zip(value.shape, padded, strict=True)) if have != want]
    return reshape(net, reduce(net, value, dims) if dims else value, shape)


@rule("reduce")
class Reduce(OpRule):
    """A sum, product, maximum or minimum over dimensions, which disappear; sums may be scaled."""

    wants_one_piece = True
    attributes: ClassVar = {"dims": tuple, "operation": str, "scale": (float, int)}

    def types(self, op: NetworkOp) -> Types:
        """The input without the dimensions, in the element type that the op says."""
        (value,), dims, operation = op.inputs, op.attrs["dims"], op.attrs["operation"]
        require(operation in _NUMPY, f"there is no reduction {operation!r}; there are {', '.join(_NUMPY)}")
        distinct = len(set(dims)) == len(dims) and all(0 <= d < value.ndim for d in dims)
        require(distinct, f"dims={list(dims)} are not dimensions of {list(value.shape)}")
        require(operation == "add" or op.attrs["scale"] == 1, "only sums are scaled")
        require(operation not in _LOGICAL or value.dtype == bool_, f"{operation} takes bools, got {value.dtype}")
        return [(tuple(n for d, n in enumerate(value.shape) if d not in dims), op.output.dtype)]

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> Value | None:
        """A reduction over one element scales or converts it; one of a constant is a constant."""
        (value,), dims, scale = op.inputs, op.attrs["dims"], op.attrs["scale"]
        if math.prod(value.shape[d] for d in dims) == 1:
            if scale == 1:
                return reshape(net, cast(net, value, op.output.dtype), op.output.shape)
            factor = product(derivative.arg(0), Const(scale))
            return map_(net, factor, [reshape(net, value, op.output.shape)], op.output.dtype)
        contents = net.contents(value)
        if contents is None:
            return None
        return net.constant(_NUMPY[op.attrs["operation"]](contents, axis=dims) * scale, op.output.dtype)

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same part of the dimensions that stay, all of the others."""
        kept = iter(part.dims)
        shape, gone = op.inputs[0].shape, op.attrs["dims"]
        return part, [ValuePart(tuple(whole_digits(n) if d in gone else next(kept) for d, n in enumerate(shape)))]

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """The reduction in NumPy, of halves in f32."""
        if op.inputs[0].dtype.is_float and x.dtype.itemsize == 2:
            x = x.astype(np.float32)
        result = _NUMPY[op.attrs["operation"]](x, axis=op.attrs["dims"])
        return np.asarray(result if op.attrs["scale"] == 1 else result * op.attrs["scale"])

    def widens(self, op: NetworkOp, operand: int, dtype: ElementType) -> bool:
        """True for floats, whose partial sums are f32 anyway."""
        return dtype.is_float and op.output.dtype == f32 and op.attrs["operation"] in ("add", "max", "min")

    def rounds(self, op: NetworkOp) -> bool:
        """True: partial sums have a type of their own."""
        return True

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popops reduction."""
        attrs = op.attrs
        scale = attrs["scale"] if attrs["scale"] != 1 else None
        return popops.reduce(
            to.graph,
            to[op.inputs[0]],
            attrs["dims"],
            f"LOGICAL_{attrs['operation'].upper()}" if attrs["operation"] in _LOGICAL else attrs["operation"].upper(),
            to.prog,
            out_type=op.output.dtype,
            scale=scale,
        )

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient repeated over the reduced dimensions; for extrema, where they are reached, shared by equals."""
        (value,), grad = op.inputs, only(grads)
        kept = tuple(1 if d in op.attrs["dims"] else n for d, n in enumerate(value.shape))
        if op.attrs["operation"] == "add":
            scaled = map_(net, product(derivative.arg(0), Const(op.attrs["scale"])), [grad], value.dtype)
            return [expand(net, reshape(net, scaled, kept), value.shape)]
        if op.attrs["operation"] == "mul":
            return [self._to_factors(net, op, reshape(net, grad, kept))]
        return [self._to_extremum(net, op, reshape(net, grad, kept))]

    @staticmethod
    def _to_factors(net: BlockBuilder, op: NetworkOp, grad: Value) -> Value:
        """The gradient times the product of the other elements: a zero among them leaves only its own."""
        (value,), dims = op.inputs, op.attrs["dims"]
        x, zeros, rest, by = (derivative.arg(i) for i in range(4))
        count = reduce(net, map_(net, select(x.eq(0.0), 1.0, 0.0), [value], f32), dims, keep=True)
        known = map_(net, select(x.eq(0.0), 1.0, x), [value])
        product_ = reduce(net, known, dims, "mul", keep=True)
        at_zero = select(zeros.eq(1.0), rest, 0.0)
        elsewhere = select(zeros.eq(0.0), rest / x, 0.0)
        others = select(x.eq(0.0), at_zero, elsewhere)
        return map_(net, others * by, [value, count, product_, grad], value.dtype)

    @staticmethod
    def _to_extremum(net: BlockBuilder, op: NetworkOp, grad: Value) -> Value:
        (value,) = op.inputs
        x, best = derivative.arg(0), derivative.arg(1)
        # NaN is an extreme that equals nothing.
        chosen = select(x.eq(best), 1.0, select(x.ne(x), 1.0, 0.0) if value.dtype.is_float else 0.0)
        hit = map_(net, chosen, [value, reshape(net, op.output, grad.shape)])
        share = map_(net, x / best, [grad, reduce(net, hit, op.attrs["dims"], keep=True)])
        return map_(net, x * best, [hit, share])
