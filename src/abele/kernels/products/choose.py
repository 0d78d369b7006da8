"""Choose the nests that run as matrix products, and their shares."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from itertools import product

from abele.kernels.nest.loop_nest import ElementAccess, Fetch, LoopNest
from abele.kernels.products.matrix_product import MatrixProduct, find_product
from abele.kernels.products.schedule import DenseMatrix, ProductSchedule, ShareProduct
from abele.kernels.routines.blocking import Blocking, Kept
from abele.kernels.routines.costs import LOOPS, MIN_GAIN, PACKED, USUAL_PACKING, ProductCosts
from abele.kernels.routines.packed import FEW_STRIPS
from abele.kernels.routines.product_class import ProductClass, share_at
from abele.kernels.target import FAR_BYTES, HostTarget
from abele.llvm.host import LINE_BYTES
from abele.numerics import f32

# Into which shares a product is cut: fine enough for threads to share it evenly, and as large as that allows.
#
# Each share packs its own part of an operand, so large ones do less packing for each result; small ones balance
# better, and there must be enough of them for many threads. A cut is chosen by the time that the product is expected
# to take on one thread and on several, all alike, so that it, and with it the bits of the results, never depends on
# the threads at hand.

THREADS = (1, 2, 4, 8, 16)
"""Numbers of threads that a cut should suit."""
MAX_TILE_BYTES = 1 << 18
"""Sums of a share: they stay in a second-level cache until something is done with them."""
MAX_PARTS, MAX_SHARE = 64, 256
"""Parts that are tried along a dim; above this many results, also parts of this size."""
READING = 4.0
"""Cost of reading an element that is kept for a share: from a shared cache, mostly behind the arithmetic."""
CALL = 4000.0
"""Cost of a share beside that, in multiply-adds."""


@lru_cache(maxsize=4096)
def choose_shares(
    shape: tuple[int, int, int], digits: tuple[int, int], count: int, sizes: Blocking
) -> tuple[int, int, Kept]:
    """Shares of ``count`` products of rows, columns and summed elements ``shape``: rows, columns, and what is kept.

    Rows and columns of a share are multiples of ``digits``.
    """
    m, n, k = shape
    cuts = list(product(_cuts(m, sizes.rows, digits[0]), _cuts(n, sizes.columns, digits[1])))
    smallest = min(cuts, key=math.prod)
    fitting = [(r, c) for r, c in cuts if 4 * r * c <= MAX_TILE_BYTES] or [smallest]

    def cost(choice: tuple[int, int, Kept]) -> float:
        *cut, kept = choice
        return sum(product_cost(shape, count, (cut[0], cut[1]), threads, sizes, kept) for threads in THREADS)

    choices = [(r, c, kept) for r, c in fitting for kept in Kept if kept is _keepable(kept, (r, c), k, sizes)]
    return min(choices, key=cost)


def _keepable(kept: Kept, cut: tuple[int, int], depth: int, sizes: Blocking) -> Kept:
    """``kept`` if there is room for it between calls, else nothing."""
    if kept == Kept.NOTHING:
        return kept
    return kept if sizes.can_keep(depth, cut[kept == Kept.COLUMNS]) else Kept.NOTHING


def product_cost(
    shape: tuple[int, int, int],
    count: int,
    cut: tuple[int, int],
    threads: int,
    sizes: Blocking,
    kept: Kept,
) -> float:
    """Expected cost of ``count`` products on ``threads``, in multiply-adds: that of the slowest, times their number."""
    m, n, k = shape
    rows, columns = cut
    # In words of pairs, tiles do a multiply-add in half the time, and packing costs twice as many of them.
    packing = USUAL_PACKING * sizes.word
    parts, across = -(-m // rows), -(-n // columns)
    units = -(-count * parts * across // threads)
    whole = -(-columns // sizes.lanes) * sizes.lanes
    # Rows are packed for every strip, or once where there are many.
    strips = -(-columns // sizes.strip)
    strips = strips if strips <= FEW_STRIPS else 1
    # What is kept is packed by the first share of a thread that has it, the other operand by every share.
    row_blocks = -(-units // across) if kept == Kept.ROWS else units * strips
    column_blocks = -(-units // parts) if kept == Kept.COLUMNS else units
    reading = READING * k * (rows * -(-columns // sizes.strip) if kept == Kept.ROWS else whole)
    one = rows * whole * k + reading + CALL
    return threads * (units * one + packing * k * (row_blocks * rows + column_blocks * columns))


def _cuts(extent: int, step: int, digit: int) -> list[int]:
    """Sizes of even shares, multiples of ``digit``, and of ``step`` where that is possible."""
    sizes = {extent}
    for parts in range(2, max(MAX_PARTS, extent // MAX_SHARE) + 1):
        even = -(-extent // parts)
        rounded = -(-even // digit) * digit if digit > 1 else -(-even // step) * step
        sizes.add(min(extent, rounded))
    return sorted(sizes)


# Products that a library can multiply: those whose matrices have one stride along rows and none along columns.

MAX_INT = (1 << 31) - 1


def library_call(product: MatrixProduct, name: str, columns: int, *, is_direct: bool) -> ShareProduct | None:
    """Arguments with which library ``name`` multiplies shares of ``columns`` of ``product``; None where it cannot.

    Args:
        product: Product to multiply.
        name: Name of the library.
        columns: Columns of a share; sums that are not stored in place directly lie in rows of so many.
        is_direct: True if sums are stored in place directly.
    """
    if product.left.type != f32 or product.right.type != f32:
        return None
    left = _dense(product, product.left, product.rows, product.summed)
    right = _dense(product, product.right, product.summed, product.columns)
    result = columns
    if is_direct and product.result is not None:
        placed = _dense(product, product.result, product.rows, product.columns)
        if placed is None or placed.is_turned:
            return None
        result = placed.stride
    if left is None or right is None or max(*product.shape, left.stride, right.stride, result) > MAX_INT:
        return None
    return ShareProduct(name, left, right, result)


def _dense(
    product: MatrixProduct, access: ElementAccess, rows: tuple[str, ...], columns: tuple[str, ...]
) -> DenseMatrix | None:
    row, column = (stride_of(product, access, dims) for dims in (rows, columns))
    m, n = product.length(rows), product.length(columns)
    if column == 1 and row is not None and row >= n:
        return DenseMatrix(row, False)
    if row == 1 and column is not None and column >= m:
        return DenseMatrix(column, True)
    return None


def stride_of(product: MatrixProduct, access: ElementAccess, dims: tuple[str, ...]) -> int | None:
    """The stride between neighbours of the dim with digits ``dims``; None where it is not always the same."""
    stride = access.stride(dims[-1])
    step = stride * product.length(dims[-1:])
    for dim in reversed(dims[:-1]):
        if access.stride(dim) != step:
            return None
        step *= product.length((dim,))
    return stride


WIDENING = 2.4
"""Ratio of loops' time to the routine's over operands of 8 bits: loops widen them at each load, the packed routine
once. Measured: products of 1,024³ and 512·2,048·512, 26 and 20 against 64 and 61 Gflop/s of f16.
"""
HOPELESS = 0.25
"""Expected gain of the packed routine below which loops run a product, and nothing is measured: it is of a row or two,
or too small for the call."""


@lru_cache(maxsize=4096)
def choose_product(nest: LoopNest, target: HostTarget) -> ProductSchedule | None:
    """Schedule of ``nest`` as a matrix product; None where it is none, or runs better as loops."""
    costs = target.products
    product = find_product(nest) if costs is not None else None
    if costs is None or product is None:
        return None
    sizes = costs.sizes_of(product.left.type, product.right.type)
    whole = ProductSchedule(product, *product.shape[:2], sizes)
    name = costs.library.name if costs.library is not None else None
    if name is not None and library_call(product, name, whole.columns, is_direct=whole.is_direct) is None:
        name = None
    way = (name or PACKED) if costs.forced else _fastest(nest, whole, target, costs, name)
    if way == LOOPS:
        return None
    digits = product.inner(product.rows), product.inner(product.columns)
    rows, columns, kept = choose_shares(product.shape, digits, product.count, sizes)
    schedule = ProductSchedule(product, rows, columns, sizes, kept)
    if way == PACKED:
        return schedule
    return replace(schedule, library=library_call(product, way, schedule.columns, is_direct=schedule.is_direct))


def _fastest(
    nest: LoopNest, whole: ProductSchedule, target: HostTarget, costs: ProductCosts, library: str | None
) -> str:
    """Way that takes the least time on one thread: :data:`LOOPS`, :data:`PACKED`, or the library's name."""
    product, sizes = whole.product, whole.sizes
    # One share packs least: where that is far from paying, no cut does.
    points = math.prod(product.shape) * product.count
    loops = WIDENING if product.left.type.is_quarter or product.right.type.is_quarter else 1.0
    cost = product_cost(product.shape, product.count, product.shape[:2], 1, sizes, Kept.NOTHING)
    usual = loops * sizes.word * points / cost
    if usual < HOPELESS:
        return LOOPS
    of, ways = product_class(whole, nest, target), (LOOPS, PACKED, *([library] if library is not None else []))
    shares = {way: costs.rates.shares(way, of) if costs.rates is not None else None for way in ways}
    passing = costs.rates.passing() if costs.rates is not None and not whole.is_direct else 0.0
    found = {way: share_at(share, product.shape) for way, share in shares.items() if share is not None}
    if passing is None or not found.keys() >= {LOOPS, PACKED}:
        return PACKED if usual > 1 else LOOPS
    # Beside the rate: loops have sums in registers for what is done with them, the others in a cache.
    handed = passing / product.shape[2]
    seconds = {way: 1 / share + handed for way, share in found.items()}
    seconds[LOOPS] = loops / found[LOOPS]
    spread = _spread_accesses(nest, whole)
    if spread and costs.rates is not None:
        seconds[LOOPS] += spread * (costs.rates.spreading() or 0.0) / product.shape[2]
    own = LOOPS if seconds[LOOPS] <= seconds[PACKED] else PACKED
    return library if library in found and seconds[own] >= MIN_GAIN * seconds[library] else own


def product_class(whole: ProductSchedule, nest: LoopNest, target: HostTarget) -> ProductClass:
    """Class of the product ``nest``, by whose measured rates it is judged."""
    product, sizes = whole.product, whole.sizes
    left, right, short = product.left, product.right, 4 * sizes.lanes - 1
    left_turned = not _has_neighbours(product, left, product.summed)
    right_turned = not _has_neighbours(product, right, product.columns)
    apart = product.columns if right_turned else product.summed
    is_crowded = _is_crowded(right.stride(apart[-1]) * right.type.bytes, sizes.lanes, target.way_bytes)
    step = left.stride(product.summed[-1]) * left.type.bytes
    is_left_crowded = left_turned and _is_crowded(step, sizes.lanes, target.way_bytes)
    return ProductClass(
        left_turned,
        right_turned,
        sizes.word == 2,
        is_crowded,
        is_left_crowded,
        left_in_blocks=_is_in_blocks(product, left, product.rows if left_turned else product.summed, LINE_BYTES),
        right_in_blocks=_is_in_blocks(product, right, product.summed if right_turned else product.columns, short),
    )


def _spread_accesses(nest: LoopNest, whole: ProductSchedule) -> int:
    """Loads and stores of results, or of what lies like them, whose columns are in blocks shorter than a vector."""
    values = (*nest.locals, *(out.value for out in nest.outs))
    loads = {part.access for value in values for part in value.walk() if isinstance(part, Fetch)}
    blocks = (_block(whole.product, a, whole.product.columns)[0] for a in (*loads, *(out.access for out in nest.outs)))
    return sum(0 < block < whole.sizes.lanes for block in blocks)


def _is_in_blocks(product: MatrixProduct, access: ElementAccess, dims: tuple[str, ...], most_bytes: int) -> bool:
    """True if neighbours along ``dims`` lie in blocks of at most ``most_bytes``, and each block in another page."""
    block, step = (n * access.type.bytes for n in _block(product, access, dims))
    return 0 < block <= most_bytes and step >= FAR_BYTES


def _block(product: MatrixProduct, access: ElementAccess, dims: tuple[str, ...]) -> tuple[int, int]:
    """Neighbours along ``dims`` in a row, and elements from there to the next such block; zeros without blocks."""
    steps = sorted((abs(access.stride(d)), product.length((d,))) for d in dims if access.stride(d))
    block = 1
    for step, extent in steps:
        if step != block:
            return (block, step) if block > 1 else (0, 0)
        block *= extent
    return 0, 0


def _has_neighbours(product: MatrixProduct, access: ElementAccess, dims: tuple[str, ...]) -> bool:
    return any(access.stride(d) == 1 and product.length((d,)) > 1 for d in dims)


def _is_crowded(step: int, lanes: int, way_bytes: int) -> bool:
    """True if as many lines, ``step`` bytes apart, as a vector has lanes lie on a few places of the first-level cache.

    Loops that read parts of these lines then lose them before they have used them up.
    """
    return math.gcd(step, way_bytes) * lanes > way_bytes
