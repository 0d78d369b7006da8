"""Register tiles keep clear of places in a cache that rows have in common; lanes suit what follows a sum."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels_kit import form_after
from products_kit import linear

from abele.expr.nodes import apply
from abele.kernels import BoundKernel, Buffer, HostKernel, StoreRounding, bind
from abele.kernels.nest.binding import bound_calls
from abele.kernels.nest.ir import Affine, affine, load, nest, store
from abele.kernels.nest.loop_nest import Acc, ElementAccess, Fetch, LoopNest, NestReduction, Out
from abele.kernels.plan.passes import run_passes
from abele.kernels.schedule import choose_schedule
from abele.kernels.schedule.pack_panels import find_panel
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.target import HostTarget
from abele.llvm import cache
from abele.numerics import ElementType, f16, f32, u32


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


def lane_of(stored: ElementType, rounding: StoreRounding | None) -> str:
    """The dim in the lanes of a product whose sums lie along memory, and its results across."""
    m, n, k = 512, 9, 64  # too few columns for a panel of rows
    body = nest({"i": m, "j": n, "k": k}, store(2, ("j", "i"), load(0, "i", "k") * load(1, "j", "k"), "add"))
    shapes = ((m, k), (n, k), (n, m))
    kernel = HostKernel(shapes, (f32, f32, stored), 2, 1, (body,))
    buffers = [
        Buffer(number, shape, type_) for number, (shape, type_) in enumerate(zip(shapes, kernel.types, strict=True))
    ]
    calls = [BoundKernel(kernel, tuple(map(bind, buffers)))]
    calls_here = bound_calls([*buffers, Buffer(9, (2,), u32)], calls, HostTarget(8, registers=16), rounding)
    schedule = run_passes(calls_here, after="choose_schedules").leaves[0].functions[0].schedule
    assert isinstance(schedule, NestSchedule)
    return schedule.lane


def test_lanes__of_sums_that_are_rounded__are_not_folded() -> None:
    # Lanes of terms leave results one by one, and each would be rounded by itself.
    assert lane_of(f32, None) == "k"
    assert lane_of(f16, StoreRounding(9)) != "k"


def lines_of_group(target: HostTarget, apart: int) -> float:
    """Lines of operands that the tile chosen for scores of a group touches at each of 64 points, for each product.

    Features of queries and of keys lie ``apart`` f32 from each other, as a layer's weights by its tokens leave them.
    """
    rows, keys = (
        ElementAccess(0, f32, affine(("h", 64), "r", ("r'", 16), ("d", apart))),
        ElementAccess(1, f32, affine("k", ("d", apart))),
    )
    out = ElementAccess(2, f32, affine("k", ("r", 512), ("r'", 16 * 512)))
    product = NestReduction("add", Fetch(rows) * Fetch(keys), f32)
    parallel = (("h", 4), ("r'", 4), ("r", 16), ("k", 512))
    loops = LoopNest(parallel, (("d", 64),), (product,), (Out(out, Acc(0)),), 3, unit=("h",))
    schedule = choose_schedule.choose_schedule(loops, target)
    steps = {d: schedule.step(d) for d in ("r", "r'", "k")}
    lines = steps["r'"] * max(1, steps["r"] / 16) + max(1, steps["k"] / 16)
    return lines / (steps["r"] * steps["r'"] * steps["k"])


@pytest.mark.parametrize("lanes", [8, 16])
def test_tile__of_a_group_whose_features_crowd_a_cache__touches_fewer_lines(lanes: int) -> None:
    # 512 f32 are 32 lines: 64 features fall on two places of a way of 64 lines, and are lost before the next tile.
    # Those 33 lines apart fall on a place each, and stay.
    target = HostTarget(lanes)
    assert lines_of_group(target, apart=512) < lines_of_group(target, apart=528)


def test_schedule__on_disk__equals_the_one_searched_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_WORTH_SECONDS", 0.0)
    kernel, target = linear(384, 64, 500), HostTarget(16)
    buffers = [Buffer(n, s, t, True, f"b{n}") for n, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))]
    program = form_after("choose_schedules", buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "p")], target)
    question = program.leaves[0].functions[0].nest, target
    choose_schedule._cheapest.cache_clear()
    first = choose_schedule._cheapest(*question)
    assert list(tmp_path.rglob("*-choice.o"))
    choose_schedule._cheapest.cache_clear()
    monkeypatch.setattr(choose_schedule, "_searched", lambda *_: pytest.fail("searched again"))
    assert choose_schedule._cheapest(*question) == first


@pytest.mark.parametrize(("op", "folded"), [("neg", True), ("erf", False)])
def test_lanes__of_sums_that_a_function_takes__are_folded_only_where_it_is_cheap(op: str, folded: bool) -> None:
    # Results of folded lanes come one by one, and a polynomial would run on a single lane.
    rows, columns = ElementAccess(0, f32, affine(("i", 64), "k")), ElementAccess(1, f32, affine(("j", 64), "k"))
    product = NestReduction("add", Fetch(rows) * Fetch(columns), f32)
    out = Out(ElementAccess(2, f32, affine("i", ("j", 512))), apply(op, Acc(0)))
    loops = LoopNest((("i", 512), ("j", 9)), (("k", 64),), (product,), (out,), 3)
    assert (choose_schedule.choose_schedule(loops, HostTarget(8, registers=16)).lane == "k") == folded


@pytest.mark.parametrize("k", [8, 33, 64])
def test_panel__of_a_transposed_operand__is_copied_however_short_the_sum(k: int) -> None:
    # Lanes of b[j, k] lie apart: without a copy every tile of rows gathers them again.
    m, n = 256, 128
    body = nest({"i": m, "j": n, "k": k}, store(2, ("i", "j"), load(0, "i", "k") * load(1, "j", "k"), "add"))
    shapes = ((m, k), (n, k), (m, n))
    buffers = [Buffer(number, shape, f32) for number, shape in enumerate(shapes)]
    calls = [BoundKernel(HostKernel(shapes, (f32,) * 3, 2, 1, (body,)), tuple(map(bind, buffers)))]
    made = run_passes(bound_calls(buffers, calls, HostTarget(8, registers=16)), after="choose_schedules")
    (function,) = made.leaves[0].functions
    assert function.panel is not None
    assert function.panel.fetch.access.array == 1


@pytest.mark.parametrize(("blocks", "packs"), [(16, True), (4, False)])
def test_panel__of_short_blocks_on_the_same_places__is_packed_where_they_are_too_many(blocks: int, packs: bool) -> None:
    # Weights [blocks, 64, 16, 16]: 64 KiB from one block of channels to the next.
    left, right = (
        ElementAccess(0, f32, Affine((("m", 16), ("c", 50176), ("d", 1)))),
        ElementAccess(1, f32, Affine((("n", 1), ("p", 256), ("d", 16), ("c", 16384)))),
    )
    out = ElementAccess(2, f32, Affine((("n", 1), ("p", 50176), ("m", 16))))
    sums = NestReduction("add", Fetch(left) * Fetch(right), f32)
    parallel, reduced = (("p", 64), ("n", 16), ("m", 3136)), (("c", blocks), ("d", 16))
    nest = LoopNest(parallel, reduced, (sums,), (Out(out, Acc(0)),), 3)
    cpu = HostTarget(lanes=8, registers=16)
    schedule = NestSchedule(("p", "m", "n"), 1, ("c", "d"), "n", 8, (("m", 6), ("p", 2)))
    panel = find_panel(nest, schedule, cpu)
    assert (panel is not None and panel.fetch.access == right) == packs


def units_of(groups: int, rows: int, columns: int, depth: int) -> int:
    """Units of so many products by themselves."""
    dims = {"g": groups, "i": rows, "j": columns, "k": depth}
    value = load(0, "g", "i", "k") * load(1, "g", "j", "k")
    shapes = ((groups, rows, depth), (groups, columns, depth), (groups, rows, columns))
    kernel = HostKernel(shapes, (f32,) * 3, 2, 1, (nest(dims, store(2, ("g", "i", "j"), value, "add")),))
    buffers = [Buffer(n, shape, f32, True, f"b{n}") for n, shape in enumerate(shapes)]
    calls = [BoundKernel(kernel, tuple(map(bind, buffers)), "products")]
    function = form_after("choose_schedules", buffers, calls, HostTarget(16)).leaves[0].functions[0]
    assert isinstance(function.schedule, NestSchedule)
    return function.units


def test_units__that_threads_do_not_share_evenly__are_cut_again() -> None:
    assert units_of(33, 48, 64, 1024) > 128
    assert units_of(32, 48, 64, 1024) == 32
    assert units_of(33, 48, 64, 16) == 33


def test_tile__that_does_not_divide__counts_its_last_tiles_as_what_they_are() -> None:
    """16 rows by two vectors of 8: tiles of six rows are two of these and one of four, and beat four of four rows."""
    assert tile_of(16, 16, 512, HostTarget(lanes=8, registers=16)) == {"i": 6, "j": 2}
