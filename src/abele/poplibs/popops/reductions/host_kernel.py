"""Host kernels of reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from abele.graph import Tensor
from abele.kernels.nest import ir
from abele.numerics import ElementType, bool_, f32
from abele.poplibs.popops.expressions.fused import with_leaves
from abele.poplibs.popops.expressions.host_kernel import dim_names, nest_over, point
from abele.poplibs.popops.reductions.codelets import Finish
from abele.poplibs.popops.reductions.ops import ReduceOp, accumulator, finite_or_top, joined, widened
from abele.poplibs.popops.reductions.reduction import Scale


def reduce_kernel(
    op: ReduceOp, tensor: Tensor, kept: tuple[int, ...], out: Tensor, finish: Finish, scale: Scale
) -> ir.HostKernel | None:
    """Host kernel: inputs are the tensor, the scale if it is one, the old output if it is updated."""
    if tensor.size == 0 or out.size == 0:
        return None
    scales = [((), f32)] if isinstance(scale, Tensor) else []
    olds = [(out.shape, out.dtype)] if finish.updates else []
    operands = [(tensor.shape, tensor.dtype), *scales, *olds, (out.shape, out.dtype)]
    inputs, kind = len(operands) - 1, accumulator(op, tensor.dtype)
    names = dim_names(tensor.ndim)
    target = tuple(ir.affine(names[d]) for d in kept)
    value = widened(op, ir.Load(0, point(tensor.ndim)), tensor.dtype)
    if op.combine == "log_add":
        operands += [(out.shape, kind)] * 3
        last = _finishing_nest(op, out, kind, finish, scale, inputs)
        nests: tuple[ir.Nest, ...] = (*_log_add_nests(tensor.shape, target, value, out.shape, inputs + 1), last)
    elif out.dtype == kind and scale is None and not finish.updates:
        nests = (nest_over(tensor.shape, ir.Store(inputs, target, value, op.combine)),)
    else:
        operands.append((out.shape, kind))
        first = nest_over(tensor.shape, ir.Store(inputs + 1, target, value, op.combine))
        nests = (first, _finishing_nest(op, out, kind, finish, scale, inputs))
    return ir.HostKernel(tuple(s for s, _ in operands), tuple(t for _, t in operands), inputs, 1, nests)


def _log_add_nests(
    shape: tuple[int, ...], target: tuple[ir.Affine, ...], value: ir.Expr, kept: tuple[int, ...], total: int
) -> tuple[ir.Nest, ...]:
    """Nests that leave the logarithm of a sum of powers in operand ``total``, by way of the two after it."""
    top, powers = total + 1, total + 2
    at = point(len(kept))
    peak = ir.Load(top, at)
    power = ir.apply("exp", value - ir.Load(top, target))
    return (
        nest_over(shape, ir.Store(top, target, value, "max")),
        nest_over(shape, ir.Store(powers, target, power, "add")),
        nest_over(kept, ir.Store(total, at, finite_or_top(peak, peak + ir.apply("log", ir.Load(powers, at))))),
    )


def _finishing_nest(op: ReduceOp, out: Tensor, kind: ElementType, finish: Finish, scale: Scale, inputs: int) -> ir.Nest:
    """Nest that scales, updates and narrows the accumulated operand after the output."""
    at = point(out.ndim)
    result: ir.Expr = ir.Load(inputs + 1, at)
    if scale is not None:
        result = result * (ir.Load(1, ()) if isinstance(scale, Tensor) else scale)
    if finish.updates:
        old = ir.Load(inputs - 1, at)
        result = joined(op, old if ir.compute_type(out.dtype) == kind else ir.Cast(kind, old), result)
    if out.dtype == bool_:
        result = result.ne(0)
    elif ir.compute_type(out.dtype) != kind:
        result = ir.Cast(out.dtype, result)
    return nest_over(out.shape, ir.Store(inputs, at, result))


def side_by_side(kernels: Sequence[ir.HostKernel]) -> ir.HostKernel:
    """One kernel for several, each on operands of its own: inputs of all, then outputs, temporaries."""
    places: list[tuple[int, int, int]] = []
    for k, kernel in enumerate(kernels):
        ends = kernel.num_inputs, kernel.num_inputs + kernel.num_outputs
        places += [(sum(n >= end for end in ends), k, n) for n in range(len(kernel.shapes))]
    places.sort()
    number = {(k, n): i for i, (_, k, n) in enumerate(places)}
    nests = [
        _renumbered(nest, {n: number[k, n] for n in range(len(kernel.shapes))})
        for k, kernel in enumerate(kernels)
        for nest in kernel.nests
    ]
    return ir.HostKernel(
        tuple(kernels[k].shapes[n] for _, k, n in places),
        tuple(kernels[k].types[n] for _, k, n in places),
        sum(k.num_inputs for k in kernels),
        sum(k.num_outputs for k in kernels),
        tuple(nests),
    )


def _renumbered(nest: ir.Nest, number: dict[int, int]) -> ir.Nest:
    """A nest with other numbers of operands."""
    stores = []
    for store in nest.stores:
        loads: dict[ir.Expr, ir.Expr] = {
            e: replace(e, operand=number[e.operand]) for e in store.value.walk() if isinstance(e, ir.Load)
        }
        value = with_leaves(store.value, loads)
        stores.append(replace(store, operand=number[store.operand], value=value))
    return replace(nest, stores=tuple(stores))
