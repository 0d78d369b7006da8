"""Copies of many tensors in one step for each element type."""

from __future__ import annotations

from collections.abc import Iterable

from abele.graph import Copy, Tensor
from abele.graph.joining import joined_by_type


def joined_copies(pairs: Iterable[tuple[Tensor, Tensor]], name: str) -> list[Copy]:
    """The copies of sources to destinations of their shapes, those of one type as one step."""
    # Both ends have the same types, so the same places in what is joined.
    ends = list(pairs)
    sources, destinations = (joined_by_type(tensors) for tensors in zip(*ends, strict=True)) if ends else ([], [])
    return [Copy(a, b, name=name) for a, b in zip(sources, destinations, strict=True)]
