"""Costs of the host's products: sizes of the packed routine, and the rates of each way to run them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

from abele.errors import InvalidOptionError, nearest
from abele.kernels.routines.blocking import Blocking, blocking
from abele.kernels.routines.multiply import MatrixLibrary, loaded_library
from abele.kernels.routines.product_class import ProductClass
from abele.llvm.host import cache_bytes, is_elsewhere
from abele.numerics import ElementType, bf16

USUAL_PACKING = 10.0
"""Cost of packing an element, in multiply-adds of the packed routine's tiles: 2 to 7 from caches, up to 30 from memory,
and more the narrower what lies in a row. This is an AMD Zen 4's in f32; shares are cut by it on every host."""
LOOPS, PACKED = "loops", "packed"
"""Ways to run a product that are always there; a library's is its name."""
VARIABLE = "ABELE_PRODUCTS"
"""Environment variable with the way to run matrix products (:data:`WAYS`)."""
WAYS = ("auto", "loops", "packed", "mkl")
"""``auto``: what is expected to be fastest. ``loops``: register tiles that read operands where they lie. ``packed``:
the packed routine, wherever a task is a product. ``mkl``: MKL, wherever a task is a product that it can take."""
MIN_GAIN = 1.05
"""Least ratio of a library's speed to the best of our own for the library to be called."""


class ProductRates(Protocol):
    """Rates of the ways to run products, as measured on a host."""

    def shares(self, way: str, of: ProductClass) -> tuple[float, ...] | None:
        """Rates of a way at the points of a class, as shares of the machine's arithmetic; None: not to be measured."""

    def passing(self) -> float | None:
        """Cost of handing a result on through a cache, in multiply-adds of the machine; None: not to be measured."""

    def spreading(self) -> float | None:
        """Cost for loops of each access to a result in a short block, in multiply-adds; None: not to be measured."""


@dataclass(frozen=True)
class ProductCosts:
    """Figures that the choice of a product's routine rests on.

    Attributes:
        sizes: Blocking of the packed routine.
        pairs: Blocking for operands of bf16, where the CPU multiplies pairs of them; else None.
        rates: Measured rates of this host; None: what is usual.
        library: Library that may multiply instead of the packed routine.
        forced: True if every product runs by the packed routine, or by the library where it can.
    """

    sizes: Blocking
    pairs: Blocking | None = None
    rates: ProductRates | None = None
    library: MatrixLibrary | None = None
    forced: bool = False

    def sizes_of(self, left: ElementType, right: ElementType) -> Blocking:
        """Sizes of the packed routine for operands of these types."""
        return self.pairs if self.pairs is not None and left == right == bf16 else self.sizes


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
