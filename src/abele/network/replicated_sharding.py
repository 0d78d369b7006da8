"""Shards: equal parts of a tensor, one per replica, and state that is not whole on the chip.

A tensor is cut in the order in which it lies in memory: share r is elements r·w to (r+1)·w of that order, with zeros
behind the last element. Cutting along the order of the shape would gather each share from many places of every tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.graph import Graph, RemoteBuffer, Tensor, concat
from abele.network.optimisers import Optimiser
from abele.numerics import ElementType
from abele.poplibs import gcl
from abele.poplibs.poputil.order import StorageOrder, storage_order


@dataclass(frozen=True)
class Shards:
    """Division of a tensor between replicas; one replica has all of it.

    Attributes:
        order: The order in which it is cut.
        replicas: Number of replicas that share it.
    """

    order: StorageOrder
    replicas: int = 1

    @staticmethod
    def of(tensor: Tensor, replicas: int = 1) -> Shards:
        """Shares of a tensor in the order in which ``tensor`` lies."""
        return Shards(storage_order(tensor), replicas)

    @property
    def size(self) -> int:
        """Elements of the tensor."""
        return int(np.prod(self.order.shape, dtype=np.int64))

    @property
    def width(self) -> int:
        """Elements of a share, with zeros behind the last."""
        return -(-self.size // self.replicas)

    def flat(self, tensor: Tensor) -> Tensor:
        """A tensor of the shape in the order of shares, as a view."""
        return self.order.apply(tensor).flatten()

    def rows(self, graph: Graph, tensor: Tensor) -> Tensor:
        """A tensor of the shape as the view [replicas, width] of all shares."""
        flat, missing = self.flat(tensor), self.width * self.replicas - self.size
        if missing:
            zeros = graph.map(graph.constant(tensor.dtype, (missing,), 0, name="padding"), 0)
            flat = concat([flat, zeros])
        return flat.reshape((self.replicas, self.width))

    def whole(self, rows: Tensor) -> Tensor:
        """Whole tensor of all shares [replicas, width], in the order of shares: [size]."""
        return rows.flatten()[: self.size]


@dataclass(frozen=True, eq=False)
class ShardedGradient:
    """The sum over replicas of a gradient, of which each has a share.

    Attributes:
        tensor: The share, [width].
        shards: Division of the tensor.
    """

    tensor: Tensor
    shards: Shards


@dataclass(frozen=True, eq=False)
class FlatState:
    """State beside a parameter that is not whole on the chip: a share of it, or in streaming memory, or both.

    Attributes:
        shards: Division between replicas.
        dtype: Element type.
        initial: Value of its elements before the first step.
        tensor: A replica's share on the chip, [width]; None if it is in streaming memory.
        buffer: Buffer in streaming memory.
        begin: First element of its part of the buffer's row.
    """

    shards: Shards
    dtype: ElementType
    initial: float
    tensor: Tensor | None = None
    buffer: RemoteBuffer | None = None
    begin: int = 0


def may_shard(optimiser: Optimiser, elements: int, replicas: int) -> bool:
    """True if replicas may share a parameter's state.

    Some share ends in zeros where the elements do not divide: of these an optimiser has to make zeros again.
    """
    if not optimiser.slots():
        return False
    if elements % replicas == 0:
        return True
    nothing: npt.NDArray[np.float64] = np.zeros(1)
    with np.errstate(all="ignore"):
        return not np.any(optimiser.first_step(nothing, nothing))


def buckets(sizes: Sequence[int], num_tiles: int) -> list[list[int]]:
    """Tensors by number that are moved together, from their bytes.

    Many small ones in one collective or copy cost its steps once. What a ring holds besides is a few times what it
    reduces, so a collective takes no more than :data:`MOST_BYTES` of a tile, unless one tensor has more.
    """
    made: list[list[int]] = []
    held = 0
    for number, size in enumerate(sizes):
        if not made or held + size > MOST_BYTES * num_tiles:
            made.append([])
            held = 0
        made[-1].append(number)
        held += size
    return made


MOST_BYTES = gcl.COLLECTIVE_OPTIONS["maxBytesPerTile"].default
"""Bytes of a tile that one collective reduces. Source: GCL's option ``maxBytesPerTile``."""
