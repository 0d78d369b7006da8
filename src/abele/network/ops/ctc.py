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
from abele.poplibs.popnn import ctc, ctc_infer

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


# The most likely label sequences of sequences of class probabilities, by popnn's beam search.


def ctc_decode(
    net: BlockBuilder, log_probs: Value, lengths: Value, *, blank: int, beams: int, paths: int
) -> tuple[Value, ...]:
    """Log-probability [batch, paths], length and labels [batch, paths, time] of the most likely sequences.

    Args:
        net: Network or block to extend.
        log_probs: [time, batch, classes].
        lengths: Valid steps, u32 [batch].
        blank: The class of no label.
        beams: Number of beams that are kept.
        paths: Number of paths that are returned.
    """
    steps, batch, _ = log_probs.shape
    types = [((batch, paths), log_probs.dtype), ((batch, paths), u32), ((batch, paths, steps), u32)]
    return net.emit_many("ctc_decode", [log_probs, lengths], types, blank=blank, beams=beams, paths=paths)


@rule("ctc_decode")
class CtcDecode(OpRule):
    """Beam search over labels; results are probabilities, lengths and labels, most likely first."""

    operands = 2
    attributes: ClassVar = {"blank": int, "beams": int, "paths": int}
    folds = False

    def types(self, op: NetworkOp) -> Types:
        """Probabilities, lengths, labels."""
        log_probs, lengths = op.inputs
        require(log_probs.ndim == 3, f"{log_probs} is not [time, batch, classes]")
        steps, batch, _ = log_probs.shape
        require(lengths.type == ((batch,), u32), f"the lengths are {lengths}")
        paths = (batch, op.attrs["paths"])
        return [(paths, log_probs.dtype), (paths, u32), ((*paths, steps), u32)]

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """One library call."""
        log_probs, lengths = op.inputs
        steps, batch, classes = log_probs.shape
        plan = ctc_infer.plan(to.graph, log_probs.dtype, batch, steps, classes, op.attrs["beams"])
        return tuple(
            ctc_infer.beam_search_decoder_log_probabilities(
                to.graph,
                to[log_probs],
                to[lengths],
                to.prog,
                blank_class=op.attrs["blank"],
                beam_width=op.attrs["beams"],
                top_paths=op.attrs["paths"],
                plan=plan,
            )
        )


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
