"""Costs of the packed routine beside loops over register tiles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PackedRates:
    """Costs relative to the packed routine's tiles; by default as on an AMD Zen 4 in f32.

    Attributes:
        packing: Cost of packing an element, in multiply-adds of these tiles: 2 to 7 from caches, up to 30 from memory,
            and more the narrower what lies in a row.
        loops: Rate of loops over register tiles, of that of these tiles.
        crossed: The same where the sum is cut into parts and the columns of the right operand lie a power of two apart
            in memory, so that each part transposes what the caches lose meanwhile.
    """

    packing: float = 10.0
    loops: float = 1.0
    crossed: float = 1.0


USUAL = PackedRates()
"""Expected rates of a host that is not measured."""
