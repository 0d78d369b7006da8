"""Rates of loops and of the packed routine, measured once per host, that the choice between them rests on.

Two costs matter. The first is the speed of loops over register tiles, in a good layout and in the worst, beside the
tiles of the packed routine, which read packed memory only. The second is the cost of packing an element. The routine
multiplies a few rows, and then many: packing B is most of the first time and little of the second, which separates
tiles from packing. Loops are planned as any others. Every product runs once before it is timed, so that none finds the
caches full of another's matrices. The least of many times counts, and results are rounded, so that other processes
disturb little. The rates decide which of both multiplies, and so bits: they are therefore measured once, not for every
program.

Example: 4 rows times 512 × 512 pack 262,144 elements of B for 1,048,576 multiply-adds; 512 rows pack no more of it for
128 times as many.
"""

from __future__ import annotations

import ctypes
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from abele.host_facts import measured
from abele.kernels.nest.binding import BoundKernel, Buffer, bind
from abele.kernels.nest.ir import HostKernel, load, nest, store
from abele.kernels.plan.native_plan import NativePlan
from abele.kernels.routines.blocking import Blocking
from abele.kernels.routines.gains import packed_product, seconds_of
from abele.kernels.routines.rates import PackedRates
from abele.kernels.target import HostTarget, host_target
from abele.llvm.flush import denormals_flushed
from abele.numerics import ElementType, bf16, f32

VERSION = 2
"""Raised when rates are measured in another way."""
_COLUMNS, _TILES, _ROUNDS = 320, 20, 6
"""Columns of packed products, register tiles of rows of the longer one and of loops, and rounds, some 20 milliseconds
each."""
_STRAIGHT, _CROSSED = (768, 512), (768, 1024)
"""Columns and summed elements of products that run as loops: whole, and in parts of the sum."""
_LEAF = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
Plan = Callable[[Sequence[Buffer], Sequence[BoundKernel], HostTarget], NativePlan]


def measured_target(plan: Plan) -> HostTarget:
    """CPU of this process, with products chosen by measurements on it; ``plan`` makes the plans to measure."""
    target = host_target()
    if target.products is None:
        return target
    return replace(target, products=replace(target.products, measure=_Measure(plan)))


class _Measure:
    """Rates by sizes of the packed routine; equal to any other, so that choices are remembered for all plans."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __call__(self, sizes: Blocking) -> PackedRates:
        version = VERSION << 32 | zlib.crc32(repr(sizes).encode())
        return measured(f"products-rates-{sizes.word}", version, PackedRates, lambda: measure_rates(sizes, self.plan))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Measure)

    def __hash__(self) -> int:
        return hash(_Measure)


def measure_rates(sizes: Blocking, plan: Plan) -> PackedRates:
    """Measure them now."""
    type_ = bf16 if sizes.word == 2 else f32
    few, many, n, k = sizes.rows, _TILES * sizes.rows, _COLUMNS, sizes.depth
    runs = [packed_product(sizes, type_, (m, n, k)) for m in (few, many)]
    runs.extend(_loops((many, *shape), type_, plan, is_crossed=shape == _CROSSED) for shape in (_STRAIGHT, _CROSSED))
    with denormals_flushed():
        times = [[_warm_seconds(run) for run in runs] for _ in range(_ROUNDS)]
    short, long, *loops = (min(column) for column in zip(*times, strict=True))
    packing, tile = tile_costs(short, long, (few, many, n, k))
    rates = (many * math.prod(shape) * tile / taken for shape, taken in zip((_STRAIGHT, _CROSSED), loops, strict=True))
    return PackedRates(max(1.0, round(packing / tile)), *(round(20 * rate) / 20 for rate in rates))


def _warm_seconds(run: Callable[[], None]) -> float:
    run()
    return seconds_of(run)


def tile_costs(short: float, long: float, extents: tuple[int, int, int, int]) -> tuple[float, float]:
    """Seconds of packing an element, and of a multiply-add of a tile, behind those of products of few and many rows.

    A packed product of m rows takes ``tile · m·n·k + packing · (m + n)·k``; ``extents`` are few, many, n and k.
    """
    few, many, n, k = extents
    row = (long - short) / ((many - few) * k)
    packing = max(0.0, short / k - few * row) / n
    return packing, max(1e-15, row - packing) / n


def _loops(shape: tuple[int, int, int], type_: ElementType, plan: Plan, *, is_crossed: bool) -> Callable[[], None]:
    """A product of rows, columns and summed elements ``shape`` as loops; the right matrix is transposed if crossed."""
    m, n, k = shape
    right = ("j", "k") if is_crossed else ("k", "j")
    body = store(2, ("i", "j"), load(0, "i", "k") * load(1, *right), "add")
    kernel = HostKernel(
        ((m, k), (n, k) if is_crossed else (k, n), (m, n)),
        (type_, type_, f32),
        2,
        1,
        (nest({"i": m, "j": n, "k": k}, body),),
    )
    buffers = [
        Buffer(d, s, t, True, "abc"[d]) for d, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))
    ]
    made = plan(
        buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "loops")], replace(host_target(), products=None)
    )
    arrays = [np.full(b.shape, 0.5, b.type.np) for b in buffers]
    arena, scratch = (_aligned(size) for size in (made.arena_bytes, made.scratch_bytes))
    bases = {"arena": arena.ctypes.data, "scratch": scratch.ctypes.data, "address": 0}
    leaves = []
    for leaf in made.leaves:
        places = [arrays[a.value].ctypes.data if a.kind == "buffer" else bases[a.kind] + a.value for a in leaf.args]
        leaves.append((_LEAF(leaf.address), leaf.units, np.array([*places, 0], np.int64)))
    held = (made, arrays, arena, scratch)

    def multiply() -> None:
        assert held  # what the pointers point to, and the code
        for run, units, pointers in leaves:
            run(0, units, pointers.ctypes.data)

    return multiply


def _aligned(size: int) -> np.ndarray:
    block = np.zeros(size + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + size]
