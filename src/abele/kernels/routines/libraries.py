"""Libraries of this process that multiply matrices.

PyTorch's wheels for x86 carry MKL in ``libtorch_cpu.so`` and export its entry points. Where PyTorch is loaded anyway, a
share of a product may as well be multiplied by that; nothing is ever loaded for it. MKL is told for the calling thread
alone that it shall use one thread, and told its setting of before afterwards, so calls of the user's own keep theirs.

OpenBLAS, which NumPy and SciPy carry, is not called: as wheels build it, the whole process has one number of threads,
which ``openblas_set_num_threads_local`` sets, too, so it could run in our threads only at the cost of the user's calls.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path


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
