"""Exchanges between replicas that compute one model together."""

from __future__ import annotations

from abele.distribution import tensor_parallel
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import Value
from abele.network.ops import build
from abele.poplibs.gcl import CommGroup


@aten("abele.replica_copy")
def replica_copy(call: OperatorCall, value: Value, size: int) -> Value:
    """The value; its gradient is summed over the replicas."""
    return build.replica_copy(call.net, value, CommGroup.consecutive(size))


@aten("abele.replica_sum")
def replica_sum(call: OperatorCall, value: Value, size: int, readers: str) -> Value:
    """A sum over the replicas."""
    return build.replica_sum(call.net, value, CommGroup.consecutive(size), readers)


@aten("abele.replica_gather")
def replica_gather(call: OperatorCall, value: Value, dim: int, size: int, readers: str) -> Value:
    """The parts of the replicas side by side."""
    return build.replica_gather(call.net, value, dim, CommGroup.consecutive(size), readers)


@aten("abele.replica_scatter")
def replica_scatter(call: OperatorCall, value: Value, dim: int, size: int, of_sum: bool) -> Value:
    """The replica's part of a value or a sum."""
    return build.replica_scatter(call.net, value, dim, CommGroup.consecutive(size), of_sum=of_sum)


@aten("abele.replica_exchange")
def replica_exchange(call: OperatorCall, value: Value, size: int) -> Value:
    """Rows for each replica, sent to it."""
    return build.replica_exchange(call.net, value, CommGroup.consecutive(size))


@aten("abele.largest_of_replicas")
def largest_of_replicas(call: OperatorCall, value: Value) -> Value:
    """The largest over all replicas."""
    return build.largest_of_replicas(call.net, value)


@aten("abele.vocabulary_embedding")
def vocabulary_embedding(call: OperatorCall, table: Value, index: Value, entries: int, size: int) -> Value:
    """Rows of a table whose entries are split."""
    return tensor_parallel.vocabulary_embedding(call.net, table, index, entries, CommGroup.consecutive(size))


@aten("abele.vocabulary_cross_entropy")
def vocabulary_cross_entropy(
    call: OperatorCall, scores: Value, target: Value, classes: int, size: int, ignore_index: int, reduction: str
) -> Value:
    """The cross entropy of scores that are split by classes."""
    loss = tensor_parallel.vocabulary_cross_entropy(
        call.net,
        scores,
        target,
        classes,
        CommGroup.consecutive(size),
        ignore_index=ignore_index,
        reduction=reduction,
    )
    return build.cast(call.net, loss, call.dtype)
