"""Products with quantised weights, as models call them.

Outside of a recorded model they are PyTorch's own operators on the weights' numbers, by the same roundings: products
and sums of f32, results of x's type. While a model is recorded they are one operator of the network each.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as functional

from abele.arrays import Array
from abele.errors import TensorError, TypeMismatchError
from abele.frontends.poptorch.program.recording import isRunningOnIpu
from abele.weights.quantised import check_quantised, kind_of_codes

_WIDE = (torch.float32, torch.float16)


def quantised_linear(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    offsets: torch.Tensor | None = None,
    *,
    kind: str,
    group: int,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """``x · Wᵀ + bias`` for a quantised W [out, in]; its gradient is by x and the bias alone.

    Args:
        x: [..., in], float32 or float16.
        codes: int8 or uint8 [out, in]; uint8 [out, in/2] for int4, the even column in the low nibble.
        scales: float16 or float32 [out, in/group].
        offsets: As scales, or None.
        kind: ``int8``, ``int4`` or ``f143``.
        group: Columns of a group.
        bias: [out].

    Returns:
        [..., out], of x's type.

    Raises:
        InvalidOptionError: No such kind.
        TensorError: Shapes that do not fit each other.
        TypeMismatchError: Tensors of other types.
    """
    columns = _checked(codes, scales, offsets, kind, group)
    if not isinstance(x, torch.Tensor) or x.dtype not in _WIDE:
        what = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise TypeMismatchError(f"quantised_linear takes float32 or float16, got {what}", remedy="x.float()")
    if not x.ndim or x.shape[-1] != columns:
        raise TensorError(f"quantised_linear takes [..., {columns:,}], got {list(x.shape)}")
    if isRunningOnIpu():
        made: torch.Tensor = torch.ops.abele.quantised_linear(x, codes, scales, offsets, kind, group)
    else:
        made = functional.linear(x.float(), numbers(codes, scales, offsets, kind, group)).to(x.dtype)
    return made if bias is None else made + bias.to(x.dtype)


def quantised_embedding(
    index: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    offsets: torch.Tensor | None = None,
    *,
    kind: str,
    group: int,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Rows of a quantised table by their numbers: index [...] gives [..., in] of ``dtype``.

    Raises:
        TypeMismatchError: The index is not of whole numbers; also as of :func:`quantised_linear`.
    """
    _checked(codes, scales, offsets, kind, group)
    if not isinstance(index, torch.Tensor) or index.dtype not in (torch.int32, torch.int64):
        what = index.dtype if isinstance(index, torch.Tensor) else type(index).__name__
        raise TypeMismatchError(f"quantised_embedding takes int32 or int64, got {what}", remedy="index.long()")
    if dtype not in _WIDE:
        raise TypeMismatchError(f"rows of a quantised table are float32 or float16, not {dtype}")
    if isRunningOnIpu():
        made: torch.Tensor = torch.ops.abele.quantised_embedding(
            index, codes, scales, offsets, kind, group, dtype=dtype
        )
        return made
    return _rows(index, codes, scales, offsets, kind, group, dtype=dtype)


def numbers(
    codes: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor | None, kind: str, group: int
) -> torch.Tensor:
    """Numbers of a quantised matrix, float32 [out, in], as :func:`abele.weights.dequantise` makes it."""
    held = kind_of_codes(kind)
    if kind == "f143":
        values = codes.view(torch.float8_e4m3fnuz).float()
    elif held.per_byte == 2:
        values = torch.stack((codes & 15, codes >> 4), -1).flatten(-2).float()
    else:
        values = codes.float()
    groups = values.reshape(*values.shape[:-1], -1, group)
    if offsets is None and held.centre:
        groups = groups - held.centre
    groups = groups * scales.float().unsqueeze(-1)
    if offsets is not None:
        groups = groups + offsets.float().unsqueeze(-1)
    made: torch.Tensor = groups.flatten(-2)
    return made


def _rows(
    index: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    offsets: torch.Tensor | None,
    kind: str,
    group: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    flat = index.reshape(-1).long()
    shifts = None if offsets is None else offsets[flat]
    rows = numbers(codes[flat], scales[flat], shifts, kind, group).to(dtype)
    return rows.reshape(*index.shape, rows.shape[-1])


def _checked(codes: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor | None, kind: str, group: int) -> int:
    """Columns of a quantised matrix whose parts fit each other."""
    parts = [codes, scales] + ([] if offsets is None else [offsets])
    if not all(isinstance(t, torch.Tensor) for t in parts):
        raise TypeMismatchError("codes, scales and offsets are tensors")
    check_quantised(kind, _like(codes), _like(scales), None if offsets is None else _like(offsets), group)
    return codes.shape[1] * kind_of_codes(kind).per_byte


def _like(tensor: torch.Tensor) -> Array:
    """An array of a tensor's shape and type, without its values: tensors of recorded models have none."""
    kind = np.dtype(str(tensor.dtype).removeprefix("torch.").replace("bfloat16", "uint16"))
    return np.broadcast_to(np.zeros((), kind), tuple(tensor.shape))


# --- what PyTorch records ---------------------------------------------------------------------------------------------


@torch.library.custom_op("abele::quantised_linear", mutates_args=())
def _quantised_linear(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor | None, kind: str, group: int
) -> torch.Tensor:
    return functional.linear(x.float(), numbers(codes, scales, offsets, kind, group)).to(x.dtype)


@_quantised_linear.register_fake
def _(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor | None, kind: str, group: int
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], codes.shape[0]))


@torch.library.custom_op("abele::quantised_embedding", mutates_args=())
def _quantised_embedding(
    index: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    offsets: torch.Tensor | None,
    kind: str,
    group: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    return _rows(index, codes, scales, offsets, kind, group, dtype=dtype)


@_quantised_embedding.register_fake
def _(
    index: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    offsets: torch.Tensor | None,
    kind: str,
    group: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    return codes.new_empty((*index.shape, codes.shape[1] * kind_of_codes(kind).per_byte), dtype=dtype)
