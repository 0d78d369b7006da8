"""Scaled addition: the update step of most training algorithms."""

from __future__ import annotations

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popops.expr import Expr, ExprLike, PlaceHolder
from abele.poplibs.popops.map import map_with_output

Scale = float | Tensor


def scaled_add_to(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    scale_b: Scale,
    prog: Sequence,
    *,
    scale_a: Scale | None = None,
    name: str = "scaled_add_to",
) -> None:
    """a ← scale_a·a + scale_b·b, in place.

    Args:
        graph: Where vertices are made.
        a: Overwritten.
        b: Broadcasts to ``a``.
        scale_b: A number or a tensor of one element.
        prog: Sequence that the step is appended to.
        scale_a: As ``scale_b``; 1 when left out.
        name: Name of the step.

    Raises:
        TensorError: A scale of more than one element, or ``b`` does not broadcast to ``a``.
    """
    _scaled(graph, a, b, scale_b, prog, scale_a, 1.0, name)


def scaled_subtract_from(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    scale_b: Scale,
    prog: Sequence,
    *,
    scale_a: Scale | None = None,
    name: str = "scaled_subtract_from",
) -> None:
    """a ← scale_a·a − scale_b·b, in place; see :func:`scaled_add_to`."""
    _scaled(graph, a, b, scale_b, prog, scale_a, -1.0, name)


def _scaled(
    graph: Graph, a: Tensor, b: Tensor, scale_b: Scale, prog: Sequence, scale_a: Scale | None, sign: float, name: str
) -> None:
    tensors = [a, b]
    first: Expr = PlaceHolder(1)
    if scale_a is not None:
        first = _factor(scale_a, tensors, name) * first
    term = _factor(scale_b, tensors, name) * PlaceHolder(2)
    map_with_output(graph, first + term if sign > 0 else first - term, tensors, a, prog, name)


def _factor(scale: Scale, tensors: list[Tensor], name: str) -> ExprLike:
    if not isinstance(scale, Tensor):
        return float(scale)
    if scale.size != 1:
        raise TensorError(f"{name}: the scale {scale!r} has {scale.size} elements, it must be one")
    tensors.append(scale.reshape(()))
    return PlaceHolder(len(tensors))
