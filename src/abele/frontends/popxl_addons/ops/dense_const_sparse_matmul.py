"""Products of a tensor with a sparse matrix that never changes: its zeros take no memory and no time."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import checked, emit
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.sparsity import Pattern


def dense_const_sparse_matmul(dense: Tensor, sparse: Any, block_size: int = 1) -> Tensor:
    """``dense · sparse`` on the matrix's own blocks; gradients flow to ``dense`` alone.

    Args:
        dense: [..., k].
        sparse: A matrix [k, n]: an array with zeros, or a sparse matrix of SciPy.
        block_size: Side of blocks that are kept whole where one of their elements is not zero: 1, 4, 8 or 16.

    Raises:
        GraphArgumentError: The sizes do not fit, or the matrix holds nothing.
    """
    checked("dense_const_sparse_matmul", dense)
    matrix = _matrix(sparse)
    if matrix.ndim != 2 or not dense.rank or dense.shape[-1] != matrix.shape[0]:
        raise GraphArgumentError(
            f"dense_const_sparse_matmul of {list(dense.shape)} and {list(matrix.shape)}: inner dimensions differ"
        )
    if any(n % block_size for n in matrix.shape):
        raise GraphArgumentError(f"blocks of {block_size} do not divide a matrix {list(matrix.shape)}")
    pattern, values = Pattern.from_dense(matrix, (block_size, block_size))
    if not pattern.num_blocks:
        raise GraphArgumentError("the sparse matrix holds nothing", remedy="ops.init of zeros")
    host = np.asarray(values).astype(dense.dtype.as_numpy())

    def meaning(net: BlockBuilder, rows: Value) -> Value:
        held = net.constant(host, rows.dtype, "sparse")
        return build.sparse_linear(net, rows, held, pattern, transposed=True)

    return emit("dense_const_sparse_matmul", meaning, dense)


def _matrix(sparse: Any) -> Array:
    return np.asarray(sparse.toarray() if hasattr(sparse, "toarray") else sparse)


__all__ = ["dense_const_sparse_matmul"]
