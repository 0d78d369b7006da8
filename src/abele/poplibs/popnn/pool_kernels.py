"""Host kernels of pooling."""

from __future__ import annotations

import math

import numpy as np

from abele.kernels.nest import ir
from abele.numerics import ElementType, f32, i32
from abele.poplibs.popnn.pool_params import PoolParams
from abele.poplibs.popops.expressions.host_kernel import nest_over, point

NO_PLACE = int(np.iinfo(np.int32).max)
"""Number for no element of a window: more than all numbers, so that a minimum passes over it."""


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


def window_index(params: PoolParams) -> ir.Affine:
    """Number of a point of :func:`_window_nest` in its window, in row-major order."""
    number = ir.affine(0)
    for d, k in enumerate(params.kernel):
        number = number * k + ir.affine(f"k{d}")
    return number


def _places_nest(params: PoolParams, operand: int) -> ir.Nest:
    """Nest that finds, in each window, the element for its gradient, of operands 1 (output) and 2 (input).

    That is the least number of an element that equals the maximum, so a minimum over the window. Of NaN, which equal
    nothing, the last one counts: they stand below all numbers, as -1 less theirs, so that the same minimum finds it.
    Padding is read as what is neither: NaN where the maximum is looked for, a number where NaN are.
    """
    at, covered, number = point(2 + params.rank), _covered(params), ir.Index(window_index(params))
    x, other = (ir.Load(2, covered, fill if params.pads else None) for fill in (math.nan, 0.0))
    place = ir.select(x.eq(ir.Load(1, at)), number, ir.select(other.ne(other), -1 - number, NO_PLACE))
    return _window_nest(params, params.out_shape, ir.Store(operand, at, place, "min"))


def _is_place(place: ir.Expr, number: ir.Expr) -> ir.Expr:
    """True if ``place`` of :func:`_places_nest` is that of ``number``."""
    return ir.apply("max", place, -1 - place).eq(number)


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


def pool_gradient_kernel(params: PoolParams, dtype: ElementType) -> ir.HostKernel:
    """Scatter the gradient of each output over its window; elements in the padding are dropped.

    Operands: the output gradient, for max pooling the output and the input; the input gradient; temporaries.
    """
    shape, covered = params.out_shape, _covered(params)
    at = point(len(shape))
    maximum = params.kind == "max"
    inputs = [shape, shape, params.in_shape] if maximum else [shape]
    shapes, types = [*inputs, params.in_shape], [dtype] * (len(inputs) + 1)
    nests: list[ir.Nest] = []
    g: ir.Expr = ir.Load(0, at)
    if params.ties == "first":
        nests.append(_places_nest(params, len(shapes)))
        g = ir.select(_is_place(ir.Load(len(shapes), at), ir.Index(window_index(params))), g, 0.0)
        shapes, types = [*shapes, shape], [*types, i32]
    elif maximum:
        x = ir.Load(2, covered, -math.inf if params.pads else None)
        hit = x.eq(ir.Load(1, at))
        if params.ties == "shared":
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
