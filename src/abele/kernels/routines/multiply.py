"""Routines that multiply matrices: the packed one as native code of this CPU, and a library of this process."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from abele import layout
from abele.kernels.routines.blocking import Blocking, Kept
from abele.kernels.routines.packed import product_module
from abele.layout import Modes
from abele.llvm.jit import ModuleSource, Native, compile_all

# Offsets of the elements of a product's matrices: one for every row and column of each.
#
# Loop dims that make one dim of the product are its digits. An element's offset is the sum of one of its row and one
# of its column. So six tables describe any layout, in a few bytes per row and column.


@dataclass(frozen=True)
class Places:
    """Offsets and sizes of a routine's matrices, as they lie in memory.

    Attributes:
        numbers: Summed elements; addresses of the tables; runs; what is kept (:class:`Kept`).
        tables: Offsets in elements, of A's rows and columns, B's rows and columns, and C's rows and columns.
    """

    numbers: np.ndarray
    tables: tuple[np.ndarray, ...]

    @property
    def address(self) -> int:
        """Of the numbers."""
        return int(self.numbers.ctypes.data)


def places_of(dims: Sequence[Modes], kept: Kept) -> Places:
    """The places of matrices with these dims: A's rows and columns, B's rows and columns, C's rows and columns."""
    tables = tuple(map(offsets, dims))
    runs = [run_of(dim) for dim in dims[:4]]
    numbers = np.array([tables[1].size, *(t.ctypes.data for t in tables), *runs, int(kept)], np.int64)
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

PACKED_VERSION = 7
"""Part of the cache key; raised when the code of equal sizes changes."""
LLVM_SPEED = 1
"""Optimisation level: loops are tiled and unrolled already."""


def packed_source(sizes: Blocking, left: str, right: str) -> ModuleSource:
    """The module of a routine that multiplies matrices of element types ``left`` and ``right``."""
    content = f"packed product {PACKED_VERSION}\n{sizes!r} {left} {right}"
    return ModuleSource(content, lambda: product_module(sizes, left, right, _packed_name(content)), LLVM_SPEED)


def packed_routine(sizes: Blocking, left: str, right: str) -> tuple[Native, int]:
    """Native code that multiplies matrices of element types ``left`` and ``right``, and its address."""
    source = packed_source(sizes, left, right)
    (native,) = compile_all([source])
    return native, native.address(_packed_name(source.content))


def _packed_name(content: str) -> str:
    return f"packed_{hashlib.sha256(content.encode()).hexdigest()[:16]}"


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
