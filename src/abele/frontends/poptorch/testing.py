"""``poptorch.testing``: results of models held against each other."""

from __future__ import annotations

from typing import Any

import torch


def allclose(
    expected_outputs: Any, actual_outputs: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """True if results have the same structure, and tensors that are close.

    Args:
        expected_outputs: Right values: tensors and numbers in lists, tuples and dicts.
        actual_outputs: Values to compare with them.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        equal_nan: True if a NaN is close to another.
    """

    def close(expected: Any, actual: Any) -> bool:
        return allclose(expected, actual, rtol, atol, equal_nan)

    if isinstance(expected_outputs, torch.Tensor):
        return isinstance(actual_outputs, torch.Tensor) and _are_close(
            expected_outputs, actual_outputs, rtol=rtol, atol=atol, equal_nan=equal_nan
        )
    if isinstance(expected_outputs, dict):
        return (
            isinstance(actual_outputs, dict)
            and expected_outputs.keys() == actual_outputs.keys()
            and all(close(value, actual_outputs[key]) for key, value in expected_outputs.items())
        )
    if isinstance(expected_outputs, (list, tuple)):
        return (
            isinstance(actual_outputs, (list, tuple))
            and len(expected_outputs) == len(actual_outputs)
            and all(map(close, expected_outputs, actual_outputs))
        )
    return bool(expected_outputs == actual_outputs)


def _are_close(expected: torch.Tensor, actual: torch.Tensor, **tolerances: Any) -> bool:
    if expected.shape != actual.shape:
        return False
    wide = torch.promote_types(expected.dtype, actual.dtype)
    return torch.allclose(expected.detach().to(wide), actual.detach().to(wide), **tolerances)
