"""Filling tensors with a value, or with their own indices."""

from __future__ import annotations

from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import i32
from abele.poplibs.popops.expr import Cast, Const, Expr, element_index
from abele.poplibs.popops.fused import fuse
from abele.poplibs.popops.map import apply_fused


def fill(graph: Graph, tensor: Tensor, prog: Sequence, value: float, name: str = "fill") -> None:
    """Set every element of ``tensor`` to ``value``."""
    _compute(graph, tensor, Const(value, tensor.dtype), prog, name)


def zero(graph: Graph, tensor: Tensor, prog: Sequence, name: str = "zero") -> None:
    """Set every element of ``tensor`` to zero."""
    fill(graph, tensor, prog, 0, name)


def iota(graph: Graph, tensor: Tensor, start: int, prog: Sequence, name: str = "iota") -> None:
    """Set element i of the flattened ``tensor`` to ``start`` + i."""
    index = element_index() + start
    _compute(graph, tensor, index if tensor.dtype == i32 else Cast(index, tensor.dtype), prog, name)


def _compute(graph: Graph, tensor: Tensor, expression: Expr, prog: Sequence, name: str) -> None:
    apply_fused(graph, fuse([expression], (), [tensor.dtype]), [], [tensor], prog, name)
