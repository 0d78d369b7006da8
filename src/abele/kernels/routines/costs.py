"""Costs of the host's products: sizes of the packed routine, its gain over loops, and a library."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from abele.errors import InvalidOptionError, nearest
from abele.kernels.routines.blocking import Blocking, blocking
from abele.kernels.routines.gains import MatrixLibrary, library_gain, loaded_library
from abele.llvm.host import cache_bytes, is_elsewhere
from abele.numerics import ElementType, bf16

# Costs of the packed routine beside loops over register tiles.


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


VARIABLE = "ABELE_PRODUCTS"
"""Environment variable with the way to run matrix products (:data:`WAYS`)."""
WAYS = ("auto", "loops", "packed", "mkl")
"""``auto``: what is expected to be fastest. ``loops``: register tiles that read operands where they lie. ``packed``:
the packed routine, wherever a task is a product. ``mkl``: MKL, wherever a task is a product that it can take."""
MIN_GAIN = 1.05
"""Least ratio of a library's speed to the packed routine's for the library to be called."""


@dataclass(frozen=True)
class ProductCosts:
    """Figures that the choice of a product's routine rests on.

    Attributes:
        sizes: Blocking of the packed routine.
        pairs: Blocking for operands of bf16, where the CPU multiplies pairs of them; else None.
        measure: Measures the costs of the routine of given sizes on this host; None: the default rates.
        library: Library that may multiply instead of the packed routine.
        forced: True if every product runs by the packed routine, or by the library where it can.
    """

    sizes: Blocking
    pairs: Blocking | None = None
    measure: Callable[[Blocking], PackedRates] | None = None
    library: MatrixLibrary | None = None
    forced: bool = False

    def sizes_of(self, left: ElementType, right: ElementType) -> Blocking:
        """Sizes of the packed routine for operands of these types."""
        return self.pairs if self.pairs is not None and left == right == bf16 else self.sizes

    def takes_library(self) -> bool:
        """True if the library multiplies the products that it can take; it is measured once on this host."""
        if self.library is None:
            return False
        return self.forced or library_gain(self.library, self.sizes) >= MIN_GAIN


def product_costs(lanes: int, registers: int, *, pairs: bool = False) -> ProductCosts | None:
    """The costs of this host's products; None where they shall run as loops.

    Args:
        lanes: Of a vector of f32.
        registers: Vector registers.
        pairs: True if an instruction multiplies pairs of bf16.

    Raises:
        InvalidOptionError: ``ABELE_PRODUCTS`` names no way to run products, or one that is not there.
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
    library = None if way == "packed" or is_elsewhere() else loaded_library()
    if way == "mkl" and library is None:
        raise InvalidOptionError(
            f"{VARIABLE} is 'mkl', which is not in this process",
            because="it is found in a PyTorch that was imported before, on x86, and never loaded for itself",
            remedy="import torch first, or leave the variable unset",
        )
    sizes, paired = (blocking(lanes, registers, *cache_bytes(), word=word) for word in (1, 2))
    return ProductCosts(sizes, paired if pairs else None, library=library, forced=way != "auto")
