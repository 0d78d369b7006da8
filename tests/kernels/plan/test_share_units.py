"""Shares of functions that run side by side: every unit runs once, and threads finish together."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.kernels.code.drivers import UnitPlaces
from abele.kernels.plan.share_units import AXIS, share_units, units_before

FUNCTIONS = st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 10**9)), min_size=1, max_size=30)


def counts(places: UnitPlaces, units: int, threads: int) -> np.ndarray:
    """Units that each thread runs, as the bytecode cuts the axis."""
    points = -(-AXIS * np.arange(threads + 1) // threads)
    return np.diff(units_before(places, points, units, np.array(places.offset)))


def balance(functions: list[tuple[int, int]], threads: int) -> float:
    """Mean load of the threads over the largest."""
    loads = sum(
        counts(p, units, threads) * cost / units
        for p, (units, cost) in zip(share_units(functions), functions, strict=True)
    )
    return float(np.mean(loads) / np.max(loads))


@given(FUNCTIONS, st.integers(1, 70))
def test_share_units__of_any_functions__have_each_unit_run_once(functions: list[tuple[int, int]], threads: int) -> None:
    for places, (units, _) in zip(share_units(functions), functions, strict=True):
        assert 0 <= places.offset < places.span
        assert places.first >= 0
        assert places.first + places.span <= AXIS
        shares = counts(places, units, threads)
        assert shares.min() >= 0
        assert shares.sum() == units


@given(st.lists(st.tuples(st.integers(64, 3000), st.integers(1, 10**6)), min_size=1, max_size=20))
def test_share_units__of_functions_of_many_units__load_threads_evenly(functions: list[tuple[int, int]]) -> None:
    assert all(balance(functions, threads) > least for threads, least in ((2, 0.97), (4, 0.94), (8, 0.88), (16, 0.8)))


def test_share_units__of_costs_that_were_guessed_wrong__load_threads_evenly() -> None:
    functions = [(50, 100), (42, 300)]
    for places, (units, _) in zip(share_units(functions), functions, strict=True):
        assert counts(places, units, 2).tolist() == [units // 2] * 2


def test_share_units__that_do_not_divide__go_to_different_threads() -> None:
    assert balance([(33, 33), (33, 33)], 2) == 1
    assert balance([(9, 90)] * 8, 8) == 1
    assert balance([(3, 30)] * 100, 8) > 0.97


def test_share_units__of_one_heavy_unit__leave_its_thread_alone() -> None:
    heavy, light = share_units([(1, 100), (64, 100)])
    assert counts(heavy, 1, 2).tolist() == [1, 0]
    assert counts(light, 64, 2).tolist() == [0, 64]
    assert sorted(counts(light, 64, 4).tolist()) == [0, 0, 32, 32]


def test_share_units__of_heavy_units_alone__lie_one_after_the_other() -> None:
    assert balance([(1, 7)] * 4, 4) == 1
    assert balance([(3, 30), (1, 10)], 2) == 1
