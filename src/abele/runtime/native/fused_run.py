"""Fused runs: steps that host kernels carry out together, as lowering meets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from abele.codelet.rounding import NEAREST, Rounding
from abele.graph import Program, Variable
from abele.kernels import NativePlan
from abele.runtime.control.leaf import Phase, StreamUse

NO_STRIDES: Mapping[Variable, int] = MappingProxyType({})
"""Of a run in no loop, or in a loop that moves nothing on."""


@dataclass(frozen=True, eq=False)
class RunKernels:
    """The host kernels of a run under one rounding.

    Attributes:
        uses: Stream copies among its steps.
        phases: The kernels' leaves in order, for each replica.
        plan: Plan of the kernels.
        seeds: Address of the word that results are rounded by at random, for each replica; none otherwise.
        offset: Number that tells its random numbers from those of other runs.
    """

    uses: tuple[StreamUse, ...]
    phases: tuple[tuple[Phase, ...], ...]
    plan: NativePlan
    seeds: tuple[int, ...] = ()
    offset: int = 0


@dataclass(frozen=True, eq=False)
class FusedRun:
    """A straight run of steps that host kernels carry out together.

    Attributes:
        steps: The steps that it replaces.
        plan: Makes the kernels under a rounding; they are planned when they are first asked for.
    """

    steps: tuple[Program, ...]
    plan: Callable[[Rounding], RunKernels]
    _known: dict[Rounding, RunKernels] = field(default_factory=dict)

    def kernels(self, rounding: Rounding = NEAREST) -> RunKernels:
        """The kernels whose results are rounded so."""
        if rounding not in self._known:
            self._known[rounding] = self.plan(rounding)
        return self._known[rounding]

    @property
    def listing(self) -> str:
        """The plans as text, those of other roundings than to nearest under a line that says so."""
        return "\n\n".join(
            kernels.plan.listing if rounding == NEAREST else f"{rounding}:\n{kernels.plan.listing}"
            for rounding, kernels in self._known.items()
        )
