"""Optimiser updates: each one fused pass over a parameter, its gradient and its state, in place.

Rates and coefficients are numbers, or tensors of one f32 element that the host may change between runs.
"""

from __future__ import annotations

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import f32
from abele.poplibs.popops.elementwise.map import map_with_outputs
from abele.poplibs.popops.elementwise.scaled_add import scaled_subtract_from
from abele.poplibs.popops.expr import Const, Expr, ExprLike, Op, PlaceHolder, converted
from abele.words import counted

Number = float | Tensor
"""A hyper-parameter: fixed, or a tensor of one f32 element."""


class _Operands:
    """Placeholders of an update: the tensors it walks, and its hyper-parameters."""

    def __init__(self, name: str, *tensors: Tensor) -> None:
        self.name = name
        self.tensors = list(tensors)
        for tensor in tensors[1:]:
            if tensor.shape != tensors[0].shape:
                raise TensorError(
                    f"{name}: the parameter {tensors[0]!r} has shape {list(tensors[0].shape)}, "
                    f"{tensor!r} has {list(tensor.shape)}"
                )

    def walk(self) -> list[Expr]:
        """One placeholder for each tensor, as f32."""
        return [converted(PlaceHolder(i + 1), t.dtype, f32) for i, t in enumerate(self.tensors)]

    def number(self, value: Number) -> Expr:
        """The expression of a hyper-parameter."""
        if not isinstance(value, Tensor):
            return Const(float(value))
        if value.size != 1:
            raise TensorError(
                f"{self.name}: the hyper-parameter {value!r} has {counted(value.size, 'element')}, it must be one"
            )
        self.tensors.append(value.reshape(()))
        return PlaceHolder(len(self.tensors))


def _is_zero(value: Number) -> bool:
    return not isinstance(value, Tensor) and value == 0


def sgd_update(
    graph: Graph,
    parameter: Tensor,
    gradient: Tensor,
    prog: Sequence,
    *,
    lr: Number,
    momentum: Number = 0.0,
    velocity: Tensor | None = None,
    dampening: Number = 0.0,
    weight_decay: Number = 0.0,
    nesterov: bool = False,
    name: str = "sgd",
) -> None:
    """Stochastic gradient descent: ``parameter`` and, with momentum, ``velocity`` are overwritten.

    With g ← gradient + weight_decay·p and v ← momentum·v + (1 − dampening)·g:
    p ← p − lr·v, or p − lr·(g + momentum·v) with ``nesterov``; without momentum p − lr·g.

    Args:
        graph: Graph in which vertices are made.
        parameter: Overwritten.
        gradient: Of the parameter's shape.
        prog: Sequence that the step is appended to.
        lr: Learning rate.
        momentum: Of the velocity.
        velocity: State of the parameter's shape; needed with momentum. It starts at 0.
        dampening: Of the gradient in the velocity.
        weight_decay: L2 term.
        nesterov: Look ahead.
        name: Name of the step.

    Raises:
        TensorError: Shapes that differ, momentum without velocity, or a hyper-parameter that is not one element.
    """
    if velocity is None and not _is_zero(momentum):
        raise TensorError(f"{name}: momentum {momentum} needs a velocity", remedy="give velocity=… like the parameter")
    kept = [] if velocity is None or _is_zero(momentum) else [velocity]
    if not kept and _is_zero(weight_decay) and not nesterov:
        _descend(graph, parameter, gradient, prog, lr, name)
        return
    operands = _Operands(name, parameter, gradient, *kept)
    p, g, *v = operands.walk()
    if not _is_zero(weight_decay):
        g = g + operands.number(weight_decay) * p
    step, outputs, exprs = g, [parameter], []
    if v:
        rate = operands.number(momentum)
        fresh = g if _is_zero(dampening) else (1.0 - operands.number(dampening)) * g
        moved = rate * v[0] + fresh
        step = g + rate * moved if nesterov else moved
        outputs, exprs = [parameter, *kept], [converted(moved, f32, kept[0].dtype)]
    moved_parameter = converted(p - operands.number(lr) * step, f32, parameter.dtype)
    map_with_outputs(graph, [moved_parameter, *exprs], operands.tensors, outputs, prog, name)


def _descend(graph: Graph, parameter: Tensor, gradient: Tensor, prog: Sequence, lr: Number, name: str) -> None:
    """p ← p − lr·g: the addition that has vertices of its own, in f32 within each."""
    _Operands(name, parameter, gradient).number(lr)
    exact = {"scaleFloatToHalfTolerance": 0.0}
    scaled_subtract_from(graph, parameter, gradient, lr, prog, options=exact, name=name)


def adam_bias_correction(
    graph: Graph,
    step: Tensor,
    correction1: Tensor,
    correction2: Tensor,
    prog: Sequence,
    *,
    beta1: Number = 0.9,
    beta2: Number = 0.999,
    name: str = "bias_correction",
) -> None:
    """Count a step and write 1 − beta1^step and 1 − beta2^step: once before the updates of a step.

    The powers advance by the recurrence c ← beta·c + (1 − beta), which keeps their relative precision where
    1 − beta^step would lose it.

    Args:
        graph: Graph in which vertices are made.
        step: One i32 or u32; counted up. It starts at 0.
        correction1: One f32; it starts at 0.
        correction2: One f32; it starts at 0.
        prog: Sequence that the step is appended to.
        beta1: Decay of the first moment.
        beta2: Decay of the second moment.
        name: Name of the step.

    Raises:
        TensorError: A tensor of several elements.
        ConstantWriteError: One of them cannot be written.
    """
    operands = _Operands(name, *(t.reshape(()) for t in (step, correction1, correction2)))
    outputs = list(operands.tensors)
    count, first, second = PlaceHolder(1), PlaceHolder(2), PlaceHolder(3)
    b1, b2 = operands.number(beta1), operands.number(beta2)
    exprs = [count + 1, b1 * first + (1.0 - b1), b2 * second + (1.0 - b2)]
    map_with_outputs(graph, exprs, operands.tensors, outputs, prog, name)


def adam_update(
    graph: Graph,
    parameter: Tensor,
    gradient: Tensor,
    first_moment: Tensor,
    second_moment: Tensor,
    prog: Sequence,
    *,
    lr: Number,
    beta1: Number = 0.9,
    beta2: Number = 0.999,
    eps: Number = 1e-8,
    weight_decay: Number = 0.0,
    decoupled: bool = False,
    correction1: Number = 1.0,
    correction2: Number = 1.0,
    name: str = "adam",
) -> None:
    """Adam, or AdamW (``decoupled``): the parameter and both moments are overwritten.

    With g the gradient (plus weight_decay·p unless decoupled), m ← beta1·m + (1 − beta1)·g,
    s ← beta2·s + (1 − beta2)·g²: p ← p − lr·(m / correction1) / (√(s / correction2) + eps), after p has shrunk by
    lr·weight_decay·p when decoupled.

    Args:
        graph: Graph in which vertices are made.
        parameter: Overwritten.
        gradient: Of the parameter's shape.
        first_moment: State; starts at 0.
        second_moment: State; starts at 0.
        prog: Sequence that the step is appended to.
        lr: Learning rate.
        beta1: Decay of the first moment.
        beta2: Decay of the second moment.
        eps: Added to the root.
        weight_decay: L2 term, or the shrinking of AdamW.
        decoupled: AdamW instead of Adam.
        correction1: Result of :func:`adam_bias_correction`; 1 for none.
        correction2: Likewise.
        name: Name of the step.

    Raises:
        TensorError: Shapes that differ, or a hyper-parameter that is not one element.
    """
    operands = _Operands(name, parameter, gradient, first_moment, second_moment)
    p, g, m, s = operands.walk()
    rate, b1, b2 = (operands.number(v) for v in (lr, beta1, beta2))
    decay: ExprLike = 0.0 if _is_zero(weight_decay) else operands.number(weight_decay)
    if isinstance(decay, Expr):
        p, g = (p * (1.0 - rate * decay), g) if decoupled else (p, g + decay * p)
    m = b1 * m + (1.0 - b1) * g
    s = b2 * s + (1.0 - b2) * Op("square", g)
    root = Op("sqrt", s / operands.number(correction2)) + operands.number(eps)
    p = p - rate * (m / operands.number(correction1)) / root
    tensors = [parameter, first_moment, second_moment]
    exprs = [converted(e, f32, t.dtype) for e, t in zip((p, m, s), tensors, strict=True)]
    map_with_outputs(graph, exprs, operands.tensors, tensors, prog, name)
