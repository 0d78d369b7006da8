"""Losses of classes by number."""

from __future__ import annotations

import numpy as np

from abele.expr import Expr, derivative, select
from abele.numerics import f32, i32
from abele.parallel.network import NetworkBuilder, Value
from abele.parallel.ops import build


def cross_entropy(net: NetworkBuilder, logits: Value, labels: Value, ignored: int = -100) -> Value:
    """The mean negative log-likelihood, in f32, of labels [rows] by logits [rows, classes]; 0 of ``ignored`` ones."""
    logs = build.softmax(net, logits, 1, log=True)
    classes = logits.shape[1]
    numbers = net.constant(np.arange(classes), i32, "classes")
    chosen = build.reshape(net, labels, (labels.size, 1))
    number, label = derivative.arg(0), derivative.arg(1)
    likelihood: Expr = 0.0 - derivative.arg(2)
    if ignored in range(classes):
        likelihood = select(label.eq(ignored), 0.0, likelihood)
    losses = build.map_(net, select(number.eq(label), likelihood, 0.0), [numbers, chosen, logs], logs.dtype)
    return build.reduce(net, losses, [0, 1], scale=1 / labels.size, dtype=f32)
