"""Calls on tiles in jaxprs as ops of a network: the handlers of this room's primitives."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jax._src import source_info_util

import abele
from abele.arrays import Array
from abele.errors import UnsupportedOpError
from abele.frontends.jax.tessellate.mapping import (
    CallAttributes,
    TileView,
    _rows,
    get_ipu_tile_primitive_translation,
)
from abele.frontends.jax.tessellate.primitives import Contents
from abele.frontends.jax.tessellate.types import IpuTileMapEquation, IpuVertexIOInfo
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.frontends.jaxpr.types import element_type
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops import tiles as on_tiles
from abele.network.ops.tiles import MEANINGS

source_info_util.register_exclusion(str(Path(abele.__file__).parent))  # so that errors name the program's lines


def _runs(handler: Any) -> Any:
    """Let a handler run even where all operands are known: it says where they lie."""
    handler.runs = True
    return handler


@_runs
@primitive("tile_put_sharded")
def put_sharded(call: PrimitiveCall, value: Value, *, tiles: tuple[int, ...]) -> Value:
    """A row on each tile."""
    return on_tiles.tile_put(call.net, value, tiles)


@_runs
@primitive("tile_put_replicated")
def put_replicated(call: PrimitiveCall, value: Value, *, tiles: tuple[int, ...]) -> Value:
    """All of a value on each tile."""
    return on_tiles.tile_put(call.net, value, tiles, replicated=True)


@_runs
@primitive("tile_constant")
def constant(call: PrimitiveCall, *, data: Contents, tiles: tuple[int, ...], replicated: bool) -> Value:
    """Numbers that are part of the program."""
    contents = np.broadcast_to(data.array, call.shape) if replicated else data.array
    return on_tiles.tile_constant(call.net, contents.astype(call.dtype.np, copy=False), call.dtype, tiles)


@_runs
@primitive("tile_gather")
def gather(
    call: PrimitiveCall,
    value: Value,
    *,
    held: tuple[int, ...],
    indices: tuple[int, ...],
    tiles: tuple[int, ...],
    copy: bool,
) -> Value:
    """Rows by number."""
    return on_tiles.tile_gather(call.net, value, held, indices, tiles, copy=copy)


@_runs
@primitive("tile_data_barrier")
def barrier(call: PrimitiveCall, *values: Value) -> tuple[Value, ...]:
    """Values in one order."""
    return on_tiles.tile_barrier(call.net, values)


@_runs
@primitive("tile_cycles")
def cycles(call: PrimitiveCall, *values: Value, tiles: tuple[int, ...], sync: bool) -> tuple[Value, ...]:
    """Values, and counters."""
    return on_tiles.tile_cycles(call.net, values, tiles, sync=sync)


# --- random states ----------------------------------------------------------------------------------------------------

_last: WeakKeyDictionary[BlockBuilder, Value] = WeakKeyDictionary()
"""The last draw or setting in each block. The next one reads it: an op that nothing reads is left out, and with it the
change of the states."""


def _before(net: BlockBuilder) -> Sequence[Value]:
    return [_last[net]] if net in _last else []


@_runs
@primitive("tile_get_hw_seeds")
def get_seeds(call: PrimitiveCall, *, tiles: tuple[int, ...]) -> Value:
    """States of workers."""
    return on_tiles.tile_seeds(call.net, tiles, _before(call.net))


@_runs
@primitive("tile_set_hw_seeds")
def set_seeds(call: PrimitiveCall, seeds: Value, *, tiles: tuple[int, ...]) -> Value:
    """States that workers have from here on."""
    made = _last[call.net] = on_tiles.tile_set_seeds(call.net, seeds, tiles, _before(call.net))
    return made


@_runs
@primitive("tile_random")
def draw(
    call: PrimitiveCall,
    *,
    tiles: tuple[int, ...],
    size: int,
    dtype: Any,
    distribution: str,
    offset: float,
    scale: float,
) -> Value:
    """Numbers of the tiles' generators."""
    made = _last[call.net] = on_tiles.tile_random(
        call.net,
        distribution,
        tiles,
        size=size,
        dtype=element_type(dtype),
        offset=offset,
        scale=scale,
        after=_before(call.net),
    )
    return made


# --- vertices ---------------------------------------------------------------------------------------------------------


@_runs
@primitive("tile_map")
def call_on_tiles(
    call: PrimitiveCall, *operands: Value, called: Any, tiles: tuple[int, ...], attributes: CallAttributes
) -> Any:
    """A vertex for each row."""
    known, translation = get_ipu_tile_primitive_translation(called)
    rows = [type(a)(a.shape[1:], a.dtype) for a in call.avals]
    said = translation(known, tiles, rows, dict(attributes))
    if isinstance(said, TileView):
        return _shown(call, operands[0])
    if not isinstance(said, IpuTileMapEquation):
        raise UnsupportedOpError(
            f"the translation of {known.name} gave {type(said).__name__}",
            at=call.net.origin.location or None,
            remedy="give an IpuTileMapEquation",
        )
    return emit(call.net, said, tiles, operands, call.results, _meaning(known, tiles, attributes, call.avals))


def _shown(call: PrimitiveCall, value: Value) -> Value:
    return build.bitcast(call.net, build.reshape(call.net, value, call.shape), call.dtype)


def _meaning(known: Any, tiles: tuple[int, ...], attributes: CallAttributes, avals: Sequence[Any]) -> str:
    """Name under which the network finds what a call computes."""
    digest = hashlib.sha256(repr((attributes, len(tiles), [(a.shape, str(a.dtype)) for a in avals])).encode())
    name = f"{known.name}:{digest.hexdigest()[:8]}"

    def rows(*given: Array) -> list[Array]:
        own = given[: len(avals)]  # and not the constants behind them
        return [np.asarray(v) for v in _rows(*own, called=known, tiles=tiles, attributes=attributes)]

    MEANINGS[name] = rows
    return name


def emit(
    net: BlockBuilder,
    said: IpuTileMapEquation,
    tiles: tuple[int, ...],
    operands: Sequence[Value],
    results: Sequence[Any],
    meaning: str,
) -> tuple[Value, ...]:
    """Append a call of a vertex.

    Args:
        net: Network or block to extend.
        said: The call.
        tiles: Tile of each vertex.
        operands: A value for each input that is no constant.
        results: Shape and element type of each result.
        meaning: Name of its meaning.
    """
    given = [i for i in said.inputs_info if not i.is_constant_input]
    inputs = [(info.name, value) for info, value in zip(given, operands, strict=True)]
    for info in said.inputs_info:
        if info.is_constant_input:
            contents = np.broadcast_to(info.constant, (len(tiles), *info.shape))
            inputs.append((info.name, on_tiles.tile_constant(net, contents, info.dtype.element, tiles)))
    fields = (*said.inputs_info, *said.outputs_info)
    numbers: list[Any] = [*said.attributes_u32, *said.attributes_i32, *said.attributes_f32]
    return on_tiles.tile_map(
        net,
        said.vname,
        inputs,
        [(i.name, shape, dtype) for i, (shape, dtype) in zip(said.outputs_info, results, strict=True)],
        tiles,
        source=said.gp_filename or "",
        rows=[(i.name, _vectors(i)) for i in {i.name: i for i in fields}.values() if i.vertex_dim2],
        slices=[(i.name, [(s.begin, s.end) for s in i.slices2d]) for i in fields if i.slices2d],
        scratch=[(i.name, i.size, i.dtype.element) for i in said.scratch_info],
        state=[(a.key, a.value) for a in numbers],
        meaning=meaning,
    )


def _vectors(info: IpuVertexIOInfo) -> int:
    return max(1, info.size // info.vertex_dim2)
