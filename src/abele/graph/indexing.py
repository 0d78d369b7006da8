"""NumPy's way of indexing: integers, slices, ``None`` and ``...``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from abele.errors import TensorIndexError
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.tensor import Tensor

View = TypeVar("View", bound="Tensor")


def indexed(tensor: View, index: Any) -> View:
    """The view that ``tensor[index]`` means.

    Raises:
        TensorIndexError: Too many items, one of another kind, or an integer out of range.
    """
    result, dim = tensor, 0
    for item in _full_index(index, tensor):
        if item is None:
            result, dim = result.expand_dims(dim), dim + 1
        elif isinstance(item, slice):
            result, dim = _sliced(result, item, dim), dim + 1
        else:
            result = picked(result, int(item), dim)
    return result


def picked(tensor: View, index: int, dim: int) -> View:
    """The view of one index along ``dim``, without that dimension; negative ones count from the end.

    Raises:
        TensorIndexError: There is no such index.
    """
    extent = tensor.shape[dim]
    if not -extent <= index < extent:
        raise TensorIndexError(
            f"index {index} is out of range for dimension {dim} of {tensor!r}, which has {counted(extent, 'index')}"
        )
    content = tensor.content.picked(dim, index + extent if index < 0 else index)
    return tensor.view(tensor.shape[:dim] + tensor.shape[dim + 1 :], content)


def _sliced(tensor: View, item: slice, dim: int) -> View:
    """The view of a Python slice: an interval first, turned round for a negative step, then every step-th index."""
    begin, end, step = item.indices(tensor.shape[dim])
    if step == 1:
        return tensor.slice(begin, max(begin, end), dim)
    count = len(range(begin, end, step))
    if count == 0:
        return tensor.slice(0, 0, dim)
    last = begin + (count - 1) * step
    low, high = min(begin, last), max(begin, last)
    part = tensor.slice(low, high + 1, dim)
    if step < 0:
        part = part.reverse(dim)
    return part.sub_sample(abs(step), dim)


def _full_index(index: Any, tensor: Tensor) -> list[Any]:
    """The index as one item per dimension (plus None for each new one)."""
    items = list(index) if isinstance(index, tuple) else [index]
    for item in items:
        if not (item is None or item is Ellipsis or isinstance(item, (int, np.integer, slice))):
            raise TensorIndexError(f"{tensor!r} takes integers, slices, None and ..., not {item!r}")
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > tensor.ndim:
        raise TensorIndexError(
            f"{counted(used, 'index')} for a tensor of {counted(tensor.ndim, 'dimension')}, {tensor!r}"
        )
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items[at : at + 1] = [slice(None)] * (tensor.ndim - used)
    else:
        items += [slice(None)] * (tensor.ndim - used)
    return items
