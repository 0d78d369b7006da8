"""What is known of the host's products: sizes of the packed routine, and what it gains over loops."""

from __future__ import annotations

import os
from dataclasses import dataclass

from abele.errors import InvalidOptionError, nearest
from abele.kernels.routines.packed import Blocking, blocking
from abele.llvm.host import cache_bytes

VARIABLE = "ABELE_PRODUCTS"
"""Environment variable: what runs matrix products (:data:`WAYS`)."""
WAYS = ("auto", "loops", "packed")
"""``auto``: what is expected to be fastest. ``loops``: register tiles that read operands where they lie. ``packed``:
the packed routine, wherever a task is a product."""
LOOPS_RATE = 0.88
"""Rate of loops over register tiles, of that of the packed routine's tiles."""


@dataclass(frozen=True)
class ProductCosts:
    """What the choice of a product's routine rests on.

    Attributes:
        sizes: Of the packed routine.
        loops_rate: Rate of loops over register tiles, of that of the packed routine's tiles.
    """

    sizes: Blocking
    loops_rate: float = LOOPS_RATE


def product_costs(lanes: int, registers: int) -> ProductCosts | None:
    """The costs of this host's products; None where they shall run as loops.

    Args:
        lanes: Of a vector of f32.
        registers: Vector registers.

    Raises:
        InvalidOptionError: ``ABELE_PRODUCTS`` names no way to run products.
    """
    way = os.environ.get(VARIABLE) or "auto"
    if way not in WAYS:
        close = nearest(way, WAYS)
        raise InvalidOptionError(
            f"{VARIABLE} is {way!r}, which runs no products",
            because=f"it may be {', '.join(WAYS)}",
            remedy=f"{close!r}" if close else "leave it unset",
        )
    if way == "loops":
        return None
    sizes = blocking(lanes, registers, *cache_bytes())
    return ProductCosts(sizes, 0.0 if way == "packed" else LOOPS_RATE)
