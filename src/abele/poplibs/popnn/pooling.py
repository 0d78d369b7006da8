"""Pooling and its gradient, on activations [batch, channels, *field] with channels grouped innermost in memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.expr import check_computes
from abele.graph import Execute, Graph, Regions, Tensor, boxes
from abele.graph.program import Sequence
from abele.kernels.nest import ir
from abele.numerics import ElementType, f32, i32
from abele.poplibs.popnn.cpp_forms import FORMS
from abele.poplibs.popnn.pool_codelets import GradientStep, PoolStep, place_type, pool_codelet, pool_gradient_codelet
from abele.poplibs.popnn.pool_layout import (
    ChannelBlocks,
    create_blocks,
    create_pool_input,
    gradient_boxes,
    window_boxes,
)
from abele.poplibs.popnn.pool_params import PoolParams
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import Op, _1, _2
from abele.poplibs.popops.expressions.host_kernel import nest_over, point
from abele.poplibs.popops.reductions.codelets import Finish
from abele.poplibs.popops.reductions.ops import find_reduce_op
from abele.poplibs.popops.reductions.reduction import Reduction
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.layout import channels_per_group, create_output_like
from abele.poplibs.poputil.mapping import map_tensor_linearly
from abele.poplibs.poputil.order import storage_order

# Host kernels of pooling.

NO_PLACE = int(np.iinfo(np.int32).max)
"""Number for no element of a window: more than all numbers, so that a minimum passes over it."""
MAX_GATHERED = 32
"""Most elements of a window, or of a step, whose gradients are gathered: so many terms are written out."""

Index = tuple[ir.Affine, ...]


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


def _places_nests(params: PoolParams, operand: int, found: int) -> tuple[ir.Nest, ir.Nest]:
    """Nests that find, in each window, the element for its gradient, of operands 1 (output) and 2 (input).

    That is the least number of an element that equals the maximum, so a minimum over the window. Of NaN, which equal
    nothing, the last one counts: they stand below all numbers, as -1 less theirs, so that the same minimum finds it.
    Padding is read as what is neither: NaN where the maximum is looked for, a number where NaN are. Both are one number
    in operand ``operand``, of minima in ``found``.
    """
    at, covered, number = point(2 + params.rank), _covered(params), ir.Index(window_index(params))
    x, other = (ir.Load(2, covered, fill if params.pads else None) for fill in (math.nan, 0.0))
    place = ir.select(x.eq(ir.Load(1, at)), number, ir.select(other.ne(other), -1 - number, NO_PLACE))
    minima = _window_nest(params, params.out_shape, ir.Store(found, at, place, "min"))
    least = ir.Load(found, at)
    return minima, nest_over(params.out_shape, ir.Store(operand, at, ir.apply("max", least, -1 - least)))


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
    """The gradient of each output, given to the elements of its window; those in the padding are dropped.

    Where small windows overlap, elements read the windows that cover them, in one pass over the field. Others pass
    through their elements, and add to them.

    Operands: the output gradient, for max pooling the output and the input; the input gradient; temporaries.
    """
    shares = _WindowGradient(params)
    target = shares.num_inputs
    shapes = [*[params.out_shape] * min(2, target), *[params.in_shape] * (target == 3), params.in_shape]
    types = [dtype] * (target + 1)
    nests = list(shares.found)
    shapes += [params.out_shape[2:] if params.kind == "avg" else params.out_shape] * len(nests)
    types += [i32 if params.ties == "first" else f32] * len(nests)
    overlap = any(k > s for k, s in zip(params.kernel, params.stride, strict=True))
    if overlap and max(math.prod(params.kernel), math.prod(params.stride)) <= MAX_GATHERED:
        nests.append(_gathering_nest(params, target, shares))
        return ir.HostKernel(tuple(shapes), tuple(types), target, 1, tuple(nests))
    at, covered = point(2 + params.rank), _covered(params)
    value = shares.share(at, covered, window_index(params), gathers=False)
    # Sums in f32 are rounded once.
    sums = target if dtype == f32 else len(shapes)
    nests.append(_window_nest(params, params.out_shape, ir.Store(sums, covered, value, "add")))
    if sums != target:
        nests.append(nest_over(params.in_shape, ir.Store(target, at, ir.Load(sums, at))))
        shapes, types = [*shapes, params.in_shape], [*types, f32]
    return ir.HostKernel(tuple(shapes), tuple(types), target, 1, tuple(nests))


class _WindowGradient:
    """The share that an element of a window has of the gradient of its output.

    Attributes:
        num_inputs: Number of inputs of the kernel; its output is next, and then temporaries.
        found: Nests that find what shares depend on of the whole window; each has a temporary.
    """

    def __init__(self, params: PoolParams) -> None:
        self.params = params
        self.num_inputs = 3 if params.kind == "max" else 1
        self.temporary = self.num_inputs + 1
        self.found: tuple[ir.Nest, ...] = ()
        if params.ties == "first":
            self.found = _places_nests(params, self.temporary, self.temporary + 1)
        elif params.ties == "shared":
            at = point(2 + params.rank)
            tie = ir.select(self._hit(at, _covered(params), gathers=False), ir.as_expr(1.0), 0.0)
            self.found = (_window_nest(params, params.out_shape, ir.Store(self.temporary, at, tie, "add")),)
        elif params.kind == "avg" and params.pads:
            self.found = (_window_sizes_nest(params, self.temporary),)

    def share(self, output: Index, element: Index, number: ir.Affine, *, gathers: bool) -> ir.Expr:
        """The share of ``element``, which has ``number`` in the window of ``output``.

        Where one ``gathers``, there may be no such output, and beyond the end of the field no element.
        """
        params, absent = self.params, 0.0 if gathers else None
        g: ir.Expr = ir.Load(0, output, absent)
        if params.ties == "first":
            place = ir.Load(self.temporary, output, NO_PLACE if gathers else None)
            return ir.select(place.eq(ir.Index(number)), g, 0.0)
        if params.ties == "shared":
            g = g / ir.apply("max", ir.Load(self.temporary, output, absent), 1.0)
        if params.kind == "max":
            return ir.select(self._hit(output, element, gathers=gathers), g, 0.0)
        if params.kind == "avg" and params.pads:
            return g / ir.apply("max", ir.Load(self.temporary, output[2:], absent), 1.0)
        return g * (1.0 / math.prod(params.kernel)) if params.kind == "avg" else g

    def _hit(self, output: Index, element: Index, *, gathers: bool) -> ir.Expr:
        """True if ``element`` equals ``output``; no output equals anything."""
        x = ir.Load(2, element, -math.inf if self.params.pads or gathers else None)
        return x.eq(ir.Load(1, output, math.nan if gathers else None))


def _gathering_nest(params: PoolParams, target: int, shares: _WindowGradient) -> ir.Nest:
    """Nest of elements that add up their shares of the windows over them, in the order of these.

    Elements whose places differ by a stride lie alike in their windows. A point of the nest has the elements of a
    stride along each dim, which share what they load. Windows of 3 two apart, padded by 1: element 2i lies in window i,
    and 2i + 1 in windows i and i + 1.
    """
    sample = point(2)
    along = [_elements_in_windows(params, d) for d in range(params.rank)]
    stores = []
    for elements in product(*along):
        element = (*sample, *(place for place, _ in elements))
        total: ir.Expr = ir.as_expr(0.0)
        for windows in product(*(covering for _, covering in elements)):
            number = ir.affine(0)
            for (_, position), extent in zip(windows, params.kernel, strict=True):
                number = number * extent + position
            output = (*sample, *(window for window, _ in windows))
            total = total + shares.share(output, element, number, gathers=True)
        stores.append(ir.Store(target, element, total))
    steps = [-(-n // s) for n, s in zip(params.field, params.stride, strict=True)]
    return ir.Nest(nest_over((*params.in_shape[:2], *steps)).dims, tuple(stores))


def _elements_in_windows(params: PoolParams, d: int) -> list[tuple[ir.Affine, list[tuple[ir.Affine, int]]]]:
    """Elements of a stride along field dim ``d``: the place of each, windows that cover it, and its place in these."""
    step, kernel, stride = ir.affine(f"d{2 + d}"), params.kernel[d], params.stride[d]
    found = []
    for number in range(min(stride, params.field[d])):
        place = number + params.padding_lower[d]
        # Window w starts at w * stride: at most kernel - 1 before the element, and not after it.
        windows = range(-((kernel - 1 - place) // stride), place // stride + 1)
        found.append((step * stride + number, [(step + w, place - w * stride) for w in windows]))
    return found


def pool(graph: Graph, tensor: Tensor, params: PoolParams, prog: Sequence, name: str = "pool") -> Tensor:
    """``tensor`` pooled, as a new tensor with its channels grouped as those of ``tensor``.

    A window that covers the whole field is a reduction, which all workers share.

    Args:
        graph: Graph in which vertices and the result are made.
        tensor: [batch, channels, *field], floating point.
        params: Kind, window, stride and padding.
        prog: Sequence that the step is appended to.
        name: Name of the step.

    Raises:
        TensorError: The tensor's shape is not that of the parameters.
        TypeMismatchError: The elements are no floats.
    """
    _check("the input", tensor, params.in_shape, name)
    # One position per channel would leave most workers without work.
    step = _reducing if _covers_field(params) and tensor.size else _pooling
    out, emit = step(graph, params, tensor, name)
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
        emit(body)
    return out


Emit = Callable[[Sequence], object]
"""Appends the steps of a pooling to its body."""


def _covers_field(params: PoolParams) -> bool:
    return params.kernel == params.field and not params.pads and math.prod(params.kernel) > 1


def _reducing(graph: Graph, params: PoolParams, tensor: Tensor, name: str) -> tuple[Tensor, Emit]:
    """Result of a window that is the whole field, and a function to append its steps."""
    finish = Finish(tensor.dtype, "number" if params.kind == "avg" else "")
    scale = 1.0 / math.prod(params.kernel) if params.kind == "avg" else None
    op = find_reduce_op("MAX" if params.kind == "max" else "ADD")
    reduction = Reduction(
        graph, tensor=tensor, kept=(0, 1), op=op, finish=finish, scale=scale, name=f"{name}/reduce", between=f32
    )
    out = reduction.create_output()
    return out.reshape(params.out_shape), lambda body: reduction.emit(body, out)


def _pooling(graph: Graph, params: PoolParams, tensor: Tensor, name: str) -> tuple[Tensor, Emit]:
    """Result of many windows, and a function to append its step."""
    group = _group(tensor)
    out, blocks = create_blocks(graph, tensor.dtype, params, f"{name}/out", group=group, is_input=False)
    return out, lambda body: body.add(
        _execute_pool(graph, params, params.kind, inputs={"x": tensor}, out=out, blocks=blocks)
    )


def pool_input_gradient(
    graph: Graph,
    params: PoolParams,
    pooled_gradient: Tensor,
    tensor: Tensor | None = None,
    pooled: Tensor | None = None,
    *,
    prog: Sequence,
    fwd_chans_per_group: int | None = None,
    use_scaled_gradient: bool = False,
    name: str = "pool_gradient",
) -> Tensor:
    """Gradient of the input of :func:`pool`, as a new tensor.

    A maximum passes its gradient to every element of the window that equals it, or as ``params.ties`` says.

    Args:
        graph: Graph in which vertices and the result are made.
        params: Those of the pooling.
        pooled_gradient: Gradient of its output.
        tensor: Its input; for ``max`` only.
        pooled: Its output; for ``max`` only.
        prog: Sequence that the steps are appended to.
        fwd_chans_per_group: Channels that lie together in the result; by default those of the input or gradient.
        use_scaled_gradient: As with ``params.ties`` ``shared``: elements of a window that equal its maximum share the
            gradient; for ``max`` only.
        name: Name of the steps.

    Raises:
        TensorError: Shapes that are not those of the parameters, groups that do not divide the channels,
            or ``max`` without input and output.
        TypeMismatchError: Elements of different types, or no floats.
        InvalidOptionError: A scaled gradient of another kind than ``max``, or of maxima whose first has it alone.
    """
    inputs = _gradient_operands(params, pooled_gradient, tensor, pooled, name)
    if use_scaled_gradient:
        params = _sharing(params, name)
    group = fwd_chans_per_group or _group(pooled_gradient if tensor is None else tensor)
    out, blocks = create_blocks(
        graph,
        pooled_gradient.dtype,
        params,
        f"{name}/out",
        group=group,
        is_input=True,
        keeps_group=fwd_chans_per_group is not None,
    )
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
        _emit_gradient(graph, body, params, inputs=inputs, out=out, blocks=blocks, read_group=group)
    return out


def _sharing(params: PoolParams, name: str) -> PoolParams:
    if params.kind != "max":
        raise InvalidOptionError(f"{name}: only max pooling has a scaled gradient, not {params.kind}")
    if params.ties == "first":
        raise InvalidOptionError(
            f"{name}: a gradient that the first maximum has alone cannot be shared",
            because="the parameters say ties='first'",
            remedy="ties='shared', or no use_scaled_gradient",
        )
    return replace(params, ties="shared")


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
    check_computes(tensor.dtype, name=name)
    if dtype is not None and tensor.dtype != dtype:
        raise TypeMismatchError(f"{name}: {role} {tensor!r} is {tensor.dtype}, the gradient is {dtype}")


def _group(tensor: Tensor) -> int:
    """Channels that follow each other innermost in memory, or the group of a new tensor."""
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


def _regions(tensor: Tensor, group: int, outer: tuple[Int64, Int64], low: Int64, size: Int64) -> Regions:
    """A box of each block: its groups and samples, a range of the field, all channels of the group."""
    column = np.zeros((len(low), 1), np.int64)
    start = np.concatenate([outer[0], low, column], axis=1)
    return boxes(_grouped(tensor, group), start, np.concatenate([outer[1], size, column + group], axis=1))


def _state(blocks: ChannelBlocks, box: Int64, first: Int64, group: int) -> dict[str, Any]:
    state: dict[str, Any] = {"groups": blocks.size[:, 0], "batch": blocks.size[:, 1], "channels": group}
    for d in range(box.shape[1]):
        state |= {f"in_{d}": box[:, d], f"out_{d}": blocks.size[:, 2 + d], f"first_{d}": first[:, d]}
    return state


def _execute_pool(
    graph: Graph,
    params: PoolParams,
    step: PoolStep,
    inputs: dict[str, Tensor],
    out: Tensor,
    blocks: ChannelBlocks,
) -> Execute:
    group = blocks.group
    outer, own, extent = (blocks.start[:, :2], blocks.size[:, :2]), blocks.start[:, 2:], blocks.size[:, 2:]
    low, size, first = window_boxes(params, own, extent)
    edges: dict[str, Any] = {"x": _regions(inputs["x"], group, outer, low, size)}
    if "pooled" in inputs:
        edges["pooled"] = _regions(inputs["pooled"], group, outer, own, extent)
    compute_set = graph.compute_set("pool")
    compute_set.vertices(
        pool_codelet(step, inputs["x"].dtype, (params.kernel, params.stride), graph.system.ipu.num_workers),
        tile=blocks.tile,
        y=_regions(out, group, outer, own, extent),
        **edges,
        **_state(blocks, size, first, group),
    )
    return Execute(compute_set)


def _emit_gradient(
    graph: Graph,
    body: Sequence,
    params: PoolParams,
    inputs: tuple[Tensor, ...],
    out: Tensor,
    blocks: ChannelBlocks,
    read_group: int,
) -> None:
    group = blocks.group
    reads = dict(zip(("g", "pooled", "x"), inputs, strict=False))
    scale = 1.0
    # Windows at the edge have fewer elements, so each output has a divisor of its own; without padding it is one
    # number, which the vertex applies.
    if params.kind == "avg" and params.pads:
        reads["g"] = _scaled_by_windows(graph, body, params, inputs[0])
    elif params.kind == "avg":
        scale = 1.0 / math.prod(params.kernel)
    elif params.ties == "shared":
        reads["g"] = _scaled_by_ties(graph, body, params, inputs, read_group)
    elif params.ties == "first":
        # Which element is the first is seen from the whole window, of which a block has only a part: another step.
        places = _compared(graph, body, params, "places", inputs, read_group)
        reads = {"g": inputs[0], "places": places}
    step: GradientStep = "first" if params.ties == "first" else params.kind
    outer, own, extent = (blocks.start[:, :2], blocks.size[:, :2]), blocks.start[:, 2:], blocks.size[:, 2:]
    low, size, first = gradient_boxes(params, own, extent)
    boxes_of = {"x": (own, extent)}
    edges: dict[str, Any] = {
        name: _regions(t, group, outer, *boxes_of.get(name, (low, size))) for name, t in reads.items()
    }
    compute_set = graph.compute_set("gradient")
    compute_set.vertices(
        pool_gradient_codelet(step, out.dtype, (params.kernel, params.stride), graph.system.ipu.num_workers),
        tile=blocks.tile,
        y=_regions(out, group, outer, own, extent),
        scale=scale,
        **edges,
        **_state(blocks, size, first, group),
    )
    body.add(Execute(compute_set))


def _compared(
    graph: Graph, body: Sequence, params: PoolParams, step: PoolStep, inputs: tuple[Tensor, ...], group: int
) -> Tensor:
    """Result of ``step`` on the elements that equal their window's maximum, laid out as the pooled tensor."""
    _, pooled, tensor = inputs
    dtype = place_type(tensor.dtype, params.kernel) if step == "places" else tensor.dtype
    found, blocks = create_blocks(graph, dtype, params, f"{step}/out", group=group, is_input=False)
    body.add(_execute_pool(graph, params, step, inputs={"x": tensor, "pooled": pooled}, out=found, blocks=blocks))
    return found


def _scaled_by_ties(graph: Graph, body: Sequence, params: PoolParams, inputs: tuple[Tensor, ...], group: int) -> Tensor:
    """The output gradient over the number of elements of each window that equal its maximum."""
    gradient = inputs[0]
    # How many elements equal the maximum is known only at run time: a step that counts them, then a division.
    ties = _compared(graph, body, params, "ties", inputs, group)
    scaled = create_output_like(graph, [gradient], gradient.shape, gradient.dtype, "scaled/out")
    # A window of padding alone has no tie; its gradient goes nowhere, but must not become NaN.
    emit_map(graph, body, [_1 / Op("max", _2, 1.0)], [gradient, ties], [scaled], "scaled")
    return scaled


def _scaled_by_windows(graph: Graph, body: Sequence, params: PoolParams, gradient: Tensor) -> Tensor:
    """The output gradient over the number of elements of each window."""
    sizes = np.ones(())
    for dim in range(params.rank):
        sizes = sizes[..., None] * np.maximum(params.window_sizes(dim), 0)
    shares = map_tensor_linearly(
        graph, graph.constant(f32, gradient.shape[2:], 1.0 / np.maximum(sizes, 1), name="shares")
    )
    scaled = create_output_like(graph, [gradient], gradient.shape, gradient.dtype, "scaled/out")
    emit_map(graph, body, [_1 * _2], [gradient, shares], [scaled], "scaled")
    return scaled


# PopLibs' namespace ``popnn::pooling``.
globals().update(guarded_functions(globals(), ("pool", "pool_input_gradient", "create_pool_input"), FORMS))
poolInputGradient = pool_input_gradient  # noqa: N816
create_input = create_pool_input
createInput = create_input  # noqa: N816
