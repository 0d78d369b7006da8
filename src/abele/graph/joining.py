"""Tensors of several element types as few flat ones."""

from __future__ import annotations

from collections.abc import Iterable

from abele.graph.tensor import Tensor, concat


def joined_by_type(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The elements of tensors as one flat tensor for each element type, in the order in which types first come."""
    by_type: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.dtype.name, []).append(tensor.flatten())
    return [flat[0] if len(flat) == 1 else concat(flat) for flat in by_type.values()]
