"""Host kernels of pooling."""

from __future__ import annotations

import math

from abele.kernels.nest import ir
from abele.numerics import ElementType, f32
from abele.poplibs.popnn.pool_params import PoolParams
from abele.poplibs.popops.expressions.host_kernel import nest_over, point


def _window_nest(params: PoolParams, shape: tuple[int, ...], store: ir.Store) -> ir.Nest:
    """A nest over the outputs of ``shape`` and the positions k0, k1, … of their windows."""
    outputs = nest_over(shape).dims
    return ir.Nest((*outputs, *((f"k{d}", k) for d, k in enumerate(params.kernel))), (store,))


def _covered(params: PoolParams) -> tuple[ir.Affine, ...]:
    """Index of the input element at a point of :func:`_window_nest`."""
    at = point(2 + params.rank)
    field = [at[2 + d] * params.stride[d] + ir.affine(f"k{d}") - params.padding_lower[d] for d in range(params.rank)]
    return (*at[:2], *field)


def _window_sizes_nest(params: PoolParams, operand: int) -> ir.Nest:
    """The nest that counts the elements of each window inside the field."""
    inside: ir.Expr | None = None
    for index, extent in zip(_covered(params)[2:], params.field, strict=True):
        here = ir.apply("and", ir.Index(index) >= 0, ir.Index(index) < extent)
        inside = here if inside is None else ir.apply("and", inside, here)
    assert inside is not None
    dims = [(f"d{2 + d}", n) for d, n in enumerate(params.out_shape[2:])]
    dims += [(f"k{d}", k) for d, k in enumerate(params.kernel)]
    target = point(2 + params.rank)[2:]
    return ir.Nest(tuple(dims), (ir.Store(operand, target, ir.select(inside, ir.as_expr(1.0), 0.0), "add"),))


def _max_kernel(params: PoolParams, dtype: ElementType) -> ir.HostKernel:
    """Maxima, 0 where a window covers nothing. Operands: input, output, maxima, window sizes."""
    shape, at = params.out_shape, point(2 + params.rank)
    value = ir.select(ir.Load(3, at[2:]) > 0.0, ir.Load(2, at), 0.0)
    nests = (
        _window_nest(params, shape, ir.Store(2, at, ir.Load(0, _covered(params), -math.inf), "max")),
        _window_sizes_nest(params, 3),
        nest_over(shape, ir.Store(1, at, value)),
    )
    return ir.HostKernel((params.in_shape, shape, shape, shape[2:]), (dtype, dtype, f32, f32), 1, 1, nests)


def pool_kernel(params: PoolParams, dtype: ElementType) -> ir.HostKernel:
    """Operands: the input, the output; sums and window sizes where the result needs them."""
    shape, at = params.out_shape, point(2 + params.rank)
    fill = (-math.inf if params.kind == "max" else 0.0) if params.pads else None
    x = ir.Load(0, _covered(params), fill)
    if params.kind == "max" and params.has_empty_windows:
        return _max_kernel(params, dtype)
    if params.kind == "max" or (params.kind == "sum" and dtype == f32):
        combine = "max" if params.kind == "max" else "add"
        nests: tuple[ir.Nest, ...] = (_window_nest(params, shape, ir.Store(1, at, x, combine)),)
        return ir.HostKernel((params.in_shape, shape), (dtype, dtype), 1, 1, nests)
    total: ir.Expr = ir.Load(2, at)
    counts = (_window_sizes_nest(params, 3),) if params.kind == "avg" and params.pads else ()
    if params.kind == "avg":
        total = total / ir.apply("max", ir.Load(3, at[2:]), 1.0) if counts else total * (1.0 / math.prod(params.kernel))
    sums = _window_nest(params, shape, ir.Store(2, at, x, "add"))
    nests = (sums, *counts, nest_over(shape, ir.Store(1, at, total)))
    shapes: tuple[tuple[int, ...], ...] = (params.in_shape, shape, shape)
    types: tuple[ElementType, ...] = (dtype, dtype, f32)
    if counts:
        shapes, types = (*shapes, shape[2:]), (*types, f32)
    return ir.HostKernel(shapes, types, 1, 1, nests)


def pool_gradient_kernel(params: PoolParams, dtype: ElementType, *, is_scaled: bool = False) -> ir.HostKernel:
    """Scatter the gradient of each output over its window; what falls into the padding is dropped.

    Operands: the output gradient, for max pooling the output and the input; the input gradient; temporaries.
    """
    shape, covered = params.out_shape, _covered(params)
    at = point(len(shape))
    maximum = params.kind == "max"
    inputs = [shape, shape, params.in_shape] if maximum else [shape]
    shapes, types = [*inputs, params.in_shape], [dtype] * (len(inputs) + 1)
    nests: list[ir.Nest] = []
    g: ir.Expr = ir.Load(0, at)
    if maximum:
        x = ir.Load(2, covered, -math.inf if params.pads else None)
        hit = x.eq(ir.Load(1, at))
        if is_scaled:
            ties = len(shapes)
            share = ir.select(hit, ir.as_expr(1.0), 0.0)
            nests.append(_window_nest(params, shape, ir.Store(ties, at, share, "add")))
            shapes, types = [*shapes, shape], [*types, f32]
            g = g / ir.apply("max", ir.Load(ties, at), 1.0)
        g = ir.select(hit, g, 0.0)
    elif params.kind == "avg" and params.pads:
        nests.append(_window_sizes_nest(params, len(shapes)))
        g = g / ir.apply("max", ir.Load(len(shapes), at[2:]), 1.0)
        shapes, types = [*shapes, shape[2:]], [*types, f32]
    elif params.kind == "avg":
        g = g * (1.0 / math.prod(params.kernel))
    target = len(inputs)
    if dtype == f32:
        nests.append(_window_nest(params, shape, ir.Store(target, covered, g, "add")))
    else:
        nests.append(_window_nest(params, shape, ir.Store(len(shapes), covered, g, "add")))
        nests.append(nest_over(params.in_shape, ir.Store(target, at, ir.Load(len(shapes), at))))
        shapes, types = [*shapes, params.in_shape], [*types, f32]
    return ir.HostKernel(tuple(shapes), tuple(types), len(inputs), 1, tuple(nests))
