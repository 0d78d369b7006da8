"""``poptorch.tensor_parallel``: models whose layers are split over groups of consecutive replicas.

:func:`parallelize_module` takes a plan, as ``torch.distributed.tensor.parallel`` does, and puts a layer of this module
in the place of each layer that the plan names. Such a layer holds the whole weights, under the names that they had:
optimisers, ``state_dict`` and checkpoints know nothing of it, and on the host the model computes what it did. On the
device each replica of a group has its part of the weights, and the layer exchanges what its neighbours in the model
need.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from abele.errors import nearest
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.functions.split_layers import (
    ColumnLinear,
    RowLinear,
    SplitCrossEntropyLoss,
    SplitEmbedding,
    copy_to_group,
    gather_from_group,
    reduce_from_group,
    reduce_scatter_to_group,
    scatter_to_group,
    together,
)

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
"""Attribute of a module for its whole numbers that are divided on the device, with their divisors."""


@dataclass(frozen=True)
class Style:
    """Style of splitting a layer."""

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
    together(group_size)
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
