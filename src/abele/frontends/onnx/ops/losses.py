"""Losses over classes, as ops of a graph that trains."""

from __future__ import annotations

import math

import numpy as np

from abele.expr import Expr, select
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.numerics import i32

x, y, z = arg(0), arg(1), arg(2)


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    call: NodeCall,
    scores: Value,
    labels: Value,
    weights: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Value, Value]:
    """Minus the log-softmax of each label's class, and the log-softmax itself."""
    logs = build.softmax(call.net, scores, 1, log=True)
    return _likelihood(call, logs, labels, weights, ignore_index, reduction), logs


@op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    call: NodeCall,
    logs: Value,
    labels: Value,
    weight: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Value:
    """Minus the logarithm of each label's class."""
    return _likelihood(call, logs, labels, weight, ignore_index, reduction)


def _likelihood(
    call: NodeCall,
    logs: Value,
    labels: Value,
    weights: Value | None,
    ignored: int | None,
    reduction: str,
) -> Value:
    """Losses of labels [batch, *field] beside logarithms [batch, classes, *field].

    A mean divides by the weights of the labels that count.
    """
    net, classes, rest = call.net, logs.shape[1], logs.shape[2:]
    if labels.shape != (logs.shape[0], *rest):
        raise call.wrong(f"has labels {list(labels.shape)} for scores {list(logs.shape)}")
    net.bound(labels, classes, "label", ignored)
    numbers = net.constant(np.arange(classes).reshape(classes, *(1,) * len(rest)), i32, "classes")
    label = build.reshape(net, build.cast(net, labels, i32), (logs.shape[0], 1, *rest))
    counts: Expr = x.eq(y)
    operands = [numbers, label, logs]
    share: Expr = -z
    if weights is not None:
        operands.append(build.reshape(net, weights, (classes, *(1,) * len(rest))))
        share = share * arg(3)
    if ignored is not None and 0 <= ignored < classes:
        share = select(y.eq(ignored), 0.0, share)
    losses = build.map_(net, select(counts, share, 0.0), operands, logs.dtype)
    if reduction == "none":
        return build.reduce(net, losses, [1])
    total = build.reduce(net, losses, range(logs.ndim))
    if reduction == "sum":
        return total
    if reduction != "mean":
        raise call.wrong(f"has the reduction {reduction!r}, which is none of none, sum and mean")
    if weights is None and ignored is None:
        return call.map(x * (1.0 / math.prod(labels.shape)), total)
    return call.map(x / y, total, _weight_of_labels(call, operands, ignored))


def _weight_of_labels(call: NodeCall, operands: list[Value], ignored: int | None) -> Value:
    """The sum of the weights of all labels that count; without weights, how many there are."""
    net, logs = call.net, operands[2]
    if len(operands) == 3:
        label = operands[1]
        counted = build.map_(net, select(x.eq(ignored or 0), 0.0, 1.0), [label], logs.dtype)
        return build.reduce(net, counted, range(label.ndim))
    taken: Expr = select(x.eq(y), z, 0.0)
    if ignored is not None:
        taken = select(y.eq(ignored), 0.0, taken)
    wide = build.expand(net, operands[3], logs.shape)
    weights = build.map_(net, taken, [operands[0], operands[1], wide], logs.dtype)
    return build.reduce(net, weights, range(weights.ndim))
