"""Dithering: convolutions that begin at tiles of their own, so that small ones do not all burden the first tiles.

The tiles of the IPU are renumbered for one convolution, by an even number of places that follows from its parameters,
since tiles 2i and 2i + 1 are a pair that receives the same data faster. The forward pass, both gradients and the
operands of a convolution have as many products over the same groups, and so begin at the same tile.
"""

from __future__ import annotations

import zlib

import numpy as np

from abele.graph import Graph
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.options import ContractionOptions


def dithered(graph: Graph, params: ConvParams, settings: ContractionOptions) -> Graph:
    """The graph as a convolution sees it; one that keeps to a number of tiles begins at the first."""
    if not settings.dithered or settings.planning.tiles:
        return graph
    ipu, others = np.split(np.arange(graph.num_tiles), [graph.system.ipu.num_tiles])
    key = (params.macs, params.groups, *sorted((params.in_channels, params.out_channels)))
    first = 2 * (zlib.crc32(repr(key).encode()) % max(1, len(ipu) // 2))
    return graph.virtual(tiles=np.concatenate([np.roll(ipu, -first), others]))
