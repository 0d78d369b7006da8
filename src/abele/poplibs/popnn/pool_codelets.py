"""The vertices of pooling: each makes a block of its output, whose rows the workers of a tile share."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.numerics import ElementType, f32
from abele.poplibs.popops.generated import build, type_name

Int64 = npt.NDArray[np.int64]
PoolStep = Literal["max", "avg", "sum", "ties"]

ROW_SLOTS = 30
ITEM_SLOTS = 20
POSITION_SLOTS = 3
MAX_GRADIENT_POSITION_SLOTS = 5
"""Slots of each row, each work item, and each channel vector at each window position. A work item is what one window
position adds to a row. Source: machine reference §4.10 (pooling)."""

Window = tuple[tuple[int, ...], tuple[int, ...]]
"""Window and stride along every field dimension."""


@lru_cache(maxsize=256)
def pool_codelet(step: PoolStep, dtype: ElementType, window: Window, workers: int) -> type:
    """A block of a pooled field; ``ties`` counts the elements of each window that equal its maximum ``pooled``.

    Fields: ``x`` holds the box of the input that the windows cover, [outer, *in, channels], and ``y`` the outputs,
    [outer, *out, channels]; ``first_d`` is where the first window starts in the box (below 0: in the padding). Every
    row of outputs is cut into ``parts`` for the workers.
    """
    kernel, stride = window
    rank = len(kernel)
    start = "-INF" if step == "max" else "0.0"
    place = f"((j + row * self.out_{rank - 1}) * self.channels + c)"
    add = {"max": "total = max(total, e)", "ties": "if e == best:"}.get(step, "total = total + e")
    inner = [f"e = {_widened(f'self.x[({_flat(rank)}) * self.channels + c]', dtype)}", add]
    inner += ["    total = total + 1.0"] if step == "ties" else []
    loops = _nested([f"for k{d} in range(low{d}, high{d}):" for d in range(rank)], inner)
    last = {"avg": ["if count > 1:", f"    total = total / {type_name(f32)}(count)"], "max": _NONE}.get(step, [])
    best = [f"best = {_widened(f'self.pooled[{place}]', dtype)}"] if step == "ties" else []
    each = [*best, f"total = {type_name(f32)}({start})", *loops, *last]
    each.append(f"self.y[{place}] = {_narrowed('total', dtype)}")
    count = ["count = 1", *(f"count = count * max(high{d} - low{d}, 0)" for d in range(rank))]
    bounds = [_window_bounds(d, kernel[d], stride[d]) for d in range(rank)]
    lines = _rows(rank, workers, bounds, count, each)
    reads = ["x", "pooled"] if step == "ties" else ["x"]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return _tile_cycles(v, kernel, kernel, ipu, dtype, POSITION_SLOTS)

    return build(f"Pool_{step}", "MultiVertex", _fields(reads, dtype, rank), lines, cycles, extra=(dtype, window))


@lru_cache(maxsize=256)
def pool_gradient_codelet(step: PoolStep, dtype: ElementType, window: Window, workers: int) -> type:
    """A block of the input gradient.

    Fields: ``g`` holds the box of output gradients whose windows cover the block, and for ``max`` ``pooled`` the
    outputs there and ``x`` the inputs of the block; ``first_d`` is the first position of the block, counted from the
    padding, less the stride times the first output of the box; ``scale`` multiplies every result.
    """
    kernel, stride = window
    rank = len(kernel)
    place = f"((j + row * self.out_{rank - 1}) * self.channels + c)"
    read = f"({_flat(rank)}) * self.channels + c"
    add = f"total = total + {_widened(f'self.g[{read}]', dtype)}"
    inner = [f"if self.pooled[{read}] == x:", f"    {add}"] if step == "max" else [add]
    loops = _nested([f"for k{d} in range(low{d}, high{d}):" for d in range(rank)], inner)
    own = [f"x = self.x[{place}]"] if step == "max" else []
    each = [f"total = {type_name(f32)}(0.0)", *own, *loops]
    each.append(f"self.y[{place}] = {_narrowed('total * self.scale', dtype)}")
    bounds = [_cover_bounds(d, kernel[d], stride[d]) for d in range(rank)]
    lines = _rows(rank, workers, bounds, [], each)
    reads = ["g", "pooled", "x"] if step == "max" else ["g"]
    reach = tuple(-(-k // s) for k, s in zip(kernel, stride, strict=True))
    position = MAX_GRADIENT_POSITION_SLOTS if step == "max" else POSITION_SLOTS

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return _tile_cycles(v, kernel, reach, ipu, dtype, position)

    fields = [*_fields(reads, dtype, rank), "scale: f32"]
    return build(f"PoolGradient_{step}", "MultiVertex", fields, lines, cycles, extra=(dtype, window))


_NONE = ["if count < 1:", f"    total = {type_name(f32)}(0.0)"]
"""A window of nothing but padding gives 0."""


def _fields(reads: list[str], dtype: ElementType, rank: int) -> list[str]:
    edges = [*(f"{n}: Input[Vector[{dtype.name}]]" for n in reads), f"y: Output[Vector[{dtype.name}]]"]
    sizes = [f"{n}_{d}: i32" for d in range(rank) for n in ("in", "out", "first")]
    return [*edges, *sizes, "outer: i32", "parts: i32", "channels: i32"]


def _flat(rank: int) -> str:
    """Index of a position of the box that is read."""
    text = "outer"
    for d in range(rank):
        text = f"({text}) * self.in_{d} + k{d}"
    return text


def _window_bounds(d: int, kernel: int, stride: int) -> list[str]:
    """Positions of the box that the window of output o covers."""
    return [
        f"at{d} = self.first_{d} + o{d} * {stride}",
        f"low{d} = max(at{d}, 0)",
        f"high{d} = min(at{d} + {kernel}, self.in_{d})",
    ]


def _cover_bounds(d: int, kernel: int, stride: int) -> list[str]:
    """Positions of the box whose windows cover the element o."""
    return [
        f"at{d} = self.first_{d} + o{d}",
        f"low{d} = max((at{d} - {kernel} + {stride}) // {stride}, 0)",
        f"high{d} = min(at{d} // {stride} + 1, self.in_{d})",
    ]


def _rows(rank: int, workers: int, bounds: list[list[str]], count: list[str], each: list[str]) -> list[str]:
    """The loop of a worker over its parts of rows, and over the elements of each."""
    last = rank - 1
    units = " * ".join(["self.outer", *(f"self.out_{d}" for d in range(last)), "self.parts"])
    lines = [f"for unit in range(worker_id, {units}, {workers}):", "    part = unit % self.parts"]
    lines += ["    row = unit // self.parts", "    outer = row"]
    for d in reversed(range(last)):
        lines += [f"    o{d} = outer % self.out_{d}", f"    outer = outer // self.out_{d}"]
    lines += [f"    {line}" for d in range(last) for line in bounds[d]]
    lines += [f"    for j in range(part * self.out_{last} // self.parts, (part + 1) * self.out_{last} // self.parts):"]
    lines += [f"        o{last} = j", *(f"        {line}" for line in [*bounds[last], *count])]
    lines += ["        for c in range(self.channels):", *(f"            {line}" for line in each)]
    return lines


def _nested(loops: list[str], body: list[str]) -> list[str]:
    lines = [f"{'    ' * depth}{loop}" for depth, loop in enumerate(loops)]
    return [*lines, *(f"{'    ' * len(loops)}{line}" for line in body)]


def _tile_cycles(
    v: Any, kernel: tuple[int, ...], reach: tuple[int, ...], ipu: Ipu, dtype: ElementType, position: int
) -> Int64:
    """Every unit of a worker is a row; it has a work item for each window position that meets the block."""
    rank = len(kernel)
    out = [np.asarray(getattr(v, f"out_{d}"), np.int64) for d in range(rank)]
    parts, outer = np.asarray(v.parts, np.int64), np.asarray(v.outer, np.int64)
    box = [np.maximum(np.asarray(getattr(v, f"in_{d}"), np.int64), 1) for d in range(rank)]
    rows = outer * parts
    for extent in out[:-1]:
        rows = rows * extent
    positions = -(-out[-1] // parts) * -(-np.asarray(v.channels, np.int64) // ipu.vector_width(dtype))
    items = np.ones_like(rows)
    for d in range(rank):
        positions = positions * np.minimum(reach[d], box[d])
        width = -(-out[d] // parts) if d == rank - 1 else np.ones_like(out[d])
        items = items * np.minimum(kernel[d], width * np.minimum(reach[d], box[d]))
    slots = ROW_SLOTS + ITEM_SLOTS * items + position * positions
    return np.asarray(ipu.num_workers * -(-rows // ipu.num_workers) * slots, np.int64)


def _widened(text: str, dtype: ElementType) -> str:
    return text if dtype == f32 else f"{type_name(f32)}({text})"


def _narrowed(text: str, dtype: ElementType) -> str:
    return text if dtype == f32 else f"{type_name(dtype)}({text})"
