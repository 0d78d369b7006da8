"""Layers of which each replica of a group has a part.

Such a layer holds the whole weights, under the names that they had in the layer that it is made of.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import torch

from abele.frontends.poptorch.capture import collectives
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.program.recording import isRunningOnIpu

# Collectives of groups of consecutive replicas, which users call in the middle of a model.
#
# On the host, and in groups of one, they give what they are given.

assert collectives, "importing it registers its operators"


def copy_to_group(value: torch.Tensor, group_size: int) -> torch.Tensor:
    """``value``, alike on the replicas of a group, before what differs between them: its gradient is summed.

    Args:
        value: The tensor.
        group_size: Consecutive replicas of a group.
    """
    return torch.ops.abele.replica_copy(value, group_size) if together(group_size) else value


def reduce_from_group(value: torch.Tensor, group_size: int, *, alike: bool = True) -> torch.Tensor:
    """The sum of ``value`` over the replicas of a group.

    Args:
        value: The tensor.
        group_size: Consecutive replicas of a group.
        alike: True if all replicas go on with the sum in the same way: its gradient is theirs as it is. Otherwise the
            gradient is summed as well.
    """
    return torch.ops.abele.replica_sum(value, group_size, _readers(alike)) if together(group_size) else value


def gather_from_group(value: torch.Tensor, dim: int, group_size: int, *, alike: bool = True) -> torch.Tensor:
    """The parts of the replicas of a group side by side along ``dim``; ``alike`` as of :func:`reduce_from_group`."""
    if not together(group_size):
        return value
    gathered: torch.Tensor = torch.ops.abele.replica_gather(value, dim, group_size, _readers(alike))
    return gathered


def scatter_to_group(value: torch.Tensor, dim: int, group_size: int) -> torch.Tensor:
    """The replica's part of a ``value`` that all replicas of a group have; gradients are gathered."""
    if not together(group_size):
        return value
    part: torch.Tensor = torch.ops.abele.replica_scatter(value, dim, group_size, False)
    return part


def reduce_scatter_to_group(value: torch.Tensor, dim: int, group_size: int) -> torch.Tensor:
    """The replica's part of the sum of ``value`` over a group; gradients are gathered."""
    if not together(group_size):
        return value
    part: torch.Tensor = torch.ops.abele.replica_scatter(value, dim, group_size, True)
    return part


def together(group_size: int) -> bool:
    """True on the device, in groups of more than one.

    Raises:
        Error: No size of a group.
    """
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 1:
        raise Error(f"a group has a positive whole number of replicas, not {group_size!r}")
    return group_size > 1 and isRunningOnIpu()


def _readers(alike: bool) -> str:
    return "alike" if alike else "apart"


class SplitLayer(torch.nn.Module):
    """A layer of whose weights each replica of a group has a part.

    Attributes:
        group_size: Consecutive replicas of a group.
        inputs_differ: True if each replica has inputs of its own; otherwise the group computes one model together.
    """

    group_size: int
    inputs_differ: ClassVar[bool] = False

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """Name, split dimension and number of blocks of each parameter that is split."""
        raise NotImplementedError

    @classmethod
    def _of(cls, layer: torch.nn.Module, **attributes: Any) -> Self:
        """A layer with the parameters, the hooks and the numbers of another one."""
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        # Tables of its own, with the same parameters in them.
        tables = {k: copy.copy(v) if isinstance(v, dict) else v for k, v in layer.__dict__.items()}
        made.__dict__.update(tables)
        for name, value in attributes.items():
            setattr(made, name, value)
        return made


class _SplitLinear(SplitLayer):
    """Base of both ways to split a fully connected layer."""

    weight: torch.nn.Parameter
    bias: torch.nn.Parameter | None
    transposed: bool
    in_features: int
    out_features: int

    def _product(self, value: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        weight = self.weight.T if self.transposed else self.weight
        return torch.nn.functional.linear(value, weight, bias)

    def extra_repr(self) -> str:
        """Features and group."""
        features = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{features}, bias={self.bias is not None}, group_size={self.group_size}"


class ColumnLinear(_SplitLinear):
    """A fully connected layer of which each replica makes part of the features.

    Attributes:
        blocks: Blocks of features of which each replica has its share, such as 3 for queries, keys and values.
        gather: True to give all features on all replicas; otherwise each has its part.
        is_vocabulary: True if features are scores of a vocabulary, and the last part may have fewer than the others.
    """

    blocks: int
    gather: bool
    is_vocabulary: bool

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """The features of ``value`` [..., in]: all of them, or the replica's part."""
        made = self._product(copy_to_group(value, self.group_size), self.bias)
        if not self.gather:
            return made
        whole = gather_from_group(made, -1, self.group_size)
        return whole[..., : self.out_features]

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """The features of weight and bias."""
        yield "weight", int(self.transposed), self.blocks
        if self.bias is not None:
            yield "bias", 0, self.blocks


class RowLinear(_SplitLinear):
    """Fully connected layer that reads part of the features on each replica, and gives the sums to all."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """The features of ``value`` [..., part]."""
        made = reduce_from_group(self._product(value, None), self.group_size)
        return made if self.bias is None else made + self.bias

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """Split of the weight along its inputs."""
        yield "weight", int(not self.transposed), 1


class SplitEmbedding(SplitLayer):
    """An embedding whose entries are split: a replica looks up those that it has, and sums put the others in."""

    weight: torch.nn.Parameter
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        """Rows of the table, which all replicas have."""
        if not together(self.group_size):
            return torch.nn.functional.embedding(index, self.weight, self.padding_idx)
        rows: torch.Tensor = torch.ops.abele.vocabulary_embedding(
            self.weight, index, self.num_embeddings, self.group_size
        )
        if self.padding_idx is None:
            return rows
        return torch.where((index == self.padding_idx).unsqueeze(-1), rows.detach(), rows)

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """The entries."""
        yield "weight", 0, 1

    def extra_repr(self) -> str:
        """Size and group."""
        return f"{self.num_embeddings}, {self.embedding_dim}, group_size={self.group_size}"


class SplitCrossEntropyLoss(SplitLayer):
    """A cross entropy of scores of which each replica has those of some classes.

    The plan ``vocabulary`` puts it in the place of a ``torch.nn.CrossEntropyLoss``.

    Args:
        classes: Classes in all.
        group_size: Consecutive replicas of a group.
        ignore_index: Rows with this label count nowhere.
        reduction: ``none``, ``mean`` or ``sum``.
    """

    def __init__(self, classes: int, group_size: int, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__()
        together(group_size)
        self.classes, self.group_size = classes, group_size
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss of scores [rows, part] and classes [rows]."""
        if not together(self.group_size):
            return torch.nn.functional.cross_entropy(
                scores, target, ignore_index=self.ignore_index, reduction=self.reduction
            )
        if scores.dim() != 2 or scores.shape[1] != -(-self.classes // self.group_size):
            raise Error(
                f"SplitCrossEntropyLoss: the scores have shape {list(scores.shape)}",
                because=f"{self.classes} classes over {self.group_size} replicas are "
                f"{-(-self.classes // self.group_size)} on each",
                remedy="give it [rows, part], as a layer with the plan 'vocabulary' makes them",
            )
        loss: torch.Tensor = torch.ops.abele.vocabulary_cross_entropy(
            scores, target, self.classes, self.group_size, self.ignore_index, self.reduction
        )
        return loss

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """No parts: it has no parameters."""
        return iter(())
