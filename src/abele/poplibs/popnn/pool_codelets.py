"""The vertices of pooling: each makes a block of its output, whose rows the workers of a tile share."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from abele.numerics import ElementType, f32
from abele.poplibs.popnn.pool_costs import PoolWork
from abele.poplibs.popops.expressions.generated import build, type_name

PoolStep = Literal["max", "avg", "sum", "ties"]

Window = tuple[tuple[int, ...], tuple[int, ...]]
"""Window and stride along every field dimension."""


@lru_cache(maxsize=256)
def pool_codelet(step: PoolStep, dtype: ElementType, window: Window, workers: int) -> type:
    """A block of a pooled field; ``ties`` counts the elements of each window that equal its maximum ``pooled``.

    Fields: ``x`` holds the box of the input that the windows cover, [groups, batch, *in, channels], and ``y`` the
    outputs, [groups, batch, *out, channels]; ``first_d`` is where the first window starts in the box (below 0: in the
    padding). The workers share the positions of batch and field evenly; each makes all channels of its own.
    """
    kernel, stride = window
    rank = len(kernel)
    start = "-INF" if step == "max" else "0.0"
    place = "(place * self.channels + c)"
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

    work = PoolWork(kernel, stride, dtype, is_max=step == "max", is_gradient=False)

    return build(
        f"Pool_{step}", "MultiVertex", _fields(reads, dtype, rank), lines, work.vertex_cycles, extra=(dtype, window)
    )


@lru_cache(maxsize=256)
def pool_gradient_codelet(step: PoolStep, dtype: ElementType, window: Window, workers: int) -> type:
    """A block of the input gradient.

    Fields: ``g`` holds the box of output gradients whose windows cover the block, and for ``max`` ``pooled`` the
    outputs there and ``x`` the inputs of the block; ``first_d`` is the first position of the block, counted from the
    padding, less the stride times the first output of the box; ``scale`` multiplies every result.
    """
    kernel, stride = window
    rank = len(kernel)
    place = "(place * self.channels + c)"
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
    work = PoolWork(kernel, stride, dtype, is_max=step == "max", is_gradient=True)
    fields = [*_fields(reads, dtype, rank), "scale: f32"]
    return build(f"PoolGradient_{step}", "MultiVertex", fields, lines, work.vertex_cycles, extra=(dtype, window))


_NONE = ["if count < 1:", f"    total = {type_name(f32)}(0.0)"]
"""A window of nothing but padding gives 0."""


def _fields(reads: list[str], dtype: ElementType, rank: int) -> list[str]:
    edges = [*(f"{n}: Input[Vector[{dtype.name}]]" for n in reads), f"y: Output[Vector[{dtype.name}]]"]
    sizes = [f"{n}_{d}: i32" for d in range(rank) for n in ("in", "out", "first")]
    return [*edges, *sizes, "groups: i32", "batch: i32", "channels: i32"]


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
    """The loops of a worker over its pieces of rows, over the groups and elements of each."""
    last = rank - 1
    lines = [f"rows = {' * '.join(['self.batch', *(f'self.out_{d}' for d in range(last))])}"]
    lines += [f"begin = worker_id * (rows * self.out_{last}) // {workers}"]
    lines += [f"end = (worker_id + 1) * (rows * self.out_{last}) // {workers}"]
    lines += [f"for row in range(begin // self.out_{last}, (end + self.out_{last} - 1) // self.out_{last}):"]
    lines += ["    sample = row"]
    for d in reversed(range(last)):
        lines += [f"    o{d} = sample % self.out_{d}", f"    sample = sample // self.out_{d}"]
    lines += [f"    {line}" for d in range(last) for line in bounds[d]]
    lines += ["    for group in range(self.groups):", "        outer = group * self.batch + sample"]
    lines += [
        f"        for j in range(max(begin - row * self.out_{last}, 0), "
        f"min(end - row * self.out_{last}, self.out_{last})):"
    ]
    inner = [f"o{last} = j", f"place = (group * rows + row) * self.out_{last} + j", *bounds[last], *count]
    lines += [f"            {line}" for line in inner]
    lines += ["            for c in range(self.channels):", *(f"                {line}" for line in each)]
    return lines


def _nested(loops: list[str], body: list[str]) -> list[str]:
    lines = [f"{'    ' * depth}{loop}" for depth, loop in enumerate(loops)]
    return [*lines, *(f"{'    ' * len(loops)}{line}" for line in body)]


def _widened(text: str, dtype: ElementType) -> str:
    return text if dtype == f32 else f"{type_name(f32)}({text})"


def _narrowed(text: str, dtype: ElementType) -> str:
    return text if dtype == f32 else f"{type_name(dtype)}({text})"
