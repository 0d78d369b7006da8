"""Copies of many tensors in one step for each element type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from abele.graph import Copy, Tensor
from abele.graph.replica_copies import joined_by_type
from abele.poplibs.poputil.order import storage_order


def joined_copies(pairs: Iterable[tuple[Tensor, Tensor]], name: str) -> list[Copy]:
    """The copies of sources to destinations of their shapes, those of one type as one step."""
    # Both ends have the same types, so the same places in what is joined.
    ends = list(pairs)
    sources, destinations = (joined_by_type(tensors) for tensors in zip(*ends, strict=True)) if ends else ([], [])
    return [Copy(a, b, name=name) for a, b in zip(sources, destinations, strict=True)]


def joined(tensors: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """The elements of tensors as one flat tensor for each type, each in the storage order of the one beside it."""
    return joined_by_type(storage_order(beside).apply(tensor) for tensor, beside in tensors)
