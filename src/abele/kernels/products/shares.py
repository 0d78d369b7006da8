"""Into which shares a product is cut: fine enough for threads to share it evenly, and as large as that allows.

Each share packs its own part of an operand, so large ones do less packing for each result; small ones balance better,
and there must be enough of them for many threads. A cut is chosen by the time that the product is expected to take on
one thread and on several, all alike, so that it, and with it the bits of the results, never depends on the threads at
hand.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

from abele.kernels.routines.blocking import Blocking
from abele.kernels.routines.rates import USUAL

THREADS = (1, 2, 4, 8, 16)
"""Numbers of threads that a cut should suit."""
MAX_TILE_BYTES = 1 << 18
"""Sums of a share: they stay in a second-level cache until something is done with them."""
MAX_PARTS, MAX_SHARE = 64, 256
"""Parts that are tried along a dim; above this many results, also parts of this size."""
READING = 2.0
"""Cost of reading an element of the packed columns for a share: from a shared cache, mostly behind the arithmetic."""
CALL = 4000.0
"""Cost of a share beside that, in multiply-adds."""


@lru_cache(maxsize=4096)
def choose_shares(shape: tuple[int, int, int], digits: tuple[int, int], count: int, sizes: Blocking) -> tuple[int, int]:
    """Rows and columns of the shares of ``count`` products of rows, columns and summed elements ``shape``.

    Rows and columns of a share are multiples of ``digits``.
    """
    m, n, _ = shape
    cuts = list(product(_cuts(m, sizes.rows, digits[0]), _cuts(n, sizes.columns, digits[1])))
    smallest = min(cuts, key=math.prod)
    fitting = [(r, c) for r, c in cuts if 4 * r * c <= MAX_TILE_BYTES] or [smallest]

    def cost(cut: tuple[int, int]) -> float:
        return sum(product_cost(shape, count, cut, threads, sizes) for threads in THREADS)

    return min(fitting, key=cost)


def product_cost(
    shape: tuple[int, int, int],
    count: int,
    cut: tuple[int, int],
    threads: int,
    sizes: Blocking,
    *,
    packing: float | None = None,
) -> float:
    """Expected cost of ``count`` products on ``threads``, in multiply-adds: that of the slowest, times their number.

    ``packing`` is the cost of packing an element, where that is measured.
    """
    m, n, k = shape
    rows, columns = cut
    # In words of pairs, tiles do a multiply-add in half the time, and packing costs twice as many of them.
    packing = USUAL.packing * sizes.word if packing is None else packing
    parts = -(-m // rows)
    units = -(-count * parts * -(-n // columns) // threads)
    whole = -(-columns // sizes.lanes) * sizes.lanes
    strips = -(-columns // sizes.strip)
    # Columns are packed by the first share of a thread that has them, rows by every share.
    blocks = -(-units // parts) if sizes.keeps(k, columns) else units
    one = rows * (whole + packing * strips) * k + READING * k * whole + CALL
    return threads * (units * one + blocks * packing * k * columns)


def _cuts(extent: int, step: int, digit: int) -> list[int]:
    """Sizes of even shares, multiples of ``digit``, and of ``step`` where that is possible."""
    sizes = {extent}
    for parts in range(2, max(MAX_PARTS, extent // MAX_SHARE) + 1):
        even = -(-extent // parts)
        rounded = -(-even // digit) * digit if digit > 1 else -(-even // step) * step
        sizes.add(min(extent, rounded))
    return sorted(sizes)
