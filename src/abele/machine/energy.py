"""Energy that arithmetic takes."""

from __future__ import annotations

from dataclasses import dataclass

from abele.machine.source import constant, derived, stated
from abele.machine.spec import Spec

_SLIDE = "GC-ESO, kernel power: die level, dynamic, synthetic data, convolution"


@dataclass(frozen=True, kw_only=True)
class Energy(Spec):
    """Dynamic energy of a floating-point operation, memory traffic included.

    Attributes:
        f8_joules_per_flop: Inputs in 8 bits.
        f16_joules_per_flop: Inputs and results in f16.
        f16_f32_joules_per_flop: Inputs in f16, partials in f32.
        f32_joules_per_flop: Everything in f32.
    """

    f8_joules_per_flop: float = constant(derived(0.5e-12, _SLIDE + "; about half of f16"))
    f16_joules_per_flop: float = constant(stated(1.0e-12, _SLIDE))
    f16_f32_joules_per_flop: float = constant(stated(1.3e-12, _SLIDE))
    f32_joules_per_flop: float = constant(stated(2.5e-12, _SLIDE))
