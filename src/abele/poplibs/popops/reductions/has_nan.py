"""Checks of a tensor for numbers that are none, or infinite ones."""

from __future__ import annotations

import numpy as np

from abele.errors import TypeMismatchError
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.kernels.nest import ir
from abele.numerics import bool_, i32
from abele.poplibs.popops.expressions.host_kernel import nest_over, point
from abele.poplibs.popops.layout.tile_ranges import TileRanges
from abele.poplibs.popops.reductions.codelets import Finish
from abele.poplibs.popops.reductions.ops import find_reduce_op
from abele.poplibs.popops.reductions.reduction import Reduction
from abele.poplibs.popops.reductions.vertices import WORKER_SLOTS, has_nan_codelet
from abele.poplibs.poputil.regions import flat_regions


def has_nan(graph: Graph, tensor: Tensor, prog: Sequence, name: str = "has_nan") -> Tensor:
    """One bool: whether any element of ``tensor`` is no number.

    Raises:
        TypeMismatchError: The elements are no floats of 16 or 32 bits.
    """
    return _tested(graph, tensor, prog, name, "popops.has_nan", infinite=False)


def has_nan_or_inf(graph: Graph, tensor: Tensor, prog: Sequence, name: str = "has_nan_or_inf") -> Tensor:
    """One bool: whether any element of ``tensor`` is no number, or infinite.

    Raises:
        TypeMismatchError: The elements are no floats of 16 or 32 bits.
    """
    return _tested(graph, tensor, prog, name, "popops.has_nan_or_inf", infinite=True)


def _tested(graph: Graph, tensor: Tensor, prog: Sequence, name: str, library: str, *, infinite: bool) -> Tensor:
    dtype = tensor.dtype
    if not dtype.is_float or dtype.bits not in WORKER_SLOTS:
        raise TypeMismatchError(f"{name}: {tensor!r} has no elements that could be NaN: takes half or float")
    out = graph.map(graph.variable(bool_, (), name=f"{name}/out"), 0)
    kernel = _kernel(tensor, infinite) if tensor.size else None
    call = graph.library_call(
        prog, library, inputs=(tensor,), outputs=(out,), kernel=kernel, flops=tensor.size, debug_name=name
    )
    with call as body:
        ranges = TileRanges.of(graph, tensor, name)
        rows = ranges.row_begin
        tiles = ranges.tile[rows[:-1]] if tensor.size else np.zeros(1, np.int32)
        flags = graph.map_rows(graph.variable(bool_, (len(tiles),), name=f"{name}/flags"), tiles.tolist())
        compute_set = graph.compute_set(name)
        x = flat_regions(ranges.tensor, ranges.begin, ranges.length)
        numbers = np.arange(x.num, dtype=np.int64)
        compute_set.vertices(has_nan_codelet(dtype, infinite), tile=tiles, x=(x, numbers, rows), found=flags)
        body.add(Execute(compute_set))
        Reduction(
            graph, tensor=flags, kept=(), op=find_reduce_op("LOGICAL_OR"), finish=Finish(bool_), scale=None, name="any"
        ).emit(body, out)
    return out


def _kernel(tensor: Tensor, infinite: bool) -> ir.HostKernel:
    x: ir.Expr = ir.Load(0, point(tensor.ndim))
    bad = (x - x).ne(0.0) if infinite else x.ne(x)
    nests = (
        nest_over(tensor.shape, ir.Store(2, (), ir.Cast(i32, bad), "max")),
        nest_over((), ir.Store(1, (), ir.Load(2, ()).ne(0))),
    )
    return ir.HostKernel((tensor.shape, (), ()), (tensor.dtype, bool_, i32), 1, 1, nests)
