"""Losses of classes by number."""

from __future__ import annotations

import numpy as np

from abele.expr import Expr, derivative, select
from abele.network.ir import NetworkBuilder, Value
from abele.network.ops import build
from abele.numerics import f32, i32


def cross_entropy(net: NetworkBuilder, logits: Value, labels: Value, ignored: int = -100) -> Value:
    """The mean negative log-likelihood, in f32, of labels [rows] by logits [rows, classes]; 0 of ``ignored`` ones."""
    return build.reduce(net, _of_classes(net, logits, labels, ignored), [0, 1], scale=1 / labels.size, dtype=f32)


def cross_entropies(net: NetworkBuilder, logits: Value, labels: Value) -> Value:
    """The negative log-likelihoods, in f32 [rows], of labels [rows] by logits [rows, classes]; 0 of labels of -100."""
    return build.reduce(net, _of_classes(net, logits, labels, -100), [1], dtype=f32)


def mean_by_sequence(net: NetworkBuilder, losses: Value, sequences: Value, depth: int, mean_depth: float) -> Value:
    """The mean over sequences, in f32, of the mean loss of each one's labels.

    Args:
        net: The network to extend.
        losses: [packs · places].
        sequences: Sequence of each label in its pack, [packs, places]; -1 where there is no label.
        depth: Most sequences in a pack.
        mean_depth: Sequences in a pack, on average: what sums over sequences are divided by, beside the packs.
    """
    packs, places = sequences.shape
    numbers = net.constant(np.arange(depth).reshape(1, depth, 1), i32, "depth")
    each = build.reshape(net, sequences, (packs, 1, places))
    is_of = build.map_(net, select(derivative.arg(0).eq(derivative.arg(1)), 1.0, 0.0), [numbers, each], f32)
    rows = build.reshape(net, losses, (packs, 1, places))
    sums = build.reduce(net, build.map_(net, derivative.arg(0) * derivative.arg(1), [rows, is_of]), [2])
    counts = build.reduce(net, is_of, [2])
    number = derivative.arg(1)
    means = build.map_(net, derivative.arg(0) / select(number.eq(0.0), 1.0, number), [sums, counts])
    return build.reduce(net, means, [0, 1], scale=1 / (packs * mean_depth))


def _of_classes(net: NetworkBuilder, logits: Value, labels: Value, ignored: int) -> Value:
    """Negative log-likelihoods where a class is the label, [rows, classes]; 0 elsewhere, and of ``ignored`` ones."""
    logs = build.softmax(net, logits, 1, log=True)
    classes = logits.shape[1]
    numbers = net.constant(np.arange(classes), i32, "classes")
    chosen = build.reshape(net, labels, (labels.size, 1))
    number, label = derivative.arg(0), derivative.arg(1)
    likelihood: Expr = 0.0 - derivative.arg(2)
    if ignored in range(classes):
        likelihood = select(label.eq(ignored), 0.0, likelihood)
    return build.map_(net, select(number.eq(label), likelihood, 0.0), [numbers, chosen, logs], logs.dtype)
