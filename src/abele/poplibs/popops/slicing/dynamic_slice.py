"""Slices and updates of a tensor at an offset that is data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.control import Abort
from abele.graph.program import Steps
from abele.numerics import i32, u32
from abele.poplibs.popops.elementwise.map import map as map_
from abele.poplibs.popops.expr import Const, Expr, Op, PlaceHolder
from abele.poplibs.popops.slicing.host_kernel import window_kernel
from abele.poplibs.popops.slicing.multi_check import VALIDATE_INDICES, validates
from abele.poplibs.popops.slicing.multi_layout import checked_dims
from abele.poplibs.popops.slicing.step_codelets import Remap
from abele.poplibs.popops.slicing.step_slice import create_like_window, emit_window
from abele.poplibs.poputil.host_body import note_host
from abele.poplibs.poputil.options import Options, flag, read_options

DYNAMIC_OPTIONS = {
    "remapOutOfBoundIndices": flag(False),
    "paddingIndexUsed": flag(False),
    "validateIndices": VALIDATE_INDICES,
}
"""Options of dynamic slices and updates. An offset is in range where its whole window is.

``remapOutOfBoundIndices`` takes offsets out of range for 0; with ``paddingIndexUsed`` not the extent itself, where a
slice is all zeros and an update does nothing. ``validateIndices`` stops the program at an offset out of range. Without
any, what the window has outside the tensor is zero, or is not written."""


def dynamic_slice(
    graph: Graph,
    tensor: Tensor,
    offset: Tensor,
    dims: Sequence[int],
    sizes: Sequence[int],
    prog: Steps,
    *,
    options: Options = None,
    name: str = "dynamic_slice",
) -> Tensor:
    """``tensor[offset[0] : offset[0] + sizes[0], …]`` along ``dims``, as a new tensor.

    Each tile slices its own elements. Several dimensions are sliced one after the other, the one that leaves least
    first.

    Args:
        graph: Graph in which vertices are made.
        tensor: Tensor to slice; fast where the elements along ``dims`` are on one tile.
        offset: u32 or i32 of shape [len(dims)].
        dims: Dimensions that are sliced.
        sizes: Extent of the slice along each.
        prog: Sequence that the steps are appended to.
        options: See :data:`DYNAMIC_OPTIONS`.
        name: Name of the steps.

    Returns:
        The rank of ``tensor``, ``sizes`` along ``dims``.

    Raises:
        TensorError: Dimensions or sizes that the tensor does not have, or an offset of another shape.
        TypeMismatchError: An offset that is no 32-bit integer.
        InvalidOptionError: A misspelt option.
    """
    found = checked_dims(tensor.shape, dims, sizes, name)
    # Each cut is spread as the one before is: a window of all dimensions as one would be on a single tile.
    cuts = [tensor]
    for i in _by_share(tensor, found, sizes):
        cuts.append(create_like_window(graph, cuts[-1], (found[i],), (sizes[i],), f"{name}/out"))
    _emit_slice(graph, cuts, offset, prog, dims=dims, sizes=sizes, options=options, name=name)
    return cuts[-1]


def dynamic_slice_with_output(
    graph: Graph,
    output: Tensor,
    tensor: Tensor,
    offset: Tensor,
    dims: Sequence[int],
    sizes: Sequence[int],
    prog: Steps,
    *,
    options: Options = None,
    name: str = "dynamic_slice",
) -> None:
    """:func:`dynamic_slice` into ``output``, as of :func:`create_dynamic_slice_output`.

    Raises:
        TensorError: ``output`` has another shape than the slice; see also :func:`dynamic_slice`.
        TypeMismatchError: It has another element type.
    """
    _checked(tensor, output, offset, dims=dims, sizes=sizes, options=options, name=name)
    found, cuts = checked_dims(tensor.shape, dims, sizes, name), [tensor]
    for i in _by_share(tensor, found, sizes)[:-1]:
        cuts.append(create_like_window(graph, cuts[-1], (found[i],), (sizes[i],), f"dim{found[i]}"))
    _emit_slice(graph, [*cuts, output], offset, prog, dims=dims, sizes=sizes, options=options, name=name)


def _emit_slice(
    graph: Graph,
    cuts: Sequence[Tensor],
    offset: Tensor,
    prog: Steps,
    *,
    dims: Sequence[int],
    sizes: Sequence[int],
    options: Options,
    name: str,
) -> None:
    """Append the slices of each of ``cuts``, the tensor first, that make the next."""
    tensor, output = cuts[0], cuts[-1]
    found, order, chosen = _checked(tensor, output, offset, dims=dims, sizes=sizes, options=options, name=name)
    _validate(graph, tensor, offset, dims=found, sizes=sizes, chosen=chosen, prog=prog, name=name)
    if not output.size:
        return
    remap = _remap(chosen)
    kernel = window_kernel(tensor, output, offset, [(found[i], i) for i in order], remap, is_update=False)
    call = graph.library_call(
        prog, "popops.dynamic_slice", inputs=(tensor, offset), outputs=(output,), kernel=kernel, debug_name=name
    )
    with call as body:
        host = Steps()
        for i, whole, part in zip(order, cuts[:-1], cuts[1:], strict=True):
            at, dim = offset[i], found[i]
            host.add(emit_window(graph, body, whole, part=part, at=at, dim=dim, name=f"slice{dim}", remap=remap))
    note_host(prog, host)


def dynamic_update(
    graph: Graph,
    tensor: Tensor,
    piece: Tensor,
    offset: Tensor,
    dims: Sequence[int],
    sizes: Sequence[int],
    prog: Steps,
    *,
    options: Options = None,
    name: str = "dynamic_update",
) -> None:
    """``tensor[offset[0] : offset[0] + sizes[0], …]`` along ``dims`` becomes ``piece``; see :func:`dynamic_slice`.

    Args:
        tensor: Tensor to update, in place.
        piece: The rank of ``tensor``, ``sizes`` along ``dims``.

    The others are those of :func:`dynamic_slice`.

    Raises:
        TensorError: ``piece`` has another shape than the window; see also :func:`dynamic_slice`.
        TypeMismatchError: It has another element type.
    """
    found, order, chosen = _checked(tensor, piece, offset, dims=dims, sizes=sizes, options=options, name=name)
    _validate(graph, tensor, offset, dims=found, sizes=sizes, chosen=chosen, prog=prog, name=name)
    if not piece.size:
        return
    remap = _remap(chosen)
    inputs = (tensor, piece, offset)
    kernel = window_kernel(tensor, piece, offset, [(found[i], i) for i in order], remap, is_update=True)
    call = graph.library_call(
        prog, "popops.dynamic_update", inputs=inputs, outputs=(tensor,), kernel=kernel, debug_name=name
    )
    with call as body:
        # Along several dimensions: windows are cut down to the last dimension but one, the piece is put into the
        # innermost, and each level is written back into the one it was cut from.
        levels, host = [tensor], Steps()
        for i in order[:-1]:
            inner = create_like_window(graph, levels[-1], (found[i],), (sizes[i],), f"dim{found[i]}")
            host.add(
                emit_window(
                    graph,
                    body,
                    levels[-1],
                    part=inner,
                    at=offset[i],
                    dim=found[i],
                    name=f"slice{found[i]}",
                    remap=remap,
                )
            )
            levels.append(inner)
        current = piece
        for i, level in zip(reversed(order), reversed(levels), strict=True):
            dim = found[i]
            step = f"update{dim}"
            host.add(
                emit_window(
                    graph, body, level, part=current, at=offset[i], dim=dim, name=step, remap=remap, is_update=True
                )
            )
            current = level
    note_host(prog, host)


def create_dynamic_slice_output(
    graph: Graph, tensor: Tensor, dims: Sequence[int], sizes: Sequence[int], *, name: str = "slice"
) -> Tensor:
    """A new tensor for slices of ``tensor``: its elements lie on the tiles where those of ``tensor`` are.

    Raises:
        TensorError: Dimensions or sizes that the tensor does not have.
    """
    return create_like_window(graph, tensor, checked_dims(tensor.shape, dims, sizes, name), tuple(sizes), name)


def create_sliceable_tensor_from_slice(
    graph: Graph, piece: Tensor, dims: Sequence[int], num_slices: Sequence[int], *, name: str = "sliceable"
) -> Tensor:
    """A new tensor of which ``piece`` is a slice, ``num_slices`` times as long along ``dims``.

    All of what ``dims`` run over lies where ``piece`` has it, so that slices need no exchange.

    Raises:
        TensorError: Dimensions that ``piece`` does not have, or a number of slices below 1.
    """
    found = checked_dims(piece.shape, dims, [1] * len(dims), name)
    if len(num_slices) != len(found) or any(n < 1 for n in num_slices):
        raise TensorError(
            f"{name}: {list(num_slices)} slices along dims {list(dims)}", remedy="one number from 1 on each"
        )
    extents = tuple(piece.shape[d] * int(n) for d, n in zip(found, num_slices, strict=True))
    return create_like_window(graph, piece, found, extents, name)


def _checked(
    tensor: Tensor,
    piece: Tensor,
    offset: Tensor,
    dims: Sequence[int],
    sizes: Sequence[int],
    options: Options,
    name: str,
) -> tuple[tuple[int, ...], list[int], dict[str, Any]]:
    """The dimensions, the order in which they are sliced, and the options."""
    chosen = read_options(name, options, DYNAMIC_OPTIONS)
    found = checked_dims(tensor.shape, dims, sizes, name)
    if offset.dtype not in (u32, i32):
        raise TypeMismatchError(f"{name}: the offset {offset!r} is {offset.dtype}, it must be u32 or i32")
    if offset.shape != (len(found),):
        raise TensorError(f"{name}: the offset {offset!r} has shape {list(offset.shape)}, not [{len(found)}]")
    size = dict(zip(found, sizes, strict=True))
    wanted = tuple(size.get(d, extent) for d, extent in enumerate(tensor.shape))
    if piece.shape != wanted:
        raise TensorError(f"{name}: the slice {piece!r} has shape {list(piece.shape)}, not {list(wanted)}")
    if piece.dtype != tensor.dtype:
        raise TypeMismatchError(f"{name}: the slice {piece!r} is {piece.dtype}, {tensor!r} is {tensor.dtype}")
    return found, _by_share(tensor, found, sizes), chosen


def _by_share(tensor: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Numbers of the dimensions in the order in which they are sliced: the one that leaves least first."""
    return sorted(range(len(dims)), key=lambda i: sizes[i] / tensor.shape[dims[i]])


def _remap(chosen: dict[str, Any]) -> Remap:
    if not chosen["remapOutOfBoundIndices"]:
        return ""
    return "padding" if chosen["paddingIndexUsed"] else "first"


def _validate(
    graph: Graph,
    tensor: Tensor,
    offset: Tensor,
    dims: tuple[int, ...],
    sizes: Sequence[int],
    chosen: dict[str, Any],
    prog: Steps,
    name: str,
) -> None:
    if not validates(graph, chosen):
        return
    bad: Expr | None = None
    for i, (dim, size) in enumerate(zip(dims, sizes, strict=True)):
        at, extent = PlaceHolder(i + 1), tensor.shape[dim]
        outside = at > Const(extent - size, offset.dtype)
        if chosen["paddingIndexUsed"]:
            outside = Op("logical_and", outside, at != Const(extent, offset.dtype))
        if offset.dtype == i32:
            outside = Op("logical_or", outside, at < Const(0, i32))
        bad = outside if bad is None else Op("logical_or", bad, outside)
    assert bad is not None
    found = map_(graph, bad, [offset[i] for i in range(len(dims))], prog, f"{name}/out_of_range")
    shape, window = list(tensor.shape), list(sizes)
    prog.add(Abort(f"{name}: offset out of range: a window of {window} along dims {list(dims)} of {shape}", found))
