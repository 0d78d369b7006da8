"""The position of the largest or smallest element of each row."""

from __future__ import annotations

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Sequence
from abele.kernels.nest import ir
from abele.numerics import ElementType, i32, u32
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import Const, _1, _2, _3, select
from abele.poplibs.popops.expressions.host_kernel import nest_over, point
from abele.poplibs.popops.reductions.ops import accumulator, find_reduce_op
from abele.poplibs.popops.reductions.reduce import emit_reduce
from abele.poplibs.poputil.layout import create_output_like


def arg_max(
    graph: Graph, tensor: Tensor, prog: Sequence, name: str = "arg_max", *, index_type: ElementType = i32
) -> Tensor:
    """Index of the largest element along the innermost dimension; of equals the first.

    Args:
        graph: Graph in which vertices and the result are made.
        tensor: At least one dimension; rows of at least one element.
        prog: Sequence that the steps are appended to.
        name: Name of the steps.
        index_type: i32 or u32.

    Raises:
        TensorError: The tensor is a scalar, or its rows are empty.
        TypeMismatchError: Another type of index.
    """
    return _arg_extreme(graph, tensor, "MAX", prog, name, index_type)[0]


def arg_min(
    graph: Graph, tensor: Tensor, prog: Sequence, name: str = "arg_min", *, index_type: ElementType = i32
) -> Tensor:
    """Index of the smallest element along the innermost dimension; of equals the first.

    Arguments and errors as of :func:`arg_max`.
    """
    return _arg_extreme(graph, tensor, "MIN", prog, name, index_type)[0]


def max_and_arg_max(
    graph: Graph, tensor: Tensor, prog: Sequence, name: str = "max_and_arg_max"
) -> tuple[Tensor, Tensor]:
    """Largest element along the innermost dimension, in the type of ``tensor``, and its index, u32.

    Raises:
        TensorError: The tensor is a scalar, or its rows are empty.
    """
    index, value = _arg_extreme(graph, tensor, "MAX", prog, name, u32, with_value=True)
    return value, index


def min_and_arg_min(
    graph: Graph, tensor: Tensor, prog: Sequence, name: str = "min_and_arg_min"
) -> tuple[Tensor, Tensor]:
    """Smallest element along the innermost dimension, in the type of ``tensor``, and its index, u32.

    Raises:
        TensorError: The tensor is a scalar, or its rows are empty.
    """
    index, value = _arg_extreme(graph, tensor, "MIN", prog, name, u32, with_value=True)
    return value, index


def _arg_extreme(
    graph: Graph, tensor: Tensor, op: str, prog: Sequence, name: str, index_type: ElementType, with_value: bool = False
) -> tuple[Tensor, Tensor]:
    if tensor.ndim == 0 or tensor.shape[-1] == 0:
        raise TensorError(f"{name}: {tensor!r} has no row to search")
    if index_type not in (i32, u32):
        raise TypeMismatchError(f"{name}: an index is i32 or u32, not {index_type}")
    width, rows = tensor.shape[-1], tensor.shape[:-1]
    out = graph.variable(index_type, rows, name=f"{name}/out", map="linear")
    outs = [out]
    if with_value:
        outs.append(graph.variable(tensor.dtype, rows, name=f"{name}/value", map="linear"))
    if tensor.size == 0:
        return out, outs[-1]
    call = graph.library_call(
        prog,
        "popnn.arg_max" if op == "MAX" else "popnn.arg_min",
        inputs=(tensor,),
        outputs=tuple(outs),
        kernel=_kernel(tensor, op, outs),
        flops=2 * tensor.size,
        debug_name=name,
    )
    with call as body:
        best = emit_reduce(graph, body, tensor, [-1], op, "extreme")
        numbers = graph.constant(i32, (width,), np.arange(width), name="numbers")
        candidates = create_output_like(graph, [tensor], tensor.shape, i32, "candidates/out")
        found = _1 == _2
        if tensor.dtype.is_float:
            # One that is not a number is the extreme, and equals nothing.
            found = found | (_1 != _1)
        where = select(_3, Const(width, i32), found)
        emit_map(graph, body, [where], [tensor, best.expand_dims(best.ndim), numbers], [candidates], "candidates")
        first = emit_reduce(graph, body, candidates, [-1], "MIN", "first")
        body.add(Copy(first.reinterpret(index_type), out))
        if with_value:
            emit_map(graph, body, [_1], [best], [outs[1]], "value")
    return out, outs[-1]


def _kernel(tensor: Tensor, op: str, outs: list[Tensor]) -> ir.HostKernel:
    """Operands: the tensor; index and, where wanted, value; the extreme and index in the types of the accumulators."""
    reduction = find_reduce_op(op)
    kind = accumulator(reduction, tensor.dtype)
    at, shape, width = point(tensor.ndim), tensor.shape, tensor.shape[-1]
    extreme, first = len(outs) + 1, len(outs) + 2
    x, best = ir.Load(0, at), ir.Load(extreme, at[:-1])
    wide = x if ir.compute_type(tensor.dtype) == kind else ir.Cast(kind, x)
    place = ir.Index(at[-1])
    missing: ir.Expr = ir.select(wide.ne(wide), place, width) if tensor.dtype.is_float else ir.as_expr(width)
    index = ir.select(wide.eq(best), place, missing)
    nests = [
        nest_over(shape, ir.Store(extreme, at[:-1], wide, reduction.combine)),
        nest_over(shape, ir.Store(first, at[:-1], index, "min")),
    ]
    found = ir.Load(first, at[:-1])
    stores = [ir.Store(1, at[:-1], found if outs[0].dtype == i32 else ir.Cast(u32, found))]
    if len(outs) == 2:
        stores.append(ir.Store(2, at[:-1], best))
    nests.append(nest_over(shape[:-1], *stores))
    types = (tensor.dtype, *(t.dtype for t in outs), kind, i32)
    return ir.HostKernel((shape, *(shape[:-1],) * (len(types) - 1)), types, 1, len(outs), tuple(nests))
