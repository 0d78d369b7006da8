"""Arrays of the host for replicas: shards of weights, repeated data, and whole arrays of their parts.

Arrays of several groups of replicas have the groups first: ``shard`` of [4, 6] in two along axis 1 is [2, 4, 3], which
is what a variable takes whose replica grouping has two groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.frontends.popxl.errors import GraphArgumentError


def _axis(kind: str, array: Array, axis: int) -> int:
    if not -array.ndim <= axis < array.ndim:
        raise GraphArgumentError(f"{kind} has axis {axis}, its array {array.ndim} dimensions {list(array.shape)}")
    return axis % array.ndim


def _count(kind: str, what: str, number: int) -> int:
    if isinstance(number, bool) or int(number) != number or number < 1:
        raise GraphArgumentError(f"{kind} has {what} {number!r}: a whole number from 1")
    return int(number)


def shard(x: Any, num_shards: int, axis: int) -> Array:
    """Equal parts of an array along an axis, [num_shards, …].

    Args:
        x: The array.
        num_shards: Number of parts.
        axis: The axis that is cut.

    Raises:
        GraphArgumentError: The axis is not there, or has no such parts.
    """
    array = np.asarray(x)
    dim, count = _axis("shard", array, axis), _count("shard", "num_shards", num_shards)
    if array.shape[dim] % count:
        raise GraphArgumentError(
            f"shard makes {count} equal parts of axis {axis}, which has {array.shape[dim]}",
            at=f"array {list(array.shape)}",
            remedy=f"pad_axis(x, {-(-array.shape[dim] // count) * count}, {axis})",
        )
    return np.ascontiguousarray(np.stack(np.split(array, count, dim)))


def unshard(x: Any, axis: int) -> Array:
    """The array of which [num_shards, …] are parts along an axis (of the array, without the shards' own)."""
    array = np.asarray(x)
    if array.ndim < 2:
        raise GraphArgumentError(f"unshard takes [shards, …], not {list(array.shape)}")
    return np.ascontiguousarray(np.concatenate(list(array), _axis("unshard", array[0], axis)))


def shard2D(x: Any, num_shards_1: int, num_shards_2: int, axis_1: int, axis_2: int) -> Array:
    """Equal parts along two axes, [num_shards_1 · num_shards_2, …]: those along the second axis are neighbours."""
    array = np.asarray(x)
    first, second = _axis("shard2D", array, axis_1), _axis("shard2D", array, axis_2)
    if first == second:
        raise GraphArgumentError(f"shard2D cuts two axes, got {axis_1} and {axis_2} of {list(array.shape)}")
    parts = shard(shard(array, num_shards_1, first), num_shards_2, second + 1)
    return np.ascontiguousarray(np.swapaxes(parts, 0, 1).reshape(-1, *parts.shape[2:]))


def unshard2D(x: Any, num_shards_1: int, num_shards_2: int, axis_1: int, axis_2: int) -> Array:
    """The array that :func:`shard2D` made parts of."""
    array = np.asarray(x)
    if array.ndim < 3 or array.shape[0] != num_shards_1 * num_shards_2:
        raise GraphArgumentError(f"unshard2D takes {num_shards_1} · {num_shards_2} parts, got {list(array.shape)}")
    first, second = _axis("unshard2D", array[0], axis_1), _axis("unshard2D", array[0], axis_2)
    rows = np.stack([unshard(row, second) for row in array.reshape(num_shards_1, num_shards_2, *array.shape[1:])])
    return unshard(rows, first)


def repeat(x: Any, n: int, axis: int = 0) -> Array:
    """``n`` copies of an array along a new axis."""
    array, count = np.asarray(x), _count("repeat", "n", n)
    if not -array.ndim - 1 <= axis <= array.ndim:
        raise GraphArgumentError(f"repeat has the new axis {axis}, its array {array.ndim} dimensions")
    return np.ascontiguousarray(np.repeat(np.expand_dims(array, axis), count, axis % (array.ndim + 1)))


def repeat_axis(x: Any, n: int, axis: int = 0) -> Array:
    """An array in which each index of an axis is there ``n`` times, one after the other."""
    array = np.asarray(x)
    return np.repeat(array, _count("repeat_axis", "n", n), _axis("repeat_axis", array, axis))


def repeat_shard(x: Any, n_repeats: int, num_shards: int, axis: int) -> Array:
    """Parts along an axis, each of them ``n_repeats`` times: [num_shards · n_repeats, …]."""
    return repeat_axis(shard(x, num_shards, axis), n_repeats)


def pad_axis(x: Any, n: int, axis: int, value: Any = 0) -> Array:
    """An array with ``n`` entries along an axis: those added at the end are ``value``.

    Raises:
        GraphArgumentError: The axis has more.
    """
    array = np.asarray(x)
    dim = _axis("pad_axis", array, axis)
    missing = int(n) - array.shape[dim]
    if missing < 0:
        raise GraphArgumentError(f"pad_axis makes {n} entries of axis {axis}, which has {array.shape[dim]}")
    widths = [(0, missing if d == dim else 0) for d in range(array.ndim)]
    return np.pad(array, widths, constant_values=value)


def squeeze_safe(x: Any, axes: Any) -> Array:
    """An array without those of some axes that have one entry; others stay."""
    array = np.asarray(x)
    chosen = [_axis("squeeze_safe", array, a) for a in ([axes] if isinstance(axes, int) else axes)]
    return np.squeeze(array, tuple(d for d in chosen if array.shape[d] == 1))


def tensor_parallel_input(
    input_data: Any, tp: int, rf: int, offset_fn: Callable[[Array], Array] | None = None
) -> Array:
    """Data for replicas of which ``tp`` neighbours share a model: [N · rf / tp, …] becomes [N, rf, …].

    Args:
        input_data: Samples in order; each goes to all replicas of one model.
        tp: Replicas of a model.
        rf: Replicas.
        offset_fn: Function from data to those of each replica of a model, [tp, *data.shape]; by default copies.
            :meth:`Embedding.offset_input` gives numbers of each replica's own rows.

    Returns:
        [N, rf, …] without axes of one entry in front, as a session takes it.

    Raises:
        GraphArgumentError: Replicas do not divide, or samples.
    """
    data = np.asarray(input_data)
    models = _models("tensor_parallel_input", tp, rf)
    if not data.ndim or data.shape[0] % models:
        raise GraphArgumentError(f"tensor_parallel_input deals {list(data.shape)} to {models} groups of replicas")
    each = repeat(data, tp) if offset_fn is None else np.asarray(offset_fn(data))
    if each.shape != (tp, *data.shape):
        raise GraphArgumentError(f"offset_fn makes {list(each.shape)}, not {[tp, *data.shape]}")
    dealt = each.reshape(tp, -1, models, *data.shape[1:])
    # [tp, N, models, …] → [N, models, tp, …]: replicas of one model are neighbours.
    made = np.moveaxis(dealt, 0, 2).reshape(-1, rf, *data.shape[1:])
    return np.ascontiguousarray(squeeze_safe(made, (0, 1)))


def tensor_parallel_output(output_data: Any, tp: int, rf: int) -> Array:
    """Results of the first replica of each model, [N · rf / tp, …], of [N, rf, …]."""
    data = np.asarray(output_data)
    models = _models("tensor_parallel_output", tp, rf)
    if data.ndim < 2 or data.shape[1] != rf:
        raise GraphArgumentError(f"tensor_parallel_output takes [N, {rf}, …], not {list(data.shape)}")
    return np.ascontiguousarray(data.reshape(-1, models, tp, *data.shape[2:])[:, :, 0].reshape(-1, *data.shape[2:]))


def _models(kind: str, tp: int, rf: int) -> int:
    if _count(kind, "rf", rf) % _count(kind, "tp", tp):
        raise GraphArgumentError(f"{kind} has {rf} replicas in groups of {tp}")
    return rf // tp


__all__ = [
    "pad_axis",
    "repeat",
    "repeat_axis",
    "repeat_shard",
    "shard",
    "shard2D",
    "squeeze_safe",
    "tensor_parallel_input",
    "tensor_parallel_output",
    "unshard",
    "unshard2D",
]
