"""What the planner asks of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from abele.machine import System
from abele.numerics import ElementType


@dataclass(frozen=True)
class Target:
    """What the planner asks of a machine.

    Attributes:
        name: The machine's name.
        tiles: Tiles to plan for.
        tile_bytes: Memory of one tile.
        exchange_bytes_per_cycle: What a tile receives in a cycle.
        pair_bytes_per_cycle: The same where the other tile of its pair receives the same.
        fragment_cycles: What receiving one separate piece takes at least.
        superstep_cycles: Sync and launch of one superstep.
        units: Conv units that work together, by the names of input and partials type.
        load_bytes: Bytes of weights that the conv units load in a cycle.
    """

    name: str
    tiles: int
    tile_bytes: int
    exchange_bytes_per_cycle: float
    pair_bytes_per_cycle: float
    fragment_cycles: int
    superstep_cycles: int
    units: tuple[tuple[str, str, int], ...]
    load_bytes: int

    def conv_units(self, dtype: ElementType, partials: ElementType) -> int:
        """Conv units for these types; 0 where the AMP cannot take them."""
        return next((n for d, p, n in self.units if (d, p) == (dtype.name, partials.name)), 0)


@lru_cache(maxsize=64)
def target_of(system: System) -> Target:
    """One IPU of ``system``: a contraction is not spread over several."""
    ipu = system.ipu
    return Target(
        ipu.name,
        ipu.num_tiles,
        ipu.tile.usable_bytes,
        ipu.exchange.bytes_per_cycle,
        ipu.exchange.pair_bytes_per_cycle,
        ipu.exchange.fragment_cycles,
        ipu.sync.on_chip_cycles + ipu.launch.compute_set_cycles + ipu.exchange.phase_overhead_cycles,
        tuple((mode.input, mode.partials, mode.num_units) for mode in ipu.amp.modes),
        ipu.amp.weight_load_bytes_per_cycle,
    )
