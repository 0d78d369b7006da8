"""Fused runs: steps that host kernels carry out together, as lowering meets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from abele.graph import Program, Variable
from abele.kernels import NativePlan
from abele.runtime.control.leaf import Phase, StreamUse

NO_STRIDES: Mapping[Variable, int] = MappingProxyType({})
"""Of a run that is in no loop, or whose loop moves nothing on."""


@dataclass(frozen=True, eq=False)
class FusedRun:
    """A straight run of steps that host kernels carry out together.

    Attributes:
        steps: The steps that it replaces.
        uses: Stream copies among them.
        phases: The kernels' leaves in order, for each replica.
        plan: What the kernels are.
    """

    steps: tuple[Program, ...]
    uses: tuple[StreamUse, ...]
    phases: tuple[tuple[Phase, ...], ...]
    plan: NativePlan

    @property
    def listing(self) -> str:
        """The plan as text."""
        return self.plan.listing
