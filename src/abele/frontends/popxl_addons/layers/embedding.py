"""A table of embeddings, whose rows or columns may lie on several replicas."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array
from abele.frontends.popxl import ops
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.replicas import ReplicaGrouping
from abele.frontends.popxl.tensors import Tensor
from abele.frontends.popxl_addons.layers.initial import truncated_normal
from abele.frontends.popxl_addons.module import Module


class Embedding(Module):
    """Rows of the variable ``weight`` [vocab_size, hidden_size] by number.

    With a replica grouping of n groups, each group has an n-th of the rows (``axis=0``) or columns (``axis=1``). Row
    numbers then count from the shard's first row, as :meth:`offset_input` makes them. Those of other shards give zeros,
    so that the sum over the shards is the embedding.

    Args:
        dtype: Type of the table.
        vocab_size: Rows of the whole table; the last shard may have more than there are.
        hidden_size: Columns of the whole table.
        axis: 0 to share out rows, 1 for columns.
        replica_grouping: Groups of replicas that hold the same shard.
        cache: Give the graph made before where arguments are like those before.

    Raises:
        GraphArgumentError: Another axis, or columns that do not divide.
    """

    def __init__(
        self,
        dtype: Any,
        vocab_size: int,
        hidden_size: int,
        axis: int = 0,
        replica_grouping: ReplicaGrouping | None = None,
        *,
        cache: bool = False,
    ) -> None:
        super().__init__(cache=cache)
        self.dtype, self.vocab_size, self.hidden_size = dtype, vocab_size, hidden_size
        self.axis, self.replica_grouping = axis, replica_grouping
        self.n_shards = 1 if replica_grouping is None else int(replica_grouping.num_groups)
        if axis not in (0, 1):
            raise GraphArgumentError(f"Embedding has axis {axis}: 0 for rows, 1 for columns")
        if axis == 1 and hidden_size % self.n_shards:
            raise GraphArgumentError(f"{hidden_size} columns of an Embedding do not divide by {self.n_shards} shards")
        self.vocab_shard_size = self.get_vocab_shard_size(vocab_size, self.n_shards if axis == 0 else 1)
        self.hidden_shard_size = hidden_size // (self.n_shards if axis == 1 else 1)

    def build(self, indices: Tensor) -> Tensor:
        """[..., hidden_size] of [...]."""
        from abele.frontends.popxl.dtypes import as_dtype

        shape = (self.vocab_shard_size, self.hidden_shard_size)
        draw = truncated_normal(shape, as_dtype(self.dtype).as_numpy())
        self.weight = self.add_variable_input("weight", draw, self.dtype, replica_grouping=self.replica_grouping)
        return ops.gather(self.weight, indices, axis=0, zero_OOR=self.axis == 0 and self.n_shards > 1)

    @staticmethod
    def get_vocab_shard_size(vocab_size: int, n_shards: int) -> int:
        """Rows of each shard: of all but the last the same, and the last is filled up."""
        return -(-vocab_size // n_shards)

    @staticmethod
    def get_offsets(vocab_size: int, n_shards: int) -> Array:
        """The first row of each shard, [n_shards]."""
        return np.arange(n_shards) * Embedding.get_vocab_shard_size(vocab_size, n_shards)

    @staticmethod
    def offset_input(data: Any, vocab_size: int, n_shards: int) -> Array:
        """Numbers from the first row of each shard, int32[n_shards, *data.shape]: those of others are outside of it."""
        numbers = np.asarray(data)
        if not np.issubdtype(numbers.dtype, np.integer):
            raise GraphArgumentError(f"rows of an Embedding have whole numbers, not {numbers.dtype}")
        offsets = Embedding.get_offsets(vocab_size, n_shards).reshape(-1, *(1,) * numbers.ndim)
        return (numbers[None].astype(np.int64) - offsets).astype(np.int32)


__all__ = ["Embedding"]
