"""The vertices of pooling: each makes a stretch of one row of its output."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.numerics import ElementType, f32
from abele.poplibs.popnn.pool_params import PoolKind
from abele.poplibs.popops.generated import build, type_name

Int64 = npt.NDArray[np.int64]

ROW_SLOTS = 30
ITEM_SLOTS = 20
POSITION_SLOTS = 3
MAX_GRADIENT_POSITION_SLOTS = 5
"""Slots of each row, each work item, and each channel vector at each window position. A work item is what one window
position adds to a row. Source: machine reference §4.10 (pooling)."""


@lru_cache(maxsize=256)
def pool_codelet(kind: PoolKind, dtype: ElementType) -> type:
    """A stretch of a pooled row.

    Fields: ``x`` holds ``rows`` rows of the input that the windows cover, each ``span`` positions of ``channels``
    channels; ``first`` is where in them the first window starts (below 0: in the padding).
    """
    start = {"max": "-INF", "avg": "0.0", "sum": "0.0"}[kind]
    step = "max(total, e)" if kind == "max" else "total + e"
    mean = [f"total = total / {type_name(f32)}(rows * (high - low))"] if kind == "avg" else []
    lines = [
        "rows = len(self.x) // (self.span * self.channels)",
        "for j in range(len(self.y) // self.channels):",
        "    at = self.first + j * self.stride",
        "    low = max(at, 0)",
        "    high = min(at + self.kernel, self.span)",
        "    for c in range(self.channels):",
        f"        total = {type_name(f32)}({start})",
        "        for r in range(rows):",
        "            for k in range(low, high):",
        f"                e = {_widened('self.x[(r * self.span + k) * self.channels + c]', dtype)}",
        f"                total = {step}",
        *[f"        {m}" for m in mean],
        f"        self.y[j * self.channels + c] = {_narrowed('total', dtype)}",
    ]
    fields = [f"x: Input[Vector[{dtype.name}]]", f"y: Output[Vector[{dtype.name}]]", *_STATE]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return _slots(v.x, v.y, v, v.kernel, ipu.vector_width(dtype), POSITION_SLOTS)

    return build(f"Pool_{kind}", "Vertex", fields, lines, cycles, extra=dtype)


_STATE = ["kernel: i32", "stride: i32", "span: i32", "channels: i32", "first: i32"]


@lru_cache(maxsize=256)
def pool_gradient_codelet(kind: PoolKind, dtype: ElementType) -> type:
    """A stretch of a row of the input gradient.

    Fields: ``g`` holds ``rows`` rows of the output gradient whose windows cover the stretch, each ``span`` positions of
    ``channels`` channels, and for max pooling ``pooled`` the outputs there and ``x`` the inputs of the stretch; ``at``
    is the first position of the stretch counted from the padding, ``first`` the first output position of a row,
    ``scale`` multiplies every result.
    """
    place = "(r * self.span + k) * self.channels + c"
    add = f"total = total + {_widened(f'self.g[{place}]', dtype)}"
    body = [add] if kind != "max" else [f"if self.pooled[{place}] == x:", f"    {add}"]
    own = ["x = self.x[j * self.channels + c]"] if kind == "max" else []
    lines = [
        "rows = len(self.g) // (self.span * self.channels)",
        "for j in range(len(self.y) // self.channels):",
        "    at = self.at + j",
        "    low = max((at - self.kernel + self.stride) // self.stride - self.first, 0)",
        "    high = min(at // self.stride + 1 - self.first, self.span)",
        "    for c in range(self.channels):",
        f"        total = {type_name(f32)}(0.0)",
        *[f"        {line}" for line in own],
        "        for r in range(rows):",
        "            for k in range(low, high):",
        *[f"                {line}" for line in body],
        f"        self.y[j * self.channels + c] = {_narrowed('total * self.scale', dtype)}",
    ]
    reads = ["g", "pooled", "x"] if kind == "max" else ["g"]
    fields = [*(f"{n}: Input[Vector[{dtype.name}]]" for n in reads), f"y: Output[Vector[{dtype.name}]]"]
    fields += [*_STATE, "at: i32", "scale: f32"]
    position = MAX_GRADIENT_POSITION_SLOTS if kind == "max" else POSITION_SLOTS

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return _slots(v.g, v.y, v, -(-v.kernel // v.stride), ipu.vector_width(dtype), position)

    return build(f"PoolGradient_{kind}", "Vertex", fields, lines, cycles, extra=dtype)


def _slots(read: Any, written: Any, v: Any, reach: Any, vector: int, position: int) -> Int64:
    channels = np.maximum(np.asarray(v.channels, np.int64), 1)
    span = np.maximum(np.asarray(v.span, np.int64), 1)
    rows = np.asarray(read) // (span * channels)
    outputs = np.asarray(written) // channels
    positions = outputs * np.minimum(reach, span) * rows
    items = rows * np.minimum(np.asarray(v.kernel, np.int64), outputs * np.minimum(reach, span))
    return np.asarray(ROW_SLOTS + ITEM_SLOTS * items + position * positions * -(-channels // vector), np.int64)


def _widened(text: str, dtype: ElementType) -> str:
    return text if dtype == f32 else f"{type_name(f32)}({text})"


def _narrowed(text: str, dtype: ElementType) -> str:
    return text if dtype == f32 else f"{type_name(dtype)}({text})"
