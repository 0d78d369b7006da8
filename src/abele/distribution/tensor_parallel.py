"""Tensor parallelism: layers with weights split over a group of replicas, which compute one model together.

All replicas of a group are given the same inputs, and activations between layers are alike on all of them. A layer that
is split by *columns* makes part of the features on each replica; one that is split by *rows* reads such parts, and the
sums of what replicas make of them are alike again. So a block of both costs one all-reduce forward and one backward.
Vocabularies are split over rows of the table: a replica looks up what it has, and sums put the rest in.

The layout is that of Megatron-LM. :class:`SplitParameters` makes the parameters and says the rest to a schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, NetworkBuilder, Value
from abele.network.ops import build
from abele.network.registry import require
from abele.network.schedule import Schedule, data_parallel_groups
from abele.network.split import Split
from abele.numerics import bool_, f32, i32
from abele.poplibs.gcl import CommGroup

x, y, z = arg(0), arg(1), arg(2)


@dataclass
class SplitParameters:
    """The parameters of a network that a group of replicas has parts of.

    Attributes:
        net: Builder of the parameters.
        group: Group of replicas that compute the model together: consecutive or orthogonal ones, and their number.
        splits: Splits of the parameters made so far, by name.
    """

    net: NetworkBuilder
    group: CommGroup
    splits: dict[str, Split] = field(default_factory=dict)

    def parameter(self, shape: Sequence[int], dtype: Any, name: str, *, dim: int = 0, blocks: int = 1) -> Value:
        """The replica's part of a new parameter; the host has the whole one under the same name.

        Args:
            shape: Of the whole parameter.
            dtype: Its element type.
            name: Its name.
            dim: The dimension that is cut.
            blocks: Blocks along it of which each replica has its share; see :class:`~abele.network.split.Split`.

        Raises:
            InvalidOptionError: Blocks that do not divide into the parts.
        """
        split = Split(dim % len(shape), shape[dim], blocks)
        part = split.part_extent(self.group.size)
        self.splits[name] = split
        return self.net.parameter([part if d == split.dim else n for d, n in enumerate(shape)], dtype, name)

    def schedule(self, schedule: Schedule) -> Schedule:
        """A schedule of as many replicas that runs the network: inputs, weights and random numbers by group.

        Raises:
            GraphReplicationError: Replicas that do not divide into the groups, or groups of another kind.
        """
        return computed_together(schedule, self.group, self.splits)


def computed_together(schedule: Schedule, group: CommGroup, splits: Mapping[str, Split]) -> Schedule:
    """A schedule whose replicas compute models together: inputs, weights and random numbers by group.

    Args:
        schedule: The schedule, with all replicas.
        group: Group of replicas that compute a model together.
        splits: Splits of the parameters of which they have parts, by name.

    Raises:
        GraphReplicationError: Replicas that do not divide into the groups, or groups of another kind.
    """
    across = data_parallel_groups(group, schedule.replicas)
    return replace(
        schedule,
        input_groups=group,
        tensor_parallel=group,
        own_values=(*schedule.own_values, *((name, across) for name in splits)),
        splits=(*schedule.splits, *splits.items()),
    )


def column_linear(
    net: BlockBuilder,
    value: Value,
    weight: Value,
    bias: Value | None,
    group: CommGroup,
    *,
    features: int | None = None,
) -> Value:
    """A fully connected layer of which each replica makes part of the features.

    Args:
        net: The network to extend.
        value: [..., in], alike on all replicas.
        weight: [part, in].
        bias: [part].
        group: Group of replicas that compute it together.
        features: All features, to gather them on all replicas; None to leave parts, [..., part].
    """
    made = build.linear(net, build.replica_copy(net, value, group), weight, bias)
    return made if features is None else gather_features(net, made, features, group)


def gather_features(net: BlockBuilder, value: Value, features: int, group: CommGroup) -> Value:
    """All ``features`` of parts [..., part], without what the last part has behind them."""
    whole = build.replica_gather(net, value, -1, group)
    return build.slice_(net, whole, whole.ndim - 1, 0, features) if whole.shape[-1] > features else whole


def row_linear(net: BlockBuilder, value: Value, weight: Value, bias: Value | None, group: CommGroup) -> Value:
    """A fully connected layer that reads part of the features on each replica.

    Args:
        net: The network to extend.
        value: [..., part].
        weight: [out, part].
        bias: [out], alike on all replicas; it is added once.
        group: Group of replicas that compute it together.
    """
    made = build.replica_sum(net, build.linear(net, value, weight), group)
    return made if bias is None else build.map_(net, x + y, [made, bias])


def vocabulary_embedding(net: BlockBuilder, table: Value, index: Value, entries: int, group: CommGroup) -> Value:
    """Rows of a table whose entries are split: index [...] gives [..., width], alike on all replicas.

    Args:
        net: The network to extend.
        table: [part, width], the replica's entries.
        index: Numbers of entries of the whole table, alike on all replicas.
        entries: Number of entries.
        group: Group of replicas that have the table together.
    """
    net.bound(index, entries, "index")
    # A number that is none of the part's gives zeros, and gets no gradient.
    own = build.map_(net, x - y * table.shape[0], [build.cast(net, index, i32), build.replica_rank(net, group)])
    return build.replica_sum(net, build.look_up(net, table, own), group)


def vocabulary_cross_entropy(
    net: BlockBuilder,
    scores: Value,
    target: Value,
    classes: int,
    group: CommGroup,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Value:
    """The cross entropy of scores that are split by classes, in f32.

    log Σ exp(s − m) − (s[target] − m), with m the largest score of all replicas. Two collectives, of one number and two
    for each row, take the place of gathering the scores.

    Args:
        net: The network to extend.
        scores: [rows, part].
        target: [rows], alike on all replicas.
        classes: Number of classes.
        group: Group of replicas that have the scores together.
        ignore_index: Rows with this target count nowhere.
        reduction: ``none``, ``mean`` over the rows that count, or ``sum``.
    """
    require(scores.ndim == 2 and target.shape == scores.shape[:1], f"{target} has no class for each row of {scores}")
    net.bound(target, classes, "label", ignore_index)
    part, label = scores.shape[1], build.cast(net, target, i32)
    column = build.reshape(net, label, (label.size, 1))
    first = build.map_(net, x * part, [build.replica_rank(net, group)])
    number = build.map_(net, x + y, [net.constant(np.arange(part), i32, "classes"), first])
    wide = build.cast(net, scores, f32)
    if part * group.size > classes:
        wide = build.map_(net, select(y < classes, x, -math.inf), [wide, number])
    largest = build.replica_max(net, build.reduce(net, build.detach(net, wide), [1], "max", keep=True), group)
    below = build.map_(net, x - y, [wide, largest])
    powers = build.reduce(net, build.map_(net, apply("exp", x), [below]), [1], keep=True)
    own = build.reduce(net, build.map_(net, select(y.eq(z), x, 0.0), [below, number, column]), [1], keep=True)
    sums = build.replica_sum(net, build.concat(net, [powers, own], 1), group)
    total, picked = (build.reshape(net, build.slice_(net, sums, 1, n, n + 1), label.shape) for n in (0, 1))
    losses = build.map_(net, select(z.eq(ignore_index), 0.0, apply("log", x) - y), [total, picked, label])
    if reduction == "none":
        return losses
    loss = build.reduce(net, losses, [0])
    if reduction == "sum":
        return loss
    counted = build.map_(net, select(x.eq(ignore_index), 0.0, 1.0), [label], f32)
    return build.map_(net, x / y, [loss, build.reduce(net, counted, [0])])


@dataclass(frozen=True)
class Attention:
    """The parts of an attention layer.

    Attributes:
        qkv: Weight [3 · part, width] and bias [3 · part], split by columns in three blocks.
        out: Weight [width, part], split by rows, and bias [width].
        heads: Of the whole layer; they divide into the replicas of a group.
    """

    qkv: tuple[Value, Value | None]
    out: tuple[Value, Value | None]
    heads: int


def attention(net: BlockBuilder, value: Value, layer: Attention, group: CommGroup, *, causal: bool = False) -> Value:
    """Self-attention whose heads are split: [batch, tokens, width] to the same, alike on all replicas.

    Args:
        net: The network to extend.
        value: Alike on all replicas.
        layer: The replica's part of the weights.
        group: Group of replicas that compute it together.
        causal: True if a token sees those before it alone.
    """
    batch, tokens, _ = value.shape
    heads = layer.heads // group.size
    require(heads * group.size == layer.heads, f"{layer.heads} heads do not divide into {group.size} replicas")
    made = column_linear(net, value, *layer.qkv, group)
    part = made.shape[-1] // 3
    query, key, content = (
        build.permute(
            net,
            build.reshape(
                net, build.slice_(net, made, 2, n * part, (n + 1) * part), (batch, tokens, heads, part // heads)
            ),
            (0, 2, 1, 3),
        )
        for n in range(3)
    )
    scaled = build.map_(net, x * (1 / math.sqrt(part // heads)), [query])
    scores = build.matmul(net, scaled, build.transpose(net, key))
    if causal:
        visible = net.constant(np.tri(tokens), bool_, "causal")
        scores = build.map_(net, select(y, x, -math.inf), [scores, visible])
    mixed = build.matmul(net, build.softmax(net, scores, -1), content)
    together = build.reshape(net, build.permute(net, mixed, (0, 2, 1, 3)), (batch, tokens, part))
    return row_linear(net, together, *layer.out, group)
