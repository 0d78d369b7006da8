"""Ops that draw numbers by a seed: equal seeds draw equal numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.expr import select
from abele.expr.derivative import arg
from abele.frontends.popxl.dtypes import as_dtype, float32
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import checked, emit, emit_many
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.draw import standard_normal, unit
from abele.numerics import f32

x, y = arg(0), arg(1)


def _check_seed(kind: str, seed: Tensor) -> None:
    checked(kind, seed)
    if seed.shape != (2,) or seed.dtype.name != "uint32":
        raise GraphArgumentError(f"{kind} takes a seed uint32[2], got {seed!r}")


def dropout(t: Tensor, seed_tensor: Tensor, p: float = 0.1) -> Tensor:
    """Elements set to zero with probability ``p``, the others divided by 1 - p."""
    return _dropped("dropout", t, seed_tensor, t.shape, p)


def shaped_dropout(t: Tensor, seed_tensor: Tensor, shape: Sequence[int], ratio: float = 0.5) -> Tensor:
    """As :func:`dropout`, with one draw for each element of ``shape``, which broadcasts."""
    return _dropped("shaped_dropout", t, seed_tensor, shape, ratio)


def _dropped(kind: str, t: Tensor, seed_tensor: Tensor, shape: Sequence[int], ratio: float) -> Tensor:
    checked(kind, t, seed_tensor)
    _check_seed(kind, seed_tensor)
    if not 0 <= ratio < 1:
        raise GraphArgumentError(f"{kind} has the probability {ratio}, which is not in [0, 1)")

    def meaning(net: BlockBuilder, v: Value, seed: Value) -> Value:
        words = build.random_words(net, seed, tuple(shape))
        draws = build.map_(net, unit(x), [words], f32)
        return build.map_(net, select(y < float(ratio), 0.0, x * (1.0 / (1.0 - ratio))), [v, draws], v.dtype)

    return emit(kind, meaning, t, seed_tensor)


def split_random_seed(seed: Tensor, n: int = 2) -> tuple[Tensor, ...]:
    """Several seeds of one."""
    _check_seed("split_random_seed", seed)

    def meaning(net: BlockBuilder, v: Value) -> list[Value]:
        words = build.random_words(net, v, (n,), pairs=True)
        return [build.reshape(net, build.slice_(net, words, 0, k, k + 1), (2,)) for k in range(n)]

    return emit_many("split_random_seed", meaning, seed)


def random_uniform(
    seed_tensor: Tensor, shape: Sequence[int], low: float = 0.0, high: float = 1.0, dtype: Any = float32
) -> Tensor:
    """Numbers uniform in [low, high)."""
    _check_seed("random_uniform", seed_tensor)
    kind = as_dtype(dtype).element

    def meaning(net: BlockBuilder, seed: Value) -> Value:
        words = build.random_words(net, seed, tuple(shape))
        return build.cast(net, build.map_(net, unit(x) * float(high - low) + float(low), [words], f32), kind)

    return emit("random_uniform", meaning, seed_tensor)


def random_normal(
    seed_tensor: Tensor, shape: Sequence[int], mean: float = 0.0, std: float = 1.0, dtype: Any = float32
) -> Tensor:
    """Numbers of a normal distribution."""
    _check_seed("random_normal", seed_tensor)
    kind = as_dtype(dtype).element

    def meaning(net: BlockBuilder, seed: Value) -> Value:
        pairs = build.random_words(net, seed, tuple(shape), pairs=True)
        last = pairs.ndim - 1
        words = [build.reshape(net, build.slice_(net, pairs, last, k, k + 1), tuple(shape)) for k in range(2)]
        made = build.map_(net, standard_normal(x, y) * float(std) + float(mean), words, f32)
        return build.cast(net, made, kind)

    return emit("random_normal", meaning, seed_tensor)


__all__ = ["dropout", "random_normal", "random_uniform", "shaped_dropout", "split_random_seed"]
