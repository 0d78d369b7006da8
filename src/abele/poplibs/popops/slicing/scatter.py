"""Updates of windows of a tensor at many indices that are data, as XLA's Scatter has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph, Tensor, concat
from abele.graph.program import Steps
from abele.numerics import i32
from abele.poplibs.popops.elementwise.map import map as map_
from abele.poplibs.popops.expr import Const, PlaceHolder, select
from abele.poplibs.popops.programs.loops import counted_loop
from abele.poplibs.popops.slicing.dynamic_slice import dynamic_slice, dynamic_update
from abele.poplibs.popops.slicing.multi_update import (
    multi_update,
    multi_update_add,
    multi_update_max,
    multi_update_mul,
)
from abele.poplibs.popops.slicing.windows import Windows, check_dims, index_vectors
from abele.words import counted

Computation = Callable[[Graph, Tensor, Tensor, Steps], Tensor]
"""Function that joins a window of the operand with an update of the same shape: ``f(graph, window, update, prog)``."""

_SKIPS = {"validateIndices": False}
"""Updates whose window is not inside are given an index out of range, so that nothing is written."""


def scatter(
    graph: Graph,
    operand: Tensor,
    indices: Tensor,
    updates: Tensor,
    index_vector_dim: int,
    update_window_dims: Sequence[int],
    insert_window_dims: Sequence[int],
    scatter_dims_to_operand_dims: Sequence[int],
    prog: Steps,
    *,
    update_computation: Computation | str | None = None,
    name: str = "scatter",
) -> None:
    """Write ``updates`` into windows of ``operand``; an update whose window is not inside is skipped.

    Updates are made in the order of the indices, so of windows that overlap the last one counts. A function as
    ``update_computation`` makes a loop of one step per update; the named ones work on all at once.

    Args:
        graph: Graph in which vertices are made.
        operand: Tensor to update, in place.
        indices: u32 or i32 of any shape.
        updates: The shape of the index vectors, with the dimensions of a window at ``update_window_dims``.
        index_vector_dim: Dimension of ``indices`` that index vectors lie along; its rank where vectors have one entry.
        update_window_dims: Dimensions of ``updates`` that are those of a window, ascending.
        insert_window_dims: Dimensions of ``operand`` along which a window has size 1 and ``updates`` none.
        scatter_dims_to_operand_dims: Dimension of ``operand`` that each entry of an index vector counts along.
        prog: Sequence that the steps are appended to.
        update_computation: A function; ``"add"``, ``"max"`` or ``"mul"``; by default the update replaces the window.
        name: Name of the steps.

    Raises:
        TensorError: Dimensions or shapes that do not go together, or a result of the function of another shape.
        TypeMismatchError: Indices that are no 32-bit integers, or updates of another type than the operand.
        InvalidOptionError: No such computation.
    """
    inserted = check_dims(insert_window_dims, operand.ndim, "insert_window_dims", name)
    placed = check_dims(update_window_dims, updates.ndim, "update_window_dims", name)
    dims = check_dims(scatter_dims_to_operand_dims, operand.ndim, "scatter_dims_to_operand_dims", name, ascend=False)
    starts, shape = index_vectors(indices, index_vector_dim, len(dims), name)
    window = [d for d in range(operand.ndim) if d not in inserted]
    batch = [d for d in range(updates.ndim) if d not in placed]
    if tuple(updates.shape[d] for d in batch) != shape or len(placed) != len(window):
        raise TensorError(
            f"{name}: the updates {updates!r} of shape {list(updates.shape)} have windows along {list(placed)}: "
            f"they must be {list(shape)} windows of {counted(len(window), 'dimension')}"
        )
    if updates.dtype != operand.dtype:
        raise TypeMismatchError(f"{name}: the updates {updates!r} are {updates.dtype}, {operand!r} is {operand.dtype}")
    extents = dict(zip(window, (updates.shape[d] for d in placed), strict=True))
    sizes = tuple(extents.get(d, 1) for d in range(operand.ndim))
    if any(n > extent for n, extent in zip(sizes, operand.shape, strict=True)):
        raise TensorError(f"{name}: windows {list(sizes)} of {updates!r} do not fit {operand!r}")
    if not updates.size:
        return
    windows = Windows(tuple(n if d in dims else sizes[d] for d, n in enumerate(operand.shape)), dims, sizes)
    given = updates.transpose((*batch, *placed)).reshape((starts.shape[0], *sizes))
    if callable(update_computation):
        _one_by_one(
            graph, operand, starts, updates=given, windows=windows, computation=update_computation, prog=prog, name=name
        )
    else:
        _all_at_once(
            graph, operand, starts, updates=given, windows=windows, computation=update_computation, prog=prog, name=name
        )


def _all_at_once(
    graph: Graph,
    operand: Tensor,
    starts: Tensor,
    updates: Tensor,
    windows: Windows,
    computation: str | None,
    prog: Steps,
    name: str,
) -> None:
    known = ("add", "max", "mul")
    if computation is not None and computation not in known:
        raise InvalidOptionError(f"{name}: no computation {computation!r}", remedy="a function, " + ", ".join(known))
    entries = windows.valid(graph, starts, prog, name)
    table, rows = windows.table(operand), windows.rows(updates)
    if computation == "add":
        multi_update_add(
            graph, table, rows, offsets=entries, scale=1.0, dims=(0,), sizes=(1,), prog=prog, options=_SKIPS, name=name
        )
        return
    update = {None: multi_update, "max": multi_update_max, "mul": multi_update_mul}[computation]
    update(graph, table, rows, offsets=entries, dims=(0,), sizes=(1,), prog=prog, options=_SKIPS, name=name)


def _one_by_one(
    graph: Graph,
    operand: Tensor,
    starts: Tensor,
    updates: Tensor,
    windows: Windows,
    computation: Computation,
    prog: Steps,
    name: str,
) -> None:
    """Each update in a loop; one whose window is not inside goes to an offset far outside, where nothing is written."""
    dtype, dims = starts.dtype, windows.dims
    sizes = [windows.sizes[d] for d in dims]
    outside = Const(np.iinfo(np.int32).min if dtype == i32 else np.iinfo(np.uint32).max, dtype)
    inside = windows.is_inside(dtype)
    columns = [starts[:, k] for k in range(len(dims))]
    places = [
        map_(graph, select(PlaceHolder(k + 1), outside, inside), columns, prog, f"{name}/place{k}").expand_dims(1)
        for k in range(len(dims))
    ]
    offsets, target = concat(places, 1), windows.cut(operand)

    def body(counter: Tensor) -> Steps:
        steps, at = Steps(), counter.reshape((1,))
        offset = dynamic_slice(graph, offsets, at, (0,), (1,), steps, name=f"{name}/offset")[0]
        new = dynamic_slice(graph, updates, at, (0,), (1,), steps, name=f"{name}/update")[0]
        old = dynamic_slice(graph, target, offset, dims, sizes, steps, options=_SKIPS, name=f"{name}/window")
        joined = computation(graph, old, new, steps)
        dynamic_update(
            graph,
            target,
            joined,
            offset=offset,
            dims=dims,
            sizes=sizes,
            prog=steps,
            options=_SKIPS,
            name=f"{name}/write",
        )
        return steps

    prog.add(counted_loop(graph, 0, updates.shape[0], 1, body, f"{name}/loop"))
