"""Mapping tensors where they are used."""

from __future__ import annotations

import math

import numpy as np

from abele.arrays import Int64
from abele.errors import TileMappingError
from abele.graph import Graph, Tensor, TileMapping
from abele.graph.intervals import order_of
from abele.poplibs.poputil.mapping import vector_grain
from abele.words import counted


class TensorUseTracker:
    """Tiles that use each element, so that each element can be put on one of them.

    Args:
        num_tiles: Tiles that elements may be used on.
    """

    def __init__(self, num_tiles: int) -> None:
        self.num_tiles = num_tiles
        self._uses: list[tuple[Int64, Int64, int]] = []

    @property
    def empty(self) -> bool:
        """True if no use is known."""
        return not self._uses

    def add(self, tile: int, tensor: Tensor) -> None:
        """Note that ``tile`` uses the elements of ``tensor``.

        Raises:
            TileMappingError: There is no such tile.
        """
        if not 0 <= tile < self.num_tiles:
            raise TileMappingError(f"tile {tile} uses {tensor!r}, but there are {counted(self.num_tiles, 'tile')}")
        address, length = tensor.intervals()
        self._uses.append((address, length, tile))

    def add_tracker(self, other: TensorUseTracker) -> None:
        """Note all uses that ``other`` knows."""
        self._uses += other._uses

    def map_tensors_by_use(
        self, graph: Graph, tensor: Tensor, grain: int | None = None, min_elements: int | None = None
    ) -> bool:
        """Map each element of ``tensor`` to a tile that uses it, those of several users dealt evenly among these.

        Args:
            graph: Graph in which the mapping is set.
            tensor: Tensor to map; elements that nothing uses follow their neighbours.
            grain: Elements that stay together; by default as many as 8 bytes hold.
            min_elements: Elements that make it worth to use one tile more; by default as many as 128 bytes hold.

        Returns:
            True if any element is used; otherwise the mapping stays as it is.
        """
        grain = grain or vector_grain(graph, tensor.dtype)
        least = math.ceil(128 / tensor.dtype.bytes) if min_elements is None else min_elements
        users = self._users_of_grains(tensor, grain)
        if not any(users):
            return False
        graph.map(tensor, _mapping(tensor.size, grain, least, users))
        return True

    def _users_of_grains(self, tensor: Tensor, grain: int) -> list[frozenset[int]]:
        addresses = tensor.addresses().reshape(-1)
        order = order_of(addresses)
        ordered = addresses[order]
        num = -(-tensor.size // grain)
        users: list[set[int]] = [set() for _ in range(num)]
        for address, length, tile in self._uses:
            low, high = np.searchsorted(ordered, address), np.searchsorted(ordered, address + length)
            for first, last in zip(low.tolist(), high.tolist(), strict=True):
                for g in set((order[first:last] // grain).tolist()):
                    users[g].add(tile)
        return [frozenset(u) for u in users]


def _mapping(size: int, grain: int, least: int, users: list[frozenset[int]]) -> TileMapping:
    """Grains with the same users are dealt to these in order, as many tiles as have ``least`` elements."""
    known = next(u for u in users if u)
    groups: dict[frozenset[int], list[int]] = {}
    for number, who in enumerate(users):
        known = who or known
        groups.setdefault(known, []).append(number)
    tile = np.zeros(len(users), np.int32)
    for who, numbers in groups.items():
        count = max(1, min(len(who), len(numbers) * grain // max(least, 1)))
        chosen = np.array(sorted(who)[:count], np.int32)
        tile[numbers] = chosen[np.arange(len(numbers)) * count // len(numbers)]
    return TileMapping(size, np.arange(len(users), dtype=np.int64) * grain, tile)
