"""Images at other sizes: each dimension is multiplied by a matrix that follows from its extents and the mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.expr import select
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import Known, NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.resizing import COORDINATES, MODES, Resizing
from abele.numerics import bool_

_COORDINATES = {"pytorch_half_pixel" if name == "half_pixel_but_single" else name: name for name in COORDINATES}
"""Places of results by ONNX's names."""


@op("Upsample")
def upsample(call: NodeCall, value: Value, scales: Known, *, mode: str = "nearest") -> Value:
    """The operand larger by a factor along each dimension."""
    factors = [float(s) for s in np.asarray(scales).reshape(-1)]
    sizes = [math.floor(n * s) for n, s in zip(value.shape, factors, strict=True)]
    how = _resizing(call, mode, "asymmetric", "floor")
    made = value
    for dim, (size, factor) in enumerate(zip(sizes, factors, strict=True)):
        if size != value.shape[dim] or factor != 1.0:
            made = build.resample(call.net, made, dim, how.matrix(value.shape[dim], size, factor))
    return made


@op("Resize", until=11)
def resize_by_scales(call: NodeCall, value: Value, scales: Known, *, mode: str = "nearest") -> Value:
    """The operand at another size, by factors."""
    made: Value = upsample(call, value, scales, mode=mode)
    return made


@op("Resize", since=11)
def resize(
    call: NodeCall,
    value: Value,
    roi: Known | None = None,
    scales: Known | None = None,
    sizes: Known | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    """The operand at another size, by factors or by extents."""
    net = call.net
    dims = list(range(value.ndim)) if axes is None else list(call.axes(axes, value.ndim))
    if scales is not None and np.asarray(scales).size:
        factors = [float(s) for s in np.asarray(scales).reshape(-1)]
        extents = [math.floor(value.shape[d] * s) for d, s in zip(dims, factors, strict=True)]
    elif sizes is not None:
        extents = [int(n) for n in np.asarray(sizes).reshape(-1)]
        factors = [n / value.shape[d] for d, n in zip(dims, extents, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            one = min(factors) if keep_aspect_ratio_policy == "not_larger" else max(factors)
            factors = [one] * len(dims)
            extents = [int(np.floor(one * value.shape[d] + 0.5)) for d in dims]
    else:
        raise call.wrong("has neither scales nor sizes")
    how = _resizing(
        call,
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        antialias=bool(antialias),
        slope=cubic_coeff_a,
        excludes=bool(exclude_outside),
    )
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    regions = [float(r) for r in np.asarray(roi).reshape(-1)] if crops and roi is not None else []
    made, outside = value, None
    order = sorted(range(len(dims)), key=lambda n: factors[n])
    for place in order:
        dim, size, factor = dims[place], extents[place], factors[place]
        region = (regions[place], regions[place + len(dims)]) if regions else (0.0, 1.0)
        if size == value.shape[dim] and factor == 1.0 and region == (0.0, 1.0):
            continue
        call.made_here(value.shape[dim], size)
        made = build.resample(net, made, dim, how.matrix(value.shape[dim], size, factor, region))
        if crops:
            beyond = how.beyond(value.shape[dim], size, region)
            if beyond.any():
                shape = [-1 if d == dim else 1 for d in range(value.ndim)]
                outside = beyond.reshape(shape) if outside is None else outside | beyond.reshape(shape)
    if outside is None:
        return made
    hidden = net.constant(np.asarray(outside), bool_)
    return build.map_(net, select(arg(0), float(extrapolation_value), arg(1)), [hidden, made], made.dtype)


def _resizing(call: NodeCall, mode: str, coordinates: str, nearest: str, **how: Any) -> Resizing:
    if mode not in (*MODES, "bilinear"):
        raise call.wrong(f"has the mode {mode!r}, which is none of {', '.join(MODES)}")
    if coordinates not in _COORDINATES:
        raise call.wrong(f"has the coordinates {coordinates!r}, which are none of {', '.join(_COORDINATES)}")
    return Resizing(mode, _COORDINATES[coordinates], nearest, **how)
