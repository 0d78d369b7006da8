"""Gain of a library over the packed routine on this host, measured once per version of the library.

Both multiply the same matrices, in each layout, in turns; the least of many times counts, so that other processes
disturb little, and the result is rounded. It decides which of both multiplies, and so bits: therefore it is measured
once, not for every program.
"""

from __future__ import annotations

import ctypes
import time
import zlib
from collections.abc import Callable

import numpy as np

from abele.host_facts import measured
from abele.kernels.routines.blocking import Blocking
from abele.kernels.routines.libraries import MatrixLibrary
from abele.kernels.routines.native import packed_routine
from abele.kernels.routines.places import places_of
from abele.numerics import ElementType, f32

VERSION = 1
"""Raised when gains are measured in another way."""
_EXTENT, _ROUNDS = 320, 12
"""Rows, columns and summed elements, as large as shares are; and rounds of both, a few milliseconds each."""
_P, _I = ctypes.c_void_p, ctypes.c_int64
_ROUTINE = ctypes.CFUNCTYPE(None, _P, _I, _I, _I, _I, _P, _P, _P, _I, _I, _P)
_SGEMM = ctypes.CFUNCTYPE(None, *[_P] * 13)
_THREADS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


def library_gain(library: MatrixLibrary, sizes: Blocking) -> float:
    """Ratio of ``library``'s speed to that of the packed routine, to the nearest twentieth."""
    version = VERSION << 32 | zlib.crc32(f"{library.version} {sizes!r}".encode())
    return measured(f"products-{library.name}", version, float, lambda: measure_gain(library, sizes))


def measure_gain(library: MatrixLibrary, sizes: Blocking) -> float:
    """Measure it now: the mean over both layouts of the right matrix."""
    gains = []
    for is_turned in (False, True):
        ours, theirs = (
            packed_product(sizes, f32, (_EXTENT,) * 3, is_turned=is_turned),
            _library(library, is_turned=is_turned),
        )
        pairs = [(seconds_of(ours), seconds_of(theirs)) for _ in range(_ROUNDS)]
        gains.append(min(a for a, _ in pairs) / min(b for _, b in pairs))
    return round(20 * sum(gains) / len(gains)) / 20


def _matrix(shape: tuple[int, int] = (_EXTENT, _EXTENT), type_: ElementType = f32) -> np.ndarray:
    return np.full(shape, 0.5, type_.np)


def packed_product(
    sizes: Blocking, type_: ElementType, shape: tuple[int, int, int], *, is_turned: bool = False
) -> Callable[[], None]:
    """One product of rows, columns and summed elements ``shape`` by the packed routine, the right matrix transposed if
    ``is_turned``."""
    m, n, k = shape
    native, address = packed_routine(sizes, type_.name, type_.name)
    right = (((k, 1),), ((n, k),)) if is_turned else (((k, n),), ((n, 1),))
    places = places_of([((m, k),), ((k, 1),), *right, ((m, n),), ((n, 1),)], keeps=sizes.keeps(k, n))
    work = np.zeros(sizes.work_bytes(k, n), np.uint8)
    a, b, c = _matrix((m, k), type_), _matrix((k, n), type_), _matrix((m, n))
    run = _ROUTINE(address)
    args = (places.address, 0, m, 0, n, *(x.ctypes.data for x in (a, b, c)), 0, 0, work.ctypes.data)
    held = (native, places, a, b, c, work)

    def multiply() -> None:
        assert held  # what the arguments point to, and the code
        run(*args)

    return multiply


def _library(library: MatrixLibrary, *, is_turned: bool) -> Callable[[], None]:
    a, b, c = _matrix(), _matrix(), _matrix()
    n, one, zero = ctypes.c_int(_EXTENT), ctypes.c_float(1.0), ctypes.c_float(0.0)
    turned, plain = ctypes.create_string_buffer(b"T"), ctypes.create_string_buffer(b"N")
    run, set_threads = _SGEMM(library.sgemm), _THREADS(library.set_threads)
    size = ctypes.addressof(n)
    # Fortran's matrices are ours turned: C' = B'·A'.
    args = (
        *(ctypes.addressof(turned if is_turned else plain), ctypes.addressof(plain), size, size, size),
        *(ctypes.addressof(one), b.ctypes.data, size, a.ctypes.data, size, ctypes.addressof(zero), c.ctypes.data, size),
    )
    held = (a, b, c, n, one, zero, turned, plain)

    def multiply() -> None:
        assert held  # what the arguments point to
        before = set_threads(1)
        run(*args)
        set_threads(before)

    return multiply


def seconds_of(run: Callable[[], None]) -> float:
    """Processor time of the calling thread for one run."""
    start = time.thread_time()
    run()
    return max(time.thread_time() - start, 1e-9)
