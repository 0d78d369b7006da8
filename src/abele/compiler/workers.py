"""Workers: how long a tile's vertices take on its worker threads.

The list schedule gives each vertex to the worker that is free first, in the order of the vertices; it cannot be found
by sorting, for each choice depends on all before it. But tiles do not depend on each other, so vertex k of every tile
is placed at once: as many array operations as the fullest tile has vertices, whatever the number of tiles. Tiles
are ordered by their number of vertices, so that those that have a vertex k are the first ones. Where all vertices of
a tile cost the same, or there are no more than workers, the result has a closed form, and that is most tiles.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.compiler.tile_vector import Positions


def worker_makespans(tile: Positions, slots: Int64, num_tiles: int, num_workers: int) -> Int64:
    """Issue slots of the busiest worker of each tile, int64[num_tiles].

    Args:
        tile: Tile of each vertex, or its position among tiles, int[n].
        slots: Issue slots of each vertex, int64[n].
        num_tiles: Tiles, or positions.
        num_workers: Workers of a tile.

    Model: list scheduling in the order in which vertices were added; each goes to the worker that is free first.
    Tiles with as many vertices as workers, or whose vertices all cost the same, have a closed form.
    Source: poplar_api §11 (six slots, list schedule); tutorial 6 for equal vertices.
    """
    result = np.zeros(num_tiles, dtype=np.int64)
    if len(tile) == 0:
        return result
    if not bool((tile[1:] >= tile[:-1]).all()):
        # NumPy sorts 16-bit keys by radix, without comparisons.
        order = np.argsort(tile.astype(np.uint16) if num_tiles <= 1 << 16 else tile, kind="stable")
        tile, slots = tile[order], slots[order]
    count = np.bincount(tile, minlength=num_tiles)
    busy = np.flatnonzero(count)
    count = count[busy]
    first = np.cumsum(count) - count
    most, least = np.maximum.reduceat(slots, first), np.minimum.reduceat(slots, first)
    # Right where all cost the same, or where there are no more vertices than workers; others are replaced below.
    result[busy] = -(-count // num_workers) * most
    mixed = np.flatnonzero((count > num_workers) & (most != least))
    result[busy[mixed]] = _list_schedule(first[mixed], count[mixed], slots, num_workers)
    return result


def _list_schedule(first: Int64, count: Int64, slots: Int64, num_workers: int) -> Int64:
    """Makespan of each run of ``slots``, vertex k of all runs being placed at once."""
    order = np.argsort(-count, kind="stable")
    first, sizes = first[order], count[order]
    # The first six vertices go to the six free workers.
    loads = slots[first[:, None] + np.arange(num_workers)]
    # running[k]: how many tiles have a vertex k; they come first, as tiles are sorted by falling size.
    running = np.searchsorted(-sizes, -np.arange(sizes.max(initial=0)), side="left")
    rows = np.arange(len(first))
    for k in range(num_workers, len(running)):
        n = int(running[k])
        free = loads[:n].argmin(axis=1)
        loads[rows[:n], free] += slots[first[:n] + k]
    result = np.empty(len(first), dtype=np.int64)
    result[order] = loads.max(axis=1)
    return result
