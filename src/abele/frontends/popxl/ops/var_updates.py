"""``ops.var_updates``: ops that change a variable in place."""

from __future__ import annotations

from typing import Any

from abele.expr import Const, Expr, apply, select
from abele.expr.derivative import arg
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.graph import get_current_graph
from abele.frontends.popxl.ops.common import change, checked
from abele.frontends.popxl.ops.indexing import _inside
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.along import put
from abele.numerics import f32

x, y = arg(0), arg(1)


class _Terms:
    """An expression over tensors and numbers: tensors become operands."""

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = list(tensors)

    def of(self, factor: Any) -> Expr:
        """A number, or an operand for a tensor of one element."""
        if not isinstance(factor, Tensor):
            return Const(float(factor))
        if factor.nelms != 1:
            raise GraphArgumentError(f"a factor has one element, {factor!r} has {factor.nelms}")
        self.tensors.append(factor)
        return arg(len(self.tensors) - 1)


def _value(net: BlockBuilder, expression: Expr, values: Any, like: Value) -> Value:
    """An expression, computed in f32, in the type of ``like``."""
    whole = [
        v if n < 2 or v.ndim == 0 else build.reshape(net, v, ()) if v.size == 1 else v for n, v in enumerate(values)
    ]
    return build.map_(net, expression, [build.cast(net, v, f32) for v in whole], like.dtype)


def _check(kind: str, t: Tensor, X: Tensor) -> None:
    checked(kind, t, X)
    if t.shape != X.shape:
        raise GraphArgumentError(f"{kind} changes {list(t.shape)} by {list(X.shape)}: shapes differ")


def _change(kind: str, expression: Expr, terms: _Terms) -> Tensor:
    return change(kind, lambda net, *values: _value(net, expression, values, values[0]), *terms.tensors)


def accumulate_(t: Tensor, X: Tensor, f: Any = None) -> Tensor:
    """T + f X."""
    _check("accumulate_", t, X)
    terms = _Terms(t, X)
    return _change("accumulate_", x + y if f is None else x + terms.of(f) * y, terms)


def accumulate_square_(t: Tensor, X: Tensor, f: Any = 1.0) -> Tensor:
    """T + f X²."""
    _check("accumulate_square_", t, X)
    terms = _Terms(t, X)
    return _change("accumulate_square_", x + terms.of(f) * y * y, terms)


def accumulate_mean_(t: Tensor, X: Tensor, step: Any) -> Tensor:
    """The mean of ``step`` tensors before and this one."""
    _check("accumulate_mean_", t, X)
    terms = _Terms(t, X)
    count = terms.of(step)
    return _change("accumulate_mean_", x * (count / (count + 1.0)) + y / (count + 1.0), terms)


def accumulate_moving_average_(t: Tensor, X: Tensor, f: Any) -> Tensor:
    """F t + (1 - f) X."""
    _check("accumulate_moving_average_", t, X)
    terms = _Terms(t, X)
    part = terms.of(f)
    return _change("accumulate_moving_average_", part * x + (1.0 - part) * y, terms)


def accumulate_moving_average_square_(t: Tensor, X: Tensor, f: Any) -> Tensor:
    """F t + (1 - f) X²."""
    _check("accumulate_moving_average_square_", t, X)
    terms = _Terms(t, X)
    part = terms.of(f)
    return _change("accumulate_moving_average_square_", part * x + (1.0 - part) * y * y, terms)


def accumulator_scale_(t: Tensor, f: Any) -> Tensor:
    """F t; a constant 0 makes zeros, also of NaN."""
    checked("accumulator_scale_", t)
    if not isinstance(f, Tensor) and f == 0:
        return change("accumulator_zero_", lambda net, v: build.full(net, 0, v.shape, v.dtype), t)
    if not isinstance(f, Tensor):
        return change("accumulator_scale_", lambda net, v: build.map_(net, x * float(f), [v], v.dtype), t)
    return change(
        "accumulator_scale_", lambda net, v, by: build.map_(net, x * y, [v, build.reshape(net, by, ())], v.dtype), t, f
    )


def accumulator_zero_(t: Tensor) -> Tensor:
    """Zeros."""
    return accumulator_scale_(t, 0.0)


def sparse_accumulate_(t: Tensor, X: Tensor, indices: Tensor, axis: int = 0, f: Any = None, W: Any = None) -> Tensor:
    """Entries of an axis of ``t`` with f times those of ``X`` added, each at its number."""
    checked("sparse_accumulate_", t, X, indices)
    given = [t, X, indices, *([f] if isinstance(f, Tensor) else [])]
    extent = t.shape[axis]

    def meaning(net: BlockBuilder, v: Value, more: Value, index: Value, *by: Value) -> Value:
        source = build.cast(net, more, v.dtype)
        if by:
            source = build.map_(net, x * y, [source, build.reshape(net, by[0], ())], v.dtype)
        elif f is not None:
            source = build.map_(net, x * float(f), [source], v.dtype)
        flat = build.reshape(net, _inside(net, index, extent), (index.size,))
        return put(net, v, flat, source, dim=axis % v.ndim, operation="add")

    return change("sparse_accumulate_", meaning, *given)


def copy_var_update_(t: Tensor, X: Tensor) -> Tensor:
    """X."""
    _check("copy_var_update_", t, X)
    return change("copy_var_update_", lambda net, _, new: new, t, X)


def _updater(
    kind: str, names: Any, weight: Tensor | None, step: Tensor | None, decay: Any, beta1: Any, beta2: Any, eps: Any
) -> Tensor:
    m, v = names
    terms = _Terms(m, v)
    first: Expr = x
    second: Expr = y
    if step is not None:
        if beta1 is None or beta2 is None:
            raise GraphArgumentError(f"{kind} with time_step takes beta1 and beta2: it corrects their bias")
        number = terms.of(step) + 1.0
        first = x / (1.0 - apply("pow", terms.of(beta1), number))
        if kind != "adamax_updater":
            second = y / (1.0 - apply("pow", terms.of(beta2), number))
    size = apply("max", second, terms.of(eps)) if kind == "adamax_updater" else apply("sqrt", second) + terms.of(eps)
    made = first / size
    extra: list[Tensor] = []
    if decay is not None and weight is not None:
        by = terms.of(decay)
        made = made + by * arg(len(terms.tensors))
        extra = [weight]
    tensors = [*terms.tensors, *extra]
    shape = m.shape

    def meaning(net: BlockBuilder, *values: Value) -> list[Value]:
        shaped = [
            v if v.shape == shape else build.reshape(net, v, ()) for v in (build.cast(net, w, f32) for w in values)
        ]
        result = [build.map_(net, made, shaped, f32)]
        if step is not None:
            old = values[tensors.index(step)]
            one: Any = Const(1, old.dtype) if not old.dtype.is_float else 1.0
            result.append(build.map_(net, x + one, [old], old.dtype))
        return result

    checked(kind, *tensors)
    modifies = [tensors.index(step)] if step is not None else []
    return get_current_graph().emit(kind, meaning, tensors, modifies=modifies)[0]


def adam_updater(
    m: Tensor,
    v: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Any = None,
    beta1: Any = None,
    beta2: Any = None,
    epsilon: Any = 1e-7,
) -> Tensor:
    """M / (√v + ε), with biases corrected where there is a time step, which is counted on."""
    return _updater(
        "adam_updater", (m, v), weight, time_step, decay=weight_decay, beta1=beta1, beta2=beta2, eps=epsilon
    )


def lamb_updater(
    m: Tensor,
    v: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Any = None,
    beta1: Any = None,
    beta2: Any = None,
    epsilon: Any = 1e-7,
) -> Tensor:
    """As :func:`adam_updater`."""
    return _updater(
        "lamb_updater", (m, v), weight, time_step, decay=weight_decay, beta1=beta1, beta2=beta2, eps=epsilon
    )


def adamax_updater(
    m: Tensor,
    v: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Any = None,
    beta1: Any = None,
    epsilon: Any = 1e-7,
) -> Tensor:
    """M / max(v, ε), with the bias of m corrected where there is a time step."""
    return _updater(
        "adamax_updater", (m, v), weight, time_step, decay=weight_decay, beta1=beta1, beta2=0.0, eps=epsilon
    )


def adam_var_update(
    t: Tensor, x: Tensor, r1: Tensor, r2: Tensor, learning_rate: Any = None, max_weight_norm: Any = None
) -> Tensor:
    """T - lr φ / √r2 x, in place: φ is √r1 up to a limit, and their ratio 1 where either is 0."""
    checked("adam_var_update", t, x, r1, r2)
    terms = _Terms(t, x, r1, r2)
    rate = terms.of(1.0 if learning_rate is None else learning_rate)
    length: Expr = apply("sqrt", arg(2))
    if max_weight_norm is not None:
        length = apply("min", length, terms.of(max_weight_norm))
    other = apply("sqrt", arg(3))
    ratio = select(apply("logical_or", length.eq(0.0), other.eq(0.0)), 1.0, length / other)
    return _change("adam_var_update", arg(0) - rate * ratio * y, terms)


__all__ = [
    "accumulate_",
    "accumulate_mean_",
    "accumulate_moving_average_",
    "accumulate_moving_average_square_",
    "accumulate_square_",
    "accumulator_scale_",
    "accumulator_zero_",
    "adam_updater",
    "adam_var_update",
    "adamax_updater",
    "copy_var_update_",
    "lamb_updater",
    "sparse_accumulate_",
]
