"""Connectionist temporal classification: the loss of sequences of labels that are not aligned with their data.

One op makes the losses and the gradient of their data, both from the same two sweeps over time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr.derivative import arg
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.elementwise import map_
from abele.network.ops.views import reshape
from abele.network.registry import Gradients, OpRule, Types, require, rule
from abele.numerics import i32, u32
from abele.poplibs import popops
from abele.poplibs.popnn import ctc

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def ctc_loss(
    net: BlockBuilder, logs: Value, labels: Value, steps: Value, lengths: Value, *, blank: int, zero_infinity: bool
) -> Value:
    """−ln of the probability of each sequence of labels over all alignments, [batch].

    Args:
        net: The network to extend.
        logs: Logarithms of the classes' probabilities, [time, batch, classes].
        labels: i32[batch, labels].
        steps: Valid steps of each sequence, i32[batch].
        lengths: Valid labels of each sequence, i32[batch].
        blank: The class that stands for no label.
        zero_infinity: True for losses and gradients of labels that are impossible to be 0.
    """
    types = [((logs.shape[1],), logs.dtype), logs.type]
    operands = [logs, labels, steps, lengths]
    return net.emit_many("ctc_loss", operands, types, blank=blank, zero_infinity=zero_infinity)[0]


@rule("ctc_loss")
class CtcLoss(OpRule):
    """The losses of all sequences, and their gradients by logits of which the data are the log-softmax."""

    operands = 4
    attributes: ClassVar = {"blank": int, "zero_infinity": bool}

    def types(self, op: NetworkOp) -> Types:
        """One number for each sequence, and the type of the data."""
        logs, labels, *counts = op.inputs
        require(logs.ndim == 3 and logs.dtype.is_float, f"{logs} is not [time, batch, classes]")
        batch = logs.shape[1]
        require(labels.ndim == 2 and labels.shape[0] == batch and labels.dtype == i32, f"{labels} are no labels")
        require(
            all(c.type == ((batch,), i32) for c in counts), f"the lengths are {counts}, they have to be i32[{batch}]"
        )
        require(0 <= op.attrs["blank"] < logs.shape[2], f"{logs} has no class {op.attrs['blank']}")
        return [((batch,), logs.dtype), logs.type]

    def evaluate(self, op: NetworkOp, logs: Array, labels: Array, steps: Array, lengths: Array) -> tuple[Array, Array]:
        """Loss and gradient by both recursions, sequence by sequence, in f64."""
        losses, gradient = np.zeros(logs.shape[1]), np.zeros(logs.shape)
        for n in range(logs.shape[1]):
            data = logs[: steps[n], n].astype(np.float64)
            losses[n], gradient[: steps[n], n] = _of_one(data, labels[n, : lengths[n]], op.attrs["blank"])
            if op.attrs["zero_infinity"] and np.isinf(losses[n]):
                losses[n], gradient[:, n] = 0, 0
        return losses.astype(logs.dtype), gradient.astype(logs.dtype)

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor | None, ...]:
        """One popnn call, without the gradient where nothing reads it."""
        graph, prog = to.graph, to.prog
        logs, *numbers = (to[v] for v in op.inputs)
        time, batch, classes = logs.shape
        options = {"zeroInfinity": op.attrs["zero_infinity"]}
        sizes = {"batch_size": batch, "max_time": time, "num_classes": classes}
        plan = ctc.plan(graph, logs.dtype, logs.dtype, max_label_length=op.inputs[1].shape[1], **sizes, options=options)
        counts = [popops.cast(graph, t, u32, prog) for t in numbers]
        call: dict[str, Any] = {
            "labels": counts[0],
            "data_lengths": counts[1],
            "label_lengths": counts[2],
            "prog": prog,
            "blank_class": op.attrs["blank"],
            "plan": plan,
            "options": options,
        }
        if to.is_read(op.outputs[1]):
            return ctc.calc_loss_and_gradient_log_probabilities(graph, logs.dtype, logs, **call)
        return ctc.calc_ctc_loss_log_probabilities(graph, logs.dtype, logs, **call), None

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Gradient of the logits, scaled by the gradient of each loss."""
        (by_loss, _), (_, gradient) = grads, op.outputs
        if by_loss is None:
            return [None] * 4
        wide = reshape(net, by_loss, (1, by_loss.size, 1))
        return [map_(net, arg(0) * arg(1), [gradient, wide]), None, None, None]


def _of_one(logs: Array, labels: Array, blank: int) -> tuple[float, Array]:
    """The loss of one sequence and its gradient, [time, classes]."""
    places = np.full(2 * len(labels) + 1, blank)
    places[1::2] = labels
    may_skip = np.zeros(len(places), bool)
    may_skip[2:] = (places[2:] != blank) & (places[2:] != places[:-2])
    with np.errstate(divide="ignore", invalid="ignore"):
        ahead = _swept(logs[:, places], may_skip)
        after = np.append(may_skip[2:], [False, False])[: len(places)]
        behind = _swept(logs[::-1, places[::-1]], after[::-1])[::-1, ::-1]
        loss = -np.logaddexp.reduce(ahead[-1, -2:])
        shares = np.zeros(logs.shape)
        by_place = np.exp(ahead + behind - logs[:, places] + loss)
        np.add.at(shares.T, places, by_place.T)
    return float(loss), np.exp(logs) - shares


def _swept(logs: Array, may_skip: Array) -> Array:
    """Logarithms of the probabilities of being at each place at each time, from the first on."""
    made = np.full(logs.shape, -np.inf)
    made[0, :2] = logs[0, :2]
    for t in range(1, len(logs)):
        before = made[t - 1]
        total = np.logaddexp(before, np.append(-np.inf, before[:-1]))
        skipped = np.append([-np.inf, -np.inf], before[:-2])[: len(before)]
        made[t] = logs[t] + np.where(may_skip, np.logaddexp(total, skipped), total)
    return made
