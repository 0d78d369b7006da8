"""PyTorch's sparse tensors as a pattern and its values."""

from __future__ import annotations

import numpy as np
import torch

from abele.arrays import Int64
from abele.errors import SparsePatternError
from abele.sparsity import Pattern

COMPRESSED_ROWS = (torch.sparse_csr, torch.sparse_bsr)
LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_bsr, torch.sparse_csc, torch.sparse_bsc)
"""Sparse layouts of PyTorch."""


def is_sparse(tensor: torch.Tensor) -> bool:
    """True for a tensor of a sparse layout."""
    with torch._C.DisableTorchFunction():
        return tensor.layout in LAYOUTS


def held_values(tensor: torch.Tensor) -> torch.Tensor:
    """Values of a sparse matrix [blocks, block rows, block columns], over the memory of the tensor itself.

    Raises:
        SparsePatternError: A matrix in coordinates that is not coalesced, or columns in blocks.
    """
    with torch._C.DisableTorchFunction():
        plain = tensor.detach()
        if plain.layout == torch.sparse_coo and not tensor.is_coalesced():
            raise SparsePatternError(
                f"a sparse matrix of {list(tensor.shape)} is not coalesced",
                because="places may be there twice, in any order",
                remedy="tensor.coalesce()",
            )
        if plain.layout == torch.sparse_bsc:
            raise SparsePatternError("blocks by columns are not in the order of rows", remedy="tensor.to_sparse_bsr(…)")
        values = plain._values() if plain.layout == torch.sparse_coo else plain.values()
        # Without .data it would be a view of a sparse tensor, which export cannot follow.
        plain_values: torch.Tensor = values.data
        return plain_values.reshape((len(values), 1, 1)) if values.dim() == 1 else plain_values


def pattern_of(tensor: torch.Tensor) -> tuple[Pattern, bool]:
    """The pattern of a sparse matrix whose order its values have, and whether it is that of the transpose.

    Raises:
        SparsePatternError: It is no matrix, has vectors as elements, or its places are not in order.
    """
    with torch._C.DisableTorchFunction():
        plain = tensor.detach()
        if plain.dim() != 2 or plain.dense_dim():
            raise SparsePatternError(
                f"sparse products take matrices, got a sparse tensor of {list(plain.shape)} with {plain.dense_dim()} "
                "dense dimensions"
            )
        if plain.layout == torch.sparse_coo:
            return _of_coordinates(plain), False
        by_rows = plain.layout in COMPRESSED_ROWS
        starts, columns = (
            (plain.crow_indices(), plain.col_indices()) if by_rows else (plain.ccol_indices(), plain.row_indices())
        )
        rows, width = plain.shape
        shape = (rows, width) if by_rows else (width, rows)
        block = (1, 1) if plain.values().dim() == 1 else (plain.values().shape[1], plain.values().shape[2])
        return Pattern(shape, block, _numbers(starts), _numbers(columns)), not by_rows


def _of_coordinates(plain: torch.Tensor) -> Pattern:
    indices = _numbers(plain._indices())
    return Pattern.from_coordinates((plain.shape[0], plain.shape[1]), indices[0], indices[1])[0]


def _numbers(indices: torch.Tensor) -> Int64:
    return np.asarray(indices.cpu().numpy(), np.int64)
