"""PopLibs' namespace ``popops::rearrange``: other layouts of the same elements, and transpositions on tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from abele.errors import TensorError
from abele.graph import ComputeSet, Graph, Tensor
from abele.machine import Target
from abele.numerics import ElementType, as_element_type
from abele.poplibs.popops.layout.regroup import partial_transpose as partial_transpose_by_copy
from abele.poplibs.popops.layout.regroup import regroup_if_beneficial, regroup_tensor, transposed_result
from abele.poplibs.popops.layout.transpose_vertex import transpose_codelet
from abele.poplibs.poputil.arguments import Forms
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "add_transpose_vertices",
    "can_use_fast_transpose",
    "partial_transpose",
    "regroup_if_beneficial",
    "regroup_tensor",
]

Pair = Callable[[int], tuple[Tensor, Tensor]]
FAST_BLOCK = 4
"""Rows and columns of 16-bit elements that move together in registers."""


def can_use_fast_transpose(
    target: Target | Graph, dtype: ElementType | str, rows: int, columns: int, num_transpositions: int
) -> bool:
    """True if tiles can transpose such matrices in registers: 16-bit elements in blocks of 4 by 4.

    Args:
        target: The machine.
        dtype: Element type.
        rows: Rows of each matrix.
        columns: Columns of each.
        num_transpositions: Matrices of a vertex.
    """
    in_blocks = rows > 0 and columns > 0 and rows % FAST_BLOCK == 0 and columns % FAST_BLOCK == 0
    rounds = max(rows * columns // FAST_BLOCK**2, num_transpositions)
    return as_element_type(dtype).bits == 16 and in_blocks and rounds <= target.system.ipu.max_repeats


def add_transpose_vertices(
    graph: Graph,
    compute_set: ComputeSet,
    dtype: ElementType | str,
    rows: int,
    columns: int,
    mapping: Sequence[Iterable[tuple[int, int]]],
    pair: Pair,
    name: str = "transpose",
) -> None:
    """Add a vertex for each of some matrices to ``compute_set``; it writes the matrix transposed.

    Args:
        graph: The graph.
        compute_set: Compute set that vertices are added to.
        dtype: Element type.
        rows: Rows of every matrix.
        columns: Columns of every matrix.
        mapping: Numbers of the matrices that each tile transposes, as intervals.
        pair: Gives, by the number of a matrix, its elements in rows and the target of its transpose.
        name: For errors.

    Raises:
        TensorError: A matrix of another number of elements.
    """
    numbered = [
        (tile, n) for tile, intervals in enumerate(mapping) for low, high in intervals for n in range(low, high)
    ]
    if not numbered:
        return
    pairs = [pair(n) for _, n in numbered]
    for tensor in (tensor for both in pairs for tensor in both):
        if tensor.size != rows * columns:
            raise TensorError(f"{name}: {tensor!r} does not have the elements of a {rows} x {columns} matrix")
    compute_set.vertices(
        transpose_codelet(as_element_type(dtype)),
        tile=np.array([tile for tile, _ in numbered], np.int32),
        x=[x.flatten() for x, _ in pairs],
        y=[y.flatten() for _, y in pairs],
        columns=columns,
    )


def partial_transpose(graph: Graph, tensor: Tensor, compute_set: ComputeSet, name: str = "partial_transpose") -> Tensor:
    """``tensor`` with its last two dimensions swapped, in memory too, by vertices that are added to ``compute_set``.

    Raises:
        TensorError: Fewer than two dimensions.
    """
    out = transposed_result(graph, tensor, name)
    *_, rows, columns = tensor.shape
    source, target = tensor.reshape((-1, rows * columns)), out.reshape((-1, rows * columns))
    first = graph.mapping_of(source[:, 0]) if source.size else None
    if first is not None:
        tiles = first.tile[np.searchsorted(first.begin, np.arange(source.shape[0]), side="right") - 1]
        graph.map_rows(target, np.maximum(tiles, 0).tolist())
        compute_set.vertices(
            transpose_codelet(tensor.dtype), tile=np.maximum(tiles, 0), x=source, y=target, columns=columns
        )
    return out


FORMS: Forms = {
    "partial_transpose": (("tensor prog", partial_transpose_by_copy),),
    "regroup_tensor": ("tensor prog =any to",),
}
globals().update(guarded_functions(globals(), __all__, FORMS))
globals().update(camel_aliases(globals(), __all__))
