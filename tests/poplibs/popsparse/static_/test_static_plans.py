"""Plans and costs of static products against the formulas of PopLibs, written out here once more."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from abele.errors import OutOfMemoryError
from abele.graph import Graph
from abele.machine import systems
from abele.numerics import ElementType, f16, f32
from abele.poplibs.popsparse import static_
from abele.poplibs.popsparse.explanation import SparseProblem
from abele.poplibs.popsparse.static_ import costs
from abele.poplibs.popsparse.static_.cut import cut_pattern
from abele.poplibs.popsparse.static_.explain import plan_pattern
from abele.poplibs.popsparse.static_.params import StaticOptions
from abele.sparsity import Pattern, random_pattern

SIZES = [
    (4096, 4096, 1024, 1 / 16, 16, f16),
    (4096, 4096, 64, 1 / 4, 1, f16),
    (512, 1024, 36, 1 / 8, 4, f16),
    (256, 512, 100, 1 / 4, 8, f32),
    (2048, 256, 5, 1 / 2, 1, f32),
]


def _up(a: float, b: float) -> int:
    return math.ceil(a / b)


def _element(bits: int, m: int, k: int, n: int) -> int:
    if bits == 16:
        if n <= 4:
            return 6 * (31 + m * (7 + 2 * (k - 1)))
        if n == 8:
            return 6 * (31 + m * (8 + 3 * (k - 1)))
        return 6 * (33 + m * (11 + n // 8 * (14 + 3 * (k - 1)) + _up(n % 8, 4) * (9 + 2 * (k - 1))))
    if n <= 2:
        return 6 * (29 + m * (5 + 2 * (k - 1)))
    if n == 4:
        return 6 * (30 + m * (6 + 3 * (k - 1)))
    return 6 * (31 + m * (12 + n // 4 * (10 + 3 * (k - 1)) + _up(n % 4, 2) * (10 + 2 * (k - 1))))


def _block(bits: int, b: int, m: int, k: int, n: int) -> int:
    own = _up(n, 6)
    slots = {
        (16, 4): (17, 1, 7 + own if own <= 2 else 13 + own),
        (16, 8): (13, 1, 14 + 2 * (own - 1)),
        (16, 16): (13, 1, 19 + 4 * (own - 1)),
        (32, 4): (13, 1, 12 + 4 * (own - 1)),
        (32, 8): (13, 4, 19 + 8 * (own - 1)),
        (32, 16): (16, 4, 58 if own == 1 else 2 * (37 + 8 * (own - 1))),
    }
    h, x, y = slots[bits, b]
    cycles = 30 + h * 6 + m * (x * 6 + 17 + k * (16 + b * b * bits // 64 + y * 6))
    if bits == 32 and b >= 8:
        cycles += 6 * (12 + _up(_up(m * b * n * 4, 8), 6))
    return cycles


@pytest.mark.parametrize("dtype", [f16, f32])
def test_costs__any_shape__are_the_formulas(dtype: ElementType) -> None:
    for m, k, n in ((1, 1, 1), (3, 7, 2), (2, 5, 4), (9, 1, 8), (4, 4, 12), (1, 30, 52), (7, 3, 6), (2, 9, 64)):
        assert costs.element_cycles(dtype, m, k, n) == _element(dtype.bits, m, k, n)
        for block in (4, 8, 16):
            assert costs.block_cycles(dtype, block, m, m * k, n) == _block(dtype.bits, block, m, k, n)


@pytest.mark.parametrize("case", SIZES)
def test_plan__chosen_split__costs_what_the_formulas_say(case: tuple[int, int, int, float, int, ElementType]) -> None:
    m, k, n, d, b, dtype = case
    found = static_.explain_static(Graph("bow"), SparseProblem(m, k, n, d, b, dtype))
    split, terms, tiles = dict(found.split), dict(found.terms), systems.get("bow").ipu.num_tiles
    size, grain = dtype.bytes, {16: 4, 32: 2}[dtype.bits]
    columns = split["dense columns of a part"]
    parts, bands = split["parts of the dense columns"], split["bands"]
    assert (parts - 1) * columns < n <= parts * columns
    assert columns % grain == 0 or parts == 1
    assert parts * bands <= tiles // 2
    band = _up(k // b, bands)
    per_band = split["tiles per band"]
    blocks = _up(_up(math.ceil(m // b * (k // b) * d), bands), per_band)
    held = 1 - (1 - d) ** band
    most = _up(m // b, per_band)
    rows = max(1, min(most, math.ceil(most * held) + math.ceil(math.sqrt(most * held * (1 - held)))))
    depth = max(1, math.ceil(bands * held + math.sqrt(bands * held * (1 - held))))
    out = rows * columns * b * size
    assert (split["band"], split["blocks"], split["block rows"], split["depth"]) == (band, blocks, rows, depth)
    per_row = _up(blocks, rows)
    compute = (
        _element(dtype.bits, _up(rows, 6), per_row, columns)
        if b == 1
        else _block(dtype.bits, b, rows, per_row, columns)
    )
    share = math.ceil(out / size / depth / 6)
    loops, start = (8, 8) if size == 2 else (4, 5)
    reduce = 6 * (16 + _up(share, loops) * (start + 6 + depth - 1)) if depth > 1 else 0
    assert terms == {
        "dense rows in": math.ceil(columns * band * b * size / 8),
        "values in": math.ceil(blocks * b * b * size / 4) if parts > 1 else 0,
        "compute": compute,
        "partials out": math.ceil(out * (depth - 1) / depth / 4),
        "reduce": reduce,
        "final move": math.ceil(m * n * size / tiles),
    }
    assert found.memory[-1][1] <= found.available_bytes == int(0.6 * systems.get("bow").ipu.tile.usable_bytes)


def test_plan__no_memory__says_what_it_needs() -> None:
    problem = SparseProblem(8192, 8192, 1024, 1 / 4, 16, f16)
    with pytest.raises(OutOfMemoryError, match=r"needs [\d,]+ B of a tile, [\d,]+ B are allowed"):
        static_.explain_static(Graph("bow"), problem)
    with pytest.raises(OutOfMemoryError, match="availableMemoryProportion"):
        static_.explain_static(
            Graph("bow"), SparseProblem(64, 64, 8, 0.5, 1, f16), options={"availableMemoryProportion": 0.0}
        )


def test_plan__light_rows__are_no_part_of_the_estimate() -> None:
    mask = np.zeros((64, 64))
    mask[:32] = 1
    mask[40, 0] = 1
    pattern = Pattern.from_dense_mask(mask)
    graph = Graph("bow")
    with_all = plan_pattern(graph, f16, pattern, 16, StaticOptions(preprocesses=False, bands=2, splits=1))
    without = plan_pattern(graph, f16, pattern, 16, StaticOptions(bands=2, splits=1))
    assert dict(without.sizes)["block rows"] <= dict(with_all.sizes)["block rows"]


def test_cache__anything_differs__plans_anew() -> None:
    cache, pattern, other = (
        static_.PlanningCache(),
        random_pattern((64, 64), 0.2),
        random_pattern((64, 64), 0.2, seed=1),
    )
    bow, gc200 = Graph("bow"), Graph("gc200")
    cases = [
        (bow, f16, pattern, 8, StaticOptions()),
        (bow, f32, pattern, 8, StaticOptions()),
        (gc200, f16, pattern, 8, StaticOptions()),
        (bow, f16, other, 8, StaticOptions()),
        (bow, f16, pattern, 16, StaticOptions()),
        (bow, f16, pattern, 8, StaticOptions(preprocesses=False)),
        (bow, f16, pattern, 8, StaticOptions(proportion=0.3)),
    ]
    for number, case in enumerate(cases, start=1):
        cache.plan(*case)
        cache.plan(*case)
        assert cache.size() == number


@pytest.mark.parametrize("uneven", [False, True])
def test_cut__any_pattern__gives_every_tile_as_many_blocks(uneven: bool) -> None:
    mask = np.random.default_rng(0).random((400, 400)) < 0.05
    mask[7:17] |= uneven
    cut = cut_pattern(Pattern.from_dense_mask(mask), 4, 40)
    sizes = np.diff(cut.ptr)
    assert np.ptp(sizes) <= 0.02 * sizes.mean() + 2
    # Rows that end in the middle are on two tiles of a band.
    assert len(cut.entry_row) > len(
        set(zip(cut.entry_row.tolist(), (np.repeat(cut.tile, np.diff(cut.entry_ptr)) // 10).tolist(), strict=True))
    )
    assert np.unique(cut.entry_row).size == 400


def test_options__verbose__warn_with_the_plan() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        plan_pattern(Graph("bow"), f16, random_pattern((64, 64), 0.2), 8, StaticOptions(verbose=True))
    assert "bands" in str(found[0].message)


@pytest.mark.parametrize(("bands", "tiles"), [(1, 10), (4, 46), (9, 12), (100, 60)])
def test_cut__each_block__is_on_one_tile(bands: int, tiles: int) -> None:
    pattern = random_pattern((200, 300), 0.1, seed=3)
    cut = cut_pattern(pattern, bands, tiles)
    assert sorted(cut.order.tolist()) == list(range(pattern.num_blocks))
    assert cut.tile.max() < tiles
    assert (np.diff(cut.tile) > 0).all()
    sizes = np.diff(cut.ptr)
    assert sizes.min() > 0
    assert sizes.max() <= 2.5 * pattern.num_blocks / tiles + 40
    for share in range(cut.shares):
        held = cut.order[cut.ptr[share] : cut.ptr[share + 1]]
        needed = cut.needed[cut.needed_ptr[cut.taken[share]] : cut.needed_ptr[cut.taken[share] + 1]]
        place = cut.place[cut.ptr[share] : cut.ptr[share + 1]]
        assert (needed[place] == pattern.columns[held]).all()
        rows = slice(cut.entry_ptr[share], cut.entry_ptr[share + 1])
        named = np.repeat(cut.row_order[cut.entry_row[rows]], cut.entry_count[rows])
        assert (named == pattern.rows[held]).all()
