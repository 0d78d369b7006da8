"""Interpolation of images and signals: each dimension is multiplied by a matrix that is known at capture.

All of PyTorch's modes are separable. The matrix of a dimension is what the operator itself makes of the unit vectors
along it, so that rounding of scales, alignment of corners and antialiasing are PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import Value
from abele.network.ops import build

_ACROSS = 2
"""Extent of the other dimensions when one is looked at; of 1 antialiased images give other values in PyTorch."""
_NAMES = (
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
    "_upsample_lanczos2d_aa",
)


@aten(*(f"aten.{name}.vec" for name in _NAMES))
def interpolate(
    call: OperatorCall, value: Value, output_size: Sequence[int] | None, *settings: bool | Sequence[float] | None
) -> Value:
    """The value at other places; ``settings`` are whether corners are aligned, where it matters, and scales."""
    *align, scales = settings
    rank = value.ndim - 2
    factors = [float(s) for s in scales] if isinstance(scales, (list, tuple)) else None

    def matrix(dim: int) -> npt.NDArray[Any]:
        size = None if output_size is None else _alone(call.shape[2 + dim], _ACROSS, dim, rank)
        scale = None if factors is None else _alone(factors[dim], 1.0, dim, rank)
        return _matrix(call, value.shape[2 + dim], dim, rank, (size, *align, scale))

    return _resampled(call, value, [matrix(dim) for dim in range(rank)])


@aten(*(f"aten.{name}.default" for name in _NAMES))
def interpolate_to(
    call: OperatorCall, value: Value, output_size: Sequence[int], *settings: bool | float | None
) -> Value:
    """The value at other places; ``settings`` are whether corners are aligned, where it matters, and a scale each."""
    rank = value.ndim - 2
    given = list(settings) + [None] * rank if len(settings) < rank else list(settings)
    align, scales = [s for s in given if isinstance(s, bool)], [s for s in given if not isinstance(s, bool)]

    def matrix(dim: int) -> npt.NDArray[Any]:
        chosen = [scales[d] if d == dim else None for d in range(rank)]
        size = _alone(call.shape[2 + dim], _ACROSS, dim, rank)
        return _matrix(call, value.shape[2 + dim], dim, rank, (size, *align, *chosen))

    return _resampled(call, value, [matrix(dim) for dim in range(rank)])


def _resampled(call: OperatorCall, value: Value, matrices: Sequence[npt.NDArray[Any]]) -> Value:
    # Dimensions that shrink come first, so that the others have less to do.
    order = sorted(range(len(matrices)), key=lambda d: matrices[d].shape[0] / matrices[d].shape[1])
    for dim in order:
        value = build.resample(call.net, value, 2 + dim, matrices[dim])
    return value


def _alone(one: Any, others: Any, dim: int, rank: int) -> list[Any]:
    return [one if d == dim else others for d in range(rank)]


def _matrix(call: OperatorCall, inputs: int, dim: int, rank: int, settings: Sequence[Any]) -> npt.NDArray[Any]:
    """Matrix of the operator along one dimension, from its results for unit vectors: [outputs, inputs]."""
    units = torch.eye(inputs, dtype=torch.float64).reshape(1, inputs, *_alone(inputs, 1, dim, rank))
    units = units.expand(1, inputs, *_alone(inputs, _ACROSS, dim, rank)).contiguous()
    target: Any = call.node.target
    with torch.no_grad():
        made = target(units, *settings).movedim(2 + dim, 2)
    return np.ascontiguousarray(made.reshape(inputs, made.shape[2], -1)[:, :, 0].numpy().T)
