"""Multiplying a value by one factor on the way forth and its gradient by another on the way back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch


class _Scaled(torch.autograd.Function):
    """x times one factor, whose gradient is multiplied by another."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, forward: float, backward: float) -> torch.Tensor:
        ctx.factor = backward
        return value * forward if forward != 1 else value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * ctx.factor if ctx.factor != 1 else grad, None, None


def scaled(value: torch.Tensor, forward: float = 1.0, backward: float = 1.0) -> torch.Tensor:
    """``value`` times ``forward``; the gradient that reaches it is the incoming one times ``backward``.

    The two need not agree: what is returned is no function whose derivative PyTorch would take.

    Args:
        value: Any floating-point tensor.
        forward: Factor of the value.
        backward: Factor of its gradient.
    """
    if forward == backward:
        return value if forward == 1 else value * forward
    made: torch.Tensor = _Scaled.apply(value, forward, backward)  # type: ignore[no-untyped-call]
    return made


def scale_forward(value: torch.Tensor, factor: float) -> torch.Tensor:
    """``value`` times ``factor``, with the gradient of ``value``."""
    return scaled(value, factor, 1.0)


def scale_backward(value: torch.Tensor, factor: float) -> torch.Tensor:
    """``value``, with its gradient times ``factor``."""
    return scaled(value, 1.0, factor)


_inside: ContextVar[bool] = ContextVar("unit_scaling_inside", default=False)


@contextmanager
def unscaled() -> Iterator[None]:
    """PyTorch's functions mean themselves inside, also in a model that :func:`unit_scale` made."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def is_unscaled() -> bool:
    """True inside :func:`unscaled`."""
    return _inside.get()
