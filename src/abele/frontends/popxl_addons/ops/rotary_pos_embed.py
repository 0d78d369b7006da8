"""Rotary position embeddings: pairs of features turn by an angle, which grows with the position.

Pairs are neighbours (0, 1), (2, 3), … as in GPT-J; or, with ``half``, features of the two halves (0, d/2),
(1, d/2 + 1), … as in GPT-NeoX and LLaMA. Of the pair (a, b) it makes (a cos − b sin, a sin + b cos). The gradient turns
back by the same angle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.popxl import constant, float16
from abele.frontends.popxl.dtypes import as_dtype
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import check_same_types, checked, emit, one_dim
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build

a, b, c, s = arg(0), arg(1), arg(2), arg(3)


def trig_table_constants(
    seq_length: int, rotary_dim: int, base: float = 10000.0, dtype: Any = float16
) -> tuple[Tensor, Tensor]:
    """Sines and cosines of all positions and pairs, each [seq_length, rotary_dim / 2], as constants.

    Args:
        seq_length: Number of positions.
        rotary_dim: Features that turn.
        base: Pair k turns by base^(-2k / rotary_dim) from one position to the next.
        dtype: Type of the constants; angles are computed in float64.

    Raises:
        GraphArgumentError: The features make no pairs.
    """
    if rotary_dim < 2 or rotary_dim % 2:
        raise GraphArgumentError(f"rotary_dim is {rotary_dim}: features make pairs")
    speeds = float(base) ** (-np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)
    angles = np.arange(seq_length, dtype=np.float64)[:, None] * speeds
    host = as_dtype(dtype).as_numpy()
    return (
        constant(np.sin(angles).astype(host), dtype, "sin"),
        constant(np.cos(angles).astype(host), dtype, "cos"),
    )


def rotary_pos_embed(
    x: Tensor,
    sin: Tensor,
    cos: Tensor,
    rotary_dim: int | None = None,
    *,
    half: bool = False,
    seq_axis: int = 1,
) -> Tensor:
    """``x`` with its first features turned.

    Args:
        x: Queries or keys, [batch, sequence, heads, features].
        sin: Sines, [sequence, rotary_dim / 2]; or of x's rank, to broadcast against its pairs.
        cos: Cosines, likewise.
        rotary_dim: Features that turn; by default as many as the tables have.
        half: True for pairs of the two halves, False for neighbours.
        seq_axis: Axis of positions.

    Raises:
        GraphArgumentError: The tables do not fit ``x``.
    """
    checked("rotary_pos_embed", x, sin, cos)
    check_same_types("rotary_pos_embed", (x, sin, cos))
    pairs = sin.shape[-1] if sin.rank else 0
    turned = 2 * pairs if rotary_dim is None else int(rotary_dim)
    axis = one_dim("rotary_pos_embed", seq_axis, x.rank)
    at = f"x {list(x.shape)}, sin {list(sin.shape)}, cos {list(cos.shape)}, rotary_dim {rotary_dim}"
    if sin.shape != cos.shape or turned != 2 * pairs or not 0 < turned <= x.shape[-1] or axis == x.rank - 1:
        raise GraphArgumentError(
            "rotary_pos_embed takes sines and cosines of half of the features that turn",
            at=at,
            remedy="trig_table_constants(x.shape[1], rotary_dim)",
        )
    shape = list(sin.shape)
    if sin.rank == 2:
        shape = [pairs if d == x.rank - 1 else sin.shape[0] if d == axis else 1 for d in range(x.rank)]
    if len(shape) != x.rank or any(n not in (1, m) for n, m in zip(shape[:-1], x.shape[:-1], strict=True)):
        raise GraphArgumentError(
            f"rotary_pos_embed has tables of {sin.shape[0]} positions, x has {x.shape[axis]} on axis {axis}",
            at=at,
            remedy="seq_axis=2 for [batch, heads, sequence, features]; slice tables of more positions",
        )

    def meaning(net: BlockBuilder, value: Value, sines: Value, cosines: Value) -> Value:
        last = value.ndim - 1
        head = build.slice_(net, value, last, 0, turned)
        # The two features of a pair are the entries of one axis: the last, or the one before it.
        cut = (2, pairs) if half else (pairs, 2)
        of_pair = last if half else last + 1
        paired = build.reshape(net, head, (*value.shape[:-1], *cut))
        first, second = (
            build.reshape(net, build.slice_(net, paired, of_pair, n, n + 1), (*value.shape[:-1], pairs)) for n in (0, 1)
        )
        tables = [build.reshape(net, t, shape) for t in (cosines, sines)]
        made = [
            build.map_(net, a * c - b * s, [first, second, *tables], value.dtype),
            build.map_(net, a * s + b * c, [first, second, *tables], value.dtype),
        ]
        one = [*value.shape[:-1], *((1, pairs) if half else (pairs, 1))]
        joined = build.concat(net, [build.reshape(net, m, one) for m in made], of_pair)
        whole = build.reshape(net, joined, head.shape)
        rest = build.slice_(net, value, last, turned, value.shape[-1])
        return build.concat(net, [whole, rest], last) if rest.size else whole

    return emit("rotary_pos_embed", meaning, x, sin, cos)


__all__ = ["rotary_pos_embed", "trig_table_constants"]
