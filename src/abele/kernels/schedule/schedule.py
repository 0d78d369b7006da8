"""Schedule of a loop nest: the dim in the vector lanes, those unrolled into a register tile, and the order of loops."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class NestSchedule:
    """The shape of a nest's code.

    Attributes:
        order: Parallel dims, outermost loop first; the first ``num_unit_dims`` are the function's units.
        num_unit_dims: Number of dims that make the units: one unit is one tile step of each.
        reduced: Reduced dims, outermost loop first.
        lane: Dim in the vector lanes; empty for scalar code.
        lanes: Number of lanes (1 without ``lane``).
        tile: Points of each unrolled dim in a register tile; vectors of the lane dim.
        sweeps: True if each call passes once over all other loops, and runs its units inside of them. Stores to rows
            that values name then find these rows in order, and the values are read once.
        row_units: Runs of rows that stores to such rows are cut into where no dim can be shared among threads. Each
            call passes over all points once, and stores to the rows of its units alone.
    """

    order: tuple[str, ...]
    num_unit_dims: int
    reduced: tuple[str, ...]
    lane: str = ""
    lanes: int = 1
    tile: tuple[tuple[str, int], ...] = ()
    sweeps: bool = False
    row_units: int = 0

    def step(self, dim: str) -> int:
        """Elements of ``dim`` in a register tile."""
        return dict(self.tile).get(dim, 1) * (self.lanes if dim == self.lane else 1)

    def num_units(self, extents: dict[str, int]) -> int:
        """Units of a nest over ``extents``."""
        if self.row_units:
            return self.row_units
        return math.prod(-(-extents[dim] // self.step(dim)) for dim in self.order[: self.num_unit_dims])

    def __str__(self) -> str:
        tile = " ".join(f"{d}×{n}" for d, n in self.tile if n > 1)
        lane = f" lanes {self.lane}×{self.lanes}" if self.lane else ""
        units, inner = self.order[: self.num_unit_dims], self.order[self.num_unit_dims :]
        how = (
            f"runs of rows ({self.row_units})"
            if self.row_units
            else f"{'inner ' * self.sweeps}units ({', '.join(units)})"
        )
        return f"{how} loops ({', '.join(inner)}; {', '.join(self.reduced)}){lane} tile [{tile}]"
