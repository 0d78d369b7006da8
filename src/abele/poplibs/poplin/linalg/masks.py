"""One triangle of a matrix."""

from __future__ import annotations

import numpy as np

from abele.graph import Graph, Sequence, Tensor
from abele.numerics import bool_
from abele.poplibs.poplin.linalg import blocks
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import Const, _1, _2, _3, select
from abele.poplibs.poputil.layout import create_output_like


def triangular_mask(
    graph: Graph, a: Tensor, lower: bool, unit_diagonal: bool, prog: Sequence, *, name: str = "triangular_mask"
) -> Tensor:
    """``a`` [..., n, n] with zeros outside its lower or upper triangle, and ones on its diagonal if that is unit.

    Raises:
        TensorError: Not square.
        TypeMismatchError: Elements neither f32 nor f16.
    """
    whole = blocks.as_batch("triangular_mask", "a", a)
    blocks.check_square("triangular_mask", "a", a.shape)
    out = create_output_like(graph, [whole], whole.shape, a.dtype, f"{name}/out")
    result = out.reshape(a.shape)
    call = graph.library_call(prog, "poplin.triangular_mask", inputs=(a,), outputs=(result,), debug_name=name)
    with call as body:
        emit_mask(graph, body, whole, lower, unit_diagonal, out)
    return result


def emit_mask(graph: Graph, body: Sequence, a: Tensor, lower: bool, unit: bool, out: Tensor) -> None:
    """Append the superstep that writes one triangle of ``a`` [..., m, n] to ``out``, and zeros besides."""
    shape = a.shape[-2:]
    ones = np.ones(shape, np.bool_)
    diagonal = np.eye(*shape, dtype=np.bool_)
    keep = np.tril(ones) if lower else np.triu(ones)
    mask = graph.constant(bool_, shape, keep & ~(diagonal & unit), name="inside")
    inside = graph.map_linear(mask).broadcast_to(a.shape)
    if not unit:
        emit_map(graph, body, [select(_1, Const(0, a.dtype), _2)], [a, inside], [out], "mask")
        return
    fixed = graph.map_linear(graph.constant(a.dtype, shape, np.float32(diagonal), name="outside"))
    emit_map(graph, body, [select(_1, _2, _3)], [a, fixed.broadcast_to(a.shape), inside], [out], "mask")
