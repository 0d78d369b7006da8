"""The k largest elements of each row, and where they are."""

from __future__ import annotations

from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popops.sorting import SortOrder, TopKParams, top_k_with_permutation


def top_k(
    graph: Graph, tensor: Tensor, k: int, prog: Sequence, *, sort: bool = True, name: str = "top_k"
) -> tuple[Tensor, Tensor]:
    """The ``k`` largest elements along the innermost dimension, [..., k], and their positions in it, u32.

    Args:
        graph: Graph in which vertices and results are made.
        tensor: At least one dimension.
        k: Elements per row.
        prog: Sequence that the steps are appended to.
        sort: The largest first; otherwise in any order.
        name: Name of the steps.

    Raises:
        TensorError: The tensor is a scalar.
        InvalidOptionError: A row does not have so many elements.
        TypeMismatchError: The elements are truth values.
    """
    order = SortOrder.DESCENDING if sort else SortOrder.NONE
    return top_k_with_permutation(graph, prog, tensor, TopKParams(k, sort_order=order), name)
