"""IO tiles: tiles of each IPU that load inputs and store outputs while all others compute.

They meet at barriers of their own, so what the host sends for the next micro-batch, and what it gets of the last one,
takes no time of the other tiles but that of an exchange on the chip.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from abele.distribution.strategy import StageSteps
from abele.errors import InvalidOptionError
from abele.graph import Copy, Graph, Stream, Tensor, VirtualGraph


class IoTiles:
    """The last tiles of every IPU of a graph.

    Args:
        graph: The graph of a replica.
        count: Tiles of each IPU.

    Raises:
        InvalidOptionError: An IPU has no more tiles than that.
    """

    def __init__(self, graph: Graph, count: int) -> None:
        each = graph.system.ipu.num_tiles
        if count >= each:
            raise InvalidOptionError(
                f"{count} IO tiles leave none to compute: an IPU of {graph.system.name} has {each} tiles",
                remedy="32 IO tiles are enough for most programs",
            )
        self._graph = graph
        numbers = np.arange(graph.system.num_tiles, dtype=np.int32).reshape(graph.system.num_ipus, each)
        self._tiles = numbers[:, each - count :]
        for ipu, tiles in enumerate(self._tiles):
            graph.sync_group(tiles, f"IO tiles of IPU {ipu}")
        self.others: VirtualGraph = graph.virtual(tiles=numbers[:, : each - count])
        """The graph without them."""

    @cached_property
    def _by_ipu(self) -> list[VirtualGraph]:
        return [self._graph.virtual(tiles=tiles) for tiles in self._tiles]

    def load(self, stream: Stream, tensor: Tensor, ipu: int, stage: StageSteps) -> None:
        """Let a stage have an input that was loaded while the micro-batch before it ran."""
        waiting = self._waiting(tensor, ipu, stream.name)
        stage.loading.add(Copy(stream, waiting, name=stream.name))
        stage.entering.add(Copy(waiting, tensor, name=f"{stream.name}/enter"))

    def store(self, tensor: Tensor, stream: Stream, ipu: int, stage: StageSteps) -> None:
        """Send an output of a stage to the host while the next micro-batch runs."""
        waiting = self._waiting(tensor, ipu, stream.name)
        stage.handing_over.add(Copy(tensor, waiting, name=f"{stream.name}/leave"))
        stage.storing.add(Copy(waiting, stream, name=stream.name))

    def _waiting(self, tensor: Tensor, ipu: int, name: str) -> Tensor:
        """Buffer for waiting data, in the order in which the host has it."""
        graph = self._by_ipu[ipu]
        return graph.map_linear(graph.variable(tensor.dtype, tensor.shape, name=f"io/{name}"))
