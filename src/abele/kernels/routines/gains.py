"""What a library gains over the packed routine on this host: measured once, and again where the library is another.

Both multiply the same matrices, in each layout, in turns; the least of many times counts, so that what else runs on the
machine disturbs little, and the result is rounded. It decides which of both multiplies, and so bits; therefore it is
measured once, and not for every program.
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

VERSION = 1
"""Raised when gains are measured in another way."""
_EXTENT, _ROUNDS = 320, 12
"""Rows, columns and summed elements, as large as shares are; and rounds of both, a few milliseconds each."""
_P, _I = ctypes.c_void_p, ctypes.c_int64
_ROUTINE = ctypes.CFUNCTYPE(None, _P, _I, _I, _I, _I, _P, _P, _P, _I, _I, _P)
_SGEMM = ctypes.CFUNCTYPE(None, *[_P] * 13)
_THREADS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


def library_gain(library: MatrixLibrary, sizes: Blocking) -> float:
    """How many times as fast as the packed routine ``library`` multiplies, to the nearest twentieth."""
    version = VERSION << 32 | zlib.crc32(f"{library.version} {sizes!r}".encode())
    return measured(f"products-{library.name}", version, float, lambda: measure_gain(library, sizes))


def measure_gain(library: MatrixLibrary, sizes: Blocking) -> float:
    """Measure it now: the mean over both layouts of the right matrix."""
    gains = []
    for is_turned in (False, True):
        ours, theirs = _packed(sizes, is_turned=is_turned), _library(library, is_turned=is_turned)
        pairs = [(_seconds(ours), _seconds(theirs)) for _ in range(_ROUNDS)]
        gains.append(min(a for a, _ in pairs) / min(b for _, b in pairs))
    return round(20 * sum(gains) / len(gains)) / 20


def _matrix() -> np.ndarray:
    return np.full((_EXTENT, _EXTENT), 0.5, np.float32)


def _packed(sizes: Blocking, *, is_turned: bool) -> Callable[[], None]:
    n = _EXTENT
    native, address = packed_routine(sizes, "f32", "f32")
    row, column = ((n, n),), ((n, 1),)
    places = places_of([row, column, *((column, row) if is_turned else (row, column)), row, column], keeps=True)
    a, b, c, work = _matrix(), _matrix(), _matrix(), np.zeros(sizes.work_bytes(n, n), np.uint8)
    run = _ROUTINE(address)
    args = (places.address, 0, n, 0, n, *(x.ctypes.data for x in (a, b, c)), 0, 0, work.ctypes.data)
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


def _seconds(run: Callable[[], None]) -> float:
    start = time.thread_time()
    run()
    return max(time.thread_time() - start, 1e-9)
