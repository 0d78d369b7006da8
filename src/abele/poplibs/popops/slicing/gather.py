"""Slices of a tensor at many indices that are data, stitched together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import ElementType
from abele.poplibs.popops.slicing.multi_check import read_multi_options
from abele.poplibs.popops.slicing.multi_layout import create_sliceable_tensor
from abele.poplibs.popops.slicing.multi_slice import multi_slice
from abele.poplibs.popops.slicing.windows import Windows, check_dims, index_vectors
from abele.poplibs.poputil.options import Options
from abele.words import counted

_ALONG_AXIS = ("axis", "prog")
_OF_WINDOWS = ("index_vector_dim", "offset_dims", "slice_sizes", "collapsed_slice_dims", "start_index_map", "prog")


@overload
def gather(
    graph: Graph,
    tensor: Tensor,
    indices: Tensor,
    axis: int,
    prog: Steps,
    *,
    options: Options = None,
    name: str = "gather",
) -> Tensor: ...


@overload
def gather(
    graph: Graph,
    tensor: Tensor,
    indices: Tensor,
    index_vector_dim: int,
    offset_dims: Sequence[int],
    slice_sizes: Sequence[int],
    collapsed_slice_dims: Sequence[int],
    start_index_map: Sequence[int],
    prog: Steps,
    *,
    options: Options = None,
    name: str = "gather",
) -> Tensor: ...


def gather(
    graph: Graph,
    tensor: Tensor,
    indices: Tensor,
    *given: Any,
    options: Options = None,
    name: str = "gather",
    **named: Any,
) -> Tensor:
    """Slices of ``tensor`` at ``indices``: along one axis, or windows as XLA's Gather has them.

    Along an ``axis`` element [a…, i…, b…] of the result is ``tensor[a…, indices[i…], b…]``, and an index out of range
    gives zeros. Windows of ``slice_sizes`` begin at the index vectors that ``indices`` has along ``index_vector_dim``;
    a window that would leave the tensor is moved inside.

    Args:
        graph: Graph in which vertices are made.
        tensor: Tensor to slice; see :func:`create_gather_input`.
        indices: u32 or i32 of any shape.
        axis: Dimension that indices count along.
        index_vector_dim: Dimension of ``indices`` that index vectors lie along; its rank where vectors have one entry.
        offset_dims: Dimensions of the result that are those of a window, ascending; the others are those of indices.
        slice_sizes: Extent of a window along every dimension of ``tensor``.
        collapsed_slice_dims: Dimensions of a window, of size 1, that the result does not have.
        start_index_map: Dimension of ``tensor`` that each entry of an index vector counts along.
        prog: Sequence that the steps are appended to.
        options: Those of slices by many indices, without an effect on windows.
        name: Name of the steps.

    Returns:
        A new tensor: ``tensor.shape[:axis] + indices.shape + tensor.shape[axis + 1:]``, or the shape of the index
        vectors with the window's extents at ``offset_dims``.

    Raises:
        TensorError: Dimensions or sizes that do not go together, or windows at no indices.
        TypeMismatchError: Indices that are no 32-bit integers.
        InvalidOptionError: A misspelt option.
    """
    fields = _ALONG_AXIS if len(given) + len(named) <= len(_ALONG_AXIS) else _OF_WINDOWS
    values = dict(zip(fields, given, strict=False)) | named
    if len(given) + len(named) != len(fields) or set(values) != set(fields):
        forms = " or ".join(", ".join(f) for f in (_ALONG_AXIS, _OF_WINDOWS))
        raise TensorError(f"{name}: gather takes {forms}, got {', '.join(values)}")
    if fields is _ALONG_AXIS:
        return _along_axis(graph, tensor, indices, **values, options=options, name=name)
    read_multi_options(name, options)
    return _of_windows(graph, tensor, indices, **values, name=name)


def create_gather_input(
    graph: Graph,
    dtype: ElementType | str,
    shape: Sequence[int],
    axis: int | Sequence[int],
    start_index_map: Sequence[int] | None = None,
    *,
    name: str = "gather_input",
) -> Tensor:
    """A new tensor to be gathered from: elements along the indexed axis lie on one tile, as far as memory allows.

    Args:
        graph: Graph in which it is made.
        dtype: Element type.
        shape: Its shape.
        axis: The dimension of :func:`gather` along an axis, or the ``slice_sizes`` of windows.
        start_index_map: That of windows.
        name: Name of the variable.

    Raises:
        TensorError: Dimensions or sizes that the shape does not have.
    """
    if isinstance(axis, int):
        return create_sliceable_tensor(graph, dtype, shape, (axis,), (1,), name=name)
    dims = check_dims(start_index_map or (), len(shape), "start_index_map", name, ascend=False)
    _check_sizes(tuple(shape), axis, name)
    moving = [d for d in dims if axis[d] < shape[d]] or list(range(len(shape)))[:1]
    return create_sliceable_tensor(graph, dtype, shape, moving, [axis[d] for d in moving], name=name)


def _along_axis(
    graph: Graph, tensor: Tensor, indices: Tensor, axis: int, prog: Steps, options: Options, name: str
) -> Tensor:
    if not 0 <= axis < tensor.ndim:
        raise TensorError(f"{name}: axis {axis} of {tensor!r}, which has {counted(tensor.ndim, 'dimension')}")
    flat = indices.reshape((indices.size,))
    rows = multi_slice(graph, tensor, flat, (axis,), (1,), prog, options=options, name=name)
    kept = rows.squeeze((1 + axis,)).transpose((*range(1, 1 + axis), 0, *range(1 + axis, tensor.ndim)))
    return kept.reshape((*tensor.shape[:axis], *indices.shape, *tensor.shape[axis + 1 :]))


def _of_windows(
    graph: Graph,
    tensor: Tensor,
    indices: Tensor,
    index_vector_dim: int,
    offset_dims: Sequence[int],
    slice_sizes: Sequence[int],
    collapsed_slice_dims: Sequence[int],
    start_index_map: Sequence[int],
    prog: Steps,
    name: str,
) -> Tensor:
    sizes = _check_sizes(tensor.shape, slice_sizes, name)
    dims = check_dims(start_index_map, tensor.ndim, "start_index_map", name, ascend=False)
    collapsed = check_dims(collapsed_slice_dims, tensor.ndim, "collapsed_slice_dims", name)
    starts, shape = index_vectors(indices, index_vector_dim, len(dims), name)
    window = [d for d in range(tensor.ndim) if d not in collapsed]
    rank = len(shape) + len(window)
    placed = check_dims(offset_dims, rank, "offset_dims", name)
    if len(placed) != len(window):
        raise TensorError(f"{name}: {len(placed)} offset_dims for windows of {counted(len(window), 'dimension')}")
    if any(sizes[d] != 1 for d in collapsed):
        raise TensorError(
            f"{name}: collapsed_slice_dims {list(collapsed)} of slice_sizes {list(sizes)} must have size 1"
        )
    windows = Windows(tuple(n if d in dims else sizes[d] for d, n in enumerate(tensor.shape)), dims, sizes)
    num = starts.shape[0]
    if not num or not math.prod(sizes):
        raise TensorError(f"{name}: nothing is gathered by the indices {indices!r} from {tensor!r}")
    entries = windows.clamped(graph, starts, prog, name)
    rows = multi_slice(graph, windows.table(tensor), entries, (0,), (1,), prog, name=name)
    made = windows.from_rows(rows, num).squeeze(tuple(1 + d for d in collapsed))
    made = made.reshape((*shape, *(sizes[d] for d in window)))
    batch = [d for d in range(rank) if d not in placed]
    source = dict(zip((*batch, *placed), range(rank), strict=True))
    return made.transpose([source[d] for d in range(rank)])


def _check_sizes(shape: tuple[int, ...], sizes: Sequence[int], name: str) -> tuple[int, ...]:
    found = tuple(int(n) for n in sizes)
    if len(found) != len(shape) or any(not 1 <= n <= extent for n, extent in zip(found, shape, strict=False)):
        raise TensorError(f"{name}: slice_sizes {list(found)} do not fit the shape {list(shape)}")
    return found
