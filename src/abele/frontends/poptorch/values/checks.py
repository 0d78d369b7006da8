"""Checks of what layers and methods of training are given: shares, models."""

from __future__ import annotations

import numbers

import torch

from abele.errors import InvalidOptionError, TypeMismatchError


def check_numbers(**values: object) -> None:
    """Raise unless each is a number, by name; its range is the caller's to check.

    Raises:
        InvalidOptionError: One is not; true and false are none.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise InvalidOptionError(f"{name} is a number, got {value!r}")


def check_probability(**values: object) -> None:
    """Raise unless each is a probability of dropping something, from 0 to less than 1, by name.

    Raises:
        InvalidOptionError: One is not.
    """
    check_numbers(**values)
    for name, value in values.items():
        if not 0.0 <= value < 1.0:  # type: ignore[operator]
            raise InvalidOptionError(f"{name} is from 0 to less than 1, got {value!r}")


def check_module(what: str, given: object) -> None:
    """Raise unless a model is a module of PyTorch.

    Raises:
        TypeMismatchError: It is none.
    """
    if not isinstance(given, torch.nn.Module):
        raise TypeMismatchError(f"{what} is a torch.nn.Module or a wrapper of one, got {given!r}")
