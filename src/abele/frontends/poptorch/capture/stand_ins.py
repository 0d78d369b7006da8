"""Functions that PyTorch's export cannot record, in terms of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def least_squares(a: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """``torch.linalg.lstsq``, with shapes that do not depend on values.

    By default matrices have full rank, and QR solves. A driver that is named and allows for less gives the least of
    all solutions, by singular values, and counts those above its limit.
    """
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    sides = b.unsqueeze(-1) if vector else b
    rows, columns = a.shape[-2:]
    rank = torch.full((), min(rows, columns), dtype=torch.int64)
    if driver in ("gelsy", "gelsd", "gelss"):
        limit = torch.finfo(a.dtype).eps * max(rows, columns) if rcond is None else rcond
        solution = torch.linalg.pinv(a, rtol=limit) @ sides
        rank = torch.linalg.matrix_rank(a, rtol=limit)
    elif rows >= columns:
        q, r = torch.linalg.qr(a)
        solution = torch.linalg.solve_triangular(r, q.mT @ sides, upper=True)
    else:
        q, r = torch.linalg.qr(a.mT)
        solution = q @ torch.linalg.solve_triangular(r.mT, sides, upper=False)
    # The driver decides which results are empty, as in LAPACK.
    has_residuals = rows > columns and driver not in (None, "gelsy")
    residuals = ((a @ solution - sides) ** 2).sum(-2) if has_residuals else a.new_empty(0)
    rank = rank.new_empty(0) if driver == "gels" else rank.expand(a.shape[:-2])
    results = (solution.squeeze(-1) if vector else solution, residuals, rank, a.new_empty(0))
    return torch.return_types.linalg_lstsq(results)  # type: ignore[attr-defined]


def _resized_as(value: torch.Tensor, other: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return value.resize_(other.shape)


def _polygamma_in_place(value: torch.Tensor, order: int) -> torch.Tensor:
    return value.copy_(torch.polygamma(order, value))


def _random_in_place(value: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``random_`` with bounds: recorded as it is, their names would be words of Python."""
    low = kwargs.get("from", args[0] if args else 0)
    high = kwargs.get("to", args[1] if len(args) > 1 else None)
    if high is None:
        low, high = (0, low) if args or "from" in kwargs else (0, None)
    if high is None:
        return torch.Tensor.random_(value)
    return value.copy_(torch.randint(low, high, value.shape, dtype=torch.int64))


def _zeros(*args: Any, memory_format: Any = None, **kwargs: Any) -> torch.Tensor:
    """Zeros in place of ``empty``, whose contents are not defined and would differ from one recording to the next."""
    return torch.zeros(*args, **kwargs)


def _new_data(value: torch.Tensor, data: torch.Tensor) -> None:
    """``value.data = data``: new contents, which no gradient knows of."""
    with torch.no_grad():
        value.copy_(data)


def _masked_select(value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Elements where a mask, which has to be known, is true."""
    known: Any = torch
    shape = known.broadcast_shapes(value.shape, mask.shape)
    return value.expand(shape)[mask.expand(shape)]


def _fake_quantized(
    value: torch.Tensor, scale: torch.Tensor | float, zero_point: torch.Tensor | int, quant_min: int, quant_max: int
) -> torch.Tensor:
    """Values of a grid of integers; gradients pass where a value is within it."""
    with torch.no_grad():
        number = torch.round(value * (1 / scale)) + zero_point
        result = (number.clamp(quant_min, quant_max) - zero_point) * scale
        inside = (number >= quant_min) & (number <= quant_max)
    passed = torch.where(inside, value, 0)
    return (result + (passed - passed.detach())).to(value.dtype)


def _fake_quantized_channels(
    value: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, axis: int, quant_min: int, quant_max: int
) -> torch.Tensor:
    shape = [1] * value.ndim
    shape[axis] = -1
    return _fake_quantized(value, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


_STAND_INS: dict[Any, Callable[..., Any]] = {
    torch.empty: _zeros,
    torch.empty_like: torch.zeros_like,
    torch.linalg.lstsq: least_squares,
    torch.Tensor.data.__get__: torch.Tensor.detach,  # type: ignore[attr-defined]
    torch.Tensor.data.__set__: _new_data,  # type: ignore[attr-defined]
    torch.fake_quantize_per_channel_affine: _fake_quantized_channels,
    torch.fake_quantize_per_tensor_affine: _fake_quantized,
    torch.masked_select: _masked_select,
    torch.resize_as_: _resized_as,
    torch.Tensor.masked_select: _masked_select,
    torch.Tensor.polygamma_: _polygamma_in_place,
    torch.Tensor.random_: _random_in_place,
    torch.Tensor.resize_as_: _resized_as,
}


class StandIns(TorchFunctionMode):
    """Calls what stands in for a function, while a model is recorded."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Result of the function, or of its stand-in."""
        try:
            stand_in = _STAND_INS.get(function, function)
        except TypeError:  # Not everything that is called has a hash.
            stand_in = function
        given = dict(kwargs or {})
        out = given.pop("out", None)
        return _written(stand_in(*args, **given), out) if out is not None else stand_in(*args, **given)


def _written(result: Any, out: Any) -> Any:
    """``out`` with results copied into it: what writes into tensors has other decompositions than what makes them."""
    if isinstance(out, torch.Tensor):
        if out.shape != result.shape:
            out.resize_(result.shape)
        return out.copy_(result)
    return type(out)(_written(r, o) for r, o in zip(result, out, strict=True))
