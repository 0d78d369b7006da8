"""``tf.math``: arithmetic, reductions, comparisons."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special

from ..dtypes import as_dtype
from ..tensors import narrowed, tensor_of
from .table import NameTable, alike, axes

MATH = NameTable()
TopKV2 = namedtuple("TopKV2", ["values", "indices"])

MATH.unary(
    abs=jnp.abs,
    negative=jnp.negative,
    sign=jnp.sign,
    square=jnp.square,
    sqrt=jnp.sqrt,
    rsqrt=jax.lax.rsqrt,
    exp=jnp.exp,
    expm1=jnp.expm1,
    log=jnp.log,
    log1p=jnp.log1p,
    sin=jnp.sin,
    cos=jnp.cos,
    tan=jnp.tan,
    asin=jnp.arcsin,
    acos=jnp.arccos,
    atan=jnp.arctan,
    sinh=jnp.sinh,
    cosh=jnp.cosh,
    tanh=jnp.tanh,
    asinh=jnp.arcsinh,
    acosh=jnp.arccosh,
    atanh=jnp.arctanh,
    ceil=jnp.ceil,
    floor=jnp.floor,
    round=jnp.round,
    rint=jnp.rint,
    reciprocal=jnp.reciprocal,
    sigmoid=jax.nn.sigmoid,
    softplus=jax.nn.softplus,
    softsign=jax.nn.soft_sign,
    erf=special.erf,
    erfc=special.erfc,
    erfinv=special.erfinv,
    lgamma=special.gammaln,
    digamma=special.digamma,
    is_nan=jnp.isnan,
    is_inf=jnp.isinf,
    is_finite=jnp.isfinite,
    logical_not=jnp.logical_not,
    real=jnp.real,
    imag=jnp.imag,
    conj=jnp.conj,
    angle=jnp.angle,
    log_sigmoid=jax.nn.log_sigmoid,
)
MATH.binary(
    add=jnp.add,
    subtract=jnp.subtract,
    multiply=jnp.multiply,
    divide=jnp.true_divide,
    truediv=jnp.true_divide,
    floordiv=jnp.floor_divide,
    floormod=jnp.mod,
    mod=jnp.mod,
    pow=jnp.power,
    maximum=jnp.maximum,
    minimum=jnp.minimum,
    atan2=jnp.arctan2,
    equal=jnp.equal,
    not_equal=jnp.not_equal,
    less=jnp.less,
    less_equal=jnp.less_equal,
    greater=jnp.greater,
    greater_equal=jnp.greater_equal,
    logical_and=jnp.logical_and,
    logical_or=jnp.logical_or,
    logical_xor=jnp.logical_xor,
    squared_difference=lambda x, y: jnp.square(x - y),
    divide_no_nan=lambda x, y: jnp.where(y == 0, jnp.zeros_like(x), x / jnp.where(y == 0, jnp.ones_like(y), y)),
    multiply_no_nan=lambda x, y: jnp.where(y == 0, jnp.zeros_like(x), x * y),
    xlogy=special.xlogy,
)


def _reduction(function: Callable[..., Any], *, keeps_type: bool = True) -> Callable[..., Any]:
    def call(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
        tensor = tensor_of(input_tensor)
        result = function(tensor, axis=axes(axis), keepdims=keepdims)
        return result.astype(tensor.dtype) if keeps_type else result

    return call


def _log_sum(x: Any, axis: Any, keepdims: bool) -> Any:
    return special.logsumexp(x, axis=axis, keepdims=keepdims)


def _norm(x: Any, axis: Any, keepdims: bool) -> Any:
    return jnp.sqrt(jnp.sum(jnp.square(x), axis=axis, keepdims=keepdims))


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_sum": jnp.sum,
    "reduce_mean": jnp.mean,
    "reduce_max": jnp.max,
    "reduce_min": jnp.min,
    "reduce_prod": jnp.prod,
    "reduce_std": jnp.std,
    "reduce_variance": jnp.var,
    "reduce_logsumexp": _log_sum,
    "reduce_euclidean_norm": _norm,
}
for _name, _function in _REDUCTIONS.items():
    MATH(_name)(_reduction(_function))
MATH("reduce_any")(_reduction(jnp.any, keeps_type=False))
MATH("reduce_all")(_reduction(jnp.all, keeps_type=False))
MATH("count_nonzero")(_reduction(jnp.count_nonzero, keeps_type=False))


def _index(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(input: Any, axis: int | None = None, output_type: Any = "int64", name: str | None = None) -> Any:
        found = function(tensor_of(input), axis=0 if axis is None else axes(axis))
        return found.astype(narrowed(as_dtype(output_type)))

    return call


MATH("argmax")(_index(jnp.argmax))
MATH("argmin")(_index(jnp.argmin))


def _scan(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Any:
        tensor = jnp.moveaxis(tensor_of(x), axes(axis), 0)
        tensor = tensor[::-1] if reverse else tensor
        made = function(tensor, axis=0).astype(tensor.dtype)
        if exclusive:
            first = jnp.zeros_like(made[:1]) if function is jnp.cumsum else jnp.ones_like(made[:1])
            made = jnp.concatenate([first, made[:-1]])
        return jnp.moveaxis(made[::-1] if reverse else made, 0, axes(axis))

    return call


MATH("cumsum")(_scan(jnp.cumsum))
MATH("cumprod")(_scan(jnp.cumprod))


MATH("xdivy")(lambda x, y, name=None: _xdivy(tensor_of(x), tensor_of(y)))


def _xdivy(x: Any, y: Any) -> Any:
    none = x == 0
    return jnp.where(none, 0, x / jnp.where(none, 1, y))


@MATH("add_n")
def _add_n(inputs: Any, name: str | None = None) -> Any:
    return sum(map(tensor_of, inputs[1:]), tensor_of(inputs[0]))


MATH["accumulate_n"] = MATH["add_n"]


@MATH("clip_by_value")
def _clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    tensor = tensor_of(t)
    return jnp.clip(tensor, alike(tensor, clip_value_min)[1], alike(tensor, clip_value_max)[1])


@MATH("top_k")
def _top_k(input: Any, k: int = 1, sorted: bool = True, name: str | None = None) -> Any:
    return TopKV2(*jax.lax.top_k(tensor_of(input), int(k)))


@MATH("in_top_k")
def _in_top_k(targets: Any, predictions: Any, k: int, name: str | None = None) -> Any:
    scores, chosen = tensor_of(predictions), tensor_of(targets)
    of_target = jnp.take_along_axis(scores, chosen[:, None], 1)
    return jnp.sum(scores > of_target, axis=1) < k


def _segments(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(data: Any, segment_ids: Any, num_segments: Any = None, name: str | None = None) -> Any:
        ids = tensor_of(segment_ids)
        count = int(ids[-1]) + 1 if num_segments is None else int(num_segments)
        return function(tensor_of(data), ids, count)

    return call


def _segment_mean(data: Any, ids: Any, count: int) -> Any:
    sums = jax.ops.segment_sum(data, ids, count)
    counts = jax.ops.segment_sum(jnp.ones(len(ids), data.dtype), ids, count)
    return sums / jnp.maximum(counts, 1).reshape(-1, *[1] * (data.ndim - 1))


for _name, _function in {
    "segment_sum": jax.ops.segment_sum,
    "segment_max": jax.ops.segment_max,
    "segment_min": jax.ops.segment_min,
    "segment_prod": jax.ops.segment_prod,
    "segment_mean": _segment_mean,
}.items():
    MATH(_name)(_segments(_function))
    MATH(f"unsorted_{_name}")(_segments(_function))


@MATH("bincount")
def _bincount(arr: Any, weights: Any = None, minlength: Any = None, **_: Any) -> Any:
    return jnp.bincount(tensor_of(arr), None if weights is None else tensor_of(weights), minlength=minlength or 0)


@MATH("confusion_matrix")
def _confusion_matrix(labels: Any, predictions: Any, num_classes: Any = None, weights: Any = None, **_: Any) -> Any:
    rows, columns = tensor_of(labels), tensor_of(predictions)
    count = int(jnp.maximum(rows.max(), columns.max())) + 1 if num_classes is None else int(num_classes)
    amounts = jnp.ones(rows.shape, jnp.int32) if weights is None else tensor_of(weights)
    return jnp.zeros((count, count), amounts.dtype).at[rows, columns].add(amounts)


@MATH("l2_normalize")
def _l2_normalize(x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None) -> Any:
    tensor = tensor_of(x)
    return tensor * jax.lax.rsqrt(jnp.maximum(jnp.sum(jnp.square(tensor), axes(axis), keepdims=True), epsilon))


@MATH("scalar_mul")
def _scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    return tensor_of(x) * scalar


@MATH("zero_fraction")
def _zero_fraction(value: Any, name: str | None = None) -> Any:
    return jnp.mean((tensor_of(value) == 0).astype(jnp.float32))


@MATH("softmax")
def _softmax(logits: Any, axis: int = -1, name: str | None = None) -> Any:
    return jax.nn.softmax(tensor_of(logits), axis)
