"""Convolutions and their gradients."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction import problem as problems
from abele.poplibs.poplin.contraction.host_kernel import Binding, field_roles
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.conv_params.transforms import TransformedConv
from abele.poplibs.poplin.lowering.call import ContractionCall, cheapest
from abele.poplibs.poplin.operations.float8 import Scales, scaled_call
from abele.poplibs.poplin.options import ContractionOptions, Planning, Types, read_settings, resolve_types
from abele.poplibs.poplin.rewrites.combine_groups import combinations_of_groups
from abele.poplibs.poplin.rewrites.dilate_output import dilated_after
from abele.poplibs.poplin.rewrites.expand_kernel import expansions
from abele.poplibs.poplin.rewrites.flatten_field import flat_rows
from abele.poplibs.poplin.rewrites.flatten_field_out import flattenings
from abele.poplibs.poplin.rewrites.sum_outer_field import convolve_deep, weight_deltas_deep
from abele.poplibs.poplin.rewrites.swap_operands import fills_units_better, swapped
from abele.poplibs.poplin.rewrites.weight_gradient import WeightGradient
from abele.poplibs.poplin.vertices.geometry_fields import FIELD_DIMS
from abele.poplibs.poputil.options import Options
from abele.words import counted

# Dithering: convolutions that begin at tiles of their own, so that small ones do not all burden the first tiles.
#
# The tiles of the IPU are renumbered for one convolution, by an even number of places that follows from its
# parameters, since tiles 2i and 2i + 1 are a pair that receives the same data faster. The forward pass, both gradients
# and the operands of a convolution have as many products over the same groups, and so begin at the same tile.


def dithered(graph: Graph, params: ConvParams, settings: ContractionOptions) -> Graph:
    """The graph as a convolution sees it; one that keeps to a number of tiles begins at the first."""
    if not settings.dithered or settings.planning.tiles:
        return graph
    ipu, others = np.split(np.arange(graph.num_tiles), [graph.system.ipu.num_tiles])
    key = (params.macs, params.groups, *sorted((params.in_channels, params.out_channels)))
    first = 2 * (zlib.crc32(repr(key).encode()) % max(1, len(ipu) // 2))
    return graph.virtual(tiles=np.concatenate([np.roll(ipu, -first), others]))


def convolution(
    graph: Graph,
    x: Tensor,
    weights: Tensor,
    params: ConvParams | TransformedConv,
    prog: Steps,
    *,
    output_type: ElementType | str | None = None,
    partials_type: ElementType | str | None = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
    scales: Scales = None,
    throws: bool = True,
    name: str = "convolution",
) -> Tensor:
    """The convolution (cross-correlation) of ``x`` with ``weights``.

    Args:
        graph: The graph.
        x: Input, [batch, in_channels, *field].
        weights: Weights, [out_channels, in_channels / groups, *kernel].
        params: Geometry of the convolution; or PopLibs' full description, with the transforms before and after.
        prog: Program that the call is appended to.
        output_type: Type of the result; by default that of the operands, f16 of 8-bit floats.
        partials_type: Type of partial sums; by default f32, always f16 of 8-bit floats.
        available_memory_proportion: Share of a tile's memory that slices and partials may take; by default 0.6.
        options: PopLibs' options, by name.
        scales: Of 8-bit floats: further scales of both operands, as for :func:`~abele.poplibs.poplin.matmul`.
        throws: Treatment of scales that are out of range, as there.
        name: Name of the call.

    Returns:
        The output, [batch, out_channels, *output_field], channels grouped innermost; on the tiles that computed it.

    Raises:
        TensorError: A tensor whose shape is not that of ``params``.
        TypeMismatchError: Operands of different types, or a type that the matrix units do not take; 8-bit floats on a
            chip that does not multiply them, unless option ``convertQuarterToHalf`` is set.
        OutOfMemoryError: No split fits the tiles.
    """
    check_shapes(name, params, {"x": (x, params.input_shape), "weights": (weights, params.weights_shape)})
    if isinstance(params, TransformedConv):
        seen = params.seen_input(x), params.seen_weights(weights)
        made = convolution(graph, *seen, params.core, prog, **_given(locals()))
        return params.shown_output(graph, made)
    settings = read_settings(name, options, partials_type, available_memory_proportion, is_conv=True)
    types = resolve_types(
        name, {f"x {x.name!r}": x.dtype, f"weights {weights.name!r}": weights.dtype}, output_type, settings.partials
    )
    if len(params.field) > FIELD_DIMS:

        def less(rows: Tensor, kernel: Tensor, inner: ConvParams) -> Tensor:
            return convolution(
                graph,
                rows,
                kernel,
                inner,
                prog,
                output_type=types.output,
                partials_type=types.partials,
                available_memory_proportion=available_memory_proportion,
                options=options,
                scales=scales,
                throws=throws,
                name=name,
            )

        return convolve_deep(graph, x, weights, params=params, prog=prog, convolve=less, name=name)
    graph = dithered(graph, params, settings)

    def make(graph: Graph, x: Tensor, weights: Tensor, types: Types) -> ContractionCall:
        return forward_call(graph, x, weights, params=params, types=types, planning=settings.planning, name=name)

    return scaled_call(
        graph, name, x, weights, types, make, settings=settings, scales=scales, prog=prog, throws=throws
    ).append(prog)


def forward_call(
    graph: Graph,
    x: Tensor,
    weights: Tensor,
    params: ConvParams,
    types: Types,
    planning: Planning,
    name: str,
    *,
    follows: bool = False,
) -> ContractionCall:
    """The call that makes a convolution of checked operands; see :class:`ContractionCall` for ``follows``."""
    rank = len(params.field)
    problem = problems.forward(params, types.dtype, types.partials, types.output)
    left = Binding(x, ("b", "g*ci", *field_roles("i", rank)), params.groups)
    right = Binding(weights, ("g*co", "ci", *field_roles("k", rank)), params.groups)
    roles = ("b", "g*co", *field_roles("o", rank))
    call = ContractionCall(
        graph,
        function="poplin.convolution",
        name=name,
        problem=problem,
        x=left,
        w=right,
        out_roles=roles,
        planning=planning,
        follows=follows,
    )
    return _best_way(call)


def _best_way(call: ContractionCall) -> ContractionCall:
    """``call``, or another way to do the same that is expected to take fewer cycles."""
    dense = dilated_after(call)
    if dense is not None:
        call = dense
    if call.problem.rank and call.problem.is_pointwise:
        return flat_rows(call)
    ways = [call, *expansions(call), *flattenings(call), *combinations_of_groups(call)]
    if fills_units_better(call):
        turned = swapped(call)
        ways += [turned, *expansions(turned)]
    return cheapest(ways)


def convolution_backward_data(
    graph: Graph,
    z_deltas: Tensor,
    weights: Tensor,
    params: ConvParams | TransformedConv,
    prog: Steps,
    *,
    output_type: ElementType | str | None = None,
    partials_type: ElementType | str | None = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
    scales: Scales = None,
    throws: bool = True,
    name: str = "convolution_backward_data",
) -> Tensor:
    """The gradient of a convolution's input: its weights, transposed and flipped, over the output's gradients.

    Args:
        graph: The graph.
        z_deltas: Gradients of the output, [batch, out_channels, *output_field].
        weights: The forward weights, [out_channels, in_channels / groups, *kernel].
        params: The forward convolution.
        prog: Program that the call is appended to.
        output_type: Type of the result; by default that of the operands, f16 of 8-bit floats.
        partials_type: Type of partial sums; by default f32, always f16 of 8-bit floats.
        available_memory_proportion: Share of a tile's memory that slices and partials may take; by default 0.6.
        options: PopLibs' options, by name.
        scales: Of 8-bit floats: further scales of both operands, as for :func:`~abele.poplibs.poplin.matmul`.
        throws: Treatment of scales that are out of range, as there.
        name: Name of the call.

    Returns:
        Gradients of the input, [batch, in_channels, *field].

    Raises:
        TensorError, TypeMismatchError, InvalidOptionError, OutOfMemoryError: As for :func:`convolution`.
    """
    check_shapes(
        name, params, {"z_deltas": (z_deltas, params.output_shape), "weights": (weights, params.weights_shape)}
    )
    if isinstance(params, TransformedConv):
        seen = params.seen_deltas(z_deltas), params.seen_weights(weights)
        made = convolution_backward_data(graph, *seen, params.core, prog, **_given(locals()))
        return params.shown_input_gradient(graph, made)
    settings = read_settings(name, options, partials_type, available_memory_proportion, is_conv=True)
    types = resolve_types(
        name,
        {f"z_deltas {z_deltas.name!r}": z_deltas.dtype, f"weights {weights.name!r}": weights.dtype},
        output_type,
        settings.partials,
    )
    rank = len(params.field)
    if rank > FIELD_DIMS:
        return convolution(
            graph,
            z_deltas,
            exchanged(weights, params.groups),
            params.gradient_params(),
            prog,
            output_type=types.output,
            partials_type=types.partials,
            available_memory_proportion=available_memory_proportion,
            options=options,
            scales=scales,
            throws=throws,
            name=name,
        )
    graph = dithered(graph, params, settings)

    def make(graph: Graph, z_deltas: Tensor, weights: Tensor, types: Types) -> ContractionCall:
        call = ContractionCall(
            graph,
            function="poplin.convolution_backward_data",
            name=name,
            problem=problems.input_gradient(params, types.dtype, types.partials, types.output),
            x=Binding(z_deltas, ("b", "g*ci", *field_roles("i", rank)), params.groups),
            w=Binding(weights, ("g*ci", "co", *field_roles("k", rank)), params.groups),
            out_roles=("b", "g*co", *field_roles("o", rank)),
            planning=settings.planning,
        )
        return _best_way(call)

    return scaled_call(
        graph, name, z_deltas, weights, types, make, settings=settings, scales=scales, prog=prog, throws=throws
    ).append(prog)


def calculate_weight_deltas(
    graph: Graph,
    z_deltas: Tensor,
    activations: Tensor,
    params: ConvParams | TransformedConv,
    prog: Steps,
    *,
    output_type: ElementType | str | None = None,
    partials_type: ElementType | str | None = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
    like: Tensor | None = None,
    scales: Scales = None,
    throws: bool = True,
    name: str = "calculate_weight_deltas",
) -> Tensor:
    """The gradient of a convolution's weights.

    Args:
        graph: The graph.
        z_deltas: Gradients of the output, [batch, out_channels, *output_field].
        activations: The forward input, [batch, in_channels, *field].
        params: The forward convolution.
        prog: Program that the call is appended to.
        output_type: Type of the result; by default that of the operands, f16 of 8-bit floats.
        partials_type: Type of partial sums; by default f32, always f16 of 8-bit floats.
        available_memory_proportion: Share of a tile's memory that slices and partials may take; by default 0.6.
        options: PopLibs' options, by name.
        like: The weights, so that the gradient lies in the same order on the same tiles. Weights made by
            ``create_weights`` do so already.
        scales: Of 8-bit floats: further scales of both operands, as for :func:`~abele.poplibs.poplin.matmul`.
        throws: Treatment of scales that are out of range, as there.
        name: Name of the call.

    Returns:
        Gradients of the weights, [out_channels, in_channels / groups, *kernel].

    Raises:
        TensorError, TypeMismatchError, InvalidOptionError, OutOfMemoryError: As for :func:`convolution`.
    """
    given = {"z_deltas": (z_deltas, params.output_shape), "activations": (activations, params.input_shape)}
    check_shapes(name, params, given | ({} if like is None else {"like": (like, params.weights_shape)}))
    if isinstance(params, TransformedConv):
        seen = params.seen_deltas(z_deltas), params.seen_input(activations)
        made = calculate_weight_deltas(graph, *seen, params.core, prog, **_given(locals()))
        return params.shown_weight_gradient(graph, made)
    dtypes = {f"z_deltas {z_deltas.name!r}": z_deltas.dtype, f"activations {activations.name!r}": activations.dtype}
    settings = read_settings(name, options, partials_type, available_memory_proportion, is_conv=True)
    types = resolve_types(name, dtypes, output_type, settings.partials)
    if len(params.field) > FIELD_DIMS:

        def less(rows: Tensor, x: Tensor, inner: ConvParams) -> Tensor:
            return calculate_weight_deltas(
                graph,
                rows,
                x,
                inner,
                prog,
                output_type=types.output,
                partials_type=types.partials,
                available_memory_proportion=available_memory_proportion,
                options=options,
                scales=scales,
                throws=throws,
                name=name,
            )

        return weight_deltas_deep(graph, z_deltas, activations, params, less)

    def make(graph: Graph, z_deltas: Tensor, activations: Tensor, types: Types) -> ContractionCall:
        gradient = WeightGradient(
            graph,
            name=name,
            params=params,
            types=types,
            z_deltas=z_deltas,
            activations=activations,
            planning=settings.planning,
            like=like,
        )
        return gradient.cheapest()

    graph = dithered(graph, params, settings)
    return scaled_call(
        graph, name, z_deltas, activations, types, make, settings=settings, scales=scales, prog=prog, throws=throws
    ).append(prog)


def exchanged(weights: Tensor, groups: int) -> Tensor:
    """Weights with the channel dimensions of every group exchanged: [in_channels, out_channels / groups, *kernel]."""
    outs, ins, *kernel = weights.shape
    grouped = weights.reshape((groups, outs // groups, ins, *kernel))
    return grouped.moveaxis(2, 1).reshape((groups * ins, outs // groups, *kernel))


def _given(named: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments that a call hands on."""
    names = ("output_type", "partials_type", "available_memory_proportion", "options", "scales", "throws", "name")
    return {name: named[name] for name in names}


def check_shapes(
    name: str, params: ConvParams | TransformedConv, given: Mapping[str, tuple[Tensor, Sequence[int]]]
) -> None:
    """Raise unless every tensor, by its name, has its shape.

    Raises:
        TensorError: One has another.
    """
    for label, (tensor, shape) in given.items():
        if tensor.shape == tuple(shape):
            continue
        channels = tensor.ndim == len(shape) and tensor.shape[1] != shape[1]
        raise TensorError(
            f"{name}: {label} is {tensor!r}, the convolution needs shape {list(shape)}",
            because=f"{label} has {counted(tensor.shape[1], 'channel')} in dimension 1, not {shape[1]}"
            if channels
            else None,
            remedy="make the ConvParams from the shapes of the tensors",
        )
