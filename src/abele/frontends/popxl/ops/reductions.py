"""Ops that reduce axes, or order elements along one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.expr import apply
from abele.expr.derivative import arg
from abele.frontends.popxl.errors import OperandError
from abele.frontends.popxl.ops.common import check_numbers, checked, dims_of, emit, emit_many, mapped, one_dim
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.sorting import median as lower_median
from abele.numerics import i32

Axes = int | Sequence[int] | None
x, y = arg(0), arg(1)


def _reduce(
    kind: str, t: Tensor, axis: Axes, keepdims: bool, operation: str, before: Any = x, after: Any = x
) -> Tensor:
    checked(kind, t)
    check_numbers(kind, t)
    dims = dims_of(kind, axis, t.rank)

    def meaning(net: BlockBuilder, v: Value) -> Value:
        given = v if before is x else mapped(before)(net, v)
        made = build.reduce(net, given, dims, operation, keep=keepdims)
        return made if after is x else mapped(after)(net, made)

    return emit(kind, meaning, t)


def sum(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum over axes."""
    return _reduce("sum", t, axis, keepdims, "add")


def mean(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean over axes."""
    checked("mean", t)
    check_numbers("mean", t)
    dims = dims_of("mean", axis, t.rank)
    return emit("mean", lambda net, v: build.mean(net, v, dims, keep=keepdims), t)


def max(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest over axes."""
    return _reduce("max", t, axis, keepdims, "max")


def min(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest over axes."""
    return _reduce("min", t, axis, keepdims, "min")


def median(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The lower median over axes."""
    checked("median", t)
    dims = dims_of("median", axis, t.rank)
    return emit("median", lambda net, v: lower_median(net, v, dims, keep=keepdims)[0], t)


def prod(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The product over axes."""
    return _reduce("prod", t, axis, keepdims, "mul")


def l1(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum of sizes over axes."""
    return _reduce("l1", t, axis, keepdims, "add", before=apply("abs", x))


def l2(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The root of the sum of squares over axes."""
    return _reduce("l2", t, axis, keepdims, "add", before=x * x, after=apply("sqrt", x))


def sumsquare(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum of squares over axes."""
    return _reduce("sumsquare", t, axis, keepdims, "add", before=x * x)


def logsum(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum over axes."""
    return _reduce("logsum", t, axis, keepdims, "add", after=apply("log", x))


def logsumexp(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials over axes, of which the largest is taken out before."""
    checked("logsumexp", t)
    dims = dims_of("logsumexp", axis, t.rank)

    def meaning(net: BlockBuilder, v: Value) -> Value:
        largest = build.detach(net, build.reduce(net, v, dims, "max", keep=True))
        total = build.reduce(net, mapped(apply("exp", x - y))(net, v, largest), dims, keep=True)
        made = mapped(apply("log", x) + y)(net, total, largest)
        kept = [n for d, n in enumerate(v.shape) if d not in dims]
        return made if keepdims else build.reshape(net, made, kept)

    return emit("logsumexp", meaning, t)


def _last(net: BlockBuilder, value: Value, dim: int) -> Value:
    return build.transpose(net, value, dim, -1) if dim != value.ndim - 1 else value


def topk(
    t: Tensor,
    k: int,
    axis: int = -1,
    largest: bool = True,
    sorted: bool = True,
    available_memory_proportion: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The ``k`` largest or smallest along an axis, best first, and their positions (int32)."""
    checked("topk", t)
    dim = one_dim("topk", axis, t.rank)
    if not 0 < k <= t.shape[dim]:
        raise OperandError(f"topk takes {k} of the {t.shape[dim]} elements of axis {axis}")

    def meaning(net: BlockBuilder, v: Value) -> list[Value]:
        made = build.top_k(net, _last(net, v, dim), int(k), largest=largest)
        return [_last(net, m, dim) for m in made]

    first, second = emit_many("topk", meaning, t)
    return first, second


def _best(kind: str, t: Tensor, dim: int, keepdim: bool, largest: bool) -> Tensor:
    checked(kind, t)
    number = one_dim(kind, dim, t.rank)

    def meaning(net: BlockBuilder, v: Value) -> Value:
        given = v if v.dtype.is_float or v.dtype == i32 else build.cast(net, v, i32)
        places = _last(net, build.top_k(net, _last(net, given, number), 1, largest=largest)[1], number)
        shape = [n for d, n in enumerate(v.shape) if d != number]
        return places if keepdim else build.reshape(net, places, shape)

    return emit(kind, meaning, t)


def argmax(t: Tensor, dim: int = 0, keepdim: bool = False) -> Tensor:
    """The position of the largest along an axis (int32)."""
    return _best("argmax", t, dim, keepdim, True)


def argmin(t: Tensor, dim: int = 0, keepdim: bool = False) -> Tensor:
    """The position of the smallest along an axis (int32)."""
    return _best("argmin", t, dim, keepdim, False)


def cumsum(t: Tensor, dim: int = 0) -> Tensor:
    """Running sums along an axis."""
    checked("cumsum", t)
    check_numbers("cumsum", t)
    number = one_dim("cumsum", dim, t.rank)
    return emit("cumsum", lambda net, v: build.scan(net, v, number), t)


__all__ = [
    "argmax",
    "argmin",
    "cumsum",
    "l1",
    "l2",
    "logsum",
    "logsumexp",
    "max",
    "mean",
    "median",
    "min",
    "prod",
    "sum",
    "sumsquare",
    "topk",
]
