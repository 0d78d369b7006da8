"""Creating operands in the layouts that matmuls and convolutions read.

Correctness never depends on them: any view will do. An operand made here is stored in the order that vertices read, and
lies on the tiles whose vertices read it, each of which holds an equal share; the operation must be given the same types
and share of memory, or its plan may be another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.machine import System
from abele.numerics import ElementType, as_element_type
from abele.poplibs.poplin.contraction.host_kernel import Binding
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.lowering.call import ContractionCall, cheapest
from abele.poplibs.poplin.lowering.placement import place_input, place_weights
from abele.poplibs.poplin.lowering.storage import new_weights
from abele.poplibs.poplin.operations.convolution import dithered, forward_call
from abele.poplibs.poplin.operations.float8 import planned_types
from abele.poplibs.poplin.operations.matmul_layout import MatmulLayout, best_layout, is_swapped, planned_together
from abele.poplibs.poplin.options import ContractionOptions, Planning, Types, read_settings, resolve_types
from abele.poplibs.poplin.rewrites.flatten_field import flattened
from abele.poplibs.poplin.rewrites.flatten_field_out import OutputWindows
from abele.poplibs.poplin.rewrites.swap_operands import is_turned
from abele.poplibs.poputil.layout import CHANNEL_GROUPS, channels_per_group, unmapped_activations
from abele.poplibs.poputil.options import Options
from abele.poplibs.poputil.order import storage_order

Type = ElementType | str | None


def create_input(
    graph: Graph,
    params: ConvParams,
    dtype: ElementType | str,
    name: str = "activations",
    *,
    partials_type: Type = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
) -> Tensor:
    """The input of a convolution, [batch, in_channels, *field], channels grouped innermost.

    Args:
        graph: Graph in which it is made.
        params: The convolution.
        dtype: f16 or f32.
        name: Name of the variable.
        partials_type: Type of partial sums that the convolution will have; by default f32.
        available_memory_proportion: Share of a tile's memory that its slices and partials may take; by default 0.6.
        options: The convolution's options, by name: with the same ones it finds its input where it wants it.

    Raises:
        TypeMismatchError: A type that convolutions do not take.
        InvalidOptionError: An unknown option, or a value that it does not take.
        OutOfMemoryError: No split fits the tiles.
    """
    settings = read_settings(name, options, partials_type, available_memory_proportion, is_conv=True)
    return planned_input(graph, params, dtype, settings, name)


def planned_input(
    graph: Graph, params: ConvParams, dtype: ElementType | str, settings: ContractionOptions, name: str
) -> Tensor:
    """See :func:`create_input`."""
    graph = dithered(graph, params, settings)
    call = created_conv_call(graph, params, dtype, settings)
    made = unmapped_activations(graph, dtype, params.input_shape, name, group=_input_block(call))
    _place(graph, made, call, "x")
    return made


def create_weights(
    graph: Graph,
    params: ConvParams,
    dtype: ElementType | str,
    name: str = "weights",
    *,
    partials_type: Type = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
) -> Tensor:
    """The weights of a convolution, [out_channels, in_channels / groups, *kernel], in the order that vertices read.

    Arguments and errors as of :func:`create_input`.
    """
    settings = read_settings(name, options, partials_type, available_memory_proportion, is_conv=True)
    return planned_weights(graph, params, dtype, settings, name)


def planned_weights(
    graph: Graph, params: ConvParams, dtype: ElementType | str, settings: ContractionOptions, name: str
) -> Tensor:
    """See :func:`create_weights`."""
    graph = dithered(graph, params, settings)
    call = created_conv_call(graph, params, dtype, settings)
    made = _new_conv_weights(graph, params, as_element_type(dtype), name, _weights_blocks(call))
    _place(graph, made, call, "w")
    return made


def create_biases(
    graph: Graph, params: ConvParams, dtype: ElementType | str, name: str = "biases", *, options: Options = None
) -> Tensor:
    """The biases of a convolution, [out_channels], spread over the tiles; ``options`` are those of the convolution.

    Raises:
        InvalidOptionError: A misspelt option, or a value that it does not take.
    """
    read_settings(name, options, is_conv=True)
    return graph.variable(dtype, params.out_channels, name=name, map="linear")


def create_matmul_input_lhs(
    graph: Graph,
    dtype: ElementType | str,
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    name: str = "lhs",
    *,
    partials_type: Type = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
) -> Tensor:
    """The left operand of a matmul, [m, k], or [g, m, k] for a grouped one: columns grouped innermost.

    Raises:
        TensorError: The shapes are not those of two matrices that can be multiplied.
    """
    layout = created_layout(
        graph, a_shape, b_shape, dtype, read_settings(name, options, partials_type, available_memory_proportion)
    )
    return _placed(graph, layout.lhs(graph, as_element_type(dtype), a_shape, name), layout.call, is_left=True)


def create_matmul_input_rhs(
    graph: Graph,
    dtype: ElementType | str,
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    name: str = "rhs",
    *,
    partials_type: Type = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
) -> Tensor:
    """The right operand of a matmul, [k, n], or [g, k, n] for a grouped one, in the order that vertices read.

    Raises:
        TensorError: The shapes are not those of two matrices that can be multiplied.
    """
    layout = created_layout(
        graph, a_shape, b_shape, dtype, read_settings(name, options, partials_type, available_memory_proportion)
    )
    return _placed(graph, layout.rhs(graph, as_element_type(dtype), b_shape, name), layout.call, is_left=False)


def create_matmul_output(
    graph: Graph,
    dtype: ElementType | str,
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    name: str = "product",
    *,
    partials_type: Type = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
) -> Tensor:
    """A tensor [m, n], or [g, m, n], stored and placed as a matmul of operands that are made here would leave it.

    Raises:
        TensorError: The shapes are not those of two matrices that can be multiplied.
    """
    settings = read_settings(name, options, partials_type, available_memory_proportion)
    with graph.scope(name):
        return created_layout(graph, a_shape, b_shape, dtype, settings).call.create_output(graph)


def _input_blocks(params: ConvParams) -> tuple[int, ...]:
    """Channels that may follow each other in memory, best first unless the plan says otherwise."""
    channels = params.in_channels // params.groups
    if channels > 1 or params.groups == 1:
        return (channels_per_group(channels),)
    return tuple(n for n in CHANNEL_GROUPS if params.groups % n == 0) or (channels_per_group(params.groups),)


def _input_block(call: ContractionCall) -> int:
    """Channels that follow each other in memory in the input of a convolution made for planning."""
    seen = call.x.tensor if call.meaning is None else call.meaning.x.tensor
    return seen.variables[0].shape[-1]


def _weights_blocks(call: ContractionCall) -> dict[str, int]:
    """Blocks of out-channels in the weights of a convolution, where its plan wants others than suit most readers."""
    block = call.stored.block("co") if call.follows and not call.layouts.arrange_weights else None
    return {} if block is None else {"co": block}


def _new_conv_weights(
    graph: Graph,
    params: ConvParams,
    dtype: ElementType,
    name: str,
    blocks: Mapping[str, int] = MappingProxyType({}),
) -> Tensor:
    extents = {"g": params.groups, "co": params.out_channels // params.groups, "ci": params.weights_shape[1]}
    extents |= {f"k{d}": n for d, n in enumerate(params.kernel)}
    return new_weights(graph, dtype, extents, name, blocks).reshape(params.weights_shape)


def created_conv_call(
    graph: Graph, params: ConvParams, dtype: ElementType | str, settings: ContractionOptions
) -> ContractionCall:
    """Convolution of operands stored as those made here, in a graph of its own."""
    types = resolve_types("convolution", {"x": as_element_type(dtype)}, None, settings.partials)
    return created_call(graph.system, params, planned_types(graph.system, types), settings.planning)


@lru_cache(maxsize=1024)
def created_call(system: System, params: ConvParams, types: Types, planning: Planning) -> ContractionCall:
    """As :func:`created_conv_call`, for one of a kind."""
    element, elsewhere = types.dtype, Graph(system)
    w = _new_conv_weights(elsewhere, params, element, "weights")
    calls = []
    for block in _input_blocks(params):
        x = unmapped_activations(elsewhere, element, params.input_shape, "input", group=block)
        made = forward_call(
            elsewhere, x, w, params=params, types=types, planning=planning, name="convolution", follows=True
        )
        calls.append(made)
    return cheapest(calls)


def created_layout(
    graph: Graph,
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    dtype: ElementType | str,
    settings: ContractionOptions,
    output_type: Type = None,
) -> MatmulLayout:
    """The layout of a product's operands that is expected to take the fewest cycles."""
    _check_shapes(a_shape, b_shape)
    types = resolve_types("matmul", {"a": as_element_type(dtype)}, output_type, settings.partials)
    types = planned_types(graph.system, types)
    shapes = tuple(a_shape), tuple(b_shape)
    planning = planned_together(graph.system, *shapes, types, settings.planning)
    return best_layout(graph.system, *shapes, types, planning)


def _placed(graph: Graph, made: Tensor, call: ContractionCall, *, is_left: bool) -> Tensor:
    """``made``, mapped as the left or right operand of the product ``call``."""
    _place(graph, made, call, "x" if is_left != is_swapped(call) else "w")
    return made


def _place(graph: Graph, made: Tensor, call: ContractionCall, role: str) -> None:
    """Map ``made`` as the operand ``x`` or ``w`` of ``call``; evenly where the call writes it anew in another order."""
    if isinstance(call.widening, OutputWindows) and role == "x":
        seen = call.meaning.x if call.meaning is not None else call.x
        view = call.widening.input_view(Binding(made, seen.roles, seen.groups))
        if not call.layouts.arrange_input:
            place_input(graph, view.operand(), call.schedule)
            return
    if is_turned(call):
        role = "w" if role == "x" else "x"
    theirs = call.x if role == "x" else call.w
    if _is_rewritten(call, role) or (call.layouts.arrange_input if role == "x" else call.layouts.arrange_weights):
        order = storage_order(made)
        graph.map_linear(order.apply(made), min_elements=order.extents[-1], grain=order.extents[-1])
        return
    rows = flattened(made) if role == "x" and theirs.tensor.ndim < made.ndim else made.reshape(theirs.tensor.shape)
    place = place_input if role == "x" else place_weights
    place(graph, Binding(rows, theirs.roles, theirs.groups).operand(), call.schedule)


def _is_rewritten(call: ContractionCall, role: str) -> bool:
    """True if an operand is written anew before anything else."""
    return call.expansion is not None or (role == "w" and call.widening is not None)


def _check_shapes(a_shape: Sequence[int], b_shape: Sequence[int]) -> None:
    fits = len(a_shape) == len(b_shape) in (2, 3)
    if not fits or a_shape[-1] != b_shape[-2] or tuple(a_shape[:-2]) != tuple(b_shape[:-2]):
        raise TensorError(
            f"matmul: shapes {list(a_shape)} and {list(b_shape)} are not those of matrices to be multiplied",
            remedy="[m, k] by [k, n], or [g, m, k] by [g, k, n]",
        )
