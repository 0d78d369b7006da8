"""Choose the nests that run as matrix products, and their shares."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from abele.kernels.nest.loop_nest import LoopNest
from abele.kernels.products.library_call import library_call
from abele.kernels.products.matrix_product import MatrixProduct, find_product
from abele.kernels.products.schedule import ProductSchedule
from abele.kernels.products.shares import choose_shares, product_cost
from abele.kernels.routines.blocking import Blocking
from abele.kernels.routines.rates import USUAL
from abele.kernels.target import HostTarget

WHOLE_POINTS = 768
"""Points of a reduction that loops run whole; of longer ones they run parts, one after the other. Measured: from 512 to
1,024 points rates fall by a quarter."""
WIDENING = 2.4
"""Ratio of loops' time to the routine's over operands of 8 bits: loops widen them at each load, the packed routine
once. Measured: products of 1,024³ and 512·2,048·512, 26 and 20 against 64 and 61 Gflop/s of f16.
"""
UNDECIDED = 2.0
"""Expected gain or loss of the packed routine up to which the choice rests on this host's measurement."""


@lru_cache(maxsize=4096)
def choose_product(nest: LoopNest, target: HostTarget) -> ProductSchedule | None:
    """Schedule of ``nest`` as a matrix product; None where it is none, or runs better as loops."""
    costs = target.products
    if costs is None:
        return None
    product = find_product(nest)
    if product is None:
        return None
    sizes = costs.sizes_of(product.left.type, product.right.type)
    # One share packs least: where that does not pay, no cut does, and none has to be looked for.
    if not _pays(product, product.shape[:2], sizes, target):
        return None
    digits = product.inner(product.rows), product.inner(product.columns)
    shares = choose_shares(product.shape, digits, product.count, sizes)
    if not _pays(product, shares, sizes, target):
        return None
    schedule = ProductSchedule(product, *shares, sizes)
    if costs.library is None:
        return schedule
    call = library_call(product, costs.library.name, schedule.columns, is_direct=schedule.is_direct)
    # The library is asked for, and maybe measured, only where it could be called.
    return replace(schedule, library=call) if call is not None and costs.takes_library() else schedule


def _pays(product: MatrixProduct, shares: tuple[int, int], sizes: Blocking, target: HostTarget) -> bool:
    """True if the product is expected to take less time in shares than as loops."""
    costs = target.products
    assert costs is not None
    if costs.forced:
        return True
    points = math.prod(product.shape) * product.count
    is_crossed = product.shape[2] > WHOLE_POINTS and _is_crowded(product, sizes.lanes, target.way_bytes)

    widens = product.left.type.is_quarter or product.right.type.is_quarter

    def gain(packing: float, loops: float) -> float:
        loops = loops / WIDENING if widens else loops
        return points / loops / product_cost(product.shape, product.count, shares, 1, sizes, packing=packing)

    # Rates are measured where they could matter: on no host are they so far from the usual ones.
    usual = gain(USUAL.packing * sizes.word, USUAL.loops / sizes.word)
    if costs.measure is None or not 1 / UNDECIDED < usual < UNDECIDED:
        return usual > 1
    rates = costs.measure(sizes)
    return gain(rates.packing, rates.crossed if is_crossed else rates.loops) > 1


def _is_crowded(product: MatrixProduct, lanes: int, way_bytes: int) -> bool:
    """True if as many columns of the right operand as a vector has lanes lie on a few places of the first-level cache.

    Loops that read parts of these columns then lose lines before they have used them up.
    """
    step = abs(product.right.stride(product.columns[-1])) * product.right.type.bytes
    return math.gcd(step, way_bytes) * lanes > way_bytes
