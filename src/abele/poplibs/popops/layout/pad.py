"""Padding: views that show a tensor with more elements around it, or fewer."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Literal

from abele.errors import InvalidOptionError, TensorError
from abele.graph import Graph, Tensor, concat
from abele.poplibs.poputil.rules import is_number
from abele.words import counted

MappingMethod = Literal["NONE", "ZERO", "EDGE"]


class PaddingType(Enum):
    """Source of padding values: the outermost element, or the elements mirrored at it."""

    EDGE = "EDGE"
    REFLECT = "REFLECT"


def pad(
    graph: Graph,
    tensor: Tensor,
    lower: Sequence[int],
    upper: Sequence[int],
    value: float | Tensor | PaddingType = 0.0,
    *,
    mapping: MappingMethod = "ZERO",
    name: str = "pad",
) -> Tensor:
    """View of ``tensor`` with more elements before and after it along each dimension; no program is needed.

    Args:
        graph: Graph in which a constant for the padding is made.
        tensor: Tensor to pad.
        lower: Elements before it, one number per dimension; negative ones cut off.
        upper: Elements after it.
        value: A number, a tensor of one element, or a :class:`PaddingType`.
        mapping: Tile of the constant: none, tile 0, or that of the tensor's first element.
        name: Name of the constant.

    Raises:
        InvalidOptionError: A value that is nothing to pad with.
        TensorError: Not one number per dimension, more cut off than there is, or more mirrored than there is.
    """
    if len(lower) != tensor.ndim or len(upper) != tensor.ndim:
        raise TensorError(
            f"{name}: {tensor!r} has {tensor.ndim} dimensions, padding is given for {len(lower)} and {len(upper)}"
        )
    if not (isinstance(value, (PaddingType, Tensor)) or is_number(value)):
        raise InvalidOptionError(
            f"{name}: cannot pad with {value!r}", remedy="a number, a tensor of one element, or a PaddingType"
        )
    if mapping not in ("NONE", "ZERO", "EDGE"):
        raise TensorError(f"{name}: no mapping {mapping!r}", remedy="NONE, ZERO or EDGE")
    one = None
    if not isinstance(value, PaddingType) and any(n > 0 for n in (*lower, *upper)):
        one = _constant(graph, tensor, value, mapping, name)
    for dim in range(tensor.ndim):
        tensor = _padded(tensor, dim, lower[dim], upper[dim], one if one is not None else value, name)
    return tensor


def _constant(graph: Graph, tensor: Tensor, value: float | Tensor, mapping: MappingMethod, name: str) -> Tensor:
    if isinstance(value, Tensor):
        if value.size != 1 or value.dtype != tensor.dtype:
            raise TensorError(f"{name}: the value {value!r} must be one element of {tensor.dtype}")
        return value.reshape(())
    made = graph.constant(tensor.dtype, (), value, name=name)
    if mapping == "ZERO":
        graph.map(made, 0)
    elif mapping == "EDGE" and tensor.size:
        graph.map(made, int(graph.mapping_of(tensor.flatten()[:1]).tile[0]))
    return made


def _padded(tensor: Tensor, dim: int, low: int, high: int, value: object, name: str) -> Tensor:
    extent = tensor.shape[dim]
    cut = max(0, -low) + max(0, -high)
    if cut > extent:
        raise TensorError(
            f"{name}: {counted(cut, 'element')} are cut off {tensor!r}, which has {extent} along dimension {dim}"
        )
    tensor = tensor.slice(max(0, -low), extent - max(0, -high), dim)
    parts = [
        *_side(tensor, dim, max(0, low), value, name, at_end=False),
        tensor,
        *_side(tensor, dim, max(0, high), value, name, at_end=True),
    ]
    return concat(parts, dim) if len(parts) > 1 else tensor


def _side(tensor: Tensor, dim: int, count: int, value: object, name: str, *, at_end: bool) -> list[Tensor]:
    if count == 0:
        return []
    extent = tensor.shape[dim]
    shape = (*tensor.shape[:dim], count, *tensor.shape[dim + 1 :])
    if isinstance(value, Tensor):
        return [value.broadcast_to(shape)]
    if extent == 0:
        raise TensorError(f"{name}: {tensor!r} has no element along dimension {dim} to pad with")
    if value is PaddingType.EDGE:
        edge = tensor.slice(extent - 1, extent, dim) if at_end else tensor.slice(0, 1, dim)
        return [edge.broadcast_to(shape)]
    if count > extent - 1:
        raise TensorError(
            f"{name}: {counted(count, 'element')} cannot be mirrored at the edge of {tensor!r}",
            because=f"it has {extent} along dimension {dim}, and the edge itself is not repeated",
        )
    mirrored = tensor.slice(extent - 1 - count, extent - 1, dim) if at_end else tensor.slice(1, count + 1, dim)
    return [mirrored.reverse(dim)]
