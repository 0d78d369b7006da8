"""Operators of replicas that compute one model together, as PyTorch records them.

Where no device is, there is one replica: what they mean on the host is what a group of one would do, in the shapes that
groups of several have.
"""

from __future__ import annotations

import torch


@torch.library.custom_op("abele::replica_copy", mutates_args=())
def replica_copy(value: torch.Tensor, size: int) -> torch.Tensor:
    """The value, for readers that differ from replica to replica."""
    return value.clone()


@torch.library.custom_op("abele::replica_sum", mutates_args=())
def replica_sum(value: torch.Tensor, size: int, readers: str) -> torch.Tensor:
    """The sum over a group of replicas."""
    return value.clone()


@torch.library.custom_op("abele::replica_gather", mutates_args=())
def replica_gather(value: torch.Tensor, dim: int, size: int, readers: str) -> torch.Tensor:
    """The parts of a group of replicas side by side."""
    return torch.cat([value] * size, dim)


@torch.library.custom_op("abele::replica_scatter", mutates_args=())
def replica_scatter(value: torch.Tensor, dim: int, size: int, of_sum: bool) -> torch.Tensor:
    """The part of the replica's rank, of the value or of its sum."""
    return value.chunk(size, dim)[0].clone()


@torch.library.custom_op("abele::replica_exchange", mutates_args=())
def replica_exchange(value: torch.Tensor, size: int) -> torch.Tensor:
    """Rows that each replica of a group has for each, sent to them."""
    return value.clone()


@torch.library.custom_op("abele::largest_of_replicas", mutates_args=())
def largest_of_replicas(value: torch.Tensor) -> torch.Tensor:
    """The largest over all replicas."""
    return value.clone()


@torch.library.custom_op("abele::vocabulary_embedding", mutates_args=())
def vocabulary_embedding(table: torch.Tensor, index: torch.Tensor, entries: int, size: int) -> torch.Tensor:
    """Rows of a table whose entries are split."""
    return torch.nn.functional.embedding(index.clamp(max=table.shape[0] - 1), table)


@torch.library.custom_op("abele::vocabulary_cross_entropy", mutates_args=())
def vocabulary_cross_entropy(
    scores: torch.Tensor, target: torch.Tensor, classes: int, size: int, ignore_index: int, reduction: str
) -> torch.Tensor:
    """The cross entropy of scores that are split by classes."""
    inside = target.clamp(max=scores.shape[1] - 1)
    return torch.nn.functional.cross_entropy(scores, inside, ignore_index=ignore_index, reduction=reduction)


@replica_copy.register_fake
def _(value: torch.Tensor, size: int) -> torch.Tensor:
    return torch.empty_like(value)


@largest_of_replicas.register_fake
def _(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(value)


@replica_exchange.register_fake
def _(value: torch.Tensor, size: int) -> torch.Tensor:
    return torch.empty_like(value)


@replica_sum.register_fake
def _(value: torch.Tensor, size: int, readers: str) -> torch.Tensor:
    return torch.empty_like(value)


@replica_gather.register_fake
def _(value: torch.Tensor, dim: int, size: int, readers: str) -> torch.Tensor:
    return value.new_empty([n * size if d == dim % value.dim() else n for d, n in enumerate(value.shape)])


@replica_scatter.register_fake
def _(value: torch.Tensor, dim: int, size: int, of_sum: bool) -> torch.Tensor:
    return value.new_empty([n // size if d == dim % value.dim() else n for d, n in enumerate(value.shape)])


@vocabulary_embedding.register_fake
def _(table: torch.Tensor, index: torch.Tensor, entries: int, size: int) -> torch.Tensor:
    return table.new_empty((*index.shape, table.shape[1]))


@vocabulary_cross_entropy.register_fake
def _(
    scores: torch.Tensor, target: torch.Tensor, classes: int, size: int, ignore_index: int, reduction: str
) -> torch.Tensor:
    return scores.new_empty(target.shape if reduction == "none" else ())
