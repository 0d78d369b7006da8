"""Several convolutions, gradients or weight updates at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from abele.errors import TensorIndexError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence as Program
from abele.numerics import as_element_type
from abele.poplibs import popops
from abele.poplibs.poplin import create
from abele.poplibs.poplin.convolution import calculate_weight_deltas as one_gradient
from abele.poplibs.poplin.convolution import check_shapes, exchanged, forward_call
from abele.poplibs.poplin.convolution import convolution as one_convolution
from abele.poplibs.poplin.multiconv.args import (
    CalculateWeightDeltasArgs,
    ConvolutionArgs,
    ConvWeightUpdateArgs,
    CreateTensorArgs,
    Params,
    read_multi_options,
)
from abele.poplibs.poplin.multiconv.shares import Estimate, Phases, Share, phases_of, share_tiles
from abele.poplibs.poplin.options import Settings, read_settings, resolve_types
from abele.poplibs.poplin.params import ConvParams
from abele.poplibs.poplin.transforms import TransformedConv
from abele.poplibs.poplin.vertices import FIELD_DIMS
from abele.poplibs.poplin.weight_gradient import WeightGradient
from abele.poplibs.popops.side_by_side import zip_programs
from abele.poplibs.poputil.options import Options

Given = CreateTensorArgs | ConvolutionArgs | CalculateWeightDeltasArgs
"""What convolutions are given."""
Emit = Callable[[Graph, Program, dict[str, Any]], Tensor]
"""Appends a convolution to a program, on a graph, with some of its options set."""

_LIMIT = "tilesPerIPU"


def create_input(graph: Graph, args: Sequence[CreateTensorArgs], index: int, *, options: Options = None) -> Tensor:
    """The input of one of several convolutions, [batch, in_channels, *field], on the tiles that will read it.

    Args:
        graph: The graph.
        args: All convolutions that are to run together.
        index: Which of them.
        options: Options of all together, as for :func:`convolution`.

    Raises:
        TensorIndexError: There is no such convolution.
        InvalidOptionError, OutOfMemoryError: As for :func:`convolution`.
    """
    one, on, limit = _created("multiconv.create_input", graph, args, index, options)
    return create.create_input(on, one.params, one.dtype, one.name or f"input_{index}", options=_with(one, limit))


def create_weights(graph: Graph, args: Sequence[CreateTensorArgs], index: int, *, options: Options = None) -> Tensor:
    """The weights of one of several convolutions, [out_channels, in_channels / groups, *kernel]; see
    :func:`create_input`."""
    one, on, limit = _created("multiconv.create_weights", graph, args, index, options)
    return create.create_weights(on, one.params, one.dtype, one.name or f"weights_{index}", options=_with(one, limit))


def convolution(
    graph: Graph,
    args: Sequence[ConvolutionArgs],
    prog: Program,
    *,
    transpose_and_flip_weights: bool = False,
    options: Options = None,
    name: str = "multi_convolution",
) -> list[Tensor]:
    """Several convolutions at the same time.

    Each is planned on a share of the tiles, so that all end together; then their steps share supersteps, so that
    barriers, exchanges and launches are paid for once.

    Args:
        graph: The graph.
        args: The convolutions. None may read what another computes.
        prog: Where the call is appended.
        transpose_and_flip_weights: The weights are those of the forward pass, and ``params`` are those of the gradient
            of its input (``params.gradient_params()``).
        options: ``planType``: ``parallel``, or ``serial`` for one after the other on all tiles;
            ``perConvReservedTiles``: tiles that each has at least; ``cycleBackOff``: how much longer the longest may
            take than the shortest before shares are searched further.
        name: Name of the call.

    Returns:
        The outputs, [batch, out_channels, *output_field] each.

    Raises:
        TensorError, TypeMismatchError: As for a single convolution.
        InvalidOptionError: An unknown option; or there are more convolutions than tiles.
        OutOfMemoryError: A convolution fits no share of the tiles.
    """
    if transpose_and_flip_weights:
        args = [_transposed(one) for one in args]
    _check_options(args)
    emits = [partial(_emit_forward, one) for one in args]
    return _together(graph, [partial(_forward, graph, one) for one in args], emits, prog, options, name)


def calculate_weight_deltas(
    graph: Graph,
    args: Sequence[CalculateWeightDeltasArgs],
    prog: Program,
    *,
    options: Options = None,
    name: str = "multi_weight_deltas",
) -> list[Tensor]:
    """The gradients of several convolutions' weights at the same time, [out_channels, in_channels / groups, *kernel].

    For the arguments and errors see :func:`convolution`.
    """
    return _deltas(graph, args, [None] * len(args), prog, options, name)


def convolution_weight_update(
    graph: Graph,
    args: Sequence[ConvWeightUpdateArgs],
    prog: Program,
    *,
    options: Options = None,
    name: str = "multi_weight_update",
) -> None:
    """Several updates, weights ← weights + scale · their gradient, at the same time and in place.

    For the arguments and errors see :func:`convolution`.

    Raises:
        ControlProgramError: Two of them update the same weights, and are to run at the same time.
    """
    gradients = [CalculateWeightDeltasArgs(a.z_deltas, a.activations, a.params, a.options) for a in args]
    deltas = _deltas(graph, gradients, [a.weights for a in args], prog, options, f"{name}_deltas")
    lanes = []
    for one, gradient in zip(args, deltas, strict=True):
        lanes.append(Program())
        popops.scaled_add_to(graph, one.weights, gradient, one.scale, lanes[-1], name=name)
    _append(graph, lanes, prog, name, is_parallel=read_multi_options(name, options).is_parallel)


def _deltas(
    graph: Graph,
    args: Sequence[CalculateWeightDeltasArgs],
    like: Sequence[Tensor | None],
    prog: Program,
    options: Options,
    name: str,
) -> list[Tensor]:
    """Gradients of weights, each in the order and on the tiles of a tensor where one is given."""
    _check_options(args)
    pairs = list(zip(args, like, strict=True))
    emits = [partial(_emit_gradient, one, weights) for one, weights in pairs]
    return _together(
        graph, [partial(_gradient, graph, one, weights) for one, weights in pairs], emits, prog, options, name
    )


def _together(
    graph: Graph,
    estimates: Sequence[Estimate],
    emits: Sequence[Emit],
    prog: Program,
    options: Options,
    name: str,
) -> list[Tensor]:
    """Append convolutions, side by side or one after the other; their results."""
    planning = read_multi_options(name, options)
    lanes = [Program() for _ in emits]
    if planning.is_parallel and emits:
        shares = share_tiles(name, graph, estimates, planning)
    else:
        shares = [Share(graph, 0)] * len(emits)
    with graph.scope(name):
        made = [
            emit(share.graph, lane, {_LIMIT: share.tiles})
            for emit, share, lane in zip(emits, shares, lanes, strict=True)
        ]
    _append(graph, lanes, prog, name, is_parallel=planning.is_parallel)
    return made


def _emit_forward(one: ConvolutionArgs, graph: Graph, prog: Program, limit: dict[str, Any]) -> Tensor:
    return one_convolution(graph, one.inputs, one.weights, one.params, prog, options=_with(one, limit))


def _emit_gradient(
    one: CalculateWeightDeltasArgs, like: Tensor | None, graph: Graph, prog: Program, limit: dict[str, Any]
) -> Tensor:
    return one_gradient(
        graph,
        one.z_deltas,
        one.activations,
        one.params,
        prog,
        output_type=None if like is None else like.dtype,
        options=_with(one, limit),
        like=like,
    )


def _with(one: Given, limit: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a convolution, which is to use no more tiles than its share."""
    given = {(_LIMIT if key == "tiles_per_ipu" else key): value for key, value in (one.options or {}).items()}
    own = read_settings("multiconv", given, is_conv=True).planning.tiles
    share = limit.get(_LIMIT, 0)
    return given | {_LIMIT: min(n for n in (own, share) if n) if own or share else 0}


def _append(graph: Graph, lanes: Sequence[Program], prog: Program, name: str, *, is_parallel: bool) -> None:
    steps = zip_programs(graph, lanes, name) if is_parallel else [step for lane in lanes for step in lane]
    for step in steps:
        prog.add(step)


def _created(
    function: str, graph: Graph, args: Sequence[CreateTensorArgs], index: int, options: Options
) -> tuple[CreateTensorArgs, Graph, dict[str, Any]]:
    """One of several convolutions, the graph in which its share of the tiles comes first, and an option for it."""
    planning = read_multi_options(function, options)
    if not 0 <= index < len(args):
        raise TensorIndexError(f"{function}: there is no convolution {index}, {len(args)} are given")
    _check_options(args)
    if not planning.is_parallel:
        return args[index], graph, {}
    share = share_tiles(function, graph, [partial(_planned, graph, one) for one in args], planning)[index]
    return args[index], share.graph, {_LIMIT: share.tiles}


def _planned(graph: Graph, one: CreateTensorArgs, tiles: int) -> Phases:
    """What a convolution of operands that are made for it is expected to take."""
    settings = _settings(one, tiles)
    return phases_of(create.created_conv_call(graph, one.params, as_element_type(one.dtype), settings))


def _forward(graph: Graph, one: ConvolutionArgs, tiles: int) -> Phases:
    """What a convolution is expected to take."""
    params, x, weights = one.params, one.inputs, one.weights
    given = {"inputs": (x, params.input_shape), "weights": (weights, params.weights_shape)}
    check_shapes("multiconv.convolution", params, given)
    if isinstance(params, TransformedConv):
        x, weights, params = params.seen_input(x), params.seen_weights(weights), params.core
    settings = _settings(one, tiles)
    types = resolve_types("multiconv", {"inputs": x.dtype, "weights": weights.dtype}, None, settings.partials)
    if len(params.field) > FIELD_DIMS:
        return _by_products(params, tiles)
    return phases_of(forward_call(graph, x, weights, params, types, settings.planning, "planned"))


def _gradient(graph: Graph, one: CalculateWeightDeltasArgs, like: Tensor | None, tiles: int) -> Phases:
    """What a gradient of weights is expected to take."""
    params, z, x = one.params, one.z_deltas, one.activations
    given = {"z_deltas": (z, params.output_shape), "activations": (x, params.input_shape)}
    check_shapes("multiconv.calculate_weight_deltas", params, given)
    if isinstance(params, TransformedConv):
        z, x, params, like = params.seen_deltas(z), params.seen_input(x), params.core, None
    settings = _settings(one, tiles)
    kind = None if like is None else like.dtype
    types = resolve_types("multiconv", {"z_deltas": z.dtype, "activations": x.dtype}, kind, settings.partials)
    if len(params.field) > FIELD_DIMS:
        return _by_products(params, tiles)
    return phases_of(WeightGradient(graph, "planned", params, types, z, x, settings.planning, like).cheapest())


def _check_options(args: Sequence[Given]) -> None:
    """Raise where an option of a single convolution is wrong: later, that would look as if it did not fit."""
    for one in args:
        _settings(one, 0)


def _settings(one: Given, tiles: int) -> Settings:
    return read_settings("multiconv", _with(one, {_LIMIT: tiles}), is_conv=True)


def _by_products(params: ConvParams, tiles: int) -> Phases:
    """Products a tile: all that is known of a convolution that takes several calls before it is made."""
    return {"products": -(-params.macs // tiles)}


def _transposed(one: ConvolutionArgs) -> ConvolutionArgs:
    """The same with the channels of the weights exchanged; ``params`` of a gradient flip them already."""
    weights = one.weights
    if weights.ndim != len(one.params.weights_shape) or weights.shape[0] % _groups(one.params):
        return one
    return ConvolutionArgs(one.inputs, exchanged(weights, _groups(one.params)), one.params, one.options)


def _groups(params: Params) -> int:
    return params.core.groups if isinstance(params, TransformedConv) else params.groups
