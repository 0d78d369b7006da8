"""The order of elements in which every replica has an equal share of every tile: for sharded optimiser state.

Each tile's elements are cut into equal parts, one per replica, so a replica's share has its part on every tile in
proportion to what lies there: gathering or scattering the shares moves nothing between the tiles of an IPU, and no tile
holds more of the optimiser's state than another. Taking the n-th part of the flattened tensor instead would put a
replica's share on as few tiles as hold that stretch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abele.arrays import Array, Int64
from abele.errors import TensorError
from abele.graph import Graph, Tensor, concat
from abele.graph.mapping import TileMapping
from abele.numerics import ElementType
from abele.poplibs.poputil.mapping import map_tensor_linearly
from abele.words import counted


@dataclass(frozen=True, eq=False)
class CollectiveBalancedHostRearrangement:
    """The order of elements, as the host needs it.

    Attributes:
        replicas: Replicas that share the elements.
        source: Element of the reference tensor at each place of the rearranged one, int64[replicas · share]; −1 is
            padding.
        size: Elements of the reference tensor.
    """

    replicas: int
    source: Int64
    size: int

    @property
    def num_elements_per_replica(self) -> int:
        """Elements of one replica's share, with padding."""
        return len(self.source) // self.replicas

    @cached_property
    def place(self) -> Int64:
        """Place in the rearranged tensor of each element of the reference, int64[size]."""
        used = np.flatnonzero(self.source >= 0)
        place = np.empty(self.size, np.int64)
        place[self.source[used]] = used
        return place

    def rearrange_for_collective(self, array: Array) -> Array:
        """``array`` of the reference's size in the shared order, flat; padding is zero.

        Raises:
            TensorError: Another number of elements.
        """
        flat = self._sized(array, self.size)
        out = np.zeros(len(self.source), flat.dtype)
        out[self.place] = flat
        return out

    def undo_rearrange_for_collective(self, array: Array) -> Array:
        """The inverse of :meth:`rearrange_for_collective`, flat."""
        return self._sized(array, len(self.source))[self.place]

    def _sized(self, array: Array, size: int) -> Array:
        flat = np.asarray(array).ravel()
        if flat.size != size:
            raise TensorError(f"the rearrangement takes {counted(size, 'element')}, got {flat.size}")
        return flat


class CollectiveBalancedReorder:
    """Shares the elements of a tensor between replicas so that each has its part on the tiles where they are.

    Args:
        graph: The graph of the tensor.
        reference: A tensor with a tile mapping.
        replicas: Replicas that share it; by default those of the graph.

    Raises:
        TensorError: An element of the reference has no tile, or there is less than one replica.

    The elements of each tile are cut into equal parts, one for each replica, padded to the same length.
    """

    def __init__(self, graph: Graph, reference: Tensor, replicas: int | None = None) -> None:
        self.graph, self.reference = graph, reference
        self.replicas = graph.replicas if replicas is None else replicas
        if self.replicas < 1:
            raise TensorError(
                f"CollectiveBalancedReorder: {counted(self.replicas, 'replica')} cannot share {reference!r}"
            )
        mapping = graph.mapping_of(reference)
        tile = np.repeat(mapping.tile.astype(np.int64), mapping.length)
        if (tile < 0).any():
            raise TensorError(f"CollectiveBalancedReorder: {reference!r} is not mapped to tiles", remedy="map it first")
        order = np.argsort(tile, kind="stable")
        self._tiles, counts = np.unique(tile, return_counts=True)
        self._shares = -(-counts // self.replicas)
        # Place of each element among those of its tile.
        within = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        share = np.repeat(self._shares, counts)
        begin = np.repeat(np.cumsum(self._shares) - self._shares, counts)
        total = int(self._shares.sum())
        source = np.full(self.replicas * total, -1, np.int64)
        # Replica, then tile, then place in the tile's part.
        source[within // share * total + begin + within % share] = order
        self.host_rearrangement = CollectiveBalancedHostRearrangement(self.replicas, source, reference.size)

    @property
    def num_elements_per_replica(self) -> int:
        """Elements of one replica's share, with padding."""
        return self.host_rearrangement.num_elements_per_replica

    def create_replica_slice(self, dtype: ElementType, name: str = "replica_slice") -> Tensor:
        """A variable [share] for one replica's part, on the tiles where the reference is."""
        return self._create(dtype, 1, name)

    def create_collectives_tensor(self, dtype: ElementType, name: str = "collectives") -> Tensor:
        """A variable [replicas · share] for the parts of all replicas, on the tiles where the reference is."""
        return self._create(dtype, self.replicas, name)

    def undo_rearrangement(self, rearranged: Tensor) -> Tensor:
        """The view of a tensor [replicas · share] that has the reference's shape and order.

        Raises:
            TensorError: Another number of elements.
        """
        source, flat = self.host_rearrangement.source, rearranged.flatten()
        if flat.size != len(source):
            raise TensorError(f"the rearrangement takes {counted(len(source), 'element')}, got {rearranged!r}")
        place = self.host_rearrangement.place
        # Neighbours that stay neighbours are one slice of the view.
        cuts = np.flatnonzero(np.diff(place) != 1) + 1
        begin = place[np.concatenate([[0], cuts])]
        length = np.diff(np.concatenate([[0], cuts, [len(place)]]))
        pieces = [flat[a : a + n] for a, n in zip(begin.tolist(), length.tolist(), strict=True)]
        return concat(pieces).reshape(self.reference.shape)

    def rearrange(self, tensor: Tensor) -> Tensor:
        """The view of a tensor of the reference's shape in the shared order, zeros where there is padding.

        Raises:
            TensorError: Another number of elements.
        """
        source, flat = self.host_rearrangement.source, tensor.flatten()
        if flat.size != self.reference.size:
            raise TensorError(f"the rearrangement takes {counted(self.reference.size, 'element')}, got {tensor!r}")
        missing = int((source < 0).sum())
        if missing:
            zeros = self.graph.constant(flat.dtype, (missing,), 0, name="padding")
            flat = concat([flat, map_tensor_linearly(self.graph, zeros)])
        at = source.copy()
        at[source < 0] = self.reference.size + np.arange(missing)
        cuts = np.flatnonzero(np.diff(at) != 1) + 1
        begin = at[np.concatenate([[0], cuts])]
        length = np.diff(np.concatenate([[0], cuts, [len(at)]]))
        return concat([flat[a : a + n] for a, n in zip(begin.tolist(), length.tolist(), strict=True)])

    def _create(self, dtype: ElementType, rows: int, name: str) -> Tensor:
        total = self.num_elements_per_replica
        begin = (np.arange(rows)[:, None] * total + np.cumsum(self._shares) - self._shares).ravel().astype(np.int64)
        made = self.graph.variable(dtype, (rows * total,), name=name)
        return self.graph.map(made, TileMapping(rows * total, begin, np.tile(self._tiles.astype(np.int32), rows)))
