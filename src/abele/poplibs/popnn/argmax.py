"""The position of the largest or smallest element of each row."""

from __future__ import annotations

import numpy as np

from abele.errors import TensorError
from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Sequence
from abele.kernels import ir
from abele.numerics import i32
from abele.poplibs.popops.expr import Const, _1, _2, _3, select
from abele.poplibs.popops.kernel import nest_over, point
from abele.poplibs.popops.map import emit_map
from abele.poplibs.popops.reduce import emit_reduce
from abele.poplibs.popops.reduce_ops import accumulator, find_reduce_op
from abele.poplibs.poputil.layout import create_output_like


def arg_max(graph: Graph, tensor: Tensor, prog: Sequence, name: str = "arg_max") -> Tensor:
    """Index of the largest element along the innermost dimension, i32; of equals the first.

    Raises:
        TensorError: The tensor is a scalar, or its rows are empty.
    """
    return _arg_extreme(graph, tensor, "MAX", prog, name)


def arg_min(graph: Graph, tensor: Tensor, prog: Sequence, name: str = "arg_min") -> Tensor:
    """Index of the smallest element along the innermost dimension, i32; of equals the first."""
    return _arg_extreme(graph, tensor, "MIN", prog, name)


def _arg_extreme(graph: Graph, tensor: Tensor, op: str, prog: Sequence, name: str) -> Tensor:
    if tensor.ndim == 0 or tensor.shape[-1] == 0:
        raise TensorError(f"{name}: {tensor!r} has no row to search")
    width = tensor.shape[-1]
    out = graph.variable(i32, tensor.shape[:-1], name=f"{name}/out", map="linear")
    if tensor.size == 0:
        return out
    call = graph.library_call(
        prog,
        f"popnn.{name}",
        inputs=(tensor,),
        outputs=(out,),
        kernel=_kernel(tensor, op),
        flops=2 * tensor.size,
        debug_name=name,
    )
    with call as body:
        best = emit_reduce(graph, body, tensor, [-1], op, "extreme")
        numbers = graph.constant(i32, (width,), np.arange(width), name="numbers")
        candidates = create_output_like(graph, [tensor], tensor.shape, i32, "candidates/out")
        where = select(_3, Const(width, i32), _1 == _2)
        emit_map(graph, body, [where], [tensor, best.expand_dims(best.ndim), numbers], [candidates], "candidates")
        first = emit_reduce(graph, body, candidates, [-1], "MIN", "first")
        body.add(Copy(first, out))
    return out


def _kernel(tensor: Tensor, op: str) -> ir.HostKernel:
    reduction = find_reduce_op(op)
    kind = accumulator(reduction, tensor.dtype)
    at, shape, width = point(tensor.ndim), tensor.shape, tensor.shape[-1]
    x, best = ir.Load(0, at), ir.Load(2, at[:-1])
    wide = x if ir.compute_type(tensor.dtype) == kind else ir.Cast(kind, x)
    index = ir.select(wide.eq(best), ir.Index(at[-1]), width)
    nests = (
        nest_over(shape, ir.Store(2, at[:-1], wide, reduction.combine)),
        nest_over(shape, ir.Store(1, at[:-1], index, "min")),
    )
    return ir.HostKernel((shape, shape[:-1], shape[:-1]), (tensor.dtype, i32, kind), 1, 1, nests)
