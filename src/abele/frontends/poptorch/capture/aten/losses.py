"""Losses, out of maps and reductions, and the mark of the final one."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Expr, apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import f32, i32
from abele.session.input_checks import known_on_host

_NONE, _MEAN, _SUM = 0, 1, 2

x, y, z = arg(0), arg(1), arg(2)

LOSSES = frozenset(
    f"aten.{name}"
    for name in (
        "l1_loss",
        "mse_loss",
        "smooth_l1_loss",
        "huber_loss",
        "nll_loss",
        "nll_loss_nd",
        "nll_loss2d",
        "cross_entropy_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "kl_div",
        "soft_margin_loss",
        "hinge_embedding_loss",
        "margin_ranking_loss",
        "cosine_embedding_loss",
        "poisson_nll_loss",
        "triplet_margin_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
    )
) | {"abele.ctc_loss", "abele.vocabulary_cross_entropy"}
"""Operators that are a loss without being marked."""

IDENTITY_LOSS = "abele.identity_loss"


def reduced(net: BlockBuilder, value: Value, reduction: int) -> Value:
    """``value`` as it is, its mean or its sum."""
    if reduction == _NONE:
        return value
    dims = range(value.ndim)
    return build.mean(net, value, dims) if reduction == _MEAN else build.reduce(net, value, dims)


@aten("abele.loss")
def loss(call: OperatorCall, value: Value) -> Value:
    """The value that is a loss."""
    return value


@aten(IDENTITY_LOSS)
def identity_loss(call: OperatorCall, value: Value, reduction: int) -> Value:
    """The marked value, reduced."""
    return reduced(call.net, value, reduction)


def _pairwise(call: OperatorCall, expression: Expr, a: Value, b: Value, reduction: int) -> Value:
    return reduced(call.net, call.map(expression, a, b), reduction)


@aten("aten.mse_loss")
def mse_loss(call: OperatorCall, value: Value, target: Value, reduction: int = _MEAN) -> Value:
    """Squared differences."""
    return _pairwise(call, apply("square", x - y), value, target, reduction)


@aten("aten.l1_loss")
def l1_loss(call: OperatorCall, value: Value, target: Value, reduction: int = _MEAN) -> Value:
    """Absolute differences."""
    return _pairwise(call, apply("abs", x - y), value, target, reduction)


@aten("aten.smooth_l1_loss")
def smooth_l1_loss(call: OperatorCall, value: Value, target: Value, reduction: int = _MEAN, beta: float = 1.0) -> Value:
    """Squared differences below ``beta``, absolute ones above."""
    size = apply("abs", x - y)
    if beta == 0:
        return _pairwise(call, size, value, target, reduction)
    expression = select(size >= float(beta), size - 0.5 * beta, apply("square", x - y) * (0.5 / beta))
    return _pairwise(call, expression, value, target, reduction)


@aten("aten.huber_loss")
def huber_loss(call: OperatorCall, value: Value, target: Value, reduction: int = _MEAN, delta: float = 1.0) -> Value:
    """Half squared differences below ``delta``, linear above."""
    size = apply("abs", x - y)
    expression = select(size >= float(delta), (size - 0.5 * delta) * float(delta), apply("square", x - y) * 0.5)
    return _pairwise(call, expression, value, target, reduction)


@aten("aten.binary_cross_entropy")
def binary_cross_entropy(
    call: OperatorCall, value: Value, target: Value, weight: Value | None = None, reduction: int = _MEAN
) -> Value:
    """−t · log(p) − (1 − t) · log(1 − p), the logarithms no lower than −100."""
    first = apply("max", apply("log", x), -100.0)
    second = apply("max", apply("log", 1.0 - x), -100.0)
    expression: Expr = -(y * first + (1.0 - y) * second)
    operands = [value, target]
    if weight is not None:
        expression, operands = expression * z, [*operands, weight]
    return reduced(call.net, build.map_(call.net, expression, operands), reduction)


@aten("aten.binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    call: OperatorCall,
    value: Value,
    target: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: int = _MEAN,
) -> Value:
    """Binary cross entropy of a sigmoid, in a form that stays in range."""
    operands = [value, call.operand(target, value.dtype)]
    expression: Expr = (1.0 - y) * x + apply("softplus", -x)
    if pos_weight is not None:
        operands.append(pos_weight)
        expression = (1.0 - y) * x + (1.0 + (z - 1.0) * y) * apply("softplus", -x)
    if weight is not None:
        expression = expression * arg(len(operands))
        operands.append(weight)
    return reduced(call.net, build.map_(call.net, expression, operands), reduction)


@aten("aten.kl_div")
def kl_div(
    call: OperatorCall, value: Value, target: Value, reduction: int = _MEAN, *, log_target: bool = False
) -> Value:
    """t · (log t − x), or exp(t) · (t − x)."""
    plain = select(y.eq(0.0), 0.0, y * (apply("log", y) - x))
    return _pairwise(call, apply("exp", y) * (y - x) if log_target else plain, value, target, reduction)


@aten("aten.soft_margin_loss")
def soft_margin_loss(call: OperatorCall, value: Value, target: Value, reduction: int = _MEAN) -> Value:
    """log(1 + exp(−t · x)), in a form that stays in range."""
    return _pairwise(call, apply("softplus", -x * y), value, target, reduction)


@aten("aten.multilabel_margin_loss")
def multilabel_margin_loss(call: OperatorCall, value: Value, target: Value, reduction: int = _MEAN) -> Value:
    """Margin loss: shortfalls of a row's own classes from one more than each other class, over the number of classes.

    A row's classes are the numbers of its target before the first that is negative.
    """
    net, classes = call.net, value.shape[-1] if value.ndim else 1
    scores = build.reshape(net, value, (-1, classes))
    labels = build.reshape(net, build.cast(net, target, i32), scores.shape)
    ended = build.map_(net, select(x < 0, 1.0, 0.0), [labels], f32)
    stop = build.scan(net, ended, 1, "max")
    label = build.map_(net, select(y > 0.5, -1, x), [labels, stop], i32)
    # [rows, label, class]: whether the label is the class.
    numbers = net.constant(np.arange(classes).reshape(1, 1, classes), i32, "classes")
    column = build.reshape(net, label, (*label.shape, 1))
    is_it = build.map_(net, select(x.eq(y), 1.0, 0.0), [column, numbers], value.dtype)
    own = build.reduce(net, is_it, [1], "max", keep=True)
    row = build.reshape(net, scores, (scores.shape[0], 1, classes))
    score = build.reduce(net, build.map_(net, x * y, [is_it, row]), [2], keep=True)
    counts = build.map_(net, select(x < 0, 0.0, 1.0), [column], value.dtype)
    short = apply("relu", 1.0 - x + y) * arg(2) * (1.0 - arg(3))
    losses = build.map_(net, short, [score, row, counts, own])
    total = build.reduce(net, losses, [1, 2], scale=1 / classes)
    return build.reshape(net, reduced(net, total, reduction), call.shape)


@aten("abele.ctc_loss")
def ctc_loss(
    call: OperatorCall,
    logs: Value,
    targets: Value,
    steps: Value,
    lengths: Value,
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> Value:
    """−ln of the probability of each target over all alignments; a mean divides each by the length of its target."""
    net = call.net
    data = build.reshape(net, logs, (logs.shape[0], 1, logs.shape[1])) if logs.ndim == 2 else logs
    batch = data.shape[1]
    known = net.contents(lengths)
    steps, lengths = (build.reshape(net, build.cast(net, v, i32), (batch,)) for v in (steps, lengths))
    labels = build.cast(net, targets, i32)
    if labels.ndim == 1:
        labels = _rows_of_targets(call, labels, [labels.size] if known is None and batch == 1 else known)
    losses = build.ctc_loss(net, data, labels, steps, lengths, blank=blank, zero_infinity=zero_infinity)
    if reduction == _MEAN:
        counts = build.cast(net, lengths, losses.dtype)
        losses = build.map_(net, x / apply("max", y, 1.0), [losses, counts])
    return build.reshape(net, reduced(net, losses, reduction), call.shape)


def _rows_of_targets(call: OperatorCall, targets: Value, lengths: Iterable[int] | None) -> Value:
    """Targets that follow each other as rows, with zeros after each."""
    if lengths is None:
        raise call.refuse(
            "of targets in one row has no lowering where their lengths are known on the device only",
            "give them as [batch, labels]",
        )
    counts = [int(n) for n in np.ravel(np.asarray(lengths))]
    rows, at = [], 0
    for count in counts:
        row = build.slice_(call.net, targets, 0, at, at + count)
        rows.append(build.reshape(call.net, build.pad(call.net, row, [0], [max(counts) - count]), (1, max(counts))))
        at += count
    return build.concat(call.net, rows, 0)


@aten("aten.nll_loss", "aten.nll_loss_nd", "aten.nll_loss2d")
def nll_loss(
    call: OperatorCall,
    value: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
) -> Value:
    """Minus the log-probability of the target's class; rows whose target is ``ignore_index`` count nowhere."""
    return _nll(call, value, target, weight, reduction, ignore_index)


@aten("aten.cross_entropy_loss")
def cross_entropy_loss(
    call: OperatorCall,
    value: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    """The negative log-likelihood of a log-softmax over classes; the target holds classes or probabilities."""
    logs = build.softmax(call.net, value, _class_dim(value), log=True)
    if not target.dtype.is_float:
        return _nll(
            call, logs, target, weight=weight, reduction=reduction, ignore_index=ignore_index, smoothing=label_smoothing
        )
    classes = value.shape[_class_dim(value)]
    wanted = y if not label_smoothing else y * (1.0 - label_smoothing) + label_smoothing / classes
    operands = [logs, target]
    expression: Expr = -(x * wanted)
    if weight is not None:
        operands.append(_per_class(call.net, weight, value))
        expression = expression * z
    entropies = build.reduce(call.net, build.map_(call.net, expression, operands), [_class_dim(value)])
    return reduced(call.net, entropies, reduction)


def _class_dim(value: Value) -> int:
    return 1 if value.ndim > 1 else 0


def _per_class(net: BlockBuilder, weight: Value, value: Value) -> Value:
    """A weight of every class, beside [batch, classes, *field]."""
    return build.reshape(net, weight, (weight.size, *(1,) * (value.ndim - _class_dim(value) - 1)))


def _nll(
    call: OperatorCall,
    logs: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore_index: int,
    smoothing: float = 0.0,
) -> Value:
    """Loss of labels: −Σ share · weight · log over classes. The label's class has the share 1 − smoothing more than the
    others. A mean divides by the sum of the labels' weights. Ignored labels count nowhere.
    """
    net, dim = call.net, _class_dim(logs)
    classes = logs.shape[dim]
    net.bound(target, classes, "label", ignore_index)
    is_checked = target in known_on_host(net.root)
    rest = logs.shape[dim + 1 :]
    numbers = net.constant(np.arange(classes).reshape(classes, *(1,) * len(rest)), i32, "classes")
    index = build.reshape(net, build.cast(net, target, i32), (*logs.shape[:dim], 1, *rest))
    number, label = arg(0), arg(1)
    operands = [numbers, index, logs]
    share: Expr = -arg(2)
    if smoothing:
        rest_share = smoothing / classes
        share = -arg(2) * select(number.eq(label), 1.0 - smoothing + rest_share, rest_share)
    if weight is not None:
        operands.append(_per_class(net, weight, logs))
        share = share * arg(3)
    may_be_ignored = smoothing or ignore_index in range(classes)
    counted = select(label.eq(ignore_index), 0.0, share) if may_be_ignored else share
    loss = counted if smoothing else select(number.eq(label), counted, 0.0)
    if not is_checked:
        # A label that only the device knows shows in the loss: it has no number if a label has no class.
        outside = apply("or", label < 0, label > classes - 1)
        loss = select(apply("and", outside, label.ne(ignore_index)), math.nan, loss)
    losses = build.map_(net, loss, operands, logs.dtype)
    if reduction == _NONE:
        return build.reduce(net, losses, [dim])
    total = build.reduce(net, losses, range(logs.ndim))
    if reduction != _MEAN:
        return total
    return build.map_(
        net,
        x / y,
        [
            total,
            _label_weights(net, numbers, index, target=target, weight=weight, logs=logs, ignore_index=ignore_index),
        ],
    )


def _label_weights(
    net: BlockBuilder,
    numbers: Value,
    index: Value,
    target: Value,
    weight: Value | None,
    logs: Value,
    ignore_index: int,
) -> Value:
    """The sum of the weights of all labels that count; without weights, how many there are."""
    if weight is None:
        counted = build.map_(net, select(x.eq(ignore_index), 0.0, 1.0), [target], logs.dtype)
        return build.reduce(net, counted, range(target.ndim))
    taken: Expr = select(x.eq(y), z, 0.0)
    if ignore_index in range(logs.shape[_class_dim(logs)]):
        taken = select(y.eq(ignore_index), 0.0, taken)
    weights = build.map_(net, taken, [numbers, index, _per_class(net, weight, logs)], logs.dtype)
    return build.reduce(net, weights, range(weights.ndim))
