"""Images at other sizes: each dimension is multiplied by a matrix that follows from its extents and the mode."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abele.arrays import Array
from abele.expr import select
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import Known, NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.numerics import bool_

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)


@op("Upsample")
def upsample(call: NodeCall, value: Value, scales: Known, *, mode: str = "nearest") -> Value:
    """The operand larger by a factor along each dimension."""
    factors = [float(s) for s in np.asarray(scales).reshape(-1)]
    sizes = [math.floor(n * s) for n, s in zip(value.shape, factors, strict=True)]
    how = _Resizing(call, mode, "asymmetric", "floor")
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
    how = _Resizing(
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


class _Resizing:
    """Places of a result in the operand, and the weights of the operand's elements at each."""

    def __init__(
        self,
        call: NodeCall,
        mode: str,
        coordinates: str,
        nearest: str,
        *,
        antialias: bool = False,
        slope: float = -0.75,
        excludes: bool = False,
    ) -> None:
        mode = {"bilinear": "linear"}.get(mode, mode)
        if mode not in MODES:
            raise call.wrong(f"has the mode {mode!r}, which is none of {', '.join(MODES)}")
        if coordinates not in COORDINATES:
            raise call.wrong(f"has the coordinates {coordinates!r}, which are none of {', '.join(COORDINATES)}")
        self.mode, self.coordinates, self.nearest = mode, coordinates, nearest
        self.antialias, self.slope, self.excludes = antialias, slope, excludes

    def places(self, inputs: int, outputs: int, scale: float, region: tuple[float, float]) -> Array:
        """Place in the operand of each output, in elements."""
        at = np.arange(outputs, dtype=np.float64)
        match self.coordinates:
            case "half_pixel":
                return (at + 0.5) / scale - 0.5
            case "half_pixel_symmetric":
                adjusted = outputs / (scale * inputs)
                centre = inputs / 2
                return centre * (1 - adjusted) + (at + 0.5) / scale - 0.5
            case "pytorch_half_pixel":
                return (at + 0.5) / scale - 0.5 if outputs > 1 else np.zeros(outputs)
            case "align_corners":
                # The length that was asked for counts, which need not be whole.
                length = inputs * scale
                return at * (inputs - 1) / (length - 1) if length > 1 and outputs > 1 else np.zeros(outputs)
            case "tf_crop_and_resize":
                begin, end = region
                if outputs > 1:
                    return begin * (inputs - 1) + at * (end - begin) * (inputs - 1) / (outputs - 1)
                return np.full(outputs, 0.5 * (begin + end) * (inputs - 1))
        return at / scale

    def beyond(self, inputs: int, outputs: int, region: tuple[float, float]) -> Array:
        """True for outputs whose place is outside of the operand."""
        at = self.places(inputs, outputs, 1.0, region)
        return np.asarray((at < 0) | (at > inputs - 1))

    def matrix(self, inputs: int, outputs: int, scale: float, region: tuple[float, float] = (0.0, 1.0)) -> Array:
        """Weight of each element of the operand in each output, [outputs, inputs]."""
        at = self.places(inputs, outputs, scale, region)
        if self.mode == "nearest":
            chosen = np.clip(self._rounded(at), 0, inputs - 1).astype(int)
            made = np.zeros((outputs, inputs))
            made[np.arange(outputs), chosen] = 1.0
            return made
        stretch = min(scale, 1.0) if self.antialias else 1.0
        reach = (1 if self.mode == "linear" else 2) / stretch
        first, last = int(np.floor(at.min() - reach)), int(np.ceil(at.max() + reach))
        numbers = np.arange(first, last + 1)
        distance = (numbers[None, :] - at[:, None]) * stretch
        weights = self._linear(distance) if self.mode == "linear" else self._cubic(distance)
        inside = (numbers >= 0) & (numbers < inputs)
        if self.excludes:
            weights = weights * inside
        total = weights.sum(axis=1, keepdims=True)
        if self.excludes or self.antialias:
            weights = weights / np.where(total == 0, 1.0, total)
        made = np.zeros((outputs, inputs))
        # What lies beyond an end counts for the element there.
        for column, number in enumerate(np.clip(numbers, 0, inputs - 1)):
            made[:, number] += weights[:, column]
        return made

    def _rounded(self, at: Array) -> Array:
        match self.nearest:
            case "floor":
                return np.floor(at)
            case "ceil":
                return np.ceil(at)
            case "round_prefer_ceil":
                return np.floor(at + 0.5)
        return np.ceil(at - 0.5)

    @staticmethod
    def _linear(distance: Array) -> Array:
        return np.asarray(np.maximum(1 - np.abs(distance), 0))

    def _cubic(self, distance: Array) -> Array:
        """Keys's kernel with a slope of its own at a distance of 1."""
        d, a = np.abs(distance), self.slope
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0.0)))
