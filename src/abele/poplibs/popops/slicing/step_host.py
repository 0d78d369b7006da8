"""Windows of one dimension as the host moves them: all memory is near, so a few large vertices do."""

from __future__ import annotations

import math

import numpy as np

from abele.graph import Execute, Graph, Tensor
from abele.poplibs.popops.slicing.step_codelets import Remap, regions_codelet
from abele.poplibs.poputil.order import StorageOrder, storage_order
from abele.poplibs.poputil.regions import flat_regions

HOST_VERTICES = 32
"""Vertices that the host shares out between its threads. Guessed: a few for each of up to eight threads."""
HOST_ELEMENTS = 4096
"""Elements of a slice below which a further vertex is not worth its while. Guessed."""


def host_window(
    graph: Graph, whole: Tensor, part: Tensor, at: Tensor, name: str, remap: Remap, *, is_update: bool
) -> Execute | None:
    """The window of the first dimension, in vertices of whole cells; None where a tensor is not one stretch of memory.

    Args:
        graph: Graph in which vertices are made.
        whole: [extent, ...].
        part: [size, ...].
        at: First index of the window.
        name: Name of the compute set.
        remap: Treatment of offsets out of range.
        is_update: True if the window of ``whole`` is written.
    """
    order = storage_order(whole)
    dims = order.dims()
    if dims.count(0) != 1:
        return None
    views = [order.apply(whole).flatten(), with_extent(order, part.shape[0]).apply(part).flatten()]
    if any(len(v.intervals()[0]) != 1 for v in views):
        return None
    cell = math.prod(order.extents[dims.index(0) + 1 :])
    cells = part[0].size // cell
    num = max(1, min(cells, HOST_VERTICES, part.size // HOST_ELEMENTS))
    cuts = np.arange(num + 1, dtype=np.int64) * cells // num
    numbering = np.arange(num + 1, dtype=np.int64)
    edges = []
    for view, extent in zip(views, (whole.shape[0], part.shape[0]), strict=True):
        ends = cuts * extent * cell
        edges.append((flat_regions(view, ends[:-1], np.diff(ends)), numbering[:-1], numbering))
    step = graph.compute_set(f"{name}/host")
    step.vertices(
        regions_codelet(whole.dtype, at.dtype, remap, is_update=is_update),
        tile=np.zeros(num, np.int32),
        cycles=np.zeros(num, np.int64),
        whole=edges[0],
        part=edges[1],
        width=np.full((num, 1), cell, np.uint32),
        at=[at.reshape(())] * num,
        size=part.shape[0],
        extent=whole.shape[0],
    )
    return Execute(step)


def with_extent(order: StorageOrder, extent: int) -> StorageOrder:
    """``order`` of a tensor with another extent along its first dimension."""
    fine = tuple(extent if d == 0 else f for d, f in zip(order.of_dim, order.fine, strict=True))
    return StorageOrder((extent, *order.shape[1:]), fine, order.of_dim, order.order)
