"""Choose which nests run as matrix products, and in which shares."""

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
from abele.kernels.routines.costs import ProductCosts


@lru_cache(maxsize=4096)
def choose_product(nest: LoopNest, costs: ProductCosts | None) -> ProductSchedule | None:
    """How ``nest`` runs as a matrix product; None where it is none, or runs better as loops."""
    if costs is None:
        return None
    product = find_product(nest)
    if product is None:
        return None
    sizes = costs.sizes_of(product.left.type, product.right.type)
    # One share packs least: where that does not pay, no cut does, and none has to be looked for.
    if not _pays(product, product.shape[:2], sizes, costs):
        return None
    digits = product.inner(product.rows), product.inner(product.columns)
    shares = choose_shares(product.shape, digits, product.count, sizes)
    if not _pays(product, shares, sizes, costs):
        return None
    schedule = ProductSchedule(product, *shares, sizes)
    if costs.library is None:
        return schedule
    call = library_call(product, costs.library.name, schedule.columns, is_direct=schedule.is_direct)
    # The library is asked for, and maybe measured, only where it could be called.
    return replace(schedule, library=call) if call is not None and costs.takes_library() else schedule


def _pays(product: MatrixProduct, shares: tuple[int, int], sizes: Blocking, costs: ProductCosts) -> bool:
    """True if the product is expected to take less time in shares than as loops."""
    packed = product_cost(product.shape, product.count, shares, 1, sizes)
    return packed * costs.loops_rate < math.prod(product.shape) * product.count
