"""Tiles set apart for collectives and other input and output."""

from __future__ import annotations

from abele.errors import TileMappingError
from abele.graph import Graph
from abele.words import counted

MIN_IO_TILES = 32
"""Tiles of an IPU that input and output are given at the least. Source: PopART's session option ``numIOTiles``, whose
range is 32 to 192."""


def get_min_io_tiles(graph: Graph) -> int:
    """Tiles of each IPU that should be set apart for input and output, where any are.

    Raises:
        TileMappingError: An IPU does not have so many tiles.
    """
    if graph.system.ipu.num_tiles < MIN_IO_TILES:
        raise TileMappingError(
            f"get_min_io_tiles: an IPU of {graph.system.ipu.num_tiles} tiles does not have {MIN_IO_TILES} to set apart"
        )
    return MIN_IO_TILES


def per_ipu_tiles(graph: Graph, offset: int, count: int, sorted: bool = True, tile_pairs: bool = True) -> list[int]:
    """Tiles ``offset`` to ``offset + count`` of every IPU of a replica.

    Args:
        graph: The graph whose tiles are meant.
        offset: First tile on each IPU.
        count: Tiles on each IPU.
        sorted: Ascending; otherwise tile by tile, all IPUs in turn.
        tile_pairs: Accepted: neighbouring tiles are pairs in any case.

    Raises:
        TileMappingError: An IPU does not have so many tiles.
    """
    each, ipus = graph.system.ipu.num_tiles, graph.system.num_ipus
    if offset < 0 or count < 0 or offset + count > each:
        raise TileMappingError(f"per_ipu_tiles: {counted(count, 'tile')} from {offset} on, but an IPU has {each}")
    chosen = range(offset, offset + count)
    if sorted:
        return [ipu * each + tile for ipu in range(ipus) for tile in chosen]
    return [ipu * each + tile for tile in chosen for ipu in range(ipus)]
