"""Histograms: numbers of elements between levels."""

from __future__ import annotations

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Tensor, whole
from abele.graph.program import Sequence
from abele.kernels.nest import ir
from abele.numerics import f32, u32
from abele.poplibs.popops.expressions.host_kernel import nest_over, point
from abele.poplibs.popops.layout.tile_ranges import TileRanges
from abele.poplibs.popops.reductions.codelets import Finish
from abele.poplibs.popops.reductions.ops import find_reduce_op
from abele.poplibs.popops.reductions.reduction import Reduction
from abele.poplibs.popops.reductions.vertices import histogram_codelet
from abele.poplibs.poputil.mapping import map_tensor_linearly, vector_grain
from abele.poplibs.poputil.options import Options, flag, read_options
from abele.poplibs.poputil.regions import flat_regions, split_evenly

OPTIONS = {"useFloatArithmetic": flag(False)}


def histogram(
    graph: Graph,
    tensor: Tensor,
    levels: Tensor,
    absolute: bool,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "histogram",
) -> Tensor:
    """Counts of the elements of ``tensor`` below the first level, between each two, and from the last on.

    Args:
        graph: Graph in which vertices and the result are made.
        tensor: Floats, of any shape.
        levels: Bounds, ascending, [n], of the same type. An element that equals a level counts as above it.
        absolute: True if signs are left out.
        prog: Sequence that the steps are appended to.
        options: ``useFloatArithmetic``: count in f32, exact up to 2^24.
        name: Name of the steps.

    Returns:
        Counts, [n + 1], u32 or f32.

    Raises:
        TensorError: The levels are no vector, or empty.
        TypeMismatchError: Elements that are no floats, or of another type than the levels.
    """
    counts = f32 if read_options("histogram", options, OPTIONS)["useFloatArithmetic"] else u32
    _check(tensor, levels, name)
    out = map_tensor_linearly(graph, graph.variable(counts, (levels.size + 1,), name=f"{name}/out"))
    _count(graph, tensor, out, levels=levels, absolute=absolute, prog=prog, name=name, update=False)
    return out


def histogram_with_output(
    graph: Graph,
    tensor: Tensor,
    out: Tensor,
    update: bool,
    levels: Tensor,
    absolute: bool,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "histogram",
) -> None:
    """Write the :func:`histogram` to ``out``, u32 or f32, or add it to the present counts (``update``).

    ``options`` are those of :func:`histogram`; what is counted in follows from ``out``.

    Raises:
        InvalidOptionError: A misspelt option, or a value that it does not take.
        TensorError: ``out`` does not have one element more than the levels.
        TypeMismatchError: ``out`` holds neither u32 nor f32.
    """
    read_options(name, options, OPTIONS)
    _check(tensor, levels, name)
    if out.shape != (levels.size + 1,):
        raise TensorError(f"{name}: the output {out!r} has shape {list(out.shape)}, not [{levels.size + 1}]")
    if out.dtype not in (u32, f32):
        raise TypeMismatchError(f"{name}: counts are u32 or f32, the output {out!r} holds {out.dtype}")
    _count(graph, tensor, out, levels=levels, absolute=absolute, prog=prog, name=name, update=update)


def _check(tensor: Tensor, levels: Tensor, name: str) -> None:
    if levels.ndim != 1 or levels.size == 0:
        raise TensorError(f"{name}: levels are a vector of at least one bound, got {levels!r}")
    if not tensor.dtype.is_float or tensor.dtype != levels.dtype:
        raise TypeMismatchError(f"{name}: takes floats and levels of their type, got {tensor!r} and {levels!r}")


def _count(
    graph: Graph,
    tensor: Tensor,
    out: Tensor,
    levels: Tensor,
    absolute: bool,
    prog: Sequence,
    name: str,
    *,
    update: bool,
) -> None:
    inputs = (tensor, levels, *((out,) if update else ()))
    kernel = _kernel(tensor, levels, out, absolute, update) if tensor.size else None
    call = graph.library_call(
        prog,
        "popops.histogram",
        inputs=inputs,
        outputs=(out,),
        kernel=kernel,
        flops=tensor.size * levels.size,
        debug_name=name,
    )
    with call as body:
        ranges = TileRanges.of(graph, tensor, name)
        held = np.bincount(ranges.tile)[ranges.tile] if tensor.size else np.ones(0, np.int64)
        parts = -(-graph.system.ipu.num_workers // held)
        entry, low, length = split_evenly(ranges.length, parts, vector_grain(graph, tensor.dtype))
        tile = ranges.tile[entry] if tensor.size else np.zeros(1, np.int32)
        if not tensor.size:
            entry, low, length = (np.zeros(1, np.int64) for _ in range(3))
        shape = (len(tile), out.size)
        counts = graph.map_rows(graph.variable(out.dtype, shape, name=f"{name}/counts"), tile.tolist())
        begin = ranges.begin[entry] + low if tensor.size else low
        compute_set = graph.compute_set(name)
        compute_set.vertices(
            histogram_codelet(tensor.dtype, out.dtype, absolute),
            tile=tile,
            x=flat_regions(ranges.tensor, begin, length),
            levels=(whole(levels), np.zeros(len(tile), np.int64)),
            counts=counts,
        )
        body.add(Execute(compute_set))
        finish = Finish(out.dtype, updates=update)
        Reduction(
            graph, tensor=counts, kept=(1,), op=find_reduce_op("ADD"), finish=finish, scale=None, name="total"
        ).emit(body, out)


def _kernel(tensor: Tensor, levels: Tensor, out: Tensor, absolute: bool, update: bool) -> ir.HostKernel:
    """Counts of elements below each level, then their differences."""
    inputs, number = (3 if update else 2), out.dtype
    below, bins = inputs + 1, levels.size
    x: ir.Expr = ir.Load(0, point(tensor.ndim))
    level = ir.affine("level")
    is_below = ir.apply("lt", ir.apply("abs", x) if absolute else x, ir.Load(1, (level,)))
    counted = ir.Store(below, (level,), ir.Cast(number, is_below), "add")

    def store(at: ir.Affine, value: ir.Expr) -> ir.Store:
        return ir.Store(inputs, (at,), ir.Load(2, (at,)) + value if update else value)

    dims = nest_over(tensor.shape).dims
    upper = ir.Affine((("level", 1),), 1)
    last, end = ir.Affine((), bins - 1), ir.Affine((), bins)
    nests = [ir.Nest((*dims, ("level", bins)), (counted,))]
    if bins > 1:
        difference = ir.Load(below, (upper,)) - ir.Load(below, (level,))
        nests.append(ir.Nest((("level", bins - 1),), (store(upper, difference),)))
    rest = ir.Const(tensor.size) - ir.Load(below, (last,))
    nests.append(ir.Nest((), (store(ir.affine(0), ir.Load(below, (ir.affine(0),))),)))
    nests.append(ir.Nest((), (store(end, rest),)))
    operands = [tensor, levels, *([out] if update else []), out]
    shapes = (*(t.shape for t in operands), levels.shape)
    return ir.HostKernel(shapes, (*(t.dtype for t in operands), number), inputs, 1, tuple(nests))
