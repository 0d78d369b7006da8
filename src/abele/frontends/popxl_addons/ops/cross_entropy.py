"""Cross entropy of logits, without or with its gradient beside it; computed in float32."""

from __future__ import annotations

from typing import Any

from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import checked, emit, emit_many, tensor_of
from abele.frontends.popxl.ops.layers import label_losses
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.autodiff.differentiate import gradients
from abele.network.ops import build
from abele.numerics import f32


def _check(kind: str, logits: Tensor, labels: Tensor, reduction: str) -> None:
    checked(kind, logits, labels)
    if reduction not in ("mean", "sum", "none"):
        raise GraphArgumentError(f"{kind} has the reduction {reduction!r}: mean, sum or none")
    if labels.shape != logits.shape[:-1]:
        raise GraphArgumentError(f"{kind} has labels {list(labels.shape)} for logits {list(logits.shape)}")


def _loss(net: BlockBuilder, logits: Value, labels: Value, ignored: int | None, reduction: str) -> Value:
    logs = build.softmax(net, build.cast(net, logits, f32), logits.ndim - 1, log=True)
    return build.cast(net, label_losses(net, logs, labels, ignored, reduction), logits.dtype)


def cross_entropy(logits: Tensor, labels: Tensor, ignore_index: int | None = None, reduction: str = "mean") -> Tensor:
    """The cross entropy of the softmax of logits beside labels.

    Args:
        logits: [..., classes].
        labels: Numbers of classes [...].
        ignore_index: Label that counts nothing.
        reduction: ``mean``, ``sum`` or ``none``.

    Returns:
        The loss, in the type of the logits: [], or that of each label.
    """
    _check("cross_entropy", logits, labels, reduction)
    return emit("cross_entropy", lambda net, v, n: _loss(net, v, n, ignore_index, reduction), logits, labels)


def cross_entropy_with_grad(
    logits: Tensor,
    labels: Tensor,
    loss_grad: Any = 1.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    """The cross entropy, and its gradient by the logits; see :func:`cross_entropy`.

    Args:
        logits: [..., classes].
        labels: Numbers of classes [...].
        loss_grad: Gradient of the loss: a number, such as the loss scale, or a tensor.
        ignore_index: Label that counts nothing.
        reduction: ``mean``, ``sum`` or ``none``.
    """
    _check("cross_entropy_with_grad", logits, labels, reduction)
    grad = tensor_of(loss_grad, logits.dtype)
    if grad.nelms != 1 and grad.shape != labels.shape:
        raise GraphArgumentError(f"cross_entropy_with_grad has the loss_grad {list(grad.shape)}")

    def meaning(net: BlockBuilder, v: Value, label: Value, given: Value) -> list[Value]:
        wide = build.cast(net, v, f32)
        logs = build.softmax(net, wide, v.ndim - 1, log=True)
        made = label_losses(net, logs, label, ignore_index, reduction)
        scale = build.cast(net, build.reshape(net, given, ()) if given.size == 1 else given, f32)
        (by,) = gradients(net, [made], [build.expand(net, scale, made.shape)], [wide])
        # Gradients flow through the loss alone: what is made here is a gradient already.
        return [build.cast(net, w, v.dtype) for w in (made, build.detach(net, by))]

    loss, by = emit_many("cross_entropy_with_grad", meaning, logits, labels, grad)
    return loss, by


__all__ = ["cross_entropy", "cross_entropy_with_grad"]
