"""Checks of what layers and methods of training are given: sizes, shares, models."""

from __future__ import annotations

import numbers

import numpy as np
import torch

from abele.errors import InvalidOptionError, TypeMismatchError


def check_counts(least: int = 1, **counts: object) -> None:
    """Raise unless each is a whole number of at least ``least``, by name.

    Raises:
        InvalidOptionError: One is not; true and false are none.
    """
    for name, count in counts.items():
        whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
        if not whole or not least <= count < 2**31:  # type: ignore[operator]
            raise InvalidOptionError(f"{name} is a whole number from {least} to 2**31 - 1, got {count!r}")


def check_numbers(**values: object) -> None:
    """Raise unless each is a number, by name; its range is the caller's to check.

    Raises:
        InvalidOptionError: One is not; true and false are none.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise InvalidOptionError(f"{name} is a number, got {value!r}")


def check_module(what: str, given: object) -> None:
    """Raise unless a model is a module of PyTorch.

    Raises:
        TypeMismatchError: It is none.
    """
    if not isinstance(given, torch.nn.Module):
        raise TypeMismatchError(f"{what} is a torch.nn.Module or a wrapper of one, got {given!r}")
