"""PopART's operators between replicas: a reduction of all replicas' values, or of those of a group.

A group is two numbers: 0 for all replicas, 1 for neighbours, 2 for those a stride apart, 3 for each alone; and a size.
Each replica has a loss of its own, so gradients of what replicas share are summed over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from abele.expr import Expr, apply
from abele.expr.derivative import arg
from abele.frontends.onnx.ops.graphcore import DOMAIN
from abele.frontends.onnx.registry import NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.replicas import APART
from abele.numerics import bool_, i32
from abele.poplibs.gcl import CommGroup

x, y = arg(0), arg(1)


class ReplicaJoin(IntEnum):
    """Ways to join values of replicas."""

    Add = 0
    Mean = 1
    Mul = 2
    Min = 3
    Max = 4
    LogicalAnd = 5
    LogicalOr = 6
    SquareAdd = 7
    Local = 8


def _group(call: NodeCall, numbers: Sequence[int] | None) -> CommGroup:
    """The group that a node's numbers mean, with its size."""
    replicas = call.reader.parts.replicas
    kind, size, *_ = [*(numbers or ()), 0, 0]
    if kind not in (0, 1, 2, 3):
        raise call.wrong(f"has groups of the kind {kind}", remedy="popart.CommGroup(popart.CommGroupType.All, 0)")
    count = size or replicas
    if kind in (1, 2) and replicas % count:
        raise call.wrong(f"has groups of {count} of {replicas} replicas")
    if kind == 3:
        return CommGroup.none()
    return CommGroup.orthogonal(count) if kind == 2 else CommGroup.consecutive(count if kind else replicas)


def _joined(call: NodeCall, value: Value, operator: int | None, group: CommGroup) -> Value:
    """Values of a group's replicas joined element by element."""
    net, kind = call.net, ReplicaJoin(operator or 0)
    if kind == ReplicaJoin.Local:
        return value
    if kind in (ReplicaJoin.Add, ReplicaJoin.Mean):
        total = build.replica_sum(net, value, group, APART)
        return total if kind == ReplicaJoin.Add else call.map(x * (1.0 / max(group.size, 1)), total)
    if kind == ReplicaJoin.SquareAdd:
        return build.replica_sum(net, call.map(x * x, value), group, APART)
    if kind in (ReplicaJoin.LogicalAnd, ReplicaJoin.LogicalOr):
        numbers = build.cast(net, value, i32)
        return build.cast(net, _extreme(call, numbers, group, least=kind == ReplicaJoin.LogicalAnd), bool_)
    if kind == ReplicaJoin.Mul:
        rows = build.reshape(net, value, (1, *value.shape))
        return build.reduce(net, build.replica_gather(net, rows, 0, group, APART), [0], "mul")
    return _extreme(call, value, group, least=kind == ReplicaJoin.Min)


def _extreme(call: NodeCall, value: Value, group: CommGroup, *, least: bool) -> Value:
    if not least:
        return build.replica_max(call.net, value, group)
    minus: Expr = apply("neg", x)
    return call.map(minus, build.replica_max(call.net, call.map(minus, value), group))


@op("ReplicatedAllReduce", domain=DOMAIN)
def replicated_all_reduce(
    call: NodeCall,
    value: Value,
    *,
    collectiveOperator: int | None = None,
    commGroup: Sequence[int] | None = None,
) -> Value:
    """Values of replicas joined by an operator, which each of them gets."""
    return _joined(call, value, collectiveOperator, _group(call, commGroup))


@op("ReplicatedAllGather", domain=DOMAIN)
def replicated_all_gather(call: NodeCall, value: Value, *, commGroup: Sequence[int] | None = None) -> Value:
    """Values of replicas one after the other, in one dimension."""
    flat = build.reshape(call.net, value, (value.size,))
    return build.replica_gather(call.net, flat, 0, _group(call, commGroup), APART)


@op("ReplicatedReduceScatter", domain=DOMAIN)
def replicated_reduce_scatter(
    call: NodeCall,
    value: Value,
    *,
    collectiveOperator: int | None = None,
    commGroup: Sequence[int] | None = None,
) -> Value:
    """Each replica's part of the values that replicas join, as one dimension filled up with zeros.

    With ``Local`` nothing is joined: each replica keeps its part of its own.
    """
    group, net = _group(call, commGroup), call.net
    count = max(group.size, 1)
    flat = build.reshape(net, value, (value.size,))
    if collectiveOperator in (None, 0):
        return build.replica_scatter(net, _padded(call, flat, count), 0, group, of_sum=True)
    joined = _padded(call, _joined(call, flat, collectiveOperator, group), count)
    return build.replica_scatter(net, joined, 0, group)


def _padded(call: NodeCall, flat: Value, count: int) -> Value:
    return build.pad(call.net, flat, [0], [-flat.size % count])
