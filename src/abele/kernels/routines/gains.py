"""Gain of a library over the packed routine on this host, measured once per version of the library.

Both multiply the same matrices, in each layout, in turns; the least of many times counts, so that other processes
disturb little, and the result is rounded. It decides which of both multiplies, and so bits: therefore it is measured
once, not for every program.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from abele import layout
from abele.host_facts import measured
from abele.kernels.routines.blocking import Blocking
from abele.kernels.routines.packed import product_module
from abele.layout import Modes
from abele.llvm.jit import Native, compile_keyed
from abele.numerics import ElementType, f32

# Offsets of the elements of a product's matrices: one for every row and column of each.
#
# Loop dims that make one dim of the product are its digits. An element's offset is the sum of one of its row and one
# of its column. So six tables describe any layout, in a few bytes per row and column.


@dataclass(frozen=True)
class Places:
    """Offsets and sizes of a routine's matrices, as they lie in memory.

    Attributes:
        numbers: Summed elements; addresses of the tables; runs; whether the packed block is kept.
        tables: Offsets in elements, of A's rows and columns, B's rows and columns, and C's rows and columns.
    """

    numbers: np.ndarray
    tables: tuple[np.ndarray, ...]

    @property
    def address(self) -> int:
        """Of the numbers."""
        return int(self.numbers.ctypes.data)


def places_of(dims: Sequence[Modes], *, keeps: bool) -> Places:
    """The places of matrices with these dims: A's rows and columns, B's rows and columns, C's rows and columns."""
    tables = tuple(map(offsets, dims))
    runs = [run_of(dim) for dim in dims[:4]]
    numbers = np.array([tables[1].size, *(t.ctypes.data for t in tables), *runs, int(keeps)], np.int64)
    return Places(numbers, tables)


@lru_cache(maxsize=512)
def offsets(digits: Modes) -> np.ndarray:
    """Offset of every element of a dim, int64[extent]."""
    total = layout.offsets(digits)
    total.setflags(write=False)
    return total


def run_of(digits: Modes) -> int:
    """Elements that lie next to each other, from multiples of that number on; 0 if none do."""
    run = layout.run_length(digits)
    return run if run > 1 else 0


# The packed routine as native code of this CPU, made once per host.

PACKED_VERSION = 3
"""Part of the cache key; raised when the code of equal sizes changes."""
LLVM_SPEED = 1
"""Optimisation level: loops are tiled and unrolled already."""


def packed_routine(sizes: Blocking, left: str, right: str) -> tuple[Native, int]:
    """Native code that multiplies matrices of element types ``left`` and ``right``, and its address."""
    content = f"packed product {PACKED_VERSION}\n{sizes!r} {left} {right}"
    name = f"packed_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    native = compile_keyed(content, lambda: product_module(sizes, left, right, name), speed=LLVM_SPEED)
    return native, native.address(name)


# Libraries of this process that multiply matrices.
#
# PyTorch's wheels for x86 carry MKL in ``libtorch_cpu.so`` and export its entry points. Where PyTorch is loaded
# anyway, a share of a product may as well be multiplied by that; nothing is ever loaded for it. MKL is told for the
# calling thread alone that it shall use one thread, and told its setting of before afterwards, so calls of the user's
# own keep theirs.
#
# OpenBLAS, which NumPy and SciPy carry, is not called: as wheels build it, the whole process has one number of
# threads, which ``openblas_set_num_threads_local`` sets, too, so it could run in our threads only at the cost of the
# user's calls.


@dataclass(frozen=True)
class MatrixLibrary:
    """A library that multiplies matrices of f32.

    Attributes:
        name: As in listings.
        version: Version that it states.
        sgemm: Address of ``sgemm_`` of Fortran, with integers of 32 bits.
        set_threads: Address of ``int (int)``: sets the calling thread's number of threads and gives that of before.
    """

    name: str
    version: str
    sgemm: int
    set_threads: int


def loaded_library() -> MatrixLibrary | None:
    """MKL as PyTorch carries it, if that is loaded."""
    torch = sys.modules.get("torch")
    file = getattr(torch, "__file__", None)
    return _mkl_in(Path(file).parent / "lib" / "libtorch_cpu.so") if file else None


@cache
def _mkl_in(path: Path) -> MatrixLibrary | None:
    no_load = getattr(os, "RTLD_NOLOAD", None)
    if no_load is None or not path.exists():
        return None
    try:
        found = ctypes.CDLL(str(path), mode=no_load | os.RTLD_LAZY)
        sgemm, set_threads, get_version = (
            getattr(found, name) for name in ("sgemm_", "MKL_Set_Num_Threads_Local", "MKL_Get_Version_String")
        )
    except (OSError, AttributeError):  # not loaded, or built with another BLAS
        return None
    text = ctypes.create_string_buffer(256)
    get_version(text, len(text))
    addresses = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in (sgemm, set_threads))
    return MatrixLibrary("mkl", text.value.decode(errors="replace").strip(), *addresses)


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
