"""Several convolutions, gradients or weight updates at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapify, heapreplace
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import AbeleError, InvalidOptionError, OutOfMemoryError, TensorIndexError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import as_element_type
from abele.poplibs import popops
from abele.poplibs.poplin.conv_params.transforms import TransformedConv
from abele.poplibs.poplin.lowering.call import ContractionCall
from abele.poplibs.poplin.multiconv.args import (
    CalculateWeightDeltasArgs,
    ConvolutionArgs,
    ConvWeightUpdateArgs,
    CreateTensorArgs,
    MultiPlanning,
    Params,
    read_multi_options,
)
from abele.poplibs.poplin.operations.convolution import calculate_weight_deltas as one_gradient
from abele.poplibs.poplin.operations.convolution import check_shapes, dithered, exchanged, forward_call
from abele.poplibs.poplin.operations.convolution import convolution as one_convolution
from abele.poplibs.poplin.operations.create import created_conv_call, planned_input, planned_weights
from abele.poplibs.poplin.operations.float8 import multiplies_quarters
from abele.poplibs.poplin.options import ContractionOptions, Types, read_settings, resolve_types
from abele.poplibs.poplin.rewrites.weight_gradient import WeightGradient
from abele.poplibs.poplin.vertices.geometry_fields import FIELD_DIMS
from abele.poplibs.popops.programs.side_by_side import zip_programs
from abele.poplibs.poputil.options import Options
from abele.words import counted

# Shares of the tiles for convolutions that run at the same time, so that they end together.
#
# A convolution's time falls more slowly than its tiles grow, so shares are found in rounds: each convolution is
# planned on its share, and the shares are rescaled by the times that are expected. In a round the longest convolution
# leads. The others are planned beside it: whatever in them takes no longer than the same kind of step of the first
# costs nothing. So all together take the sum over kinds of steps of what the longest takes; the round in which that is
# least is taken.

Phases = dict[str, int]
"""Expected cycles by kind of step."""


@dataclass(frozen=True)
class Limits:
    """Limits of a convolution that leave room for others at the same time.

    Attributes:
        tiles: Tiles that it uses at most; 0 for all.
        beside: Cycles of another that runs at the same time, by kind of step.
    """

    tiles: int = 0
    beside: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Share:
    """Tiles of one convolution.

    Attributes:
        graph: The graph with its tiles numbered so that those of the share come first. It has all, as operands may lie
            on any.
        limits: Limits of the convolution.
    """

    graph: Graph
    limits: Limits = Limits()


Estimate = Callable[[Limits], Phases]
"""Estimate of a convolution's cycles within limits."""

_ROUNDS = 5


def share_tiles(name: str, graph: Graph, estimates: Sequence[Estimate], planning: MultiPlanning) -> list[Share]:
    """For each convolution its share of the tiles of the first IPU.

    Args:
        name: The multi-convolution, for errors.
        graph: The graph.
        estimates: Estimated cycles of each convolution under given limits.
        planning: Limits of the search.

    Raises:
        InvalidOptionError: There are more convolutions than tiles.
        OutOfMemoryError, InvalidOptionError: A convolution fits no share that was tried.
    """
    tiles, count = graph.system.ipu.num_tiles, len(estimates)
    if count > tiles:
        raise InvalidOptionError(
            f"{name}: {counted(count, 'convolution')} cannot each have tiles of their own, there are {tiles}",
            remedy="planType='serial', or fewer at a time",
        )
    if count == 1:
        return [Share(graph)]
    least = min(planning.reserved_tiles, tiles // count)
    sizes = _scaled(np.ones(count), tiles, least)
    rounds: list[_TriedShares] = []
    for _ in range(_ROUNDS):
        rounds.append(_tried(estimates, sizes))
        if rounds[-1].is_even(least, planning.back_off):
            break
        sizes = _scaled(sizes * rounds[-1].cycles, tiles, least)
    fitting = [r for r in rounds if r.unfit is None]
    if not fitting:
        raise _unfit(name, rounds[-1])
    return _cut(graph, min(fitting, key=lambda r: r.together))


@dataclass(frozen=True)
class _TriedShares:
    """Shares that were tried.

    Attributes:
        sizes: Tiles of each convolution.
        found: Estimated phases of each on its own, or the error if it does not fit.
        limits: Limits of each beside the longest.
        together: Cycles of all, steps of the same kind at once.
    """

    sizes: npt.NDArray[np.int64]
    found: tuple[Phases | AbeleError, ...]
    limits: tuple[Limits, ...]
    together: int

    @property
    def unfit(self) -> int | None:
        """The first convolution that does not fit its share."""
        return next((i for i, found in enumerate(self.found) if isinstance(found, AbeleError)), None)

    @property
    def cycles(self) -> npt.NDArray[np.float64]:
        """Cycles of each; twice the most where one does not fit, so that its share grows."""
        alone = [sum(found.values()) if isinstance(found, dict) else -1 for found in self.found]
        return np.array([2 * max(1, *alone) if n < 0 else n for n in alone], dtype=np.float64)

    def is_even(self, least: int, back_off: float) -> bool:
        """True if all fit and end together, but for those that have the least tiles and are ready before."""
        cycles = self.cycles
        larger = cycles[(self.sizes > least) | (cycles == cycles.max())]
        return self.unfit is None and bool(cycles.max() <= (1 + back_off) * larger.min())


def _tried(estimates: Sequence[Estimate], sizes: npt.NDArray[np.int64]) -> _TriedShares:
    """A round with these shares."""
    alone = [Limits(int(n)) for n in sizes]
    found = tuple(_expected(e, limits) for e, limits in zip(estimates, alone, strict=True))
    fitting = [phases for phases in found if isinstance(phases, dict)]
    if len(fitting) < len(found):
        return _TriedShares(sizes, found, tuple(alone), 0)
    lead = max(range(len(fitting)), key=lambda i: sum(fitting[i].values()))
    beside = tuple(fitting[lead].items())
    limits = tuple(own if i == lead else replace(own, beside=beside) for i, own in enumerate(alone))
    joint = [e(limit) if limit.beside else fitting[lead] for e, limit in zip(estimates, limits, strict=True)]
    kinds = dict.fromkeys(kind for phases in joint for kind in phases)
    return _TriedShares(sizes, found, limits, sum(max(phases.get(kind, 0) for phases in joint) for kind in kinds))


def _expected(estimate: Estimate, limits: Limits) -> Phases | AbeleError:
    try:
        return estimate(limits)
    except (OutOfMemoryError, InvalidOptionError) as error:
        return error


def _unfit(name: str, tried: _TriedShares) -> AbeleError:
    """The error of a convolution that does not fit its share."""
    number = tried.unfit
    assert number is not None
    error = tried.found[number]
    assert isinstance(error, AbeleError)
    return type(error)(
        f"{name}: convolution {number} does not fit its share of {tried.sizes[number]:,} tiles: {error}",
        remedy="planType='serial', or fewer convolutions at a time",
    )


def _scaled(work: npt.NDArray[np.float64], tiles: int, least: int) -> npt.NDArray[np.int64]:
    """Shares that add up to ``tiles``, each ``least`` at least, with the least maximum of work per tile.

    Even ones where there is room: tiles 2i and 2i + 1 are a pair that receives the same data faster.
    """
    grain = 2 if tiles >= 4 * len(work) else 1
    sizes = [max(least // grain, 1) * grain] * len(work)
    waiting = [(-n / size, i) for i, (n, size) in enumerate(zip(work.tolist(), sizes, strict=True))]
    heapify(waiting)
    while left := tiles - sum(sizes):
        i = waiting[0][1]
        sizes[i] += min(grain, left)
        heapreplace(waiting, (-float(work[i]) / sizes[i], i))
    return np.array(sizes, dtype=np.int64)


def _cut(graph: Graph, chosen: _TriedShares) -> list[Share]:
    ends = np.cumsum(chosen.sizes)
    ipu, others = np.split(np.arange(graph.num_tiles), ends[-1:])
    return [
        Share(graph.virtual(tiles=np.concatenate([np.roll(ipu, limits.tiles - end), others])), limits)
        for end, limits in zip(ends.tolist(), chosen.limits, strict=True)
    ]


Given = CreateTensorArgs | ConvolutionArgs | CalculateWeightDeltasArgs
"""Arguments of one convolution."""
Emit = Callable[[Share, Steps], Tensor]
"""Appends a convolution to a program, on a share of the tiles."""


def create_input(graph: Graph, args: Sequence[CreateTensorArgs], index: int, *, options: Options = None) -> Tensor:
    """The input of one of several convolutions, [batch, in_channels, *field], on the tiles that will read it.

    Args:
        graph: The graph.
        args: All convolutions that are to run together.
        index: Number of the convolution in ``args``.
        options: Options of all together, as for :func:`convolution`.

    Raises:
        TensorIndexError: There is no such convolution.
        InvalidOptionError, OutOfMemoryError: As for :func:`convolution`.
    """
    one, share = _created("multiconv.create_input", graph, args, index, options)
    settings = _settings(one, share.limits)
    return planned_input(share.graph, one.params, one.dtype, settings, one.name or f"input_{index}")


def create_weights(graph: Graph, args: Sequence[CreateTensorArgs], index: int, *, options: Options = None) -> Tensor:
    """The weights of one of several convolutions, [out_channels, in_channels / groups, *kernel]; see
    :func:`create_input`."""
    one, share = _created("multiconv.create_weights", graph, args, index, options)
    settings = _settings(one, share.limits)
    return planned_weights(share.graph, one.params, one.dtype, settings, one.name or f"weights_{index}")


def convolution(
    graph: Graph,
    args: Sequence[ConvolutionArgs],
    prog: Steps,
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
        prog: Sequence that the call is appended to.
        transpose_and_flip_weights: The weights are those of the forward pass, and ``params`` are those of the gradient
            of its input (``params.gradient_params()``).
        options: ``planType``: ``parallel``, or ``serial`` for one after the other on all tiles;
            ``perConvReservedTiles``: least tiles of each; ``cycleBackOff``: ratio of the longest to the shortest time
            up to which shares are taken as they are.
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
    prog: Steps,
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
    prog: Steps,
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
        lanes.append(Steps())
        popops.scaled_add_to(graph, one.weights, gradient, one.scale, lanes[-1], name=name)
    _append(graph, lanes, prog, name, is_parallel=read_multi_options(name, options).is_parallel)


def _deltas(
    graph: Graph,
    args: Sequence[CalculateWeightDeltasArgs],
    like: Sequence[Tensor | None],
    prog: Steps,
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
    prog: Steps,
    options: Options,
    name: str,
) -> list[Tensor]:
    """Append convolutions, side by side or one after the other; their results."""
    planning = read_multi_options(name, options)
    lanes = [Steps() for _ in emits]
    if planning.is_parallel and emits:
        shares = share_tiles(name, graph, estimates, planning)
    else:
        shares = [Share(graph)] * len(emits)
    with graph.scope(name):
        made = [emit(share, lane) for emit, share, lane in zip(emits, shares, lanes, strict=True)]
    _append(graph, lanes, prog, name, is_parallel=planning.is_parallel)
    return made


def _emit_forward(one: ConvolutionArgs, share: Share, prog: Steps) -> Tensor:
    if _takes_several_calls(one.params):
        options = _limited(one, share.limits)
        return one_convolution(share.graph, one.inputs, one.weights, one.params, prog, options=options)
    return _forward_call(share.graph, one, share.limits).append(prog)


def _emit_gradient(one: CalculateWeightDeltasArgs, like: Tensor | None, share: Share, prog: Steps) -> Tensor:
    if _takes_several_calls(one.params):
        kind, options = None if like is None else like.dtype, _limited(one, share.limits)
        operands = one.z_deltas, one.activations, one.params
        return one_gradient(share.graph, *operands, prog, output_type=kind, options=options, like=like)
    return _gradient_call(share.graph, one, like, share.limits).append(prog)


def _limited(one: Given, limits: Limits) -> dict[str, Any]:
    """The options of a convolution that is to use no more tiles than its share."""
    given = {key: value for key, value in (one.options or {}).items() if key not in ("tilesPerIPU", "tiles_per_ipu")}
    return given | {"tilesPerIPU": _settings(one, limits).planning.tiles}


def _append(graph: Graph, lanes: Sequence[Steps], prog: Steps, name: str, *, is_parallel: bool) -> None:
    steps = zip_programs(graph, lanes, name) if is_parallel else [step for lane in lanes for step in lane]
    for step in steps:
        prog.add(step)


def _created(
    function: str, graph: Graph, args: Sequence[CreateTensorArgs], index: int, options: Options
) -> tuple[CreateTensorArgs, Share]:
    """One of several convolutions, and its share of the tiles."""
    planning = read_multi_options(function, options)
    if not 0 <= index < len(args):
        raise TensorIndexError(f"{function}: there is no convolution {index}, {len(args)} are given")
    _check_options(args)
    if not planning.is_parallel:
        return args[index], Share(graph)
    return args[index], share_tiles(function, graph, [partial(_planned, graph, one) for one in args], planning)[index]


def _planned(graph: Graph, one: CreateTensorArgs, limits: Limits) -> Phases:
    """Estimated cycles, by phase, of a convolution of operands that are made for it."""
    return created_conv_call(graph, one.params, as_element_type(one.dtype), _settings(one, limits)).phases


def _forward(graph: Graph, one: ConvolutionArgs, limits: Limits) -> Phases:
    """Estimated cycles of a convolution, by phase."""
    return _by_products(one.params, limits) if _is_deep(one.params) else _forward_call(graph, one, limits).phases


def _gradient(graph: Graph, one: CalculateWeightDeltasArgs, like: Tensor | None, limits: Limits) -> Phases:
    """Estimated cycles of a gradient of weights, by phase."""
    if _is_deep(one.params):
        return _by_products(one.params, limits)
    return _gradient_call(graph, one, like, limits).phases


def _forward_call(graph: Graph, one: ConvolutionArgs, limits: Limits) -> ContractionCall:
    """The call that makes a convolution, or its core."""
    params, x, weights = one.params, one.inputs, one.weights
    given = {"inputs": (x, params.input_shape), "weights": (weights, params.weights_shape)}
    check_shapes("multiconv.convolution", params, given)
    if isinstance(params, TransformedConv):
        x, weights, params = params.seen_input(x), params.seen_weights(weights), params.core
    settings = _settings(one, limits)
    graph = dithered(graph, params, settings)
    types = resolve_types("multiconv", {"inputs": x.dtype, "weights": weights.dtype}, None, settings.partials)
    _check_chip(graph, types)
    return forward_call(graph, x, weights, params=params, types=types, planning=settings.planning, name="convolution")


def _gradient_call(
    graph: Graph, one: CalculateWeightDeltasArgs, like: Tensor | None, limits: Limits
) -> ContractionCall:
    """The call that makes a gradient of weights, or of those of the core."""
    params, z, x = one.params, one.z_deltas, one.activations
    given = {"z_deltas": (z, params.output_shape), "activations": (x, params.input_shape)}
    given |= {} if like is None else {"weights": (like, params.weights_shape)}
    check_shapes("multiconv.calculate_weight_deltas", params, given)
    kind = None if like is None else like.dtype
    if isinstance(params, TransformedConv):
        z, x, params, like = params.seen_deltas(z), params.seen_input(x), params.core, None
    settings = _settings(one, limits)
    types = resolve_types("multiconv", {"z_deltas": z.dtype, "activations": x.dtype}, kind, settings.partials)
    _check_chip(graph, types)
    gradient = WeightGradient(
        dithered(graph, params, settings),
        name="calculate_weight_deltas",
        params=params,
        types=types,
        z_deltas=z,
        activations=x,
        planning=settings.planning,
        like=like,
    )
    return gradient.cheapest()


def _check_chip(graph: Graph, types: Types) -> None:
    """Refuse 8-bit floats on a chip that does not multiply them.

    Raises:
        TypeMismatchError: They are given.
    """
    if types.dtype.is_quarter and not multiplies_quarters(graph.system):
        raise TypeMismatchError(
            f"multiconv: {graph.system.ipu.name} does not multiply 8-bit floats",
            remedy="system c600 · popops.cast the operands to f16 · poplin.convolution with convertQuarterToHalf=true",
        )


def _check_options(args: Sequence[Given]) -> None:
    """Raise where an option of a single convolution is wrong: later, that would look as if it did not fit."""
    for one in args:
        _settings(one, Limits())


def _settings(one: Given, limits: Limits) -> ContractionOptions:
    """The settings of one convolution that keeps to its limits."""
    settings = read_settings("multiconv", one.options, is_conv=True)
    given = [n for n in (settings.planning.tiles, limits.tiles) if n]
    return replace(settings, planning=replace(settings.planning, tiles=min(given, default=0), beside=limits.beside))


def _by_products(params: Params, limits: Limits) -> Phases:
    """Products per tile: all that is known of a convolution that takes several calls before it is made."""
    core = params.core if isinstance(params, TransformedConv) else params
    return {"partial products": -(-core.macs // limits.tiles)}


def _is_deep(params: Params) -> bool:
    return len(params.field) > FIELD_DIMS


def _takes_several_calls(params: Params) -> bool:
    return isinstance(params, TransformedConv) or _is_deep(params)


def _transposed(one: ConvolutionArgs) -> ConvolutionArgs:
    """The same with the channels of the weights exchanged; ``params`` of a gradient flip them already."""
    weights = one.weights
    if weights.ndim != len(one.params.weights_shape) or weights.shape[0] % _groups(one.params):
        return one
    return ConvolutionArgs(one.inputs, exchanged(weights, _groups(one.params)), one.params, one.options)


def _groups(params: Params) -> int:
    return params.core.groups if isinstance(params, TransformedConv) else params.groups
