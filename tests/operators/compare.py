"""Results beside PyTorch's: structure, types after narrowing, and values within the accuracy of the type."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

_RELATIVE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
"""Accuracy of an element, of its value."""

_ABSOLUTE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""Accuracy of an element, of the largest value of its tensor (at least 1): sums cancel."""

_NARROWED = {torch.float64: torch.float32, torch.int64: torch.int32}


class DifferenceError(Exception):
    """A result is not PyTorch's."""


def difference(got: Any, expected: Any, exact: Any = None) -> float:
    """The largest error of a result, relative to the largest value of its tensor (at least 1).

    Args:
        got: The result.
        expected: PyTorch's, which gives structure and types.
        exact: PyTorch's in float64, if known: an element may be as near to it as to ``expected``.

    Raises:
        DifferenceError: Another structure, type or shape, or an element that is too far off.
    """
    here, structure = pytree.tree_flatten(got)
    there, wanted = pytree.tree_flatten(expected)
    if len(here) != len(there) or _shape_of(structure) != _shape_of(wanted):
        raise DifferenceError(f"structure is {structure}, not {wanted}".replace("\n", " "))
    finer = pytree.tree_leaves(exact) if exact is not None else [None] * len(there)
    worst = 0.0
    for number, (a, b, c) in enumerate(zip(here, there, finer, strict=True)):
        if isinstance(b, torch.Tensor):
            worst = max(worst, tensor_difference(a, b, c, f"result {number}" if len(there) > 1 else "result"))
        elif a != b and not (a != a and b != b):
            raise DifferenceError(f"result {number} is {a!r}, not {b!r}")
    return worst


def _shape_of(structure: pytree.TreeSpec) -> Any:
    """Nesting without the difference between tuples and named tuples."""
    if structure.is_leaf():
        return None
    names = tuple(structure.context) if isinstance(structure.context, list) and structure.type is dict else ()
    return (names, tuple(_shape_of(child) for child in structure.children()))


def tensor_difference(got: Any, expected: torch.Tensor, exact: torch.Tensor | None, name: str) -> float:
    """The largest error of one tensor; see :func:`difference`."""
    if not isinstance(got, torch.Tensor):
        raise DifferenceError(f"{name} is {type(got).__name__}, not a tensor")
    dtype = _NARROWED.get(expected.dtype, expected.dtype)
    if got.dtype != dtype:
        raise DifferenceError(f"{name} has type {got.dtype}, not {dtype}")
    if got.shape != expected.shape:
        raise DifferenceError(f"{name} has shape {list(got.shape)}, not {list(expected.shape)}")
    got, expected = got.detach(), expected.detach()
    if not dtype.is_floating_point:
        wrong = int((got != expected.to(dtype)).sum())
        if wrong:
            raise DifferenceError(f"{name}: {wrong} of {got.numel()} elements differ: {_shown(got, expected)}")
        return 0.0
    errors, allowed = _errors(got, expected, dtype)
    if exact is not None and bool((errors > allowed).any()):
        again, as_allowed = _errors(got, exact.detach().to(dtype), dtype)
        better = again <= as_allowed
        errors, allowed = torch.where(better, again, errors), torch.where(better, as_allowed, allowed)
    wrong = int((errors > allowed).sum())
    scale = _scale(expected)
    worst = float(errors.max()) / scale
    if wrong:
        raise DifferenceError(
            f"{name}: {wrong} of {got.numel()} elements differ, worst error {worst:.2g}: {_shown(got, expected)}"
        )
    return worst


def _scale(tensor: torch.Tensor) -> float:
    finite = tensor.double()[tensor.double().isfinite()]
    return max(1.0, float(finite.abs().max())) if finite.numel() else 1.0


def _errors(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The error of each element (zero where both are the same infinity, or not a number), and what is allowed."""
    a, b = got.double(), expected.double()
    errors = (a - b).abs()
    same = (a == b) | (a.isnan() & b.isnan())
    errors = torch.where(same, torch.zeros_like(errors), errors)
    errors = torch.where(errors.isnan(), torch.full_like(errors, float("inf")), errors)
    allowed = _RELATIVE[dtype] * b.abs() + _ABSOLUTE[dtype] * _scale(expected)
    return errors, torch.where(allowed.isfinite(), allowed, torch.zeros_like(allowed))


def _shown(got: torch.Tensor, expected: torch.Tensor) -> str:
    a, b = got.double().flatten(), expected.double().flatten()
    far = (a - b).abs()
    far = torch.where(far.isnan() & ~(a.isnan() & b.isnan()), torch.full_like(far, float("inf")), far.nan_to_num(0.0))
    place = int(far.argmax())
    return f"{float(a[place]):.6g} for {float(b[place]):.6g} at {place}"
