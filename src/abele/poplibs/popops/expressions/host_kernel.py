"""Host kernels of element-wise operations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from abele.graph import Tensor
from abele.kernels.nest import ir
from abele.layout import row_major
from abele.poplibs.popops.expr import ELEMENT
from abele.poplibs.popops.expressions.fused import Fused, leaves, with_leaves
from abele.poplibs.poputil.broadcast import Shape


@cache
def dim_names(rank: int) -> tuple[str, ...]:
    """Names of the dims of a nest over a tensor of ``rank`` dimensions."""
    return tuple(f"d{i}" for i in range(rank))


def point(rank: int) -> tuple[ir.Affine, ...]:
    """Index of the point itself in a nest over a tensor of ``rank`` dimensions."""
    return tuple(map(ir.affine, dim_names(rank)))


def index_of(shape: Shape, target: Shape) -> tuple[ir.Affine, ...]:
    """Index of an operand of ``shape`` at a point of a nest over ``target``, to which it broadcasts."""
    names = dim_names(len(target))[len(target) - len(shape) :]
    # Broadcasting aligns the last dimensions; an extent of 1 is read at 0 everywhere.
    return tuple(ir.affine(0) if extent == 1 else ir.affine(name) for name, extent in zip(names, shape, strict=True))


def linear_index(shape: Shape) -> ir.Affine:
    """Row-major index of a point of a nest over ``shape``."""
    return ir.Affine(tuple(zip(dim_names(len(shape)), row_major(shape), strict=True)))


def nest_over(shape: Shape, *stores: ir.Store) -> ir.Nest:
    """A nest over all elements of ``shape``."""
    return ir.Nest(tuple(zip(dim_names(len(shape)), shape, strict=True)), stores)


def at_points(expression: ir.Expr, shapes: Sequence[Shape], shape: Shape) -> ir.Expr:
    """A lowered expression with its leaves placed at the points of a nest over ``shape``.

    Args:
        expression: Kernel expression over loads ``%i[]``.
        shapes: Shape of each operand.
        shape: Shape that they broadcast to.
    """
    linear = {ELEMENT: linear_index(shape)}
    placed: dict[ir.Expr, ir.Expr] = {}
    for leaf in dict.fromkeys(leaves([expression])):
        match leaf:
            case ir.Load():
                placed[leaf] = ir.Load(leaf.operand, index_of(shapes[leaf.operand], shape))
            case ir.Index():
                placed[leaf] = ir.Index(leaf.affine.substitute(linear))
            case ir.Random():
                placed[leaf] = ir.Random(leaf.seed, leaf.modifier, leaf.index.substitute(linear))
    return with_leaves(expression, placed)


def elementwise_kernel(fused: Fused, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> ir.HostKernel:
    """The host kernel that evaluates ``fused`` at every element of the outputs."""
    shape = outputs[0].shape
    shapes = [t.shape for t in inputs]
    index = index_of(shape, shape)
    stores = [ir.Store(len(inputs) + k, index, at_points(low, shapes, shape)) for k, low in enumerate(fused.lowered)]
    tensors = (*inputs, *outputs)
    return ir.HostKernel(
        tuple(t.shape for t in tensors),
        tuple(t.dtype for t in tensors),
        len(inputs),
        len(outputs),
        (nest_over(shape, *stores),),
    )
