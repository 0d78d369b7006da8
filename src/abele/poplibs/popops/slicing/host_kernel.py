"""Host kernels of slices and updates: nests whose rows are named by indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.graph import Tensor
from abele.kernels.nest import ir
from abele.numerics import ElementType, f32, i32, u32
from abele.poplibs.popops.expressions.host_kernel import dim_names, nest_over, point
from abele.poplibs.popops.slicing.multi_codelets import Operation
from abele.poplibs.popops.slicing.step_codelets import Remap

ROWS = {"g": 0, "i": 1, "c": 2}
"""The dims of slices [groups, indices, columns], in the order of loops."""
NAN = float("nan")


def slice_kernel(table: Tensor, offsets: Tensor, out: Tensor) -> ir.HostKernel:
    """``out`` [groups, indices, columns] from ``table`` [groups, entries, columns] by ``offsets`` [groups, indices]."""
    value = ir.load(0, "g", ir.load(1, "g", "i"), "c")
    return _kernel((table, offsets), (out,), out.shape, ir.store(2, ROWS, value))


def update_kernel(
    table: Tensor, rows: Tensor, offsets: Tensor, operation: Operation, scale: float | Tensor
) -> ir.HostKernel:
    """Kernel that joins ``rows`` [groups, indices, columns] with the entries of ``table`` named by ``offsets``."""
    value: ir.Expr = ir.load(1, *ROWS)
    more: tuple[Tensor, ...] = ()
    if isinstance(scale, Tensor):
        value, more = ir.load(3) * value, (scale,)
    elif scale != 1.0:
        value = ir.Const(scale if table.dtype.is_float else int(scale), ir.compute_type(table.dtype)) * value
    combine = "set" if operation == "none" else operation
    index = ("g", ir.load(2, "g", "i"), "c")
    update = ir.store(3 + len(more), index, value, combine, accumulate=operation != "none")
    return _kernel((table, rows, offsets, *more), (table,), rows.shape, update)


def window_kernel(
    whole: Tensor, part: Tensor, offset: Tensor, dims: Sequence[tuple[int, int]], remap: Remap, *, is_update: bool
) -> ir.HostKernel:
    """The kernel of the window of ``whole`` along ``dims`` from ``offset`` on: into ``part``, or from it.

    A nest takes one place of an index from data, so windows along several dims are cut one from the other. After an
    update each is written back into the window that it was cut from.

    Args:
        whole: Tensor that is sliced or updated.
        part: The window.
        offset: First index along each of ``dims``.
        dims: In the order in which windows are cut, each with its place in ``offset``.
        remap: Treatment of offsets out of range.
        is_update: True if ``whole`` is written.
    """
    operands = [whole, *([part] if is_update else []), offset, whole if is_update else part]
    shapes, types = [t.shape for t in operands], [t.dtype for t in operands]
    result = len(operands) - 1
    larger, extents, index = result if is_update else 0, list(whole.shape), list(dim_names(whole.ndim))
    cuts: list[ir.Nest] = []
    updates: list[ir.Nest] = []
    for number, (dim, place_of) in enumerate(dims):
        before, extents[dim] = extents[dim], part.shape[dim]
        place = _place(offset.dtype, ir.load(result - 1, place_of), dim, before, part.shape[dim], remap)
        moved: list[ir.AffineLike | ir.Expr] = [*index[:dim], place, *index[dim + 1 :]]
        is_last = number == len(dims) - 1
        smaller = (1 if is_update else result) if is_last else len(shapes)
        if not is_last:
            shapes.append(tuple(extents))
            types.append(whole.dtype)
        cuts.append(nest_over(tuple(extents), ir.store(smaller, index, ir.load(larger, *moved))))
        updates.append(nest_over(tuple(extents), ir.store(larger, moved, ir.load(smaller, *index))))
        larger = smaller
    nests = (*cuts[:-1], *reversed(updates)) if is_update else tuple(cuts)
    return ir.HostKernel(tuple(shapes), tuple(types), result, 1, nests)


def _place(dtype: ElementType, at: ir.Expr, dim: int, extent: int, size: int, remap: Remap) -> ir.Expr:
    """Index of a window's element along ``dim`` in a tensor of ``extent``; beyond it if the window is outside."""
    if dtype == u32:
        # All beyond the padding index are as far out as the next one.
        at = ir.Cast(i32, ir.apply("min", at, ir.Const(extent + 1, u32)))
    if remap:
        outside = ir.apply("or", at < 0, at > extent - size)
        if remap == "padding":
            outside = ir.apply("and", outside, at.ne(extent))
        at = ir.select(outside, ir.Const(0, i32), at)
    return at + ir.Index(ir.affine(dim_names(dim + 1)[dim])) if size > 1 else at


def select_kernel(params: Tensor, indices: Tensor, out: Tensor, masked: int) -> ir.HostKernel:
    """``out`` [rows]: the element of each row of ``params`` that its index names.

    Rows whose index is ``masked`` give 0; those whose index is no column NaN, or 0 of integers.
    """
    index = ir.load(1, "d0")
    value: ir.Expr = ir.load(0, "d0", index)
    if params.dtype.is_float:
        value = ir.select(_is_column(index, indices.dtype, params.shape[1]), value, ir.Const(NAN, f32))
        value = ir.select(_equals(index, indices.dtype, masked), ir.Const(0.0, f32), value)
    return _kernel((params, indices), (out,), None, nest_over(out.shape, ir.store(2, ("d0",), value)))


def decrement_kernel(params: Tensor, indices: Tensor, masked: int) -> ir.HostKernel:
    """The element of each row of ``params`` that its index names, less one; see :func:`select_kernel`.

    Every element is looked at, as the row of an index that is no column becomes NaN: so it runs with what makes
    ``params``, or reads it.
    """
    index, here = ir.load(1, "d0"), ir.load(0, "d0", "d1")
    column: ir.Expr = ir.Index(ir.affine("d1"))
    column = ir.Cast(u32, column) if indices.dtype == u32 else column
    value = ir.select(ir.apply("eq", index, column), here - 1.0, here)
    stays = ir.apply("or", _is_column(index, indices.dtype, params.shape[1]), _equals(index, indices.dtype, masked))
    value = ir.select(stays, value, ir.Const(NAN, f32))
    return _kernel((params, indices), (params,), None, nest_over(params.shape, ir.Store(2, point(2), value)))


def _is_column(index: ir.Expr, dtype: ElementType, columns: int) -> ir.Expr:
    below = index < columns
    return below if dtype == u32 else ir.apply("and", below, index >= 0)


def _equals(index: ir.Expr, dtype: ElementType, masked: int) -> ir.Expr:
    """True if ``index`` has the bits of ``masked``, 32 of them."""
    value = masked if dtype == u32 else int(np.uint32(masked).astype(np.int32))
    return index.eq(ir.Const(value, dtype))


def _kernel(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], shape: tuple[int, ...] | None, item: ir.Nest | ir.Store
) -> ir.HostKernel:
    """A kernel of one nest; of a store, the nest over slices of ``shape``."""
    if isinstance(item, ir.Store):
        assert shape is not None
        item = ir.nest({name: shape[place] for name, place in ROWS.items()}, item)
    operands = (*inputs, *outputs)
    shapes, types = tuple(t.shape for t in operands), tuple(t.dtype for t in operands)
    return ir.HostKernel(shapes, types, len(inputs), len(outputs), (item,))
