"""B-spline bases over graph edges, and features weighted by them (SplineCNN)."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Regions, Tensor, TileMapping, shared
from abele.graph.program import Sequence
from abele.numerics import f16, f32, i32, u8
from abele.poplibs.popops.elementwise.map import map_with_outputs
from abele.poplibs.popops.expr import Cast, Expr, Op, PlaceHolder, as_expr
from abele.poplibs.popops.spline_vertices import weighting_codelet
from abele.poplibs.poputil.mapping import linear_mapping, set_mapping
from abele.poplibs.poputil.regions import flat_regions

DEGREES = (1, 2, 3)


def spline_basis(
    graph: Graph,
    pseudo: Tensor,
    kernel_size: Tensor,
    is_open_spline: Tensor,
    degree: int,
    prog: Sequence,
    name: str = "spline_basis",
) -> tuple[Tensor, Tensor]:
    """Products of B-spline values for every edge, and the number of the kernel weight that each belongs to.

    Args:
        graph: Graph in which vertices and results are made.
        pseudo: Pseudo-coordinates in [0, 1], f32 or f16 [edges, dims].
        kernel_size: i32 [dims].
        is_open_spline: u8 or i32 [dims]; 1 where the spline of a dimension is open.
        degree: 1, 2 or 3.
        prog: Sequence that the steps are appended to.
        name: Name of the step.

    Returns:
        Basis [edges, splines] of the coordinates' type and weight index i32 [edges, splines], of (degree + 1) ** dims
        splines.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Other element types.
        InvalidOptionError: Another degree.
    """
    _check_basis(pseudo, kernel_size, is_open_spline, degree, name)
    edges, dims = pseudo.shape
    splines = (degree + 1) ** dims
    basis = graph.variable(pseudo.dtype, (edges, splines), name=f"{name}/basis")
    index = graph.variable(i32, (edges, splines), name=f"{name}/weight_index")
    for made in (basis, index):
        set_mapping(graph, made, linear_mapping(graph, made.size, made.dtype, grain=splines))
    tensors = [pseudo[:, d] for d in range(dims)]
    tensors += [t[d].expand_dims(0) for t in (kernel_size, is_open_spline) for d in range(dims)]
    for spline in range(splines):
        value, number = _spline(spline, dims, degree)
        outputs = [basis[:, spline], index[:, spline]]
        exprs = [Cast(value, pseudo.dtype), number]
        map_with_outputs(graph, exprs, tensors, outputs, prog, f"{name}/{spline}")
    return basis, index


def _spline(spline: int, dims: int, degree: int) -> tuple[Expr, Expr]:
    """The value and the weight index of one spline, over coordinates, kernel sizes and openness of all dimensions."""
    value, number, stride = as_expr(1.0), as_expr(0), as_expr(1)
    for d in range(dims):
        # The digits of the spline's number in base degree + 1 say how many cells further on it lies, dimension by
        # dimension.
        spline, step = divmod(spline, degree + 1)
        size = PlaceHolder(dims + d + 1)
        is_open = Cast(PlaceHolder(2 * dims + d + 1), i32)
        at = Cast(PlaceHolder(d + 1), f32) * Cast(size - is_open * degree, f32)
        cell = Op("floor", at)
        # Past the end a closed spline goes on at the beginning; an open one has as many cells fewer as it reaches over.
        number = Op("rem", Cast(cell, i32) + step, size) * stride + number
        stride = size * stride
        value = _basis(at - cell, step, degree) * value
    return value, number


def _basis(v: Expr, step: int, degree: int) -> Expr:
    """The value of the spline ``step`` cells on, at ``v`` within a cell. Source: Fey et al., SplineCNN (2018)."""
    square = v * v
    forms: dict[int, tuple[Expr, ...]] = {
        1: (1.0 - v, v),
        2: (square * 0.5 - v + 0.5, v - square + 0.5, square * 0.5),
        3: (
            (1.0 - v) * (1.0 - v) * (1.0 - v) * (1 / 6),
            (square * v * 3.0 - square * 6.0 + 4.0) * (1 / 6),
            (square * v * -3.0 + square * 3.0 + v * 3.0 + 1.0) * (1 / 6),
            square * v * (1 / 6),
        ),
    }
    return forms[degree][step]


def spline_weighting(
    graph: Graph,
    features: Tensor,
    weight: Tensor,
    basis: Tensor,
    weight_index: Tensor,
    prog: Sequence,
    name: str = "spline_weighting",
) -> Tensor:
    """Σ over splines of basis · (features · weight[weight_index]) for every edge.

    Every tile computes whole edges, and reads the whole weight.

    Args:
        graph: Graph in which vertices and the result are made.
        features: f32 or f16 [edges, in channels].
        weight: [kernels, in channels, out channels] of the same type.
        basis: [edges, splines] of the same type, from :func:`spline_basis`.
        weight_index: i32 [edges, splines].
        prog: Sequence that the step is appended to.
        name: Name of the step.

    Returns:
        [edges, out channels].

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Other element types.
    """
    _check_weighting(features, weight, basis, weight_index, name)
    edges, channels = features.shape
    width, splines = weight.shape[2], basis.shape[1]
    out = graph.variable(features.dtype, (edges, width), name=f"{name}/out")
    workers = graph.system.ipu.num_workers
    vertices = min(edges, graph.system.num_tiles * workers)
    begin = np.arange(vertices + 1, dtype=np.int64) * edges // vertices
    # One vertex per worker, neighbours on one tile.
    tile = np.arange(vertices, dtype=np.int32) * -(-vertices // workers) // vertices
    set_mapping(graph, out, TileMapping(out.size, begin[:-1] * width, tile.astype(np.int32)))
    flops = 2 * edges * splines * channels * width
    inputs = (features, weight, basis, weight_index)
    call = graph.library_call(
        prog, "popops.spline_weighting", inputs=inputs, outputs=(out,), flops=flops, debug_name=name
    )
    with call as body:
        compute_set = graph.compute_set(name)
        count = np.diff(begin)

        def of(tensor: Tensor) -> Regions:
            row = tensor.shape[1]
            return flat_regions(tensor.flatten(), begin[:-1] * row, count * row)

        built = weighting_codelet(features.dtype, channels, width, splines)
        operands: dict[str, Any] = {"x": of(features), "b": of(basis), "k": of(weight_index), "y": of(out)}
        compute_set.vertices(built, tile=tile, w=shared(weight.flatten()), **operands)
        body.add(Execute(compute_set))
    return out


def _check_basis(pseudo: Tensor, kernel_size: Tensor, is_open: Tensor, degree: int, name: str) -> None:
    if degree not in DEGREES:
        raise InvalidOptionError(f"{name}: a spline of degree {degree}", remedy="1, 2 or 3")
    if pseudo.ndim != 2 or kernel_size.shape != (pseudo.shape[1],) or is_open.shape != kernel_size.shape:
        shapes = ", ".join(str(list(t.shape)) for t in (pseudo, kernel_size, is_open))
        raise TensorError(f"{name}: shapes {shapes}", remedy="[edges, dims], [dims], [dims]")
    if pseudo.dtype not in (f16, f32) or kernel_size.dtype != i32 or is_open.dtype not in (u8, i32):
        types = ", ".join(str(t.dtype) for t in (pseudo, kernel_size, is_open))
        raise TypeMismatchError(f"{name}: types {types}", remedy="f16 or f32, i32, u8 or i32")


def _check_weighting(features: Tensor, weight: Tensor, basis: Tensor, index: Tensor, name: str) -> None:
    tensors = (features, weight, basis, index)
    fits = [t.ndim for t in tensors] == [2, 3, 2, 2] and features.shape[1] == weight.shape[1]
    if not fits or basis.shape != index.shape or basis.shape[0] != features.shape[0] or not features.size:
        shapes = ", ".join(str(list(t.shape)) for t in tensors)
        raise TensorError(
            f"{name}: shapes {shapes}", remedy="[edges, in], [kernels, in, out], [edges, splines], [edges, splines]"
        )
    same = features.dtype == weight.dtype == basis.dtype
    if not same or features.dtype not in (f16, f32) or index.dtype != i32:
        types = ", ".join(str(t.dtype) for t in tensors)
        raise TypeMismatchError(f"{name}: types {types}", remedy="f16 or f32 three times, i32")
