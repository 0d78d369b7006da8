"""Tensors on several IPUs: clones and copies from one to another, and whether a dimension is split."""

from __future__ import annotations

import numpy as np

from abele.arrays import Int32
from abele.errors import TensorError
from abele.graph import Copy, Graph, Tensor, TileMapping
from abele.graph.program import Sequence
from abele.poplibs.poputil.layout import clone, clone_between
from abele.poplibs.poputil.mapping import set_mapping
from abele.poplibs.poputil.order import storage_order


def clone_to_ipu(graph: Graph, tensor: Tensor, ipu: int, name: str = "clone_to_ipu") -> Tensor:
    """A clone of ``tensor`` whose elements lie on IPU ``ipu``, on tiles of the same number within it.

    Raises:
        TensorError: The system has no such IPU.
    """
    if not 0 <= ipu < graph.system.num_ipus:
        raise TensorError(f"{name}: no IPU {ipu} among {graph.system.num_ipus}")
    made = clone(graph, tensor, name)
    view = storage_order(made).apply(made)
    mapping = graph.mapping_of(view)
    per_ipu = graph.system.ipu.num_tiles
    tile = np.where(mapping.tile >= 0, mapping.tile % per_ipu + ipu * per_ipu, mapping.tile).astype(np.int32)
    set_mapping(graph, view, TileMapping(mapping.size, mapping.begin, tile))
    return made


def copy_to_ipu(graph: Graph, tensor: Tensor, prog: Sequence, ipu: int, name: str = "copy_to_ipu") -> Tensor:
    """A :func:`clone_to_ipu` that ``prog`` fills with the elements of ``tensor``.

    Raises:
        TensorError: The system has no such IPU.
    """
    made, copy = create_ipu_copy(graph, tensor, ipu, name)
    prog.add(copy)
    return made


def create_ipu_copy(graph: Graph, tensor: Tensor, ipu: int, name: str = "ipu_copy") -> tuple[Tensor, Copy]:
    """A :func:`clone_to_ipu`, and the program that copies ``tensor`` to it.

    Raises:
        TensorError: The system has no such IPU.
    """
    made = clone_to_ipu(graph, tensor, ipu, name)
    return made, Copy(tensor, made)


def dim_is_split_over_tiles(graph: Graph, tensor: Tensor, dim: int) -> bool:
    """True if two elements that differ in dimension ``dim`` alone lie on different tiles.

    Raises:
        TensorError: No such dimension.
    """
    return _is_split(_tiles_along(graph, tensor, dim))


def dim_is_split_over_ipus(graph: Graph, tensor: Tensor, dim: int) -> bool:
    """True if two elements that differ in dimension ``dim`` alone lie on different IPUs.

    Raises:
        TensorError: No such dimension.
    """
    tiles = _tiles_along(graph, tensor, dim)
    return _is_split(np.where(tiles >= 0, tiles // graph.system.ipu.num_tiles, tiles))


def _tiles_along(graph: Graph, tensor: Tensor, dim: int) -> Int32:
    if not 0 <= dim < tensor.ndim:
        raise TensorError(f"{tensor!r} has no dimension {dim}")
    view = tensor.moveaxis(dim, tensor.ndim - 1).flatten()
    tiles = graph.mapping_of(view).tiles_of(np.arange(view.size, dtype=np.int64))
    return tiles.reshape(-1, tensor.shape[dim]) if view.size else tiles.reshape(0, 1)


def _is_split(places: Int32) -> bool:
    return bool((places != places[:, :1]).any())


def clone_to_graph(
    source: Graph, target: Graph, tensor: Tensor, name: str = "clone_to_graph", *, offset: int = 0
) -> Tensor:
    """A new tensor in ``target`` with the shape, order in memory and mapping that ``tensor`` has in ``source``.

    Tiles keep their number in each graph, which may be a virtual one, ``offset`` added to it.

    Raises:
        TileMappingError: ``target`` does not have all of the tiles, or elements of ``tensor`` are mapped nowhere.
    """
    return clone_between(source, target, tensor, name, offset=offset)


def clone_and_expand_aliasing(
    graph: Graph, tensor: Tensor, offset: int = 0, name: str = "clone_and_expand_aliasing"
) -> Tensor:
    """A new tensor of the shape of ``tensor``, ``offset`` tiles on; repeated elements have places of their own.

    Raises:
        TileMappingError: Elements of ``tensor`` are mapped nowhere.
    """
    made = clone(graph, tensor, name)
    view = storage_order(made).apply(made)
    mapping = graph.mapping_of(view)
    tile = ((mapping.tile + offset) % graph.system.num_tiles).astype(np.int32)
    set_mapping(graph, view, TileMapping(mapping.size, mapping.begin, tile))
    return made
