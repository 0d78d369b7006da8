"""Samples of long sweeps: chosen by a seed, in order, repeatable, and whole where that is asked."""

from __future__ import annotations

import itertools

import pytest

from support import sweeps

ITEMS = list(range(1000))


def test_sampled__same_seed_or_another__is_the_same_or_another() -> None:
    first, other = (sweeps.sampled(ITEMS, 50, by=seed) for seed in ("8feff850", "de744a83"))
    assert first == sweeps.sampled(ITEMS, 50, by="8feff850") != other
    assert len(set(first)) == 50
    assert first == sorted(first)


@pytest.mark.parametrize(("count", "seed"), [(50, sweeps.ALL), (1000, "8feff850")])
def test_sampled__all_or_as_many_as_there_are__is_the_whole_sweep(count: int, seed: str) -> None:
    assert sweeps.sampled(ITEMS, count, by=seed) == ITEMS


def test_seed__environment_commit_or_neither__is_never_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEP", raising=False)
    for commit, seed in (("8feff850fe6c", "8feff850fe6c"), ("", "no commit")):
        monkeypatch.setattr(sweeps, "_commit", lambda commit=commit: commit)
        assert sweeps.seed.__wrapped__() == seed
    monkeypatch.setenv("SWEEP", "all")
    assert sweeps.seed.__wrapped__() == "all"


class FakeTest:
    """A test, as far as samples look at it."""

    def __init__(self, nodeid: str, marker: str | None) -> None:
        self.nodeid, self._marker = nodeid, marker

    def get_closest_marker(self, name: str) -> str | None:
        return self._marker if self._marker == name else None


def test_rest_of_a_sweep__by_commit__is_another_eighth_of_it() -> None:
    items = [FakeTest(f"test_a.py::test_point[{n}]", "rest") for n in range(400)] + [
        FakeTest("test_a.py::test_plain", None)
    ]
    kept = [[i.nodeid for i in items if not sweeps.is_left_out(i, by=seed)] for seed in ("8feff850", "de744a83", "all")]
    assert all(30 < len(some) < 75 for some in kept[:2])
    assert kept[0] != kept[1]
    assert len(kept[2]) == 401
    assert all(some[-1].endswith("test_plain") for some in kept)


@pytest.mark.parametrize("sizes", [(3, 2, 2), (2, 2, 2, 2), (1, 4, 2)], ids=str)
def test_cover__of_three_axes_and_more__has_all_pairs_in_few_points(sizes: tuple[int, ...]) -> None:
    points = product(*sizes)
    plain = [points[n] for n in sweeps.covering(points)]
    for first, second in itertools.combinations(range(len(sizes)), 2):
        assert len({(p[first], p[second]) for p in plain}) == sizes[first] * sizes[second]
    one, two = sorted(sizes)[-2:]
    assert one * two <= len(plain) <= 1.4 * one * two + 2


@pytest.mark.parametrize("sizes", [(6, 5, 3), (4, 3, 2), (3, 3, 3)], ids=str)
def test_cover__of_three_axes_with_many_pairs__has_each_value_in_as_few_points_as_can_be(
    sizes: tuple[int, ...],
) -> None:
    points = product(*sizes)
    plain = [points[n] for n in sweeps.covering(points)]
    assert [len({p[axis] for p in plain}) for axis in range(3)] == list(sizes)
    assert len(plain) == max(sizes)


def test_cover__of_two_axes__has_each_value_and_shares_the_others_evenly() -> None:
    points = product(6, 2)
    plain = [points[n] for n in sweeps.covering(points)]
    assert sorted(p[0] for p in plain) == list("012345")
    assert sorted(p[1] for p in plain) == ["0"] * 3 + ["1"] * 3


def product(*sizes: int) -> list[sweeps.Point]:
    return list(itertools.product(*(map(str, range(size)) for size in sizes)))
