"""Hints: what a model's author says about how single products and convolutions are planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ConvGroup:
    """Convolutions that are planned together.

    Attributes:
        number: Number of the network's group; 0 where its members are one op already.
        plan_type: ``parallel``: at the same time, each on tiles of its own; ``serial``: one after the other on all.
        reserved_tiles: Tiles that each has at least.
        back_off: Proportion by which the longest may take longer than the shortest.
    """

    number: int = 0
    plan_type: str = "parallel"
    reserved_tiles: int = 50
    back_off: float = 0.1

    @property
    def options(self) -> dict[str, Any]:
        """PopLibs' options of multi-convolutions."""
        return {
            "planType": self.plan_type,
            "perConvReservedTiles": self.reserved_tiles,
            "cycleBackOff": self.back_off,
        }


@dataclass(frozen=True)
class PlanHint:
    """Planning of one op where it differs from that of the others. Results change by their rounding alone.

    Attributes:
        proportion: Share of a tile's memory that it plans with; None for that of the others.
        partials: Type of partial sums of f16 operands; None for that of the others.
        dithered: True to begin at a tile of its own.
        group: Convolutions that it is planned together with.
    """

    proportion: float | None = None
    partials: str | None = None
    dithered: bool = False
    group: ConvGroup | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Options of the hint, under the libraries' names."""
        said = {"available_memory_proportion": self.proportion, "partials_type": self.partials}
        given = {name: value for name, value in said.items() if value is not None}
        return given | ({"enable_conv_dithering": True} if self.dithered else {})
