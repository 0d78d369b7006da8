"""Scans: what an operation makes of everything up to each element along a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.part import ValuePart
from abele.network.ops.constant import full
from abele.network.ops.elementwise import cast, map_
from abele.network.ops.lookup import sum_rows
from abele.network.ops.views import concat, reshape, slice_, transpose
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.numerics import i32
from abele.poplibs import popops

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

x, y, z = arg(0), arg(1), arg(2)


def scan(net: BlockBuilder, value: Value, dim: int, operation: str = "add", *, reverse: bool = False) -> Value:
    """Cumulative results of ``operation`` over ``value`` along ``dim``.

    Args:
        net: The network to extend.
        value: Numbers.
        dim: The dimension that is gone along.
        operation: ``add``, ``mul``, ``max``, ``min``, or ``logaddexp`` of floats.
        reverse: True to begin at the last index.
    """
    return net.emit_like("scan", [value], value, dim=dim % value.ndim, operation=operation, reverse=reverse)


def recurrence(net: BlockBuilder, factor: Value, addend: Value, dim: int, *, reverse: bool = False) -> Value:
    """h[i] = factor[i] · h[i − 1] + addend[i] along ``dim``, from h[−1] = 0; from the end if ``reverse``."""
    return net.emit_like("recurrence", [factor, addend], addend, dim=dim % addend.ndim, reverse=reverse)


def shifted(net: BlockBuilder, value: Value, dim: int, fill: float, *, reverse: bool = False) -> Value:
    """``value`` one index further along ``dim``, with ``fill`` where there is none before; back if ``reverse``."""
    extent = value.shape[dim]
    around = full(net, fill, (*value.shape[:dim], 1, *value.shape[dim + 1 :]), value.dtype)
    kept = slice_(net, value, dim, 1, extent) if reverse else slice_(net, value, dim, 0, extent - 1)
    if extent == 1:
        return around
    return concat(net, [kept, around] if reverse else [around, kept], dim)


def _needs_rows(op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
    """Whole rows of the operands along ``dim``, for the part's other dimensions."""
    made = part.with_whole(op.attrs["dim"])
    return made, [made] * len(op.inputs)


def _flipped(array: Array, op: NetworkOp) -> Array:
    return np.flip(array, op.attrs["dim"]) if op.attrs["reverse"] else array


_NUMPY: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "logaddexp": np.logaddexp,
}


@rule("scan")
class Scan(OpRule):
    """Sums, products, extrema, or logarithms of sums of exponentials, of everything up to each index."""

    attributes: ClassVar = {"dim": int, "operation": str, "reverse": bool}

    def types(self, op: NetworkOp) -> Types:
        """The operand's."""
        (value,), operation = op.inputs, op.attrs["operation"]
        require(0 <= op.attrs["dim"] < value.ndim, f"{value} has no dimension {op.attrs['dim']}")
        require(operation in _NUMPY, f"there is no scan {operation!r}; there are {', '.join(_NUMPY)}")
        require(operation != "logaddexp" or value.dtype.is_float, f"{value} is no float")
        return [value.type]

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> Value | None:
        """The operand, where it has one index."""
        return op.inputs[0] if op.output.shape[op.attrs["dim"]] <= 1 else None

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """Whole rows of the operand, for the part's other dimensions."""
        return _needs_rows(op, part)

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """NumPy's accumulation, of halves in f32."""
        wide = np.float32 if op.output.dtype.is_float and x.dtype.itemsize == 2 else x.dtype
        made = _NUMPY[op.attrs["operation"]].accumulate(_flipped(x, op).astype(wide), op.attrs["dim"], dtype=wide)
        return np.asarray(_flipped(made, op))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popops scan."""
        attrs, value = op.attrs, to[op.inputs[0]]
        return popops.scan(
            to.graph, value, attrs["dim"], to.prog, attrs["operation"], reverse=attrs["reverse"], name="scan"
        )

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """A scan of the gradient from the other end; of extrema, to the index that each was taken from."""
        return [_BACKWARD[op.attrs["operation"]](net, op, only(grads))]


def _back(op: NetworkOp) -> dict[str, Any]:
    """The way against that of the op."""
    return {"dim": op.attrs["dim"], "reverse": not op.attrs["reverse"]}


def _of_sum(net: BlockBuilder, op: NetworkOp, grad: Value) -> Value:
    return scan(net, grad, **_back(op))


def _of_product(net: BlockBuilder, op: NetworkOp, grad: Value) -> Value:
    """Gradient of a cumulative product: the product before an element, times the effect of the element on all from it
    on. There is no division, so zeros are factors like others.
    """
    (value,), (dim, reverse) = op.inputs, (op.attrs["dim"], op.attrs["reverse"])
    following = shifted(net, value, dim, 0.0, reverse=not reverse)
    effect = recurrence(net, following, grad, **_back(op))
    return map_(net, x * y, [shifted(net, op.output, dim, 1.0, reverse=reverse), effect])


def _of_extremum(net: BlockBuilder, op: NetworkOp, grad: Value) -> Value:
    taken = taken_from(net, op.inputs[0], op.output, op.attrs["dim"], reverse=op.attrs["reverse"])
    return add_along(net, grad, taken, op.attrs["dim"], op.output.shape[op.attrs["dim"]])


def _of_logarithm(net: BlockBuilder, op: NetworkOp, grad: Value) -> Value:
    """exp(x) times the sum of gradient / exp(result) of all from the element on.

    It is summed as logarithms, of the positive and of the negative gradients by themselves, as the exponentials alone
    may be beyond any number.
    """
    (value,) = op.inputs
    of_sign = [map_(net, select(sign > 0.0, apply("log", sign), -np.inf) - y, [grad, op.output]) for sign in (x, -x)]
    sums = [scan(net, logs, operation="logaddexp", **_back(op)) for logs in of_sign]
    return map_(net, apply("exp", x + z) - apply("exp", y + z), [*sums, value])


_BACKWARD: dict[str, Callable[[BlockBuilder, NetworkOp, Value], Value]] = {
    "add": _of_sum,
    "mul": _of_product,
    "max": _of_extremum,
    "min": _of_extremum,
    "logaddexp": _of_logarithm,
}


def positions(net: BlockBuilder, shape: Sequence[int], dim: int) -> Value:
    """The number of each index of ``dim``, i32 [1, …, extent, …, 1]."""
    extents = tuple(n if d == dim else 1 for d, n in enumerate(shape))
    return net.constant(np.arange(shape[dim]).reshape(extents), i32, "positions")


def taken_from(net: BlockBuilder, value: Value, extrema: Value, dim: int, *, reverse: bool = False) -> Value:
    """The index, i32, that each of the running ``extrema`` of ``value`` was taken from; of equal ones the latest."""
    places = positions(net, value.shape, dim)
    never = value.shape[dim] if reverse else -1
    # NaN is an extreme that equals nothing.
    missed = select(x.ne(x), z, never) if value.dtype.is_float else never
    hits = map_(net, select(x.eq(y), z, missed), [value, extrema, places], i32)
    return scan(net, hits, dim, "min" if reverse else "max", reverse=reverse)


def add_along(net: BlockBuilder, value: Value, index: Value, dim: int, extent: int) -> Value:
    """Zeros with ``extent`` indices along ``dim``, with each element of ``value`` added at its ``index`` there.

    Args:
        net: The network to extend.
        value: Values to add.
        index: Index of each, of the shape of ``value``.
        dim: The dimension that indices count along.
        extent: Number of sums.
    """
    rows, numbers = (transpose(net, v, dim, -1) for v in (value, index))
    shape = rows.shape
    groups = (rows.size // shape[-1], shape[-1])
    flat = reshape(net, cast(net, numbers, i32), groups)
    added = sum_rows(net, reshape(net, rows, (*groups, 1)), flat, extent)
    return transpose(net, reshape(net, added, (*shape[:-1], extent)), dim, -1)


@rule("recurrence")
class Recurrence(OpRule):
    """A linear recurrence of first order along a dimension, from zero."""

    operands = 2
    attributes: ClassVar = {"dim": int, "reverse": bool}

    def types(self, op: NetworkOp) -> Types:
        """The operands', which is the same."""
        factor, addend = op.inputs
        require(0 <= op.attrs["dim"] < addend.ndim, f"{addend} has no dimension {op.attrs['dim']}")
        require(
            factor.type == addend.type and factor.dtype.is_float, f"{factor} and {addend} are no floats of one type"
        )
        return [addend.type]

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """Whole rows of the operands, for the part's other dimensions."""
        return _needs_rows(op, part)

    def evaluate(self, op: NetworkOp, factor: Array, addend: Array) -> Array:
        """A loop over the dimension."""
        factors, addends = (np.moveaxis(_flipped(a, op), op.attrs["dim"], 0) for a in (factor, addend))
        made = np.array(addends)
        for i in range(1, len(made)):
            made[i] += factors[i] * made[i - 1]
        return np.asarray(_flipped(np.moveaxis(made, 0, op.attrs["dim"]), op))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popops recurrence."""
        factor, addend = (to[v] for v in op.inputs)
        return popops.linear_recurrence(
            to.graph, factor, addend, op.attrs["dim"], to.prog, reverse=op.attrs["reverse"], name="recurrence"
        )

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The recurrence from the other end, with the factors of the next index; times what stood before, by factor."""
        (factor, _), grad, dim, reverse = op.inputs, only(grads), op.attrs["dim"], op.attrs["reverse"]
        following = shifted(net, factor, dim, 0.0, reverse=not reverse)
        by_addend = recurrence(net, following, grad, dim, reverse=not reverse)
        if not wanted[0]:
            return [None, by_addend]
        before = shifted(net, op.output, dim, 0.0, reverse=reverse)
        return [map_(net, x * y, [by_addend, before]), by_addend]
