"""``poptorch.tensor_parallel``: models whose layers are split over groups of consecutive replicas.

:func:`parallelize_module` takes a plan, as ``torch.distributed.tensor.parallel`` does, and puts a layer of this module
in the place of each layer that the plan names. Such a layer holds the whole weights, under the names that they had:
optimisers, ``state_dict`` and checkpoints know nothing of it, and on the host the model computes what it did. On the
device each replica of a group has its part of the weights, and the layer exchanges what its neighbours in the model
need.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch

from abele.errors import nearest
from abele.frontends.poptorch.capture import collectives
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.program.recording import isRunningOnIpu

assert collectives, "importing it registers its operators"

__all__ = [
    "ColumnLinear",
    "ColumnSplit",
    "Divide",
    "RowLinear",
    "RowSplit",
    "SplitCrossEntropyLoss",
    "SplitEmbedding",
    "VocabularySplit",
    "copy_to_group",
    "gather_from_group",
    "parallelize_module",
    "reduce_from_group",
    "reduce_scatter_to_group",
    "scatter_to_group",
]

DIVIDED = "_abele_divided"
"""Under this name a module has its whole numbers that are divided on the device, and by what."""


# --- collectives ------------------------------------------------------------------------------------------------------


def copy_to_group(value: torch.Tensor, group_size: int) -> torch.Tensor:
    """``value``, alike on the replicas of a group, before what differs between them: its gradient is summed.

    Args:
        value: The tensor.
        group_size: Consecutive replicas of a group.
    """
    return torch.ops.abele.replica_copy(value, group_size) if _together(group_size) else value


def reduce_from_group(value: torch.Tensor, group_size: int, *, alike: bool = True) -> torch.Tensor:
    """The sum of ``value`` over the replicas of a group.

    Args:
        value: The tensor.
        group_size: Consecutive replicas of a group.
        alike: True if all replicas go on with the sum in the same way: its gradient is theirs as it is. Otherwise the
            gradient is summed as well.
    """
    return torch.ops.abele.replica_sum(value, group_size, _readers(alike)) if _together(group_size) else value


def gather_from_group(value: torch.Tensor, dim: int, group_size: int, *, alike: bool = True) -> torch.Tensor:
    """The parts of the replicas of a group side by side along ``dim``; ``alike`` as of :func:`reduce_from_group`."""
    if not _together(group_size):
        return value
    gathered: torch.Tensor = torch.ops.abele.replica_gather(value, dim, group_size, _readers(alike))
    return gathered


def scatter_to_group(value: torch.Tensor, dim: int, group_size: int) -> torch.Tensor:
    """The replica's part of a ``value`` that all replicas of a group have; gradients are gathered."""
    if not _together(group_size):
        return value
    part: torch.Tensor = torch.ops.abele.replica_scatter(value, dim, group_size, False)
    return part


def reduce_scatter_to_group(value: torch.Tensor, dim: int, group_size: int) -> torch.Tensor:
    """The replica's part of the sum of ``value`` over a group; gradients are gathered."""
    if not _together(group_size):
        return value
    part: torch.Tensor = torch.ops.abele.replica_scatter(value, dim, group_size, True)
    return part


def _together(group_size: int) -> bool:
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 1:
        raise Error(f"a group has a positive whole number of replicas, not {group_size!r}")
    return group_size > 1 and isRunningOnIpu()


def _readers(alike: bool) -> str:
    return "alike" if alike else "apart"


# --- layers -----------------------------------------------------------------------------------------------------------


class SplitLayer(torch.nn.Module):
    """A layer of whose weights each replica of a group has a part.

    Attributes:
        group_size: Consecutive replicas of a group.
    """

    group_size: int

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """Name, dimension that is cut, and blocks along it, of each parameter that is split."""
        raise NotImplementedError

    @classmethod
    def _of(cls, layer: torch.nn.Module, **attributes: Any) -> Self:
        """A layer with the parameters, the hooks and the numbers of another one."""
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        # Tables of its own, with the same parameters in them.
        tables = {k: dict(v) if isinstance(v, dict) else v for k, v in layer.__dict__.items()}
        made.__dict__.update(tables)
        for name, value in attributes.items():
            setattr(made, name, value)
        return made


class _SplitLinear(SplitLayer):
    """What both ways to split a fully connected layer share."""

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
    """A fully connected layer that reads part of the features on each replica, and gives sums that all have."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """The features of ``value`` [..., part]."""
        made = reduce_from_group(self._product(value, None), self.group_size)
        return made if self.bias is None else made + self.bias

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """What the weight reads."""
        yield "weight", int(not self.transposed), 1


class SplitEmbedding(SplitLayer):
    """An embedding whose entries are split: a replica looks up those that it has, and sums put the others in."""

    weight: torch.nn.Parameter
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        """Rows of the table, which all replicas have."""
        if not _together(self.group_size):
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
        _together(group_size)
        self.classes, self.group_size = classes, group_size
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss of scores [rows, part] and classes [rows]."""
        if not _together(self.group_size):
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
        """It has no parameters."""
        return iter(())


# --- plans ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Style:
    """How a layer is split."""

    takes: ClassVar[str]

    def layer(self, name: str, layer: torch.nn.Module, group_size: int) -> torch.nn.Module:
        """The layer that takes the place of ``layer``.

        Raises:
            Error: It is of another kind, or does not divide.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ColumnSplit(Style):
    """Each replica makes part of the features of a fully connected layer.

    Attributes:
        blocks: Blocks of features of which each replica has its share: 3 for queries, keys and values in one layer.
        gather: True to gather the features afterwards; they need not divide then.
        is_vocabulary: True if features need not divide though parts stay.
    """

    takes = "a fully connected layer"
    blocks: int = 1
    gather: bool = False
    is_vocabulary: bool = False

    def layer(self, name: str, layer: torch.nn.Module, group_size: int) -> torch.nn.Module:
        """A :class:`ColumnLinear`."""
        known = _linear(name, layer, self)
        may_be_padded = self.blocks == 1 and (self.gather or self.is_vocabulary)
        if known["out_features"] % (group_size * self.blocks) and not may_be_padded:
            raise _does_not_divide(name, known["out_features"], "features", group_size, self.blocks)
        known |= {"blocks": self.blocks, "gather": self.gather, "is_vocabulary": self.is_vocabulary}
        return ColumnLinear._of(layer, group_size=group_size, **known)


@dataclass(frozen=True)
class RowSplit(Style):
    """Each replica reads part of the features of a fully connected layer, which a layer split by columns made."""

    takes = "a fully connected layer"

    def layer(self, name: str, layer: torch.nn.Module, group_size: int) -> torch.nn.Module:
        """A :class:`RowLinear`."""
        known = _linear(name, layer, self)
        if known["in_features"] % group_size:
            raise _does_not_divide(name, known["in_features"], "features that it reads", group_size)
        return RowLinear._of(layer, group_size=group_size, **known)


@dataclass(frozen=True)
class VocabularySplit(Style):
    """Each replica has part of a vocabulary: of an embedding, or of the layer that gives a score to each entry.

    Scores stay in parts, for a loss of the same style, unless they are gathered.

    Attributes:
        gather: True to gather scores.
    """

    takes = "an embedding, a fully connected layer, or the cross entropy of its scores"
    gather: bool = False

    def layer(self, name: str, layer: torch.nn.Module, group_size: int) -> torch.nn.Module:
        """A :class:`SplitEmbedding` or a :class:`ColumnLinear`."""
        if not isinstance(layer, torch.nn.Embedding):
            return ColumnSplit(gather=self.gather, is_vocabulary=True).layer(name, layer, group_size)
        if layer.max_norm is not None or layer.scale_grad_by_freq:
            raise Error(f"the embedding {name!r} cannot be split: it changes or weighs rows by what is looked up")
        return SplitEmbedding._of(layer, group_size=group_size)


@dataclass(frozen=True)
class Divide(Style):
    """A whole number of a module, such as its heads, is that of each replica's part on the device."""

    takes = "a whole number that a module has as an attribute"


STYLES: dict[str, Style] = {
    "column": ColumnSplit(),
    "column_gather": ColumnSplit(gather=True),
    "row": RowSplit(),
    "vocabulary": VocabularySplit(),
    "vocabulary_gather": VocabularySplit(gather=True),
    "divide": Divide(),
    "colwise": ColumnSplit(),
    "colwise_rep": ColumnSplit(gather=True),
    "colwise_gather_output": ColumnSplit(gather=True),
    "rowwise": RowSplit(),
    "embedding_rowwise": VocabularySplit(),
}
"""Styles by name; the last five are those of the plans of the transformers library."""


def parallelize_module(module: torch.nn.Module, group_size: int, plan: Mapping[str, str | Style]) -> torch.nn.Module:
    """Split the layers of a model over groups of consecutive replicas; it changes ``module`` and gives it back.

    Options have to say the same: ``options.replicationFactor(n).inputReplicaGrouping(group_size, Consecutive)``, where
    n / ``group_size`` models train on data of their own. Weights stay whole on the host.

    Args:
        module: The model.
        group_size: Replicas that compute one model together.
        plan: For names of layers a style: a name of :data:`STYLES`, or one with options, such as
            ``ColumnSplit(blocks=3)``.
            A ``*`` stands for one part of a name between dots, or some of its letters: ``blocks.*.attention.qkv``.

    Raises:
        Error: A name that no layer has, a style for another kind of layer, or one that does not divide.
    """
    _together(group_size)
    chosen: dict[str, Style] = {}
    for pattern, given in plan.items():
        style = _style(pattern, given)
        if isinstance(style, Divide):
            _divide(module, pattern, group_size)
            continue
        names = [name for name, _ in module.named_modules(remove_duplicate=False) if _fits(name, pattern)]
        if not names:
            raise _no_such(pattern, [name for name, _ in module.named_modules() if name], "layer")
        chosen |= dict.fromkeys(names, style)
    layers = {name: module.get_submodule(name) for name in chosen}
    losses = [name for name, layer in layers.items() if isinstance(layer, torch.nn.CrossEntropyLoss)]
    made: dict[int, torch.nn.Module] = {}
    for name, layer in layers.items():
        if name not in losses and id(layer) not in made:
            made[id(layer)] = chosen[name].layer(name, layer, group_size)
    classes = {
        m.out_features for m in made.values() if isinstance(m, ColumnLinear) and not m.gather and m.is_vocabulary
    }
    for name in losses:
        made[id(layers[name])] = _loss(name, layers[name], chosen[name], classes, group_size)
    for name, layer in layers.items():
        parent, _, own = name.rpartition(".")
        setattr(module.get_submodule(parent), own, made[id(layer)])
    return module


def _loss(name: str, layer: torch.nn.Module, style: Style, classes: set[int], group_size: int) -> SplitCrossEntropyLoss:
    """The loss of scores that stay in parts.

    Raises:
        Error: It is not known how many classes there are, or the loss weighs them.
    """
    assert isinstance(layer, torch.nn.CrossEntropyLoss)
    if not isinstance(style, VocabularySplit) or len(classes) != 1:
        raise Error(
            f"the plan splits the loss {name!r}, and not the one layer whose scores it reads",
            because="scores stay in parts where the layer that makes them has the plan 'vocabulary'",
            remedy="'vocabulary' for both, or SplitCrossEntropyLoss(classes, group_size) in the model",
        )
    if layer.weight is not None or layer.label_smoothing:
        raise Error(f"the loss {name!r} weighs or smooths classes, and cannot be split", remedy="gather the scores")
    (number,) = classes
    return SplitCrossEntropyLoss(number, group_size, ignore_index=layer.ignore_index, reduction=layer.reduction)


def _style(pattern: str, given: str | Style) -> Style:
    if isinstance(given, Style):
        return given
    if given not in STYLES:
        close = nearest(str(given), STYLES)
        raise Error(
            f"the plan for {pattern!r} is {given!r}",
            because=f"layers are split by {', '.join(STYLES)}",
            remedy=f"did you mean {close!r}?" if close else None,
        )
    return STYLES[given]


def _fits(name: str, pattern: str) -> bool:
    names, patterns = name.split("."), pattern.split(".")
    return len(names) == len(patterns) and all(map(fnmatch.fnmatchcase, names, patterns))


def _no_such(pattern: str, names: list[str], what: str) -> Error:
    close = nearest(pattern, names)
    return Error(
        f"the plan names {pattern!r}, and the model has no such {what}",
        because=f"it has {', '.join(names[:12])}{', …' if len(names) > 12 else ''}" if names else None,
        remedy=f"did you mean {close!r}?" if close else None,
    )


def _divide(module: torch.nn.Module, pattern: str, group_size: int) -> None:
    """Note whole numbers of the modules that a pattern names."""
    path, _, attribute = pattern.rpartition(".")
    found = [m for name, m in module.named_modules() if _fits(name, path) and hasattr(m, attribute)]
    if not found:
        raise _no_such(pattern, [name for name, _ in module.named_modules() if name], "attribute")
    for owner in found:
        number = getattr(owner, attribute)
        if isinstance(number, bool) or not isinstance(number, int):
            raise Error(f"the plan divides {pattern!r}, which is {number!r}", remedy=f"name {Divide.takes}")
        if number % group_size:
            raise _does_not_divide(pattern, number, "of them", group_size)
        owner.__dict__.setdefault(DIVIDED, {})[attribute] = group_size


def _linear(name: str, layer: torch.nn.Module, style: Style) -> dict[str, Any]:
    """Features of a fully connected layer, and whether its weight is [in, out], as that of a ``Conv1D`` of GPT-2 is.

    Raises:
        Error: It is something else.
    """
    weight = getattr(layer, "weight", None)
    transposed = type(layer).__name__ == "Conv1D"
    if (
        not isinstance(weight, torch.nn.Parameter)
        or weight.dim() != 2
        or not (transposed or isinstance(layer, torch.nn.Linear))
    ):
        raise Error(
            f"the plan for {name!r} is {type(style).__name__}, and it is a {type(layer).__name__}",
            remedy=f"name {style.takes}",
        )
    first, second = weight.shape
    out, into = (second, first) if transposed else (first, second)
    return {"in_features": into, "out_features": out, "transposed": transposed}


def _does_not_divide(name: str, number: int, what: str, group_size: int, blocks: int = 1) -> Error:
    of = f" in {blocks} blocks" if blocks > 1 else ""
    return Error(
        f"{name!r} cannot be split over {group_size} replicas: {number} {what}{of} do not divide",
        remedy="a group whose size divides it",
    )
