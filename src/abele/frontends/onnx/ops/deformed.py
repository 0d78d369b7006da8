"""Convolutions whose windows are bent: each element of a window is a sample beside its place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.onnx.ops.convolutions import each
from abele.frontends.onnx.registry import NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.grids import grid_sample
from abele.numerics import f32

x, y = arg(0), arg(1)
Ints = Sequence[int]


@op("DeformConv")
def deformable_convolution(
    call: NodeCall,
    value: Value,
    weight: Value,
    offset: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    offset_group: int = 1,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Value:
    """A convolution with offsets [batch, offset groups · taps · dimensions, *outputs] of the elements of each window.

    Samples are made for each offset group, [batch, channels, taps, *outputs], and then multiplied with the weights.
    """
    net, (batch, channels, *field) = call.net, value.shape
    rank, kernel, outputs = len(field), weight.shape[2:], offset.shape[2:]
    taps, sides = math.prod(kernel), list(pads or [0] * 2 * rank)
    steps, holes = each(call, "strides", strides, rank), each(call, "dilations", dilations, rank)
    if offset.shape[1] != offset_group * taps * rank or channels % offset_group or weight.shape[0] % group:
        raise call.wrong(
            f"has offsets of the shape {list(offset.shape)} for {offset_group} groups of {taps} elements of a window"
        )
    # Where each element of each window lies without its offset: [taps, dimensions, *outputs].
    windows = np.indices(kernel).reshape(rank, taps, *(1,) * rank)
    corners = np.indices(outputs).reshape(rank, 1, *outputs)
    scale = [np.asarray(v).reshape(rank, *(1,) * (rank + 1)) for v in (steps, holes, sides[:rank])]
    regular = np.moveaxis(corners * scale[0] - scale[2] + windows * scale[1], 0, 1)
    given = build.reshape(net, build.cast(net, offset, f32), (batch * offset_group, taps, rank, *outputs))
    places = build.map_(net, x + y, [given, net.constant(regular.astype(np.float32), f32)])
    # Samplers have the last dimension first, and ends of a dimension at -1 and 1.
    extents = np.asarray(field, np.float32).reshape(rank, *(1,) * rank)
    half, middle = (net.constant(a.astype(np.float32), f32) for a in (2 / extents, 1 / extents - 1))
    scaled = build.map_(net, x * y + arg(2), [places, half, middle])
    turned = build.permute(net, build.reverse(net, scaled, [2]), (0, 1, *range(3, 3 + rank), 2))
    grid = build.reshape(net, turned, (batch * offset_group, taps * outputs[0], *outputs[1:], rank))
    parts = build.reshape(net, value, (batch * offset_group, channels // offset_group, *field))
    samples = grid_sample(net, parts, grid, "linear", "zeros", False)
    if mask is not None:
        apart = build.reshape(net, samples, (batch, offset_group, channels // offset_group, taps, *outputs))
        samples = call.map(x * y, apart, build.reshape(net, mask, (batch, offset_group, 1, taps, *outputs)))
    count = math.prod(outputs)
    columns = build.reshape(net, samples, (batch, group, channels // group * taps, count))
    weights = build.reshape(net, weight, (group, weight.shape[0] // group, channels // group * taps))
    wide = build.expand(net, build.reshape(net, weights, (1, *weights.shape)), (batch, *weights.shape))
    made = build.reshape(net, build.matmul(net, wide, columns), (batch, weight.shape[0], *outputs))
    if bias is None:
        return made
    return call.map(x + y, made, build.reshape(net, bias, (bias.size, *(1,) * rank)))
