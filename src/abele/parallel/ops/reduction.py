"""Reductions over dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.expr import derivative
from abele.expr.simplify import product
from abele.graph import Tensor
from abele.kernels.nest.ir import Const, select
from abele.numerics import ElementType
from abele.parallel.network import Network, Op, Shape, Value
from abele.parallel.ops.elementwise import cast, map_
from abele.parallel.ops.views import expand, reshape
from abele.parallel.registry import Array, Gradients, OpRule, rule
from abele.poplibs import popops

if TYPE_CHECKING:
    from abele.parallel.lowering import Lowering

_NUMPY: dict[str, Callable[..., Any]] = {"add": np.sum, "max": np.max, "min": np.min, "mul": np.prod}


def reduce(
    net: Network,
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
        value: What to reduce.
        dims: Dimensions to reduce over; they disappear.
        operation: ``add``, ``max``, ``min`` or ``mul``.
        keep: Leave the reduced dimensions with one index.
        scale: Factor of the result (only with ``add``).
        dtype: Type of the result; by default that of ``value``.
    """
    dtype = dtype or value.dtype
    gone = sorted({d % value.ndim for d in dims}) if value.ndim else []
    shape = tuple(n for d, n in enumerate(value.shape) if d not in gone)
    kept = tuple(1 if d in gone else n for d, n in enumerate(value.shape))
    if math.prod(value.shape[d] for d in gone) == 1:
        factor = product(derivative.arg(0), Const(scale))
        result = map_(net, factor, [reshape(net, value, shape)], dtype) if scale != 1 else cast(net, value, dtype)
    elif value in net.constants:
        contents = _NUMPY[operation](net.constants[value], axis=tuple(gone)) * scale
        result = net.constant(contents, dtype)
    else:
        result = net.emit("reduce", [value], shape, dtype, dims=tuple(gone), operation=operation, scale=scale)
    return reshape(net, result, kept if keep else shape)


def mean(
    net: Network, value: Value, dims: Sequence[int], *, keep: bool = False, dtype: ElementType | None = None
) -> Value:
    """The mean of ``value`` over ``dims``, in its own type or in ``dtype``."""
    return reduce(net, value, dims, keep=keep, scale=1 / math.prod(value.shape[d] for d in dims), dtype=dtype)


def sum_to(net: Network, value: Value, shape: Shape) -> Value:
    """``value`` summed over the dimensions along which ``shape`` broadcasts to it."""
    if value.shape == shape:
        return value
    padded = (1,) * (value.ndim - len(shape)) + shape
    dims = [d for d, (have, want) in enumerate(zip(value.shape, padded, strict=True)) if have != want]
    return reshape(net, reduce(net, value, dims) if dims else value, shape)


@rule("reduce")
class Reduce(OpRule):
    """A sum, product, maximum or minimum over dimensions, which disappear; sums may be scaled."""

    def evaluate(self, op: Op, x: Array) -> Array:
        """The reduction in NumPy."""
        result = _NUMPY[op.attrs["operation"]](x, axis=op.attrs["dims"])
        return np.asarray(result if op.attrs["scale"] == 1 else result * op.attrs["scale"])

    def lower(self, to: Lowering, op: Op) -> Tensor:
        """One popops reduction."""
        attrs = op.attrs
        scale = attrs["scale"] if attrs["scale"] != 1 else None
        return popops.reduce(
            to.graph,
            to[op.inputs[0]],
            attrs["dims"],
            attrs["operation"].upper(),
            to.prog,
            out_type=op.output.dtype,
            scale=scale,
        )

    def backward(self, net: Network, op: Op, grad: Value, wanted: Sequence[bool]) -> Gradients:
        """The gradient repeated over what was summed; for extrema, where they are reached, shared by equals."""
        (value,) = op.inputs
        kept = tuple(1 if d in op.attrs["dims"] else n for d, n in enumerate(value.shape))
        if op.attrs["operation"] == "add":
            scaled = map_(net, product(derivative.arg(0), Const(op.attrs["scale"])), [grad], value.dtype)
            return [expand(net, reshape(net, scaled, kept), value.shape)]
        if op.attrs["operation"] == "mul":
            return super().backward(net, op, grad, wanted)
        return [self._to_extremum(net, op, reshape(net, grad, kept))]

    @staticmethod
    def _to_extremum(net: Network, op: Op, grad: Value) -> Value:
        (value,) = op.inputs
        x, best = derivative.arg(0), derivative.arg(1)
        hit = map_(net, select(x.eq(best), 1.0, 0.0), [value, reshape(net, op.output, grad.shape)])
        share = map_(net, x / best, [grad, reduce(net, hit, op.attrs["dims"], keep=True)])
        return map_(net, x * best, [hit, share])
