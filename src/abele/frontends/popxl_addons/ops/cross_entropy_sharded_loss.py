"""Cross entropy of logits whose classes lie on several replicas: none of them ever holds all.

Each of n replicas has logits of classes/n classes. The largest logit is found over all shards, then the exponentials
and the label's own logit are summed over them: three numbers per sample travel, whatever the number of classes. With
50,258 classes on 2 replicas that is 3 numbers instead of 25,129 logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.expr import Const, apply, select
from abele.expr.derivative import arg
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import checked, emit
from abele.frontends.popxl.tensors import Tensor
from abele.frontends.popxl_addons.ops.groups import comm_group
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import f32, i32

x, y, z = arg(0), arg(1), arg(2)


def cross_entropy_sharded_loss(
    logits: Tensor,
    labels: Tensor,
    reduction: str = "mean",
    ignore_index: int | None = None,
    replica_grouping: Any = None,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """The cross entropy of logits of which each replica has those of some classes; alike on all of them.

    Args:
        logits: The replica's classes, [..., classes of a shard]; classes that pad the last shard have -inf or the least
            number of their type.
        labels: Labels [...] from the first class of the shard: label minus rank times its classes, as
            ``Embedding.offset_input`` gives them. Those outside of the shard are of another replica.
        reduction: ``mean``, ``sum`` or ``none``.
        ignore_index: Label, of those before offsets, that counts nothing.
        replica_grouping: Groups of replicas with all classes; by default all replicas.
        available_memory_proportion: Not used.

    Raises:
        GraphArgumentError: Labels that do not fit, or another reduction.
    """
    kind = "cross_entropy_sharded_loss"
    checked(kind, logits, labels)
    if reduction not in ("mean", "sum", "none"):
        raise GraphArgumentError(f"{kind} has the reduction {reduction!r}: mean, sum or none")
    if not logits.rank or labels.shape != logits.shape[:-1]:
        raise GraphArgumentError(f"{kind} has labels {list(labels.shape)} for logits {list(logits.shape)}")
    members, classes, last = comm_group(replica_grouping), logits.shape[-1], logits.rank - 1

    def meaning(net: BlockBuilder, v: Value, label: Value) -> Value:
        wide = build.cast(net, v, f32)
        local = build.reduce(net, build.detach(net, wide), [last], "max", keep=True)
        largest = build.replica_max(net, local, members)
        below = build.map_(net, x - y, [wide, largest], f32)
        # What each shard adds to the denominator, and to the label's own score: all replicas read the sums alike.
        total = build.replica_sum(net, build.reduce(net, build.map_(net, apply("exp", x), [below]), [last]), members)
        number = build.reshape(net, build.cast(net, label, i32), (*label.shape, 1))
        numbers = net.constant(np.arange(classes), i32, "classes")
        own = build.map_(net, select(x.eq(y), z, 0.0), [numbers, number, below], f32)
        score = build.replica_sum(net, build.reduce(net, own, [last]), members)
        losses = build.map_(net, apply("log", x) - y, [total, score], f32)
        counted: Value | None = None
        if ignore_index is not None:
            rank = build.replica_rank(net, members)
            before = build.map_(net, x + y * Const(classes, i32), [build.cast(net, label, i32), rank], i32)
            counted = build.map_(net, select(x.eq(Const(ignore_index, i32)), 0.0, 1.0), [before], f32)
            losses = build.map_(net, x * y, [losses, counted], f32)
        if reduction == "none":
            return build.cast(net, losses, v.dtype)
        made = build.reduce(net, losses, range(label.ndim))
        if reduction == "mean":
            counts = build.full(net, 1.0, label.shape, f32) if counted is None else counted
            made = build.map_(net, x / y, [made, build.reduce(net, counts, range(label.ndim))], f32)
        return build.cast(net, made, v.dtype)

    return emit(kind, meaning, logits, labels)


__all__ = ["cross_entropy_sharded_loss"]
