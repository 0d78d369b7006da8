"""Cycles of the vertical multiply-accumulate: depthwise convolutions, channel beside channel, without the AMP units.

Every worker takes some of the kernel's positions and rows, and keeps sums of its own that are added up in the end.
Source of all: machine.md §4.5 (poplibs' estimators in our own words), confidence S unless said otherwise.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.numerics import ElementType, f16, f32
from abele.poplibs.poplin.vertices.cost import WORKERS, ceil_div
from abele.poplibs.poplin.vertices.work import Work


def vmac_takes(channels: int, dtype: ElementType, partials: ElementType) -> bool:
    """True if a vertex takes this many channels side by side: 4, or 8 or 16 where sums are halves too."""
    return dtype == f16 and (channels == 4 or (channels in (8, 16) and partials == f16))


def vmac(work: Work) -> Int64:
    """Tile cycles of ConvPartialVerticalMac."""
    half = work.partials == f16
    channels = work.out_channels
    taps = work.kernel_outer * work.kernel_inner
    rows = ceil_div(taps * ceil_div(work.outputs, np.maximum(work.run, 1)), WORKERS)
    run = np.minimum(work.run, work.outputs)
    if half:
        wide = 13 + 12 * (channels >= 16) + rows * (7 + 15 + 3 + 3 * (run - 1)) * np.where(channels >= 16, 2, 1)
        narrow = 18 + rows * (7 + 3 + 3 + 2 * (run - 1))
        worker = np.where(channels >= 8, wide, narrow)
    else:
        worker = 19 + rows * (7 + 5 + 3 + 2 * (run - 1))
    elements = work.outputs * channels
    zeroing = ceil_div(elements, 4 if half else 2)
    share = ceil_div(ceil_div(elements, 4), WORKERS)
    reducing = WORKERS * (10 + (7 + 5 if half else 9 + 2 * 5) * share)
    setup = 61 + 14 + 25 + (0 if work.partials != f32 else 1)
    return np.asarray(setup + work.groups * (4 + zeroing + 32 + 24 + WORKERS * worker + reducing), dtype=np.int64)
