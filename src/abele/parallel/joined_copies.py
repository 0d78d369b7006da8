"""Copies of many tensors in one step for each element type."""

from __future__ import annotations

from collections.abc import Iterable

from abele.graph import Copy, Tensor, concat


def joined_copies(pairs: Iterable[tuple[Tensor, Tensor]], name: str) -> list[Copy]:
    """The copies of sources to destinations of their shapes, those of one type as one step."""
    by_type: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for source, destination in pairs:
        by_type.setdefault(source.dtype.name, []).append((source.flatten(), destination.flatten()))
    columns = (zip(*alike, strict=True) for alike in by_type.values())
    return [Copy(concat(sources), concat(destinations), name=name) for sources, destinations in columns]
