"""Reducing a tensor over some of its dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence as Steps
from abele.numerics import ElementType, f32
from abele.poplibs.popops.reduce_codelets import Finish
from abele.poplibs.popops.reduce_kernel import reduce_kernel
from abele.poplibs.popops.reduce_ops import accumulator, find_reduce_op
from abele.poplibs.popops.reduction import Reduction, Scale


def reduce(
    graph: Graph,
    tensor: Tensor,
    dims: Sequence[int],
    op: str,
    prog: Steps,
    *,
    out_type: ElementType | None = None,
    scale: Scale = None,
    name: str = "reduce",
) -> Tensor:
    """``tensor`` reduced over ``dims``, which the result lacks.

    Args:
        graph: Where vertices and the result are made.
        tensor: What to reduce. 16-bit floats are accumulated in f32.
        dims: Dimensions to reduce; none for an element-wise copy (or square).
        op: ADD, SQUARE_ADD, MUL, MIN, MAX, LOGICAL_AND or LOGICAL_OR.
        prog: Sequence that the steps are appended to.
        out_type: Element type of the result; that of ``tensor`` by default.
        scale: Multiplies the result; a number or a tensor of one element.
        name: Name of the steps.

    Raises:
        TensorError: A dimension that the tensor lacks, or one given twice.
        TypeMismatchError: The operation does not take such elements.
        InvalidOptionError: No such operation.
    """
    return _reduced(graph, tensor, dims, op, prog, None, out_type, scale, False, name)


def reduce_with_output(
    graph: Graph,
    tensor: Tensor,
    out: Tensor,
    dims: Sequence[int],
    op: str,
    prog: Steps,
    *,
    scale: Scale = None,
    update: bool = False,
    name: str = "reduce",
) -> None:
    """Write the reduction of ``tensor`` over ``dims`` to ``out``, or combine it with what is there (``update``).

    Raises:
        TensorError: ``out`` has not the shape of the result; see also :func:`reduce`.
    """
    _reduced(graph, tensor, dims, op, prog, out, out.dtype, scale, update, name)


def _reduced(
    graph: Graph,
    tensor: Tensor,
    dims: Sequence[int],
    op: str,
    prog: Steps,
    out: Tensor | None,
    out_type: ElementType | None,
    scale: Scale,
    update: bool,
    name: str,
) -> Tensor:
    chosen = find_reduce_op(op)
    accumulator(chosen, tensor.dtype)
    kept = kept_dims(tensor, dims, name)
    shape = tuple(tensor.shape[d] for d in kept)
    if out is not None and out.shape != shape:
        raise TensorError(f"{name}: the output {out!r} has shape {list(out.shape)}, the result has {list(shape)}")
    factor = _checked_scale(scale, name)
    finish = Finish(out_type or tensor.dtype, _scale_kind(factor), update)
    reduction = Reduction(graph, tensor, kept, chosen, finish, factor, name)
    result = out if out is not None else reduction.create_output()
    inputs = (tensor, *((factor,) if isinstance(factor, Tensor) else ()), *((result,) if update else ()))
    kernel = reduce_kernel(chosen, tensor, kept, result, finish, factor)
    call = graph.library_call(
        prog, "popops.reduce", inputs=inputs, outputs=(result,), kernel=kernel, flops=tensor.size, debug_name=name
    )
    with call as body:
        reduction.emit(body, result)
    return result


def emit_reduce(graph: Graph, body: Steps, tensor: Tensor, dims: Sequence[int], op: str, name: str) -> Tensor:
    """Append a reduction to the body of a larger library call; the result, in accumulator type, is new."""
    chosen = find_reduce_op(op)
    kind = accumulator(chosen, tensor.dtype)
    reduction = Reduction(graph, tensor, kept_dims(tensor, dims, name), chosen, Finish(kind), None, name)
    result = reduction.create_output()
    reduction.emit(body, result)
    return result


def kept_dims(tensor: Tensor, dims: Sequence[int], name: str) -> tuple[int, ...]:
    """The dimensions that reducing ``dims`` leaves.

    Raises:
        TensorError: A dimension that the tensor lacks, or one given twice.
    """
    gone = [d + tensor.ndim if d < 0 else d for d in dims]
    for d, given in zip(gone, dims, strict=True):
        if not 0 <= d < tensor.ndim:
            raise TensorError(f"{name}: {tensor!r} has no dimension {given}")
    if len(set(gone)) != len(gone):
        raise TensorError(f"{name}: dimensions {list(dims)} name one twice")
    return tuple(d for d in range(tensor.ndim) if d not in gone)


def _checked_scale(scale: Scale, name: str) -> Scale:
    """The scale, or None where it is 1.

    Raises:
        TensorError: A tensor that is not one f32 element.
    """
    if isinstance(scale, Tensor):
        if scale.size != 1 or scale.dtype != f32:
            raise TensorError(f"{name}: the scale {scale!r} is not one f32 element")
        return scale.reshape(())
    return None if scale == 1.0 else scale


def _scale_kind(scale: Scale) -> Literal["", "number", "tensor"]:
    return "" if scale is None else "tensor" if isinstance(scale, Tensor) else "number"


def all_true(graph: Graph, tensor: Tensor, prog: Steps, name: str = "all_true") -> Tensor:
    """One bool: whether every element of the bool ``tensor`` is true."""
    return reduce(graph, tensor, range(tensor.ndim), "LOGICAL_AND", prog, name=name)
