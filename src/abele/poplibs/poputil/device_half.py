"""Numbers that the device holds in fewer bits."""

from __future__ import annotations

import math

import numpy as np

from abele.numerics import ElementType, f16, f32
from abele.numerics.exponents import LARGEST_F16


def cast_to_device_half_value(value: float) -> float:
    """``value`` as the device holds it in f16: to nearest even, infinite where it is too large."""
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def check_accuracy_when_cast(value: float, source: ElementType, target: ElementType, tolerance: float) -> bool:
    """True if ``value`` keeps its accuracy when cast from ``source`` to ``target``.

    Args:
        value: The number.
        source: f32 or f16.
        target: f32 or f16.
        tolerance: Largest relative error.
    """
    if source != f32 or target != f16:
        return True
    if not math.isfinite(value) or abs(value) > LARGEST_F16:
        return False
    error = abs(float(np.float16(value)) - value)
    return bool(error <= tolerance * abs(value)) and (value == 0 or abs(value) >= float(np.finfo(np.float16).tiny))
