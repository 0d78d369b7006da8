"""Tiles set apart for collectives and other input and output."""

from __future__ import annotations

from abele.errors import TileMappingError
from abele.graph import Graph


def per_ipu_tiles(graph: Graph, offset: int, count: int, sorted: bool = True, tile_pairs: bool = True) -> list[int]:
    """Tiles ``offset`` to ``offset + count`` of every IPU of a replica.

    Args:
        graph: The graph whose tiles are meant.
        offset: First tile on each IPU.
        count: Tiles on each IPU.
        sorted: Ascending; otherwise tile by tile, all IPUs in turn.
        tile_pairs: Accepted: neighbouring tiles are pairs in any case.

    Raises:
        TileMappingError: An IPU has not so many tiles.
    """
    each, ipus = graph.system.ipu.num_tiles, graph.system.num_ipus
    if offset < 0 or count < 0 or offset + count > each:
        raise TileMappingError(f"per_ipu_tiles: {count} tiles from {offset} on, but an IPU has {each}")
    chosen = range(offset, offset + count)
    if sorted:
        return [ipu * each + tile for ipu in range(ipus) for tile in chosen]
    return [ipu * each + tile for tile in chosen for ipu in range(ipus)]
