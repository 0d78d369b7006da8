from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from abele.machine import systems
from abele.numerics import ElementType, f16, f32
from abele.poplibs.poplin.planner.plan import Method
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.work import Work


def rows_of_16(rows: list[int], dtype: ElementType = f16, partials: ElementType = f16, in_channels: int = 16) -> Work:
    """Slices of [rows, in_channels] by [in_channels, 16]."""
    n = np.array(rows, dtype=np.int64)
    one = np.ones_like(n)
    return Work(dtype, partials, one, in_channels * one, 16 * one, n, n, n, one, one)


def test_amp_1x1__worked_examples__match_the_reference() -> None:
    # machine.md §4.0 lists these estimates for 16×16 f16 weights and loads of 8 bytes per cycle.
    found = cost.amp_1x1(rows_of_16([16, 32, 64, 128, 256, 512, 1024, 2048]), 16, 8)
    assert found.tolist()[1:] == [457, 577, 841, 1345, 2377, 4417, 8521]


@pytest.mark.shared
def test_amp_1x1__silicon__within_two_percent(shared_data: Path) -> None:
    rows, measured = silicon(shared_data)
    amp = systems.get("bow").ipu.amp
    error = cost.amp_1x1(rows_of_16(rows), 16, amp.weight_load_bytes_per_cycle) / measured - 1
    assert len(rows) > 60
    assert abs(error).max() < 0.02
    assert abs(np.median(error)) < 0.005


@pytest.mark.shared
def test_amp_1x1__wide_loads_and_launch__within_five_percent_of_silicon(shared_data: Path) -> None:
    # The measured vertex was built for 16-byte loads; then launch makes up the rest (machine.md §4.0 calls it open).
    rows, measured = silicon(shared_data)
    ipu = systems.get("bow").ipu
    wide = cost.amp_1x1(rows_of_16(rows), 16, ipu.amp.wide_weight_load_bytes_per_cycle)
    error = (wide + ipu.launch.compute_set_cycles) / measured - 1
    assert abs(error).max() < 0.05
    assert abs(np.median(error)) < 0.01


def silicon(folder: Path) -> tuple[list[int], npt.NDArray[np.float64]]:
    """Rows per tile and measured cycles of 16×16 f16 products on a Bow, from 32 rows on."""
    with (folder / "reference" / "amp_matmul_bow_silicon.csv").open() as file:
        points = [(int(row["N"]), float(row["cycles_measured"])) for row in csv.DictReader(file)]
    points = [p for p in points if p[0] >= 32]
    return [n for n, _ in points], np.array([c for _, c in points])


@pytest.mark.parametrize("method", [Method("amp_1x1", 16), Method("amp_nx1", 16), Method("hmac")], ids=str)
@pytest.mark.parametrize(("dtype", "partials"), [(f16, f16), (f16, f32), (f32, f32)])
def test_cycles__more_rows__cost_more(method: Method, dtype: ElementType, partials: ElementType) -> None:
    found = method.cycles(rows_of_16(list(range(24, 400, 12)), dtype, partials), 8)
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize(
    ("chip", "dtype", "partials", "macs"),
    [("bow", f16, f16, 64), ("bow", f16, f32, 32), ("bow", f32, f32, 16), ("gc2", f16, f32, 32), ("gc2", f32, f32, 8)],
)
def test_amp__long_slices__approach_the_peak_rate(
    chip: str, dtype: ElementType, partials: ElementType, macs: int
) -> None:
    mode = systems.get(chip).ipu.amp.mode(dtype.name, partials.name)
    work = rows_of_16([60_000], dtype, partials, in_channels=256)
    for kind in ("amp_1x1", "amp_nx1"):
        method = Method(kind, mode.num_units, core_cycles=mode.core_cycles)
        assert 0.9 < 60_000 * 256 * 16 / method.cycles(work, 8)[0] / macs <= 1.0


@pytest.mark.parametrize(
    ("dtype", "channels", "slots"),
    [(f16, 28, 25 + 10 + 5 * (6 + 4)), (f16, 8, 25 + 10 + 5 * (10 + 20)), (f32, 8, 25 + 11 + 5 * (6 + 1))],
)
def test_outer_product__rows__are_shared_by_the_workers(dtype: ElementType, channels: int, slots: int) -> None:
    one, n = np.ones(1, dtype=np.int64), np.array([30])
    assert cost.outer_product(Work(dtype, dtype, one, one, channels * one, n, n, n, one, one))[0] == 6 * slots


def test_amp_1x1__groups_of_one_pass__take_no_pass_for_channels_that_are_not_there() -> None:
    one, n = np.ones(1, dtype=np.int64), np.array([96])
    work = Work(f16, f32, one, 16 * one, 24 * one, n, n, n, one, one)
    wide, narrow = (int(cost.amp_1x1(work, 8, 8, out_group=group)[0]) for group in (16, 8))
    assert 0.7 < narrow / wide < 0.8


def test_reduce_add__deeper__costs_more() -> None:
    size = np.array([960])
    shallow, deep = (int(cost.reduce_add(size, d, f32, f32)[0]) for d in (2, 8))
    assert deep - shallow == 6 * (2 * 6) * 40
    assert cost.reduce_add(size, 4, f16, f16)[0] < cost.reduce_add(size, 4, f32, f32)[0]


def test_cast__wider_side__bounds_it() -> None:
    assert cost.cast(np.array([48]), f32, f16)[0] == cost.cast(np.array([48]), f16, f32)[0] == 6 * (4 + 26)


def test_cast__from_interleaved_memory__takes_a_slot_for_four_elements() -> None:
    assert cost.cast_interleaved(np.array([48]), f32, f16)[0] == 12 + 6 * (37 + 2)
    assert cost.cast_interleaved(np.array([48]), f16, f32)[0] == cost.cast(np.array([48]), f16, f32)[0]


def test_permute__half__takes_half_the_slots_of_float() -> None:
    matrices, area = np.array([60]), 60 * 16 * 16
    half, full = (int(cost.permute(matrices, np.array([area // side**2]), t)[0]) for side, t in ((4, f16), (2, f32)))
    fixed = 11 + 6 * (24 + 10 * 10)
    assert (half - fixed) * 2 == full - fixed == 6 * 10 * 64 * 4
