"""Sequences whose objects are made on demand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from abele.errors import AbeleError, ReportIndexError
from abele.pva import LazySequence


def numbers(count: int, made: list[int] | None = None) -> LazySequence[int]:
    def make(row: int) -> int:
        if made is not None:
            made.append(row)
        return row * row

    return LazySequence(count, make, "number")


def test_sequence__as_a_list__answers_alike() -> None:
    found, plain = numbers(10), [n * n for n in range(10)]
    assert list(found) == plain
    assert len(found) == 10
    assert found[-1] == 81
    assert found[np.int64(3)] == 9
    assert list(found[2:8:3]) == plain[2:8:3]
    assert list(found[::-1]) == plain[::-1]
    assert found[2:8][1] == 9
    assert list(reversed(found)) == plain[::-1]
    assert 49 in found
    assert 50 not in found
    assert found.index(16) == 4
    assert not numbers(0)


def test_sequence__iterated_in_part__makes_that_part_alone() -> None:
    made: list[int] = []
    found = numbers(1_000_000, made)
    assert len(found) == 1_000_000
    assert list(itertools.islice(found, 3)) == [0, 1, 4]
    assert found[999_999] == 999_999**2
    assert len(found[10:500_000]) == 499_990
    assert made == [0, 1, 2, 999_999]


@pytest.mark.parametrize("index", [3, -4, 10**12])
def test_sequence__place_outside__is_an_index_error_that_says_what_there_is(index: int) -> None:
    with pytest.raises(ReportIndexError, match="among 3 numbers") as error:
        numbers(3)[index]
    assert isinstance(error.value, IndexError)
    assert isinstance(error.value, AbeleError)
    assert error.value.remedy == "they are numbered 0 to 2"


def test_sequence__no_number__is_a_type_error() -> None:
    with pytest.raises((TypeError, AttributeError)):
        numbers(3)["a"]  # type: ignore[call-overload]


def test_sequence__empty__has_no_place() -> None:
    with pytest.raises(ReportIndexError, match="no number 0 among 0 numbers"):
        numbers(0)[0]
