"""Published costs of PopLibs' vertices for factorisations and solves, as polynomials in the rows n of a block.

They are worker slots of one vertex, which alone on a tile takes six cycles for each. Integer division, as published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.machine.source import Cited, calibrated
from abele.numerics import ElementType, f16, f32

Slots = Callable[[Int64], Int64]

CHOLESKY: dict[ElementType, Slots] = {
    f16: lambda n: n**3 // 2 + 795 * n**2 // 4 + 191 * n // 2 + 426,
    f32: lambda n: n**3 + 102 * n**2 + 101 * n + 102,
}
SOLVE: dict[tuple[ElementType, bool], Slots] = {
    (f16, True): lambda n: 3 * n**2 // 4 + 318 * n - 150,
    (f16, False): lambda n: 135 * n**2 // 16 + 1089 * n // 4 + 12,
    (f32, True): lambda n: 3 * n**2 // 2 + 180 * n - 126,
    (f32, False): lambda n: 27 * n**2 // 4 + 327 * n // 2 + 54,
}
"""By type, and whether the block is the lower half. Source: machine reference §4.15, S."""
_INVERSE_OF_UPPER: dict[ElementType, Slots] = {
    f16: lambda n: 7 * n**3 + 123 * n**2 + 269 * n - 24,
    f32: lambda n: 6 * n**3 + 51 * n**2 + 213 * n + 12,
}
"""Source: machine reference §4.15, S."""
CALIBRATED_ROWS = 16
LOWER_EXTRA_SLOTS = {f16: 17_553, f32: 52_170}
"""Slots that the inverse of a lower block of 16 rows takes more than that of an upper one.

The published polynomial fits factorisations of upper triangles. The same program of lower ones takes six times these
cycles more per inverse, however many rows are left, so it is the vertex that differs. Why is not public; solves, too,
take about twice as long in one direction as in the other. Calibrated on published operators; other blocks are taken to
have the same ratio.
"""


def calibrations() -> Iterator[tuple[str, Cited]]:
    """Calibrated constants of this module, by name."""
    for dtype, slots in LOWER_EXTRA_SLOTS.items():
        row = f"cholesky_batch_2_dim_32_block_16_lower_true_type_{dtype.poplar_name}"
        text = f"{row} less the same row of upper triangles, on GC2, over six"
        on = tuple(f"operators: {row}, {chip}" for chip in ("gc2", "gc200"))
        yield f"poplin.linalg.estimates.LOWER_EXTRA_SLOTS[{dtype}]", calibrated(slots, text, on=on)


def inverse(dtype: ElementType, lower: bool) -> Slots:
    """Slots of the transposed inverse of one half of a block."""
    upper = _INVERSE_OF_UPPER[dtype]
    known = int(upper(np.array(CALIBRATED_ROWS)))
    ratio = Fraction(known + LOWER_EXTRA_SLOTS[dtype], known) if lower else Fraction(1)
    return lambda n: upper(n) * ratio.numerator // ratio.denominator


def formula(slots: Slots, size: str) -> Callable[[Any, Ipu], Int64]:
    """The cost formula of a vertex whose field ``size`` is n; never less than a slot."""

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return np.asarray(np.maximum(slots(np.asarray(getattr(v, size), np.int64)), 1), np.int64)

    return cycles
