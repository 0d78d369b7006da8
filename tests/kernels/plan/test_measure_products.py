"""The choice between loops and the packed routine rests on what a host measures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels_kit import form_after
from products_kit import linear

from abele.kernels import BoundKernel, Buffer, bind
from abele.kernels.nest.binding import bound_calls
from abele.kernels.plan.passes import measure_rates, measured_target, plan_native, run_passes, tile_costs
from abele.kernels.products.schedule import ProductSchedule
from abele.kernels.routines.blocking import blocking
from abele.kernels.routines.costs import VARIABLE, PackedRates, ProductCosts
from abele.kernels.target import HostTarget

SIZES = blocking(16, 32, 1 << 15, 1 << 20)
times = st.floats(1e-12, 1e-9)


def runs_packed(rates: PackedRates, shape: tuple[int, int, int], right: str = "kj", *, forced: bool = False) -> bool:
    asked = []

    def measure(sizes):
        asked.append(sizes)
        return rates

    target = HostTarget(16, products=ProductCosts(SIZES, measure=measure, forced=forced))
    kernel = linear(*shape, right=right)
    buffers = [Buffer(n, s, t, True, f"b{n}") for n, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))]
    program = form_after("choose_schedules", buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "p")], target)
    assert not (asked and forced)
    return isinstance(program.leaves[0].functions[0].schedule, ProductSchedule)


@pytest.mark.parametrize(("loops", "packed"), [(1.3, False), (0.7, True)])
def test_choice__between_both__follows_the_rate_of_loops(loops: float, packed: bool) -> None:
    assert runs_packed(PackedRates(10.0, loops, 0.1), (512, 512, 512)) is packed


@pytest.mark.parametrize(("packing", "packed"), [(2.0, True), (60.0, False)])
def test_choice__between_both__follows_the_cost_of_packing(packing: float, packed: bool) -> None:
    assert runs_packed(PackedRates(packing, 0.8), (128, 512, 512)) is packed


@pytest.mark.parametrize(
    ("right", "depth", "packed"), [("jk", 1024, True), ("jk", 1000, False), ("kj", 1024, False), ("jk", 512, False)]
)
def test_choice__of_long_sums_across_rows__follows_their_own_rate(right: str, depth: int, packed: bool) -> None:
    assert runs_packed(PackedRates(10.0, loops=1.3, crossed=0.6), (512, 512, depth), right) is packed


@pytest.mark.parametrize("shape", [(3, 4, 5), (8, 768, 768)])
def test_choice__that_is_plain_on_any_host__measures_nothing(shape: tuple[int, int, int]) -> None:
    # Rates that would have it packed are never asked for.
    assert not runs_packed(PackedRates(1.0, 0.1, 0.1), shape)


def test_choice__that_is_forced__measures_nothing() -> None:
    assert runs_packed(PackedRates(60.0, 1.0), (3, 4, 5), forced=True)


@given(packing=times, tile=times)
def test_costs__of_few_rows_and_many__come_apart(packing: float, tile: float) -> None:
    few, many, n, k = 14, 280, 320, 288
    short, long = (tile * m * n * k + packing * (m + n) * k for m in (few, many))
    found = tile_costs(short, long, (few, many, n, k))
    assert found == pytest.approx((packing, tile), rel=1e-3, abs=1e-14)


def test_rates__measured_here__are_steps_within_reason() -> None:
    def plan(buffers, calls, target):
        assert target.products is None
        return run_passes(bound_calls(buffers, calls, target))

    rates = measure_rates(blocking(16, 32, 1 << 15, 1 << 20), plan)
    assert rates.packing >= 1.0
    assert rates.packing == round(rates.packing)
    assert 0.05 <= rates.loops <= 5.0
    assert round(20 * rates.loops) == pytest.approx(20 * rates.loops)


def test_target__of_plans__measures_and_equals_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    first, second = (measured_target(lambda *_: plan_native([], [])) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first.products.measure is not None
    assert first.products != replace(first.products, measure=None)
    monkeypatch.setenv(VARIABLE, "loops")
    assert measured_target(lambda *_: plan_native([], [])).products is None
