"""Change the innermost dimension in memory, where that lets vertices use whole vectors.

Vertices that read two tensors of different innermost dimensions meet only one element at a time that lies together in
both. Regrouping copies one of them, so that runs of a whole vector along the wanted dimension lie together; every later
read then moves vectors. :func:`regroup_if_beneficial` does it only where both groupings are of whole vectors: elsewhere
the copy would take what it saves.
"""

from __future__ import annotations

from abele.errors import TensorError
from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.poputil.groupings import detect_dim_groupings
from abele.poplibs.poputil.mapping import linear_mapping, set_mapping, vector_grain
from abele.words import counted

Grouping = tuple[int, int]
"""A dimension, and how many of its elements lie together."""


def regroup_tensor(graph: Graph, tensor: Tensor, prog: Sequence, to: Grouping, name: str = "regroup_tensor") -> Tensor:
    """``tensor`` as a new one in which ``to[1]`` elements of dimension ``to[0]`` lie together, copied to.

    Args:
        graph: Graph in which the new tensor is made.
        tensor: Tensor to copy; its order in memory decides the order of the other dimensions.
        prog: Sequence that the copy is appended to.
        to: The grouping of the result.
        name: Name of the result.

    Raises:
        TensorError: No such dimension, or the size does not divide it.
    """
    dim, size = to
    if not 0 <= dim < tensor.ndim:
        raise TensorError(f"{name}: {tensor!r} has no dimension {dim}")
    if size < 1 or tensor.shape[dim] % size:
        raise TensorError(f"{name}: groups of {size} do not divide {tensor!r}, {tensor.shape[dim]} along {dim}")
    split = (*tensor.shape[:dim], tensor.shape[dim] // size, size, *tensor.shape[dim + 1 :])
    order = (*range(dim + 1), *range(dim + 2, len(split)), dim + 1)
    variable = graph.variable(tensor.dtype, tuple(split[d] for d in order), name=name)
    grain = max(size, vector_grain(graph, tensor.dtype))
    set_mapping(graph, variable, linear_mapping(graph, variable.size, tensor.dtype, grain=grain))
    inverse = sorted(range(len(order)), key=order.__getitem__)
    out = variable.transpose(inverse).reshape(tensor.shape)
    prog.add(Copy(tensor, out))
    return out


def regroup_if_beneficial(
    graph: Graph, tensor: Tensor, reference: Tensor | Grouping, prog: Sequence, name: str = "regroup"
) -> Tensor:
    """``tensor``, or a copy grouped like ``reference`` where vertices that read both would gain by it.

    A copy pays where the groupings are of different dimensions, that of the tensor is of more than one element, and
    the wanted one is of whole 64-bit words: then a rearrangement moves vectors rather than single elements.

    Args:
        graph: Graph in which a new tensor is made.
        tensor: Tensor that may be copied.
        reference: A tensor of the same shape whose grouping is wanted, or the grouping.
        prog: Sequence that a copy is appended to.
        name: Name of a new tensor.

    Raises:
        TensorError: The reference has another rank.
    """
    if isinstance(reference, Tensor):
        if reference.ndim != tensor.ndim:
            raise TensorError(f"{name}: {tensor!r} and {reference!r} have different ranks")
        groupings = detect_dim_groupings(graph, reference)
        if not groupings:
            return tensor
        wanted = groupings[0]
    else:
        wanted = reference
    own = detect_dim_groupings(graph, tensor)
    grain = vector_grain(graph, tensor.dtype)
    pays = bool(own) and own[0][0] != wanted[0] and wanted[1] % grain == 0 and own[0][1] % grain == 0
    return regroup_tensor(graph, tensor, prog, wanted, name) if pays else tensor


def transposed_result(graph: Graph, tensor: Tensor, name: str) -> Tensor:
    """A new, unmapped tensor for ``tensor`` with its last two dimensions swapped.

    Raises:
        TensorError: Fewer than two dimensions.
    """
    if tensor.ndim < 2:
        raise TensorError(f"{name}: {tensor!r} has {counted(tensor.ndim, 'dimension')}, it must have two")
    *outer, rows, columns = tensor.shape
    return graph.variable(tensor.dtype, (*outer, columns, rows), name=name)


def partial_transpose(graph: Graph, tensor: Tensor, prog: Sequence, name: str = "partial_transpose") -> Tensor:
    """``tensor`` with its last two dimensions swapped, in memory too: each tile transposes the blocks that it holds.

    Raises:
        TensorError: Fewer than two dimensions.
    """
    out = transposed_result(graph, tensor, name)
    block = tensor.shape[-2] * tensor.shape[-1]
    mapping = graph.mapping_of(tensor)
    whole_blocks = bool(((mapping.begin % block) == 0).all()) and mapping.is_complete if tensor.size else False
    if tensor.size:
        set_mapping(graph, out, mapping if whole_blocks else linear_mapping(graph, out.size, out.dtype, grain=block))
    swapped = tensor.transpose((*range(tensor.ndim - 2), tensor.ndim - 1, tensor.ndim - 2))
    prog.add(Copy(swapped, out))
    return out
