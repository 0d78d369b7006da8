"""Samples of images at places, regions of them, and windows as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abele.frontends.onnx.registry import Known, NodeCall, op
from abele.frontends.onnx.types import element_type, host_type
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.columns import ColumnWindows, columns_as_windows
from abele.network.ops.grids import Mode, Padding, grid_sample
from abele.network.ops.matrices import determinant
from abele.network.ops.matrices.composed import stacked
from abele.network.ops.regions import roi_align as roi_align_cells
from abele.numerics import f32, i32

Ints = Sequence[int]

_MODES: dict[str, Mode] = {
    "linear": "linear",
    "bilinear": "linear",
    "nearest": "nearest",
    "cubic": "cubic",
    "bicubic": "cubic",
}
_PADDINGS: dict[str, Padding] = {"zeros": "zeros", "border": "border", "reflection": "reflection"}


@op("GridSample")
def grid_sample_(
    call: NodeCall,
    value: Value,
    grid: Value,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Value:
    """The operand at places between -1 and 1."""
    if mode not in _MODES or padding_mode not in _PADDINGS:
        raise call.wrong(f"has the mode {mode!r} and the padding {padding_mode!r}, which are not both there")
    return grid_sample(call.net, value, grid, _MODES[mode], _PADDINGS[padding_mode], bool(align_corners))


@op("Col2Im")
def col2im(
    call: NodeCall,
    value: Value,
    image_shape: Known,
    block_shape: Known,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Value:
    """The image in which every window adds its column to its elements."""
    field, kernel = (tuple(int(n) for n in np.asarray(a).reshape(-1)) for a in (image_shape, block_shape))
    rank = len(field)
    sides = list(pads or [0] * 2 * rank)
    windows = ColumnWindows(field, kernel, dilations or [1] * rank, sides[:rank], sides[rank:], strides or [1] * rank)
    channels = value.shape[1] // math.prod(kernel)
    return columns_as_windows(call.net, value, windows, (value.shape[0], channels))


@op("MaxUnpool")
def max_unpool(
    call: NodeCall,
    value: Value,
    indices: Value,
    output_shape: Known | None = None,
    *,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Value:
    """Elements at the places that a pooling found them at, with zeros around."""
    net, rank = call.net, len(kernel_shape)
    steps, sides = list(strides or [1] * rank), list(pads or [0] * 2 * rank)
    own = [
        (n - 1) * s + k - a - b
        for n, s, k, a, b in zip(value.shape[2:], steps, kernel_shape, sides[:rank], sides[rank:], strict=True)
    ]
    shape = (*value.shape[:2], *own)
    size = math.prod(shape)
    flat = build.reshape(net, value, (1, value.size, 1))
    numbers = build.reshape(net, build.cast(net, indices, i32), (1, indices.size))
    zeros = build.full(net, 0, (1, size, 1), value.dtype)
    made = build.reshape(net, build.join_rows(net, zeros, flat, numbers, "set"), shape)
    if output_shape is None:
        return made
    wanted = [int(n) for n in np.asarray(output_shape).reshape(-1)]
    return build.pad(net, made, [0] * len(wanted), [w - n for w, n in zip(wanted, shape, strict=True)])


@op("Det")
def det(call: NodeCall, value: Value) -> Value:
    """The determinant of matrices."""
    made = determinant(call.net, stacked(call.net, build.cast(call.net, value, f32)))
    return build.cast(call.net, build.reshape(call.net, made, value.shape[:-2]), value.dtype)


@op("RoiAlign")
def roi_align(
    call: NodeCall,
    value: Value,
    rois: Value,
    batch_indices: Value,
    *,
    coordinate_transformation_mode: str | None = None,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    """Means or maxima of samples in each cell of regions of images.

    The number of samples of a cell follows from a region's size where none is said, and has to be known then.
    """
    net = call.net
    offset = (
        0.5
        if coordinate_transformation_mode == "half_pixel"
        or (coordinate_transformation_mode is None and call.version >= 16)
        else 0.0
    )
    ratio = sampling_ratio or _ratio(call, rois, output_height, output_width, spatial_scale)
    cells = (output_height, output_width)
    return roi_align_cells(
        net, value, rois, batch_indices, cells=cells, ratio=ratio, scale=spatial_scale, offset=offset, mode=mode
    )


def _ratio(call: NodeCall, rois: Value, height: int, width: int, scale: float) -> int:
    known = call.net.contents(rois)
    if known is None:
        raise call.refuse(
            "has sampling_ratio=0, with which the number of samples depends on the regions' sizes",
            remedy="set sampling_ratio, as torchvision's models do",
        )
    sizes = np.asarray(known, np.float64) * scale
    ratios = {
        (math.ceil(max(float(r[3] - r[1]), 0) / height), math.ceil(max(float(r[2] - r[0]), 0) / width)) for r in sizes
    }
    rows, columns = next(iter(ratios))
    if len(ratios) != 1 or rows != columns:
        raise call.refuse("has regions of different sizes and sampling_ratio=0", remedy="set sampling_ratio")
    return max(rows, 1)


@op("BitCast")
def bit_cast(call: NodeCall, value: Value, *, to: int) -> Value:
    """The same bits as another type of as many."""
    kind = element_type(to)
    if host_type(to).itemsize * 8 != kind.bits:
        raise call.refuse("reads the bits of a type of 64 bits, which the device does not have")
    return build.bitcast(call.net, value, kind)
