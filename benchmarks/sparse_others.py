"""Sparse products by SciPy, PyTorch and MKL, for the benchmark of ours.

Everything that depends on the pattern alone is made beforehand: compressed rows, blocks, and those of the transpose,
with their values. Results of MKL go to memory that is there already.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

from abele.sparsity import Pattern

Call = Callable[[], Any]

_MKL_ROW_MAJOR, _MKL_AS_IS, _MKL_GENERAL = 101, 10, 20
"""Source: oneMKL, mkl_spblas.h (sparse_layout_t, sparse_operation_t, sparse_matrix_type_t)."""


class _Description(ctypes.Structure):
    """MKL's ``matrix_descr``."""

    _fields_ = (("type", ctypes.c_int), ("mode", ctypes.c_int), ("diagonal", ctypes.c_int))


def mkl() -> ctypes.CDLL | None:
    """MKL as PyTorch's wheels carry it; None where they do not export it."""
    file = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not file.exists():
        return None
    library = ctypes.CDLL(str(file))
    return library if hasattr(library, "mkl_sparse_s_mm") and hasattr(library, "mkl_sparse_s_create_bsr") else None


def _pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def mkl_product(pattern: Pattern, values: Any, x: Any) -> Call | None:
    """S·X by MKL, compressed rows of elements or of square blocks."""
    library = mkl()
    if library is None:
        return None
    handle, made = ctypes.c_void_p(), np.zeros((pattern.shape[0], x.shape[1]), np.float32)
    starts, columns = pattern.row_starts.astype(np.int32), pattern.columns.astype(np.int32)
    parts = (_pointer(starts), _pointer(starts[1:]), _pointer(columns), _pointer(values))
    edge = pattern.block[0]
    if edge == 1:
        status = library.mkl_sparse_s_create_csr(ctypes.byref(handle), 0, *pattern.shape, *parts)
    else:
        grid = pattern.grid
        status = library.mkl_sparse_s_create_bsr(ctypes.byref(handle), 0, _MKL_ROW_MAJOR, *grid, edge, *parts)
    if status:
        return None
    description, n = _Description(_MKL_GENERAL, 0, 0), x.shape[1]
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    def call(_keep: Any = (starts, columns, values)) -> Any:
        status = library.mkl_sparse_s_mm(
            _MKL_AS_IS, one, handle, description, _MKL_ROW_MAJOR, _pointer(x), n, n, zero, _pointer(made), n
        )
        assert status == 0
        return made

    def call_of_vector(_keep: Any = (starts, columns, values)) -> Any:
        status = library.mkl_sparse_s_mv(_MKL_AS_IS, one, handle, description, _pointer(x), zero, _pointer(made))
        assert status == 0
        return made

    if n == 1:
        return call_of_vector

    return call


def products(pattern: Pattern, values: Any, x: Any) -> dict[str, Call]:
    """S·X by each that can, with S as elements and as blocks."""
    calls: dict[str, Call] = {}
    elements, order = pattern.recut((1, 1))
    flat = np.ascontiguousarray(values.reshape(-1)[order.reshape(-1)])
    rows = scipy.sparse.csr_matrix((flat, elements.columns, elements.row_starts), shape=pattern.shape)
    # A matrix of one column is a vector, for which the others have products of their own.
    x = x[:, 0].copy() if x.shape[1] == 1 else x
    calls["SciPy CSR"] = lambda: rows @ x
    dense = torch.from_numpy(x)
    csr = _torch(elements, flat)
    calls["PyTorch CSR"] = lambda: csr @ dense
    columns = x.reshape((len(x), -1))
    if (call := mkl_product(elements, flat, columns)) is not None:
        calls["MKL CSR"] = call
    if pattern.block != (1, 1):
        bsr = _torch(pattern, values)
        calls["PyTorch BSR"] = lambda: bsr @ dense
        if (call := mkl_product(pattern, values, columns)) is not None:
            calls["MKL BSR"] = call
    return calls


def transposed_products(pattern: Pattern, values: Any, g: Any) -> dict[str, Call]:
    """Sᵀ·G by each that can; the transpose's rows are made beforehand."""
    other, order = pattern.transposed()
    return products(other, np.ascontiguousarray(values[order].transpose((0, 2, 1))), g)


def sampled_products(pattern: Pattern, g: Any, x: Any) -> dict[str, Call]:
    """G·Xᵀ at the pattern by each that can; SciPy has no such product."""
    elements, _ = pattern.recut((1, 1))
    held = _torch(elements, np.zeros(elements.num_values, np.float32))
    left, right = torch.from_numpy(g), torch.from_numpy(x)
    rows, columns = torch.from_numpy(elements.rows.copy()), torch.from_numpy(elements.columns.copy())
    calls: dict[str, Call] = {
        "PyTorch sampled": lambda: torch.sparse.sampled_addmm(held, left, right.t(), beta=0.0),
        "PyTorch dense": lambda: (left @ right.t())[rows, columns],
    }
    if elements.num_values * g.shape[1] <= 1 << 24:
        calls["PyTorch rows"] = lambda: (left[rows] * right[columns]).sum(1)
    return calls


def _torch(pattern: Pattern, values: Any) -> torch.Tensor:
    starts, columns = torch.from_numpy(pattern.row_starts.copy()), torch.from_numpy(pattern.columns.copy())
    if pattern.block == (1, 1):
        return torch.sparse_csr_tensor(starts, columns, torch.from_numpy(values.reshape(-1)), pattern.shape)
    return torch.sparse_bsr_tensor(starts, columns, torch.from_numpy(values), pattern.shape)
