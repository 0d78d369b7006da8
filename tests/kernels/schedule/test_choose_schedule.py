"""Register tiles keep clear of places in a cache that their rows have in common."""

from __future__ import annotations

import pytest
from kernels_kit import form_after
from products_kit import linear

from abele.kernels import BoundKernel, Buffer, bind
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.target import HostTarget


def tile_of(rows: int, columns: int, depth: int, target: HostTarget) -> dict[str, int]:
    kernel = linear(rows, columns, depth)
    buffers = [Buffer(n, s, t, True, f"b{n}") for n, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))]
    program = form_after("choose_schedules", buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "p")], target)
    schedule = program.leaves[0].functions[0].schedule
    assert isinstance(schedule, NestSchedule)
    return dict(schedule.tile)


@pytest.mark.parametrize("ways", [4, 8, 12])
def test_tile__of_rows_a_power_of_two_apart__has_no_more_than_a_cache_has_ways(ways: int) -> None:
    # Rows of 2,048 f32 are 8 KiB apart: all lie at the same place of a way of 4 KiB.
    assert tile_of(384, 64, 2048, HostTarget(16, near_ways=ways)).get("i", 1) < ways


def test_tile__of_rows_that_lie_at_different_places__may_have_more() -> None:
    assert tile_of(384, 16, 700, HostTarget(16)).get("i", 1) > 8
