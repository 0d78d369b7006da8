"""PopLibs' losses against labels: loss and deltas of each sample in one pass, and how many samples are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError, nearest
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.kernels.nest import ir
from abele.numerics import ElementType, f16, f32, i32, u32
from abele.poplibs.popnn.argmax import arg_max
from abele.poplibs.popops.elementwise.map import emit_map, map
from abele.poplibs.popops.expr import Const, Expr, Op, PlaceHolder, _1, _2, _3, select
from abele.poplibs.popops.expressions.host_kernel import nest_over, point
from abele.poplibs.popops.reductions.reduce import emit_reduce, reduce_with_output
from abele.poplibs.poputil.layout import create_output_like

LossType = Literal["SUM_SQUARED_LOSS", "CROSS_ENTROPY_LOSS"]
LOSS_TYPES = ("SUM_SQUARED_LOSS", "CROSS_ENTROPY_LOSS")
MASKED_LABEL_CODE = 0xFFFFFFFF
"""The label of a sample that contributes nothing. Source: PopLibs' Loss.hpp."""
EPS_LOG = {f32: 1.17549435e-38, f16: 6.103515625e-05}
"""Addend of a probability before its logarithm: the smallest normal number. Source: PopLibs' Loss codelets."""


def calc_loss(
    graph: Graph,
    model_outputs: Tensor,
    expected: Tensor,
    loss: Tensor,
    deltas: Tensor,
    loss_type: LossType,
    *,
    deltas_scale: Tensor | None = None,
    model_output_scaling: Tensor | None = None,
    num_correct: Tensor | None = None,
    name: str = "calc_loss",
) -> Steps:
    """The program that writes the loss of each sample and the gradient of the outputs.

    Of the squares: loss Σ ½(y − t)², deltas y − t, with t the one-hot labels. Of the cross-entropy: loss
    −Σ t·(log(y + ε) − log s), deltas (d / s)·(y − t·s), for scaled outputs y = s·p and a scale d of the loss.

    Args:
        graph: Graph in which vertices are made.
        model_outputs: [batch, classes], f32 or f16; probabilities for the cross-entropy.
        expected: Labels, i32[batch] or u32[batch]; ``MASKED_LABEL_CODE`` (−1) masks a sample.
        loss: [batch], floating point; written.
        deltas: [batch, classes]; written.
        loss_type: ``SUM_SQUARED_LOSS`` or ``CROSS_ENTROPY_LOSS``.
        deltas_scale: One element, the loss scale d; of the cross-entropy alone.
        model_output_scaling: One element, the factor s of the outputs; of the cross-entropy alone.
        num_correct: u32 or i32, one element: set to the samples whose largest output is that of the label.
        name: Name of the steps.

    Raises:
        InvalidOptionError: No such loss, or scales for the squares.
        TensorError: Shapes that do not fit.
        TypeMismatchError: Labels that are no 32-bit integers, or others that are no floats.
    """
    scales = [deltas_scale, model_output_scaling]
    _check(name, model_outputs, expected, loss=loss, deltas=deltas, loss_type=loss_type, scales=scales)
    prog = Steps()
    if num_correct is not None:
        prog.add(calc_accuracy(graph, model_outputs, expected, num_correct, name=f"{name}/accuracy"))
    if not model_outputs.size:
        return prog
    ones = [graph.constant(f32, (), 1.0, name=f"{name}/one") if t is None else t.reshape(()) for t in scales]
    inputs = (model_outputs, expected, *(ones if loss_type == "CROSS_ENTROPY_LOSS" else ()))
    call = graph.library_call(
        prog,
        "popnn.calc_loss",
        inputs=inputs,
        outputs=(loss, deltas),
        kernel=_kernel(inputs, loss, deltas, loss_type),
        flops=5 * model_outputs.size,
        debug_name=name,
    )
    with call as body:
        classes = np.arange(model_outputs.shape[1], dtype=expected.dtype.np)[None]
        numbers = graph.constant(expected.dtype, classes.shape, classes, name="classes")
        terms = create_output_like(graph, [model_outputs], model_outputs.shape, f32, "terms/out")
        operands = [model_outputs, expected.expand_dims(1), numbers, *inputs[2:]]
        emit_map(graph, body, _expressions(loss_type, model_outputs, expected), operands, [terms, deltas], "terms")
        total = emit_reduce(graph, body, terms, [-1], "ADD", "sum")
        emit_map(graph, body, [_1], [total], [loss], "loss")
    return prog


def calc_accuracy(
    graph: Graph, model_outputs: Tensor, expected: Tensor, num_correct: Tensor, *, name: str = "calc_accuracy"
) -> Steps:
    """Program that sets ``num_correct``: the samples whose largest output is their label's.

    Args:
        graph: Graph in which vertices are made.
        model_outputs: [batch, classes].
        expected: Labels, i32[batch] or u32[batch]; a masked one is never right.
        num_correct: u32 or i32, one element; written.
        name: Name of the steps.

    Raises:
        TensorError: Shapes that do not fit.
        TypeMismatchError: Labels or a count that are no 32-bit integers.
    """
    _check_labels(name, model_outputs, expected)
    if num_correct.size != 1:
        raise TensorError(f"{name}: num_correct {num_correct!r} is not one element")
    if num_correct.dtype not in (i32, u32):
        raise TypeMismatchError(f"{name}: num_correct {num_correct!r} is {num_correct.dtype}, not i32 or u32")
    prog = Steps()
    best = arg_max(graph, model_outputs, prog, name=f"{name}/arg_max", index_type=expected.dtype)
    count = num_correct.dtype
    right = map(graph, select(Const(1, count), Const(0, count), _1 == _2), [best, expected], prog, name=f"{name}/right")
    reduce_with_output(graph, right, num_correct.reshape(()), [0], "ADD", prog, name=f"{name}/count")
    return prog


def _mask(labels: Tensor) -> int:
    return MASKED_LABEL_CODE if labels.dtype == u32 else -1


def _expressions(loss_type: str, outputs: Tensor, labels: Tensor) -> list[Expr]:
    """Term of the loss and delta of an output, label, class number, and the two scales."""
    is_label, masked = _2 == _3, _2 == Const(_mask(labels), labels.dtype)
    if loss_type == "SUM_SQUARED_LOSS":
        distance = _1 - select(Const(1.0), 0.0, is_label)
        return [select(Const(0.0), 0.5 * distance * distance, masked), select(Const(0.0), distance, masked)]
    scale, total = PlaceHolder(4), PlaceHolder(5)
    term = Op("log", total) - Op("log", _1 + EPS_LOG[outputs.dtype])
    delta = (scale / total) * (_1 - select(total, 0.0, is_label))
    return [select(term, 0.0, is_label), select(Const(0.0), delta, masked)]


def _kernel(inputs: Sequence[Tensor], loss: Tensor, deltas: Tensor, loss_type: str) -> ir.HostKernel:
    """Operands: outputs, labels, scales; loss, deltas; Σ of the terms."""
    outputs, labels = inputs[:2]
    at, first = point(2), len(inputs)
    kind = ir.compute_type(labels.dtype)
    label, number = ir.Load(1, at[:1]), ir.Index(at[1])
    is_label = label.eq(number if kind == i32 else ir.Cast(kind, number))
    masked, zero, y = label.eq(_mask(labels)), ir.as_expr(0.0), ir.Load(0, at)
    if loss_type == "SUM_SQUARED_LOSS":
        distance = y - ir.select(is_label, ir.as_expr(1.0), zero)
        term, delta = ir.select(masked, zero, 0.5 * distance * distance), distance
    else:
        scale, total = ir.Load(2, ()), ir.Load(3, ())
        logarithms = ir.apply("log", total) - ir.apply("log", y + EPS_LOG[outputs.dtype])
        term = ir.select(is_label, logarithms, zero)
        delta = (scale / total) * (y - ir.select(is_label, total, zero))
    nests = (
        nest_over(
            outputs.shape,
            ir.Store(first + 2, at[:1], term, "add"),
            ir.Store(first + 1, at, ir.select(masked, zero, delta)),
        ),
        nest_over(loss.shape, ir.Store(first, at[:1], ir.Load(first + 2, at[:1]))),
    )
    tensors = (*inputs, loss, deltas)
    types: tuple[ElementType, ...] = (*(t.dtype for t in tensors), f32)
    return ir.HostKernel((*(t.shape for t in tensors), loss.shape), types, first, 2, nests)


def _check_labels(name: str, outputs: Tensor, labels: Tensor) -> None:
    if outputs.ndim != 2 or labels.shape != outputs.shape[:1]:
        raise TensorError(
            f"{name}: takes [batch, classes] and labels [batch], got {list(outputs.shape)} and {list(labels.shape)}"
        )
    if labels.dtype not in (i32, u32):
        raise TypeMismatchError(f"{name}: labels {labels!r} are {labels.dtype}, not i32 or u32")


def _check(
    name: str,
    outputs: Tensor,
    labels: Tensor,
    loss: Tensor,
    deltas: Tensor,
    loss_type: str,
    scales: Sequence[Tensor | None],
) -> None:
    if loss_type not in LOSS_TYPES:
        close = nearest(str(loss_type), LOSS_TYPES)
        raise InvalidOptionError(
            f"{name}: no loss {loss_type!r}", remedy=f"did you mean {close!r}?" if close else " or ".join(LOSS_TYPES)
        )
    if loss_type == "SUM_SQUARED_LOSS" and any(s is not None for s in scales):
        raise InvalidOptionError(f"{name}: only CROSS_ENTROPY_LOSS takes deltas_scale and model_output_scaling")
    _check_labels(name, outputs, labels)
    if outputs.dtype not in EPS_LOG:
        raise TypeMismatchError(f"{name}: the outputs {outputs!r} are {outputs.dtype}, not f32 or f16")
    for role, tensor, shape in (("loss", loss, outputs.shape[:1]), ("deltas", deltas, outputs.shape)):
        if tensor.shape != shape:
            raise TensorError(f"{name}: {role} {tensor!r} has shape {list(tensor.shape)}, not {list(shape)}")
        if not tensor.dtype.is_float:
            raise TypeMismatchError(f"{name}: {role} {tensor!r} holds no floating-point elements")
    for scale in scales:
        if scale is not None and (scale.size != 1 or not scale.dtype.is_float):
            raise TensorError(f"{name}: the scale {scale!r} is not one floating-point element")
