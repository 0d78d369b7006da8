"""Lines that a nest's loops are expected to read again."""

from __future__ import annotations

from itertools import permutations

import pytest

from abele.kernels.nest.ir import Affine
from abele.kernels.nest.loop_nest import Acc, ElementAccess, Fetch, LoopNest, NestReduction, Out
from abele.kernels.schedule.choose_schedule import choose_schedule, schedule_cost
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.schedule.traffic import MAX_STREAMS, Traffic
from abele.kernels.target import HostTarget
from abele.numerics import f32

CPU = HostTarget(lanes=16, registers=32)


def access(array: int, **steps: int) -> ElementAccess:
    return ElementAccess(array, f32, Affine(tuple(steps.items())))


def contraction(parallel: dict[str, int], reduced: dict[str, int], *arrays: dict[str, int]) -> LoopNest:
    """Sums of products of the first two of ``arrays``, by their steps, in the third."""
    first, second, out = (access(n, **steps) for n, steps in enumerate(arrays))
    sums = NestReduction("add", Fetch(first) * Fetch(second), f32)
    return LoopNest(tuple(parallel.items()), tuple(reduced.items()), (sums,), (Out(out, Acc(0)),), 3)


def window(columns: int, channels: int) -> LoopNest:
    """A window of three columns over rows of ``channels``."""
    image = {"c": 1, "k": channels, "x": channels}
    weights = {"n": 1, "c": 64, "k": 64 * channels}
    return contraction({"x": columns, "n": 64}, {"k": 3, "c": channels}, image, weights, {"n": 1, "x": 64})


@pytest.mark.parametrize(("columns", "touched"), [(1, 3 * 32 * 4), (10, 12 * 32 * 4)])
def test_touched__where_windows_overlap__counts_their_elements_once(columns: int, touched: int) -> None:
    traffic = Traffic(window(columns, 32), CPU)
    assert traffic._touched(0, {"x": columns, "n": 64, "k": 3, "c": 32}).bytes == touched


def test_touched__of_elements_apart__counts_whole_lines() -> None:
    nest = contraction({"i": 8, "j": 8}, {"k": 100}, {"i": 4096, "k": 32}, {"j": 1, "k": 8}, {"i": 8, "j": 1})
    traffic = Traffic(nest, CPU)
    assert traffic._touched(0, {"i": 1, "j": 8, "k": 100}).bytes == 100 * 64
    assert traffic._touched(1, {"i": 1, "j": 1, "k": 4}).bytes == 4 * 8 * 4


def test_order__of_five_loops__is_costed_like_any_other() -> None:
    parallel = {"a": 20, "b": 12, "c": 20, "d": 6, "n": 64}
    left = {"k": 1, "a": 512, "b": 10240}
    right = {"n": 1, "k": 64, "c": 32768, "d": 655360}
    out = {"n": 1, "d": 64, "c": 384, "b": 7680, "a": 92160}
    nest = contraction(parallel, {"k": 512}, left, right, out)
    schedule = NestSchedule(tuple(parallel), 0, ("k",), "n", 16, (("n", 2), ("a", 4)))
    order, lines = Traffic(nest, CPU).best_order(schedule, tuple(parallel))
    assert sorted(order) == sorted(parallel)
    assert lines > 0
    assert schedule_cost(nest, CPU) > 0


def test_order__of_four_loops__costs_as_little_as_the_cheapest_of_all_orders() -> None:
    parallel = {"a": 40, "b": 24, "c": 20, "n": 64}
    left, right = {"k": 1, "a": 512, "b": 20480}, {"n": 1, "k": 64, "c": 32768}
    nest = contraction(parallel, {"k": 512}, left, right, {"n": 1, "c": 64, "b": 1280, "a": 30720})
    schedule = NestSchedule(tuple(parallel), 0, ("k",), "n", 16, (("n", 2), ("a", 4)))
    _, least = Traffic(nest, CPU).best_order(schedule, tuple(parallel))
    each = [Traffic(nest, CPU).best_order(schedule, tuple(parallel), order)[1] for order in permutations(parallel)]
    assert least == min(each) < max(each)


def test_register_tile__of_a_product__fills_the_registers_beside_its_operands() -> None:
    nest = contraction({"i": 280, "j": 512}, {"k": 256}, {"i": 256, "k": 1}, {"j": 1, "k": 512}, {"i": 512, "j": 1})
    tile = dict(choose_schedule(nest, CPU).tile)
    assert 24 <= tile.get("i", 1) * tile.get("j", 1) <= CPU.accumulators


def test_order__of_a_nest_with_a_panel__has_its_dims_outermost() -> None:
    nest = contraction({"i": 64, "j": 512}, {"k": 4096}, {"i": 4096, "k": 1}, {"j": 1, "k": 512}, {"i": 512, "j": 1})
    schedule = NestSchedule(("i", "j"), 0, ("k",), "j", 16, (("i", 8), ("j", 2)))
    traffic = Traffic(nest, CPU)
    (first, _), _ = traffic.best_order(schedule, ("i", "j"), leading=("j",))
    assert first == "j"
    (first, _), _ = traffic.best_order(schedule, ("i", "j"), leading=("i",))
    assert first == "i"


def test_tile__of_an_operand_that_streams__covers_few_rows_far_apart() -> None:
    # 32 rows are two vectors, so that one tile has all of them and the weights, in blocks of 8 x 8, are read once.
    rows = {"b": 1, "c": 256, "d": 32}
    weights = {"p": 8000, "c": 64, "q": 8, "d": 1}
    nest = contraction({"b": 32, "p": 125, "q": 8}, {"c": 125, "d": 8}, rows, weights, {"b": 1, "q": 32, "p": 256})
    tile = dict(choose_schedule(nest, CPU).tile)
    assert tile.get("p", 1) <= MAX_STREAMS
    assert tile["q"] > 1


def test_order__with_a_limit__is_the_same_below_it_and_stops_at_it() -> None:
    parallel = {"i": 2048, "j": 2048}
    nest = contraction(parallel, {"k": 2048}, {"i": 2048, "k": 1}, {"j": 1, "k": 2048}, {"i": 2048, "j": 1})
    schedule = NestSchedule(("i", "j"), 0, ("k",), "j", 16, (("i", 4),))
    order, lines = Traffic(nest, CPU).best_order(schedule, ("i", "j"))
    assert lines > 0
    assert Traffic(nest, CPU).best_order(schedule, ("i", "j"), limit=2 * lines) == (order, lines)
    assert Traffic(nest, CPU).best_order(schedule, ("i", "j"), limit=lines / 2)[1] == lines / 2


@pytest.mark.parametrize(("apart", "ways"), [(4096, 8.0), (4160, 1.0)])
def test_touched__of_lines_a_way_apart__take_a_way_each(apart: int, ways: float) -> None:
    nest = contraction(
        {"i": 8, "j": 8}, {"k": 100}, {"i": apart // 4, "k": 1 << 20}, {"j": 1, "k": 8}, {"i": 8, "j": 1}
    )
    assert Traffic(nest, CPU)._touched(0, {"i": 8, "j": 8, "k": 1}).ways == ways


def lines_of(nest: LoopNest, order: tuple[str, ...], lane: str, *tile: tuple[str, int]) -> float:
    schedule = NestSchedule(order, 0, tuple(d for d, _ in nest.reduced), lane, 8, tile)
    steps = {d: schedule.step(d) for d in nest.extents}
    return Traffic(nest, HostTarget(lanes=8, registers=16))._rereads(steps)(order, float("inf"))


def test_rereads__of_elements_of_a_line__count_the_line_for_each() -> None:
    """Six lines of 16 rows for each point of the sum: a loop over the rows reads them all again."""
    sums = {"k": 392}
    nest = contraction(
        {"b": 6, "r": 16, "c": 16}, sums, {"r": 1, "b": 50176, "k": 16}, {"c": 1, "k": 16}, {"c": 1, "r": 16, "b": 256}
    )
    apart = lines_of(nest, ("r", "b", "c"), "c", ("c", 2), ("b", 6))
    near = lines_of(nest, ("r", "b", "c"), "c", ("c", 2), ("r", 6))
    assert apart > 4 * near
