"""What plain runs take of sweeps."""

from __future__ import annotations

import itertools

import pytest

from support.sweeps import Point, covering


@pytest.mark.parametrize("sizes", [(6, 5, 3), (2, 2, 2, 2), (1, 4, 3)], ids=str)
def test_cover__of_three_axes_and_more__has_all_pairs_in_few_points(sizes: tuple[int, ...]) -> None:
    points = sweep(*sizes)
    plain = [points[n] for n in covering(points)]
    for first, second in itertools.combinations(range(len(sizes)), 2):
        assert len({(p[first], p[second]) for p in plain}) == sizes[first] * sizes[second]
    one, two = sorted(sizes)[-2:]
    assert one * two <= len(plain) <= 1.4 * one * two + 2


def test_cover__of_two_axes__has_each_value_and_shares_the_others_evenly() -> None:
    points = sweep(6, 2)
    plain = [points[n] for n in covering(points)]
    assert sorted(p[0] for p in plain) == list("012345")
    assert sorted(p[1] for p in plain) == ["0"] * 3 + ["1"] * 3


def sweep(*sizes: int) -> list[Point]:
    return list(itertools.product(*(map(str, range(size)) for size in sizes)))
