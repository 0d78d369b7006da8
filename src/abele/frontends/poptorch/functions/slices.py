"""Slices and updates that begin where a tensor says: what an index that is data needs in place of ``x[start:]``."""

from __future__ import annotations

from typing import Protocol

import torch

from abele.frontends.poptorch.errors import Error

_STARTS = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)


class SliceArgumentError(Error, ValueError, TypeError):
    """Arguments of a dynamic slice or update that do not go together."""


def _places(tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int = 1) -> torch.Tensor:
    """The indices of a slice; after the last one comes the first."""
    return (start.reshape(()).long() + torch.arange(0, size, step, device=start.device)) % tensor.shape[dim]


@torch.library.custom_op("abele::dynamic_slice", mutates_args=())
def _dynamic_slice(tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    return tensor.index_select(dim, _places(tensor, dim, start, size, step))


@_dynamic_slice.register_fake
def _(tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    return tensor.new_empty((*tensor.shape[:dim], -(-size // step), *tensor.shape[dim + 1 :]))


class _SavedSlice(Protocol):
    """Context kept from the forward pass to the backward pass."""

    start: torch.Tensor
    shape: torch.Size
    dim: int
    size: int
    step: int


def _keep_slice(ctx: _SavedSlice, inputs: tuple[torch.Tensor, int, torch.Tensor, int, int], output: object) -> None:
    tensor, ctx.dim, ctx.start, ctx.size, ctx.step = inputs
    ctx.shape = tensor.shape


def _slice_backward(ctx: _SavedSlice, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
    zeros = grad.new_zeros(ctx.shape)
    places = _places(zeros, ctx.dim, ctx.start, ctx.size, ctx.step)
    return zeros.index_add(ctx.dim, places, grad), None, None, None, None


_dynamic_slice.register_autograd(_slice_backward, setup_context=_keep_slice)


@torch.library.custom_op("abele::dynamic_update", mutates_args=())
def _dynamic_update(
    tensor: torch.Tensor, source: torch.Tensor, dim: int, start: torch.Tensor, size: int
) -> torch.Tensor:
    return tensor.index_copy(dim, _places(tensor, dim, start, size), source)


@_dynamic_update.register_fake
def _(tensor: torch.Tensor, source: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> torch.Tensor:
    return torch.empty_like(tensor)


class _SavedUpdate(Protocol):
    """Context kept from the forward pass to the backward pass."""

    start: torch.Tensor
    dim: int
    size: int


def _keep_update(
    ctx: _SavedUpdate, inputs: tuple[torch.Tensor, torch.Tensor, int, torch.Tensor, int], output: object
) -> None:
    _, _, ctx.dim, ctx.start, ctx.size = inputs


def _update_backward(ctx: _SavedUpdate, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None, None]:
    places = _places(grad, ctx.dim, ctx.start, ctx.size)
    return grad.index_fill(ctx.dim, places, 0), grad.index_select(ctx.dim, places), None, None, None


_dynamic_update.register_autograd(_update_backward, setup_context=_keep_update)


def dynamic_slice(tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    """``tensor[start : start + size : step]`` along ``dim``, where ``start`` is known when the model runs.

    Args:
        tensor: Tensor to slice.
        dim: The dimension.
        start: The first index, a tensor of one integer. Indices past the end go on at the begin.
        size: Indices from the first to the last; a number.
        step: Distance of those that are taken.

    Raises:
        SliceArgumentError: ``start`` is no tensor of one integer; there is no such dimension or slice; ``size`` does
            not divide the dimension.
    """
    dim = _checked("dynamic_slice", tensor, dim, start, size)
    if tensor.shape[dim] % size:
        raise SliceArgumentError(
            f"dynamic_slice: The size of the slice ({size}) must be a factor of the slicing dimension "
            f"({tensor.shape[dim]}).",
            remedy="pad the dimension, or take the indices with torch.index_select",
        )
    if step < 1:
        raise SliceArgumentError(f"dynamic_slice: the step {step} has to be at least 1")
    result: torch.Tensor = _dynamic_slice(tensor, dim, start, size, step)
    return result


def dynamic_update(input: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> torch.Tensor:
    """``input`` with ``size`` indices of ``dim`` from ``start`` on replaced by ``src``.

    Args:
        input: Tensor to update; it stays as it is.
        src: New elements: of the shape of ``input``, with ``size`` indices along ``dim``.
        dim: The dimension.
        start: The first index, a tensor of one integer. Indices past the end go on at the begin.
        size: Number of indices to replace.

    Raises:
        SliceArgumentError: Arguments that do not go together.
    """
    dim = _checked("dynamic_update", input, dim, start, size)
    if not isinstance(src, torch.Tensor):
        raise SliceArgumentError(f"dynamic_update: src must be a tensor, not {type(src).__name__}")
    if input.dtype != src.dtype:
        raise SliceArgumentError(
            f"dynamic_update: input and src must have the same dtype: input.dtype={input.dtype}, src.dtype={src.dtype}"
        )
    if input.dim() != src.dim():
        raise SliceArgumentError(
            f"dynamic_update: input and src must have the same rank: input.dim()={input.dim()}, src.dim()={src.dim()}"
        )
    wanted = (*input.shape[:dim], size, *input.shape[dim + 1 :])
    if tuple(src.shape) != wanted:
        raise SliceArgumentError(f"dynamic_update: src has shape {list(src.shape)}, it must have {list(wanted)}")
    result: torch.Tensor = _dynamic_update(input, src, dim, start, size)
    return result


def _checked(name: str, tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> int:
    """``dim``, not negative."""
    if not isinstance(tensor, torch.Tensor):
        raise SliceArgumentError(f"{name}: takes a tensor, got {type(tensor).__name__}")
    if not isinstance(start, torch.Tensor):
        raise SliceArgumentError(
            f"{name}: start must be a tensor, not {type(start).__name__}", remedy="slice as usual where it is a number"
        )
    if start.dtype not in _STARTS or start.numel() != 1:
        raise SliceArgumentError(
            f"{name}: start must be a tensor of one integer, not of {list(start.shape)} and {start.dtype}"
        )
    if not -tensor.dim() <= dim < tensor.dim():
        raise SliceArgumentError(f"{name}: a tensor of {tensor.dim()} dimensions has no dimension {dim}")
    dim %= tensor.dim()
    if isinstance(size, bool) or not isinstance(size, int):
        raise SliceArgumentError(
            f"{name}: The size of the sliced tensor must be a constant for each execution of the model when running on "
            f"the IPU, got {type(size).__name__}"
        )
    if size == 0:
        raise SliceArgumentError(f"{name}: The start and end of a slice must be different.")
    if size < 0:
        raise SliceArgumentError(
            f"{name}: Taking a slice of a tensor with the end less than the start is not supported: the size is {size}"
        )
    if size > tensor.shape[dim]:
        raise SliceArgumentError(f"{name}: size {size} of a dimension of {tensor.shape[dim]}")
    return dim
