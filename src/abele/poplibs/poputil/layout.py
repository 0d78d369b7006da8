"""Creating tensors in the layouts that library functions share."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from abele.errors import TensorError, TileMappingError
from abele.graph import Copy, Graph, Sequence, Tensor, TileMapping, concat
from abele.numerics import ElementType, as_element_type
from abele.poplibs.poputil.mapping import (
    choose_mapping_offset,
    elements_per_tile,
    linear_mapping,
    set_mapping,
    vector_grain,
)
from abele.poplibs.poputil.order import StorageOrder, storage_order
from abele.words import counted

CHANNEL_GROUPS = (16, 8, 4)
"""Sizes of the innermost channel group, best first: those of the AMP unit and the vector widths."""

MAX_IMBALANCE = 2
"""An input's mapping is reused for an output unless its fullest tile has this many times a linear mapping's."""


def channels_per_group(channels: int) -> int:
    """Channels that follow each other in memory: 16, 8 or 4 where that divides ``channels``, else all of them."""
    return next((size for size in CHANNEL_GROUPS if channels % size == 0), channels)


def create_activations(
    graph: Graph, dtype: ElementType | str, shape: Iterable[int], name: str = "activations", *, group: int | None = None
) -> Tensor:
    """A new tensor [batch, channels, *field], channels grouped innermost, spread evenly over the tiles.

    Args:
        graph: Graph in which it is made.
        dtype: Element type.
        shape: ``[batch, channels, *field]``, or ``[batch, features]``.
        name: Name of the variable.
        group: Channels in a group (C0); by default :func:`channels_per_group`.

    Returns:
        A view of a variable ``[C1, batch, *field, C0]`` that is mapped linearly in that order, whole groups to a tile.

    Raises:
        TensorError: ``shape`` has fewer than two dimensions, or ``group`` does not divide the channels.
    """
    made = unmapped_activations(graph, dtype, shape, name, group=group)
    order = storage_order(made)
    inner = order.extents[-1]
    grain = inner if inner in CHANNEL_GROUPS else vector_grain(graph, made.dtype)
    mapping = linear_mapping(graph, made.size, made.dtype, min_elements=grain, grain=grain)
    set_mapping(graph, order.apply(made), mapping)
    return made


def unmapped_activations(
    graph: Graph, dtype: ElementType | str, shape: Iterable[int], name: str = "activations", *, group: int | None = None
) -> Tensor:
    """As :func:`create_activations`, on no tile yet.

    Raises:
        TensorError: Fewer than two dimensions, or channels that do not divide into the groups.
    """
    dims = [int(n) for n in shape]
    if len(dims) < 2:
        raise TensorError(f"activations {name!r} need a batch and a channel dimension, got shape {dims}")
    batch, channels, *field = dims
    inner = channels_per_group(channels) if group is None else group
    if inner < 1 or channels % inner:
        raise TensorError(f"activations {name!r}: {counted(channels, 'channel')} do not divide into groups of {inner}")
    variable = graph.variable(as_element_type(dtype), (channels // inner, batch, *field, inner), name=name)
    last = variable.ndim - 1
    return variable.transpose((1, 0, last, *range(2, last))).reshape((batch, channels, *field))


def create_output_like(
    graph: Graph, inputs: Iterable[Tensor], shape: tuple[int, ...], dtype: ElementType, name: str
) -> Tensor:
    """A new tensor of ``shape`` and ``dtype``, laid out like the best-mapped input of that shape.

    Best is the input whose fullest tile holds the least; one in groups goes before one in plain order that is little
    better. Where no input has the shape, or the best one crowds its
    elements on few tiles, the output is spread linearly, in that input's storage order.
    """
    best = _best_mapped(graph, [t for t in inputs if t.shape == shape])
    if best is None:
        variable = graph.variable(dtype, shape, name=name)
        return set_mapping(graph, variable, linear_mapping(graph, variable.size, dtype))
    # Made in storage order and seen in the input's shape, so the output's memory is in the same order as the input's.
    order = storage_order(best)
    variable = graph.variable(dtype, order.extents, name=name)
    set_mapping(graph, variable, _balanced(graph, graph.mapping_of(order.apply(best)), dtype))
    return order.undo(variable)


def clone(graph: Graph, tensor: Tensor, name: str, dtype: ElementType | None = None) -> Tensor:
    """A new tensor with the shape, storage order and mapping of ``tensor``.

    Raises:
        TileMappingError: Elements of ``tensor`` are mapped to no tile.
    """
    return clone_between(graph, graph, tensor, name, dtype)


def clone_between(
    source: Graph, target: Graph, tensor: Tensor, name: str, dtype: ElementType | None = None, *, offset: int = 0
) -> Tensor:
    """A new tensor in ``target`` that is laid out as ``tensor`` is in ``source``, ``offset`` tiles on.

    Raises:
        TileMappingError: Elements of ``tensor`` are mapped to no tile, or ``target`` does not have all of the tiles.
    """
    order, mapping = layout_of(source, tensor, name)
    if offset:
        mapping = TileMapping(mapping.size, mapping.begin, mapping.tile + np.int32(offset))
    return laid_out(target, dtype or tensor.dtype, (order, mapping), name)


StoredLayout = tuple[StorageOrder, TileMapping]
"""Storage order of a tensor, and the tile of each element in it."""


def layout_of(graph: Graph, tensor: Tensor, name: str) -> StoredLayout:
    """The layout of ``tensor``, for others that are to be like it; ``name`` is the first of these.

    Raises:
        TileMappingError: Elements of ``tensor`` are mapped to no tile.
    """
    order = storage_order(tensor)
    mapping = graph.mapping_of(order.apply(tensor))
    if (mapping.tile < 0).any():
        raise TileMappingError(
            f"{name}: {tensor!r} is not mapped to tiles completely, so nothing can be laid out like it",
            remedy="map it first, as with poputil.map_tensor_linearly",
        )
    return order, mapping


def laid_out(graph: Graph, dtype: ElementType, layout: StoredLayout, name: str) -> Tensor:
    """A new tensor of a layout."""
    order, mapping = layout
    variable = graph.variable(dtype, order.extents, name=name)
    set_mapping(graph, variable, mapping)
    return order.undo(variable)


def duplicate(graph: Graph, tensor: Tensor, prog: Sequence, name: str = "duplicate") -> Tensor:
    """A :func:`clone` of ``tensor`` that ``prog`` fills with its elements.

    Raises:
        TileMappingError: Elements of ``tensor`` are mapped to no tile.
    """
    copy = clone(graph, tensor, name)
    prog.add(Copy(tensor, copy))
    return copy


def clone_n(graph: Graph, tensor: Tensor, count: int, name: str = "clone_n") -> Tensor:
    """A new tensor [count, *shape], every slice of it a :func:`clone` of ``tensor``.

    Raises:
        TensorError: No slice.
    """
    if count < 1:
        raise TensorError(f"{name}: {count} clones of {tensor!r}")
    return concat([clone(graph, tensor, f"{name}/{i}").expand_dims(0) for i in range(count)], 0)


def create_narrowed(
    graph: Graph, full: Tensor, shape: tuple[int, ...], name: str, dtype: ElementType | None = None
) -> Tensor:
    """A new tensor of ``shape``, which broadcasts to that of ``full``, laid out as :func:`narrowed_layout` says.

    Raises:
        TileMappingError: Elements of ``full`` are mapped to no tile.
    """
    if math.prod(shape) == 1 or shape == full.shape:
        return clone(graph, full[tuple(slice(0, wanted) for wanted in shape)], name, dtype)
    order, mapping = narrowed_layout(graph, full, shape, dtype)
    variable = graph.variable(dtype or full.dtype, order.extents, name=name)
    set_mapping(graph, variable, mapping)
    return order.undo(variable)


def narrowed_layout(
    graph: Graph, full: Tensor, shape: tuple[int, ...], dtype: ElementType | None = None
) -> tuple[StorageOrder, TileMapping]:
    """Storage order and tiles for a tensor of ``shape``, which broadcasts to that of ``full``: its order and its tiles.

    Each element lies on a tile that holds one of those that it meets. Pieces of storage take turns along the longest
    dimension in which ``shape`` is 1: the first piece lies where it meets the first slice of ``full``, the second where
    it meets the second. So all tiles get a share, and not those of one slice alone. Pieces are a quarter of a share.

    Args:
        graph: The graph of ``full``.
        full: The tensor.
        shape: As many extents as ``full`` has, each 1 or that of ``full``.
        dtype: Element type of what is laid out; None for that of ``full``.

    Returns:
        The order, and the tile of each element in it.
    """
    lost = [d for d, (have, wanted) in enumerate(zip(full.shape, shape, strict=True)) if have != wanted]
    first = [slice(0, wanted) for wanted in shape]
    order, size = storage_order(full[tuple(first)]), math.prod(shape)
    if not lost:
        return order, graph.mapping_of(order.apply(full))
    wide = max(lost, key=full.shape.__getitem__)
    slices = []
    for number in range(full.shape[wide]):
        at = list(first)
        at[wide] = slice(number, number + 1)
        slices.append(order.apply(full[tuple(at)]).reshape((1, size)))
    met = graph.mapping_of(concat(slices, 0))
    share = size // max(len(np.unique(met.tile)), 1)
    piece = max(share // 4, vector_grain(graph, dtype or full.dtype))
    element = np.arange(size, dtype=np.int64)
    tile = met.tiles_of(element // piece % full.shape[wide] * size + element)
    begin = np.flatnonzero(np.concatenate([[True], tile[1:] != tile[:-1]])).astype(np.int64)
    return order, TileMapping(size, begin, tile[begin])


def create_broadcast_operand(
    graph: Graph, full: Tensor, dtype: ElementType, dim: int, *, dither: bool = False, name: str = "broadcast_operand"
) -> Tensor:
    """A new tensor [full.shape[dim]] to be broadcast over ``full`` along all other dimensions.

    Each element lies on a tile that holds elements of ``full`` that it meets, as evenly as those tiles allow.

    Args:
        graph: Graph in which it is made.
        full: Tensor that it is broadcast over.
        dtype: Element type.
        dim: Dimension that it has.
        dither: True if it starts on a tile chosen by its shape rather than where ``full`` starts.
        name: Name of the variable.

    Raises:
        TensorError: ``full`` has no such dimension, or no elements.
    """
    if not 0 <= dim < full.ndim or not full.size:
        raise TensorError(f"{name}: {full!r} has no dimension {dim} with elements")
    extent = full.shape[dim]
    made = graph.variable(dtype, (extent,), name=name)
    grain = min(extent, vector_grain(graph, dtype))
    rows = full.moveaxis(dim, 0).reshape((extent, full.size // extent))
    begin = np.arange(0, extent, grain, dtype=np.int64)
    tiles = graph.mapping_of(rows.flatten()).tiles_of(np.arange(full.size, dtype=np.int64)).reshape(extent, -1)[begin]
    if (tiles < 0).any():
        raise TensorError(f"{name}: {full!r} is not mapped to tiles completely")
    offset = choose_mapping_offset(tiles.shape[1], full.shape) if dither else 0
    # Each grain takes a tile further along its row, so that they do not all lie where their rows begin.
    step = max(1, tiles.shape[1] // len(begin))
    chosen = tiles[np.arange(len(begin)), (offset + np.arange(len(begin)) * step) % tiles.shape[1]]
    return set_mapping(graph, made, TileMapping(extent, begin, chosen.astype(np.int32)))


def storage_mapping(graph: Graph, tensor: Tensor) -> TileMapping:
    """Tile of every element of ``tensor`` in storage order, in which neighbours mostly share a tile."""
    return graph.mapping_of(storage_order(tensor).apply(tensor))


def _best_mapped(graph: Graph, tensors: list[Tensor]) -> Tensor | None:
    if len(tensors) < 2:
        return tensors[0] if tensors else None
    fullest = [_fullest(graph, storage_mapping(graph, t)) for t in tensors]
    most = MAX_IMBALANCE * min(fullest)
    # A plain order is what a tensor has that nobody gave a layout: others are read in pieces of an element if it wins.
    best = min(range(len(tensors)), key=lambda i: (fullest[i] > most, not _is_grouped(tensors[i]), fullest[i]))
    return tensors[best]


def _is_grouped(tensor: Tensor) -> bool:
    """True if vectors of a dimension are innermost in memory: a layout that a library chose."""
    order = storage_order(tensor)
    return len(order.fine) > len(order.shape)


def _fullest(graph: Graph, mapping: TileMapping) -> int:
    return int(elements_per_tile(mapping, graph.system.num_tiles).max(initial=0))


def _balanced(graph: Graph, mapping: TileMapping, dtype: ElementType) -> TileMapping:
    linear = linear_mapping(graph, mapping.size, dtype)
    crowded = _fullest(graph, mapping) > MAX_IMBALANCE * _fullest(graph, linear)
    return linear if crowded or not mapping.is_complete else mapping
