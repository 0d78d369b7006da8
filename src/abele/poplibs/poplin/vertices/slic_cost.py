"""Cycles of SLIC: convolutions of few channels by a window of four kernel positions that slides along a row.

The unit holds the weights of 4 in- by 4 out-channels for four neighbouring kernel positions, of 4 × 4 channels of one
group or of as many groups side by side, and moves along a row of the input.
Source of all: machine.md §4.3 (poplibs' estimators in our own words), confidence S unless said otherwise.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.numerics import ElementType, f16
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.vertices.cost import WORKERS, ceil_div
from abele.poplibs.poplin.vertices.work import Work

_WINDOW = 4
_CHANNELS = 4
_CHAINS_PER_PASS = 2
"""Passes over a row: the unit has two of the four chains that one pass would need. Source: machine.md §1.3, §4.3."""


def slic_takes(axis: Axis, dtype: ElementType) -> bool:
    """True if a convolution can slide so along its innermost field dimension: halves, neighbours, steps of 1 or 2."""
    return dtype == f16 and axis.kernel > 1 and axis.in_step == 1 and axis.out_step in (1, 2) and axis.kernel_step == 1


def slic(work: Work, stride: int) -> Int64:
    """Tile cycles of ConvPartial1x4SLIC.

    Args:
        work: Slices.
        stride: Step along the innermost field dimension, 1 or 2.
    """
    half = work.partials == f16
    windows = work.kernel_outer * ceil_div(work.kernel_inner, _WINDOW)
    channels = ceil_div(work.in_channels, _CHANNELS) * ceil_div(work.out_channels, _CHANNELS)
    kernels = windows * channels
    most = ceil_div(work.outputs, WORKERS)
    rows = np.maximum(ceil_div(most, np.maximum(work.run, 1)), 1)
    along = ceil_div(most, rows)
    per_row = (9 if half else 13) + _CHAINS_PER_PASS * _row(along, stride, half=half)
    sweep = WORKERS * (19 + rows * per_row)
    load = 18 + 16
    body = kernels * (load + 20 + sweep) + 6 * (kernels - 1) + 1
    merging = WORKERS * (2 + 2 * most) if half else 0
    return np.asarray((25 if half else 28) + work.groups * ((12 if half else 15) + body + merging), dtype=np.int64)


def _row(n: Int64, stride: int, *, half: bool) -> Int64:
    """Slots of a pass over ``n`` positions; short rows take between 7 and 16."""
    short = np.minimum(7 + 2 * n, 16)
    if stride == 2:
        return np.where(n >= 3, 15 + 2 * (n - 3), short)
    threshold = 6 if half else 5
    return np.where(n >= threshold, 15 + (n - threshold) + (3 if half else 0), short)
