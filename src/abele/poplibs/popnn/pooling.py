"""Pooling and its gradient, on activations [batch, channels, *field] with channels grouped innermost in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Tensor, boxes
from abele.graph.program import Sequence
from abele.numerics import ElementType, f32
from abele.poplibs.popnn.pool_codelets import pool_codelet, pool_gradient_codelet
from abele.poplibs.popnn.pool_kernels import pool_gradient_kernel, pool_kernel
from abele.poplibs.popnn.pool_layout import create_blocks
from abele.poplibs.popnn.pool_params import PoolParams
from abele.poplibs.popops.expr import _1, _2
from abele.poplibs.popops.map import emit_map
from abele.poplibs.poputil.grid import Cells, Grid, cells_of, split_for_workers
from abele.poplibs.poputil.layout import channels_per_group, create_output_like
from abele.poplibs.poputil.order import storage_order

Int64 = npt.NDArray[np.int64]


def pool(graph: Graph, tensor: Tensor, params: PoolParams, prog: Sequence, name: str = "pool") -> Tensor:
    """``tensor`` pooled, as a new tensor with its channels grouped as those of ``tensor``.

    Args:
        graph: Where vertices and the result are made.
        tensor: [batch, channels, *field], floating point.
        params: Kind, window, stride and padding.
        prog: Sequence that the step is appended to.
        name: Name of the step.

    Raises:
        TensorError: The tensor's shape is not that of the parameters.
        TypeMismatchError: The elements are no floats.
    """
    _check("the input", tensor, params.in_shape, name)
    group = _group(tensor)
    out = create_blocks(graph, tensor.dtype, params, f"{name}/out", group=group, is_input=False)
    if out.size == 0:
        return out
    call = graph.library_call(
        prog,
        f"popnn.{params.kind}_pool",
        inputs=(tensor,),
        outputs=(out,),
        kernel=pool_kernel(params, tensor.dtype),
        flops=out.size * math.prod(params.kernel),
        debug_name=name,
    )
    with call as body:
        body.add(_execute_pool(graph, params, tensor, out, group))
    return out


def pool_input_gradient(
    graph: Graph,
    params: PoolParams,
    pooled_gradient: Tensor,
    tensor: Tensor | None = None,
    pooled: Tensor | None = None,
    *,
    prog: Sequence,
    name: str = "pool_gradient",
) -> Tensor:
    """Gradient of the input of :func:`pool`, as a new tensor.

    A maximum passes its gradient to every element of the window that equals it.

    Args:
        graph: Where vertices and the result are made.
        params: Those of the pooling.
        pooled_gradient: Gradient of its output.
        tensor: Its input; for ``max`` only.
        pooled: Its output; for ``max`` only.
        prog: Sequence that the steps are appended to.
        name: Name of the steps.

    Raises:
        TensorError: Shapes that are not those of the parameters, or ``max`` without input and output.
        TypeMismatchError: Elements of different types, or no floats.
    """
    inputs = _gradient_operands(params, pooled_gradient, tensor, pooled, name)
    group = _group(pooled_gradient if tensor is None else tensor)
    out = create_blocks(graph, pooled_gradient.dtype, params, f"{name}/out", group=group, is_input=True)
    if out.size == 0:
        return out
    call = graph.library_call(
        prog,
        f"popnn.{params.kind}_pool_gradient",
        inputs=inputs,
        outputs=(out,),
        kernel=pool_gradient_kernel(params, out.dtype),
        flops=pooled_gradient.size * math.prod(params.kernel),
        debug_name=name,
    )
    with call as body:
        _emit_gradient(graph, body, params, inputs, out, group)
    return out


def _gradient_operands(
    params: PoolParams, gradient: Tensor, tensor: Tensor | None, pooled: Tensor | None, name: str
) -> tuple[Tensor, ...]:
    _check("the gradient", gradient, params.out_shape, name)
    if params.kind != "max":
        return (gradient,)
    if tensor is None or pooled is None:
        raise TensorError(f"{name}: the gradient of max pooling needs the pooling's input and output")
    _check("the input", tensor, params.in_shape, name, gradient.dtype)
    _check("the output", pooled, params.out_shape, name, gradient.dtype)
    return (gradient, pooled, tensor)


def _check(role: str, tensor: Tensor, shape: tuple[int, ...], name: str, dtype: ElementType | None = None) -> None:
    if tensor.shape != shape:
        raise TensorError(f"{name}: {role} {tensor!r} has shape {list(tensor.shape)}, the parameters say {list(shape)}")
    if not tensor.dtype.is_float:
        raise TypeMismatchError(f"{name}: {role} {tensor!r} holds no floating-point elements")
    if dtype is not None and tensor.dtype != dtype:
        raise TypeMismatchError(f"{name}: {role} {tensor!r} is {tensor.dtype}, the gradient is {dtype}")


def _group(tensor: Tensor) -> int:
    """Channels that follow each other innermost in memory, or what a new tensor would group."""
    order = storage_order(tensor)
    inner = [(d, n) for d, n in zip(order.dims(), order.extents, strict=True) if n != 1]
    if inner and inner[-1][0] == 1:
        return inner[-1][1]
    return channels_per_group(tensor.shape[1])


def _grouped(tensor: Tensor, group: int) -> Tensor:
    """[batch, channels, *field] seen as [groups, batch, *field, group]."""
    batch, channels, *field = tensor.shape
    view = tensor.reshape((batch, channels // group, group, *field))
    return view.transpose((1, 0, *range(3, view.ndim), 2))


# --- placing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stretches:
    """Cells of a grouped tensor: each a stretch of one row of its innermost field dimension.

    Attributes:
        cells: The cells; rows are positions, columns channels of the group.
        outer: Group and batch of each, int64[n, 2].
        field: Position along every field dimension but the last, int64[n, rank − 1].
    """

    cells: Cells
    outer: Int64
    field: Int64


def _stretches(graph: Graph, tensor: Tensor, group: int) -> _Stretches:
    view = _grouped(tensor, group)
    grid = Grid(tuple((d, d + 1) for d in range(view.ndim)), view.shape)
    ipu = graph.system.ipu
    cells = split_for_workers(cells_of(grid, graph.mapping_of(view)), ipu.num_workers, ipu.vector_width(tensor.dtype))
    coordinates = np.stack(np.unravel_index(cells.block, view.shape[:-2]), axis=1).astype(np.int64)
    return _Stretches(cells, coordinates[:, :2], coordinates[:, 2:])


def _box(stretches: _Stretches, low: Int64, high: Int64) -> tuple[Int64, Int64]:
    """Start and size of boxes in a grouped tensor: the stretch's group, batch and channels, and a field range."""
    cells = stretches.cells
    one = np.ones((cells.num, 2), np.int64)
    start = np.concatenate([stretches.outer, low, cells.column[:, None]], axis=1)
    size = np.concatenate([one, high - low, cells.num_columns[:, None]], axis=1)
    return start, size


def _execute_pool(graph: Graph, params: PoolParams, tensor: Tensor, out: Tensor, group: int) -> Execute:
    stretches = _stretches(graph, out, group)
    cells = stretches.cells
    first_out = np.concatenate([stretches.field, cells.row[:, None]], axis=1)
    last_out = np.concatenate([stretches.field, (cells.row + cells.num_rows - 1)[:, None]], axis=1)
    stride, lower, kernel = map(np.array, (params.stride, params.padding_lower, params.kernel))
    begin = first_out * stride - lower
    low = np.maximum(begin, 0)
    high = np.minimum(last_out * stride - lower + kernel, np.array(tensor.shape[2:]))
    start, size = _box(stretches, low, high)
    compute_set = graph.compute_set("pool")
    compute_set.vertices(
        pool_codelet(params.kind, tensor.dtype),
        tile=cells.tile,
        x=boxes(_grouped(tensor, group), start, size),
        y=boxes(_grouped(out, group), *_own_box(stretches)),
        kernel=params.kernel[-1],
        stride=params.stride[-1],
        span=size[:, -2],
        channels=cells.num_columns,
        first=(begin - low)[:, -1],
    )
    return Execute(compute_set)


def _own_box(stretches: _Stretches) -> tuple[Int64, Int64]:
    cells = stretches.cells
    low = np.concatenate([stretches.field, cells.row[:, None]], axis=1)
    high = np.concatenate([stretches.field + 1, (cells.row + cells.num_rows)[:, None]], axis=1)
    return _box(stretches, low, high)


def _emit_gradient(
    graph: Graph, body: Sequence, params: PoolParams, inputs: tuple[Tensor, ...], out: Tensor, group: int
) -> None:
    gradient = inputs[0]
    scale = 1.0
    if params.kind == "avg" and params.pads:
        gradient = _scaled_by_windows(graph, body, params, gradient)
    elif params.kind == "avg":
        scale = 1.0 / math.prod(params.kernel)
    stretches = _stretches(graph, out, group)
    cells = stretches.cells
    first = np.concatenate([stretches.field, cells.row[:, None]], axis=1) + np.array(params.padding_lower)
    last = first + np.where(np.arange(params.rank) == params.rank - 1, (cells.num_rows - 1)[:, None], 0)
    stride, kernel = np.array(params.stride), np.array(params.kernel)
    outputs = np.array(gradient.shape[2:])
    low = np.clip(-((kernel - 1 - first) // stride), 0, outputs)
    high = np.maximum(np.minimum(last // stride + 1, outputs), low)
    box = _box(stretches, low, high)
    fields: dict[str, Any] = {"g": boxes(_grouped(gradient, group), *box)}
    if params.kind == "max":
        fields["pooled"] = boxes(_grouped(inputs[1], group), *box)
        fields["x"] = boxes(_grouped(inputs[2], group), *_own_box(stretches))
    compute_set = graph.compute_set("gradient")
    compute_set.vertices(
        pool_gradient_codelet(params.kind, out.dtype),
        tile=cells.tile,
        y=boxes(_grouped(out, group), *_own_box(stretches)),
        kernel=params.kernel[-1],
        stride=params.stride[-1],
        scale=scale,
        span=np.maximum((high - low)[:, -1], 1),
        channels=cells.num_columns,
        first=low[:, -1],
        at=first[:, -1],
        **fields,
    )
    body.add(Execute(compute_set))


def _scaled_by_windows(graph: Graph, body: Sequence, params: PoolParams, gradient: Tensor) -> Tensor:
    """The output gradient over the number of elements of each window."""
    sizes = np.ones(())
    for dim in range(params.rank):
        sizes = sizes[..., None] * np.array(params.window_sizes(dim))
    shares = graph.constant(f32, gradient.shape[2:], 1.0 / sizes, name="shares")
    scaled = create_output_like(graph, [gradient], gradient.shape, gradient.dtype, "scaled/out")
    emit_map(graph, body, [_1 * _2], [gradient, shares], [scaled], "scaled")
    return scaled
