"""Level of detail of stacked curves: nothing that is highest is lost, and every place lies in one bucket."""

from __future__ import annotations

import numpy as np
import pytest

from abele.viewer.answers.buckets import COLUMNS, chunk, frozen_chunks, top_level


@pytest.mark.parametrize("length", [1, 7, COLUMNS, COLUMNS + 1, 5_003])
@pytest.mark.parametrize("level", [0, 1, 3, 5])
def test_chunk__every_level__tells_of_each_bucket_its_greatest_place_and_its_least_total(
    length: int, level: int
) -> None:
    parts = np.random.default_rng(length).integers(0, 50, (3, length))
    total = parts.sum(axis=0)
    told = 0
    for index in range(-(-length // (COLUMNS << level))):
        found = chunk(parts, level, index)
        for bucket, place in enumerate(found["at"].tolist()):
            first = (index * COLUMNS + bucket) << level
            mine = total[first : first + (1 << level)]
            assert total[place] == mine.max()
            assert first <= place < first + len(mine)
            assert found["least"][bucket] == mine.min()
            assert found["values"][:, bucket].tolist() == parts[:, place].tolist()
            told += len(mine)
    assert told == length


def test_chunk__one_peak_among_many__is_there_at_every_level() -> None:
    parts = np.ones((2, 100_000), np.int64)
    parts[1, 77_777] = 12_345
    for level in range(top_level(100_000) + 1):
        found = chunk(parts, level, 77_777 // (COLUMNS << level))
        assert found["values"].sum(axis=0).max() == 12_346
        assert 77_777 in found["at"]


def test_chunk__beyond_the_axis__is_empty() -> None:
    found = chunk(np.ones((2, 10), np.int64), 0, 1)
    assert found["values"].shape == (2, 0)
    assert len(found["at"]) == len(found["least"]) == 0


def test_chunk__level_far_above_the_axis__is_one_bucket() -> None:
    found = chunk(np.array([[1, 5, 2]]), 40, 0)
    assert (found["values"].tolist(), found["at"].tolist(), found["least"].tolist()) == ([[5]], [1], [1])


def test_chunk__sums_beyond_32_bits__stay_exact() -> None:
    parts = np.array([[2**40, 1, 2]])
    assert chunk(parts, 0, 0)["values"].tolist() == [[2**40, 1, 2]]
    assert chunk(parts, 1, 0)["values"].tolist() == [[2**40, 2]]


@pytest.mark.parametrize("length", [0, 1, COLUMNS, COLUMNS + 1, 94_208])
def test_top_level__whole_axis__is_one_chunk(length: int) -> None:
    level = top_level(length)
    assert length <= COLUMNS << level
    assert level == 0 or length > COLUMNS << (level - 1)


def test_frozen_chunks__a_pod__takes_4096_buckets_and_what_is_coarser() -> None:
    places = [(int(place["level"]), int(place["index"])) for place in frozen_chunks(94_208)]
    assert places == [(7, 0), (6, 0), (6, 1), (5, 0), (5, 1), (5, 2)]
