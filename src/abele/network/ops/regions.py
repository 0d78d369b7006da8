"""Regions of images, of which each cell is the mean or the largest of samples between elements."""

from __future__ import annotations

import numpy as np

from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import f32, i32

x, y = arg(0), arg(1)


def roi_align(
    net: BlockBuilder,
    value: Value,
    rois: Value,
    batch: Value,
    *,
    cells: tuple[int, int],
    ratio: int,
    scale: float = 1.0,
    offset: float = 0.0,
    mode: str = "avg",
) -> Value:
    """Means or maxima of samples in each cell of regions of images, [regions, channels, *cells].

    Args:
        net: The network to extend.
        value: Images [batch, channels, height, width].
        rois: Regions [regions, 4]: x and y of one corner, then of the other.
        batch: Image of each region [regions].
        cells: Cells of a region, down and across.
        ratio: Samples of a cell in each direction.
        scale: Factor from regions to elements.
        offset: Subtracted from places, in elements; with 0 a region has at least one element.
        mode: ``avg`` or ``max``.
    """
    count, (_, channels, height, width) = rois.shape[0], value.shape
    edges = [build.reshape(net, build.slice_(net, rois, 1, n, n + 1), (count, 1)) for n in range(4)]
    places = []
    for low, high, parts in ((edges[1], edges[3], cells[0]), (edges[0], edges[2], cells[1])):
        begin = build.map_(net, x * float(scale) - offset, [build.cast(net, low, f32)])
        end = build.map_(net, x * float(scale) - offset, [build.cast(net, high, f32)])
        length = build.map_(net, y - x, [begin, end])
        if not offset:
            length = build.map_(net, apply("max", x, 1.0), [length])
        inside = np.asarray([(c + (s + 0.5) / ratio) / parts for c in range(parts) for s in range(ratio)], np.float32)
        at = net.constant(inside.reshape(1, -1), f32)
        places.append(build.map_(net, x + y * arg(2), [begin, length, at]))
    rows, columns = places
    along = (count, rows.shape[1], columns.shape[1])
    image = build.reshape(net, build.cast(net, batch, i32), (count, 1, 1))
    taps = [_taps(net, rows, height, 0), _taps(net, columns, width, 1)]
    table = build.reshape(net, build.permute(net, value, (0, 2, 3, 1)), (value.shape[0] * height * width, channels))
    terms = []
    for row, of_row in taps[0]:
        for column, of_column in taps[1]:
            number = build.map_(net, x * (height * width) + y * width + arg(2), [image, row, column], i32)
            share = build.map_(net, x * y, [of_row, of_column])
            found = build.look_up(net, table, build.expand(net, number, along))
            wide = build.reshape(net, build.expand(net, share, along), (*along, 1))
            terms.append(build.map_(net, x * y, [found, wide], value.dtype))
    cell = (count, cells[0], ratio, cells[1], ratio, channels)
    if mode == "max":
        best = terms[0]
        for term in terms[1:]:
            best = build.map_(net, apply("max", x, y), [best, term])
        made = build.reduce(net, build.reshape(net, best, cell), [2, 4], "max")
    else:
        made = build.mean(net, build.reshape(net, build.total(net, terms), cell), [2, 4])
    return build.permute(net, made, (0, 3, 1, 2))


def _taps(net: BlockBuilder, places: Value, extent: int, axis: int) -> list[tuple[Value, Value]]:
    """Both neighbours of places along a dimension, and their shares; none where a place is beyond an end."""
    last = float(extent - 1)
    count, samples = places.shape
    shape = (count, samples, 1) if axis == 0 else (count, 1, samples)
    held = build.map_(net, apply("max", x, 0.0), [places])
    low = build.map_(net, apply("min", apply("floor", x), last), [held])
    at = build.map_(net, select(apply("floor", x) >= last, last, x), [held])
    inside = build.map_(net, select(apply("and", x >= -1.0, x <= float(extent)), 1.0, 0.0), [places])
    rest = build.map_(net, x - y, [at, low])
    high = build.map_(net, apply("min", x + 1.0, last), [low])
    shares = (build.map_(net, (1.0 - x) * y, [rest, inside]), build.map_(net, x * y, [rest, inside]))
    return [
        (build.reshape(net, build.cast(net, index, i32), shape), build.reshape(net, share, shape))
        for index, share in zip((low, high), shares, strict=True)
    ]


__all__ = ["roi_align"]
