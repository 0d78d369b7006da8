"""Arrays whose first or last byte lies beside a page that must not be touched: what reads outside stops the process."""

from __future__ import annotations

import ctypes
import math
import mmap

import numpy as np

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
