"""Rates between the points at which they are measured."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.kernels.routines.product_class import (
    AXES,
    CLASSES,
    CORNERS,
    POINTS,
    TRAITS,
    ProductClass,
    share_at,
    with_traits,
)

extents = st.tuples(*(st.integers(axis[0], axis[-1]) for axis in AXES))


def shares(rate) -> tuple[float, ...]:
    return tuple(rate(*point) for point in POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_share__at_a_point__is_what_was_measured(point: tuple[int, int, int]) -> None:
    found = shares(lambda m, n, k: 0.1 + (m * 7 + n * 3 + k) % 89 / 100)
    assert share_at(found, point) == pytest.approx(found[POINTS.index(point)])


@given(shape=extents, powers=st.tuples(*[st.floats(-1, 1)] * 3))
def test_share__of_a_rate_that_is_a_power_of_extents__is_exact(shape, powers) -> None:
    def rate(*at: int) -> float:
        return math.prod(n**power for n, power in zip(at, powers, strict=True))

    assert share_at(shares(rate), shape) == pytest.approx(rate(*shape), rel=1e-9)


def test_share__below_the_points__falls_on_and_above_stays() -> None:
    found = shares(lambda m, n, k: float(m))
    assert share_at(found, (2, 8, 12)) == pytest.approx(2.0)
    assert share_at(found, (1, 1, 1)) == pytest.approx(1.0)
    assert share_at(found, (10**6, 10**6, 10**6)) == pytest.approx(AXES[0][-1])


@given(shape=st.tuples(*[st.integers(1, 5000)] * 3), grows=st.integers(0, 2))
def test_share__of_rates_that_grow__grows(shape, grows) -> None:
    found = shares(lambda m, n, k: m / (m + 10) * n / (n + 20) * k / (k + 30))
    more = tuple(2 * n if d == grows else n for d, n in enumerate(shape))
    assert share_at(found, shape) <= share_at(found, more) * (1 + 1e-12)


def test_classes__all_of_them__have_names_of_their_own() -> None:
    every = [*CLASSES, *(replace(of, pairs=True) for of in CLASSES), *TRAITS]
    assert len({of.name for of in every}) == len({str(of) for of in every}) == 15
    assert all(of.name.replace("-", "").isalnum() for of in every)


def test_traits__of_a_class__are_each_alone() -> None:
    of = ProductClass(True, True, is_crowded=True, is_left_crowded=True, right_in_blocks=True)
    assert of.bare == ProductClass(True, True)
    assert of.traits == (
        ProductClass(right_turned=True, is_crowded=True),
        ProductClass(left_turned=True, is_left_crowded=True),
        ProductClass(right_turned=True, right_in_blocks=True),
    )
    assert all(trait.traits == (trait,) and trait in TRAITS for trait in of.traits)


@given(ratios=st.lists(st.tuples(*[st.floats(0.25, 4)] * len(CORNERS)), max_size=3))
def test_rates__with_traits__are_multiplied_at_the_corners(ratios) -> None:
    bare = shares(lambda m, n, k: 0.1 + (m * 7 + n * 3 + k) % 89 / 100)
    found = with_traits(bare, ratios)
    for number, corner in enumerate(CORNERS):
        place = POINTS.index(corner)
        assert found[place] == pytest.approx(bare[place] * math.prod(ratio[number] for ratio in ratios))
