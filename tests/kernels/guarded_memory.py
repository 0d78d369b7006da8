"""Arrays with their first or last byte beside a page that must not be touched: reads outside stop the process."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence

import numpy as np
from kernels_kit import run_plan

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.reference import evaluate
from abele.numerics import ElementType

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class GuardedMemory:
    """Hands out arrays between two forbidden pages; at most one array lives in each mapping."""

    def __init__(self) -> None:
        self._mappings: list[tuple[mmap.mmap, int]] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype, *, at_end: bool) -> np.ndarray:
        """Zeros that end right before the second forbidden page, or start right after the first."""
        page, size = mmap.PAGESIZE, math.prod(shape) * dtype.itemsize
        inside = -(-max(size, 1) // page) * page
        mapping = mmap.mmap(-1, inside + 2 * page)
        whole = np.frombuffer(mapping, np.uint8)
        whole[:] = 0xFF
        for offset in (0, page + inside):
            if _LIBC.mprotect(whole.ctypes.data + offset, page, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._mappings.append((mapping, whole.ctypes.data))
        start = page + inside - size if at_end else page
        array = whole[start : start + size].view(dtype).reshape(shape)
        array[...] = 0
        return array

    def release(self) -> None:
        """Let all pages be used again; arrays are given back when nothing refers to them."""
        for mapping, address in self._mappings:
            _LIBC.mprotect(address, len(mapping), mmap.PROT_READ | mmap.PROT_WRITE)
        self._mappings.clear()


def check(kernel: HostKernel, inputs: list[np.ndarray], *, at_end: bool, before: Sequence[np.ndarray] = ()) -> None:
    """Run ``kernel`` beside forbidden pages, and compare with its definition."""
    count = kernel.num_inputs + kernel.num_outputs
    buffers = [Buffer(n, kernel.shapes[n], kernel.types[n], True, f"b{n}") for n in range(count)]
    memory = GuardedMemory()
    storage = {n: memory.array(kernel.shapes[n], kernel.types[n].np, at_end=at_end) for n in range(count)}
    for number, array in enumerate([*inputs, *before]):
        storage[number][...] = array
    run_plan(plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "test")]), storage)
    got = [storage[n].copy() for n in kernel.outputs]
    memory.release()
    for mine, wanted in zip(got, evaluate(kernel, [*inputs, *before]), strict=True):
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine.astype(np.float64), wanted.astype(np.float64), rtol=4e-3, atol=4e-3)
        else:
            np.testing.assert_array_equal(mine, wanted)


def values(shape: tuple[int, ...], type_: ElementType, seed: int) -> np.ndarray:
    """Small integers, which every type and every order of additions holds exactly."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(type_.np)
