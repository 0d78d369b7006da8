"""Losses and their gradients: negative log-likelihood, cross-entropy, mean squared error."""

from __future__ import annotations

from typing import Literal

import numpy as np

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError, nearest
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.kernels.nest import ir
from abele.numerics import ElementType, f32
from abele.poplibs.popnn.softmax import log_softmax
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import Const, Expr, _1, _2, _3, _4, exp, select
from abele.poplibs.popops.expressions.host_kernel import nest_over, point
from abele.poplibs.popops.reductions.codelets import Finish
from abele.poplibs.popops.reductions.ops import find_reduce_op
from abele.poplibs.popops.reductions.reduction import Reduction
from abele.poplibs.poputil.layout import create_output_like

LossReduction = Literal["mean", "sum"]
"""Reduction of a loss over samples (elements, for the squared error): their mean or their sum."""
Gradient = Tensor | None
"""Gradient of the loss itself: a tensor of one element, or None for 1."""


def nll_loss(
    graph: Graph,
    log_probabilities: Tensor,
    labels: Tensor,
    prog: Sequence,
    *,
    reduction: LossReduction = "mean",
    name: str = "nll_loss",
) -> Tensor:
    """Negative log-likelihood of ``labels``: one f32.

    Args:
        graph: Graph in which vertices and the result are made.
        log_probabilities: [batch, classes], as :func:`log_softmax` gives.
        labels: [batch], integers; a label outside the classes contributes nothing, but counts in the mean.
        prog: Sequence that the steps are appended to.
        reduction: Over the batch: ``mean`` or ``sum``.
        name: Name of the steps.

    Raises:
        TensorError: The shapes do not fit.
        TypeMismatchError: Labels that are no integers, or probabilities that are no floats.
        InvalidOptionError: No such reduction.
    """
    _check_labels(log_probabilities, labels, name)
    scale = _scale(reduction, labels.shape[0], name)
    return _value(graph, "nll_loss", [log_probabilities, labels], scale, prog, name)


def nll_loss_gradient(
    graph: Graph,
    log_probabilities: Tensor,
    labels: Tensor,
    prog: Sequence,
    *,
    gradient: Gradient = None,
    reduction: LossReduction = "mean",
    name: str = "nll_loss_gradient",
) -> Tensor:
    """Gradient of :func:`nll_loss` with respect to ``log_probabilities``, in their type and layout.

    Args:
        graph: Graph in which vertices and the result are made.
        log_probabilities: [batch, classes], as for the loss.
        labels: [batch], as for the loss.
        prog: Sequence that the steps are appended to.
        gradient: Gradient of the loss itself, a number or a tensor of one element; 1 by default.
        reduction: That of the loss.
        name: Name of the steps.

    Raises:
        TensorError: The shapes do not fit, or ``gradient`` is not one element.
        TypeMismatchError: Labels that are no integers, or probabilities that are no floats.
        InvalidOptionError: No such reduction.
    """
    _check_labels(log_probabilities, labels, name)
    scale = _scale(reduction, labels.shape[0], name)
    return _gradient(
        graph, "nll_loss_gradient", [log_probabilities, labels], gradient=gradient, scale=scale, prog=prog, name=name
    )


def cross_entropy_loss(
    graph: Graph,
    logits: Tensor,
    labels: Tensor,
    prog: Sequence,
    *,
    reduction: LossReduction = "mean",
    name: str = "cross_entropy",
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of ``labels`` under softmax of ``logits``: the loss, and the log-probabilities for the gradient.

    Args:
        graph: Graph in which vertices and the results are made.
        logits: [batch, classes], floats.
        labels: [batch], integers; a label outside the classes contributes nothing, but counts in the mean.
        prog: Sequence that the steps are appended to.
        reduction: Over the batch: ``mean`` or ``sum``.
        name: Name of the steps.

    Returns:
        The loss, one f32, and the log-probabilities, [batch, classes].

    Raises:
        TensorError: The shapes do not fit.
        TypeMismatchError: Labels that are no integers, or logits that are no floats.
        InvalidOptionError: No such reduction.
    """
    _check_labels(logits, labels, name)
    log_probabilities = log_softmax(graph, logits, prog, f"{name}/log_softmax")
    return nll_loss(graph, log_probabilities, labels, prog, reduction=reduction, name=name), log_probabilities


def cross_entropy_loss_gradient(
    graph: Graph,
    log_probabilities: Tensor,
    labels: Tensor,
    prog: Sequence,
    *,
    gradient: Gradient = None,
    reduction: LossReduction = "mean",
    name: str = "cross_entropy_gradient",
) -> Tensor:
    """Gradient of :func:`cross_entropy_loss` with respect to the logits: (softmax − one-hot), scaled.

    Other arguments and errors as of :func:`nll_loss_gradient`.

    Args:
        log_probabilities: [batch, classes], the second result of :func:`cross_entropy_loss`.
    """
    _check_labels(log_probabilities, labels, name)
    scale = _scale(reduction, labels.shape[0], name)
    return _gradient(
        graph,
        "cross_entropy_gradient",
        [log_probabilities, labels],
        gradient=gradient,
        scale=scale,
        prog=prog,
        name=name,
    )


def mse_loss(
    graph: Graph,
    prediction: Tensor,
    target: Tensor,
    prog: Sequence,
    *,
    reduction: LossReduction = "mean",
    name: str = "mse_loss",
) -> Tensor:
    """Squared error of ``prediction`` against ``target``, over all elements: one f32.

    Raises:
        TensorError: The shapes differ.
        TypeMismatchError: Elements that are no floats.
        InvalidOptionError: No such reduction.
    """
    _check_pair(prediction, target, name)
    scale = _scale(reduction, prediction.size, name)
    return _value(graph, "mse_loss", [prediction, target], scale, prog, name)


def mse_loss_gradient(
    graph: Graph,
    prediction: Tensor,
    target: Tensor,
    prog: Sequence,
    *,
    gradient: Gradient = None,
    reduction: LossReduction = "mean",
    name: str = "mse_loss_gradient",
) -> Tensor:
    """Gradient of :func:`mse_loss` with respect to ``prediction``, in its type and layout.

    Other arguments as of :func:`mse_loss`.

    Args:
        gradient: Gradient of the loss itself, a number or a tensor of one element; 1 by default.

    Raises:
        TensorError: The shapes differ, or ``gradient`` is not one element.
        TypeMismatchError: Elements that are no floats.
        InvalidOptionError: No such reduction.
    """
    _check_pair(prediction, target, name)
    scale = _scale(reduction, prediction.size, name)
    return _gradient(
        graph, "mse_loss_gradient", [prediction, target], gradient=gradient, scale=scale, prog=prog, name=name
    )


def _check_labels(values: Tensor, labels: Tensor, name: str) -> None:
    if values.ndim != 2 or labels.shape != values.shape[:1]:
        raise TensorError(
            f"{name}: takes [batch, classes] and labels [batch], got {list(values.shape)} and {list(labels.shape)}"
        )
    if labels.dtype.kind not in ("int", "uint") or not values.dtype.is_float:
        raise TypeMismatchError(
            f"{name}: takes floating-point values and integer labels, got {values.dtype} and {labels.dtype}"
        )


def _check_pair(prediction: Tensor, target: Tensor, name: str) -> None:
    if prediction.shape != target.shape:
        raise TensorError(f"{name}: the prediction has shape {list(prediction.shape)}, the target {list(target.shape)}")
    if not (prediction.dtype.is_float and target.dtype.is_float):
        raise TypeMismatchError(f"{name}: takes floating-point tensors, got {prediction.dtype} and {target.dtype}")


def _scale(reduction: str, count: int, name: str) -> float:
    if reduction not in ("mean", "sum"):
        close = nearest(reduction, ("mean", "sum"))
        raise InvalidOptionError(
            f"{name}: no loss reduction {reduction!r}", remedy=f"did you mean {close!r}?" if close else "mean or sum"
        )
    return 1.0 / max(count, 1) if reduction == "mean" else 1.0


_OF_LABELS = ("nll_loss", "nll_loss_gradient", "cross_entropy_gradient")
"""Losses and gradients whose second operand is labels: numbers of the classes."""


def _expression(op: str, scale: float) -> Expr:
    """The map of a loss or gradient over its operands; labels meet class numbers (_3), gradients are the last."""
    match op:
        case "nll_loss":
            return select(-_1, 0.0, _2 == _3)
        case "nll_loss_gradient":
            return select(_4 * -scale, 0.0, _2 == _3)
        case "cross_entropy_gradient":
            return (exp(_1) - select(Const(1.0), 0.0, _2 == _3)) * (_4 * scale)
        case "mse_loss":
            return (_1 - _2) * (_1 - _2)
    return (_1 - _2) * (_3 * (2.0 * scale))


def _operands(graph: Graph, op: str, tensors: list[Tensor]) -> list[Tensor]:
    """Operands of the map: labels as a column beside the class numbers as a row."""
    if op not in _OF_LABELS:
        return list(tensors)
    values, labels = tensors
    classes = graph.constant(labels.dtype, (1, values.shape[1]), np.arange(values.shape[1])[None], name="classes")
    return [values, labels.expand_dims(1), classes]


def _value(graph: Graph, op: str, tensors: list[Tensor], scale: float, prog: Sequence, name: str) -> Tensor:
    shape = tensors[0].shape
    kernel = _value_kernel(op, tensors, scale)
    out = graph.variable(f32, (), name=f"{name}/out")
    graph.map(out, 0)
    call = graph.library_call(
        prog,
        f"popnn.{op}",
        inputs=tuple(tensors),
        outputs=(out,),
        kernel=kernel,
        flops=3 * tensors[0].size,
        debug_name=name,
    )
    with call as body:
        terms = create_output_like(graph, [tensors[0]], shape, f32, "terms/out")
        emit_map(graph, body, [_expression(op, scale)], _operands(graph, op, tensors), [terms], "terms")
        finish = Finish(f32, "number")
        Reduction(graph, tensor=terms, kept=(), op=find_reduce_op("ADD"), finish=finish, scale=scale, name="sum").emit(
            body, out
        )
    return out


def _gradient(
    graph: Graph, op: str, tensors: list[Tensor], gradient: Gradient, scale: float, prog: Sequence, name: str
) -> Tensor:
    values = tensors[0]
    if gradient is not None and gradient.size != 1:
        raise TensorError(f"{name}: the gradient of the loss {gradient!r} is not one element")
    given = graph.constant(f32, (), 1.0, name="one") if gradient is None else gradient.reshape(())
    out = create_output_like(graph, [values], values.shape, values.dtype, f"{name}/out")
    inputs = (*tensors, given)
    call = graph.library_call(
        prog,
        f"popnn.{op}",
        inputs=inputs,
        outputs=(out,),
        kernel=_gradient_kernel(op, inputs, out, scale),
        flops=3 * values.size,
        debug_name=name,
    )
    with call as body:
        emit_map(graph, body, [_expression(op, scale)], [*_operands(graph, op, tensors), given], [out], "gradient")
    return out


def _is_label(labels: Tensor) -> ir.Expr:
    """True if the class of the point is its sample's label."""
    number = ir.Index(ir.affine("d1"))
    label = ir.Load(1, (ir.affine("d0"),))
    kind = ir.compute_type(labels.dtype)
    return ir.apply("eq", label, ir.Cast(kind, number) if kind.name != "i32" else number)


def _value_kernel(op: str, tensors: list[Tensor], scale: float) -> ir.HostKernel:
    values, other = tensors
    at = point(values.ndim)
    x = ir.Load(0, at)
    if op == "mse_loss":
        difference = x - ir.Load(1, at)
        term: ir.Expr = difference * difference
    else:
        term = ir.select(_is_label(other), -x, 0.0)
    total = nest_over(values.shape, ir.Store(3, (), term, "add"))
    scaled = ir.Nest((), (ir.Store(2, (), ir.Load(3, ()) * scale),))
    return ir.HostKernel(
        (values.shape, other.shape, (), ()), (values.dtype, other.dtype, f32, f32), 2, 1, (total, scaled)
    )


def _gradient_kernel(op: str, inputs: tuple[Tensor, ...], out: Tensor, scale: float) -> ir.HostKernel:
    values, other, _ = inputs
    at = point(values.ndim)
    x, g = ir.Load(0, at), ir.Load(2, ())
    if op == "mse_loss_gradient":
        value: ir.Expr = (x - ir.Load(1, at)) * (g * (2.0 * scale))
    elif op == "nll_loss_gradient":
        value = ir.select(_is_label(other), g * -scale, 0.0)
    else:
        value = (ir.apply("exp", x) - ir.select(_is_label(other), ir.as_expr(1.0), 0.0)) * (g * scale)
    types: tuple[ElementType, ...] = (*(t.dtype for t in inputs), out.dtype)
    shapes = (*(t.shape for t in inputs), out.shape)
    return ir.HostKernel(shapes, types, 3, 1, (nest_over(values.shape, ir.Store(3, at, value)),))
