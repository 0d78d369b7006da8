"""Sequences of different length in one array."""

from __future__ import annotations

import numpy as np
import pytest

from abele.errors import SampleLengthError, TypeMismatchError
from abele.packing.data import Ragged


def test_ragged__of_lists__is_the_lists_again() -> None:
    ragged = Ragged.of([[1, 2], [], [3]])
    assert [part.tolist() for part in ragged] == [[1, 2], [], [3]]
    assert ragged.lengths.tolist() == [2, 0, 1]
    assert ragged[-1].tolist() == [3]
    assert ragged.sequence_of_value.tolist() == [0, 0, 2]


def test_ragged__of_frames__keeps_further_dimensions() -> None:
    ragged = Ragged.of([np.ones((2, 3)), np.zeros((1, 3))])
    assert ragged.values.shape == (3, 3)
    assert ragged.take([1, 0, 1]).values.sum(1).tolist() == [0, 3, 3, 0]


def test_ragged__part_of_a_mapped_file__takes_what_it_needs() -> None:
    ragged = Ragged(np.arange(10), np.array([3, 5, 8]))
    assert ragged.own_values.tolist() == [3, 4, 5, 6, 7]
    assert ragged.take([1]).values.tolist() == [5, 6, 7]
    assert ragged.with_values(ragged.own_values * 2)[0].tolist() == [6, 8]


def test_split__long_sequences__become_pieces_in_order() -> None:
    pieces, origin = Ragged.of([[1, 2, 3, 4, 5], [6], [7, 8]]).split(2)
    assert [part.tolist() for part in pieces] == [[1, 2], [3, 4], [5], [6], [7, 8]]
    assert origin.tolist() == [0, 0, 0, 1, 2]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ragged(np.arange(4), np.array([0, 3, 2])), "sequence 1 ends before it begins: from 3 to 2"),
        (lambda: Ragged(np.arange(4), np.array([0, 9])), "leave values of shape [4]"),
        (lambda: Ragged.of_lengths(np.arange(4), [1, 2]), "lengths add up to 3, and there are 4 values"),
        (lambda: Ragged.of_lengths(np.arange(4), [5, -1]), "sequence 1 has a length of -1"),
        (lambda: Ragged.of([np.ones((1, 2)), np.ones((1, 3))]), "differ in shape past their first dimension"),
        (lambda: Ragged.of([1, 2]), "got a number"),
        (lambda: Ragged.of([[1]]).split(0), "a piece has at least one element, not 0"),
    ],
)
def test_ragged__lengths_that_cannot_be__are_refused(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SampleLengthError) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ragged(np.arange(4), np.array([0.0, 4.0])), "offsets are whole numbers"),
        (lambda: Ragged.of_lengths(np.arange(4), [1.5, 2.5]), "lengths are whole numbers"),
        (lambda: Ragged(np.array(["a", "b"]), np.array([0, 2])), "are numbers, got <U1"),
        (lambda: Ragged.of([[1], [0.5]]), "sequences of different types: float64, int64"),
    ],
)
def test_ragged__types_that_are_no_numbers__are_refused(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TypeMismatchError) as caught:
        make()
    assert words in str(caught.value)
