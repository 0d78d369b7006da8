"""Checks of arguments: errors in words where one is something else."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from abele.errors import AbeleError, ControlProgramError, TensorCreationError, TypeMismatchError
from abele.graph.debug import here


def described(value: Any) -> str:
    """Words for a value that was given in place of something else."""
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    if shape is not None and kind != "Tensor":
        return f"{kind} of shape {list(shape)}"
    shown = repr(value)
    return shown if kind in ("Tensor", "NoneType") else f"{kind} {shown if len(shown) <= 40 else shown[:37] + '...'}"


def expect(
    value: Any,
    kinds: type | tuple[type, ...],
    words: str,
    *,
    error: type[AbeleError] = TypeMismatchError,
    remedy: str | None = None,
) -> None:
    """``value`` is one of ``kinds``; ``words`` begin the error, as in "setTileMapping places a tensor or a vertex".

    Raises:
        AbeleError: It is none: an ``error``.
    """
    if not isinstance(value, kinds):
        raise error(f"{words}, not {described(value)}", at=here("").location or None, remedy=remedy)


def expect_step(value: Any, kinds: type | tuple[type, ...], words: str, remedy: str | None = None) -> None:
    """As :func:`expect`, for the parts of a program step.

    Raises:
        ControlProgramError: It is something else.
    """
    if not isinstance(value, kinds):
        expect(value, kinds, words, error=ControlProgramError, remedy=remedy)


def whole_number(value: Any, words: str, *, error: type[AbeleError] = TypeMismatchError) -> int:
    """``value`` as a whole number of Python's.

    Raises:
        AbeleError: It is none: an ``error``.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise error(f"{words}, not {described(value)}", at=here("").location or None) from None


def dimensions(shape: Any, what: str) -> tuple[int, ...]:
    """A shape as whole numbers; one number is one dimension.

    Raises:
        TensorCreationError: It is something else, or a dimension is negative.
    """
    try:
        dims = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError:
        raise TensorCreationError(
            f"{what}: a shape is whole numbers, as in (4, 3), not {described(shape)}", at=here("").location or None
        ) from None
    if any(n < 0 for n in dims):
        raise TensorCreationError(f"{what} has a negative dimension: {list(dims)}", at=here("").location or None)
    return dims
