"""Tiles named by numbers and words."""

from __future__ import annotations

import numpy as np
import pytest

from abele.errors import InvalidOptionError
from abele.viewer.answers import answer
from abele.viewer.answers.selection import LONGEST, ranges_text, tiles_of
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from random_reports import random_report

MADE = random_report(1, room=4_000)
HELD = MADE.report.memory.by_tile


@pytest.fixture
def opened() -> Opened:
    return Opened("random", "random", MADE.report)


@pytest.mark.parametrize(
    ("text", "tiles"),
    [
        ("", []),
        ("3", [3]),
        ("3, 10-12", [3, 10, 11, 12]),
        ("12 , 3,3 - 5", [3, 4, 5, 12]),
        ("62-900000000000000000000", [62, 63]),
        ("70", []),
        ("all", list(range(64))),
        ("ipu 1", list(range(32, 64))),
        ("IPU 7", []),
        ("area 1 0 0 1 0", [32, 33]),
    ],
)
def test_tiles_of__numbers_and_places__are_those_tiles(opened: Opened, text: str, tiles: list[int]) -> None:
    assert tiles_of(opened, text).tolist() == tiles


def test_tiles_of__words_about_memory__are_what_memory_says(opened: Opened) -> None:
    assert tiles_of(opened, "over").tolist() == np.flatnonzero(HELD > 4_000).tolist()
    fullest = np.sort(HELD)[::-1][:5]
    assert sorted(HELD[tiles_of(opened, "top 5")].tolist(), reverse=True) == fullest.tolist()
    assert HELD[tiles_of(opened, "least 1")].tolist() == [HELD.min()]
    assert tiles_of(opened, "total>=5kB").tolist() == np.flatnonzero(HELD >= 5_000).tolist()
    state = MADE.report.memory.bytes[MADE.report.memory.categories.index("vertex_state")]
    assert tiles_of(opened, "vertex_state < 100").tolist() == np.flatnonzero(state < 100).tolist()
    assert tiles_of(opened, "variable 3").tolist() == np.flatnonzero(MADE.held[3]).tolist()
    name = str(MADE.report.variables["name"][4])
    assert tiles_of(opened, f"with {name}").tolist() == np.flatnonzero(MADE.held[4]).tolist()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tpo 3", "did you mean 'top'"),
        ("12-3", "runs backwards"),
        ("-1", "names no tiles"),
        ("1.5", "names no tiles"),
        ("temporary>3", "did you mean 'temporaries'"),
        ("with nothing of that name", "knows no variable"),
        ("variable 999", "no variable 999"),
        ("variable 99999999999999999999", "no variable"),
        ("<script>", "names no tiles"),
    ],
)
def test_tiles_of__words_that_mean_nothing__are_refused(opened: Opened, text: str, why: str) -> None:
    with pytest.raises(InvalidOptionError, match=why):
        tiles_of(opened, text)


def test_ranges_text__random_tiles__come_back(opened: Opened) -> None:
    rng = np.random.default_rng(5)
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        tiles = np.flatnonzero(rng.random(64) < share)
        assert tiles_of(opened, ranges_text(tiles)).tolist() == tiles.tolist()


def test_tiles__ranges_that_are_long__stay_the_words_that_were_asked_with() -> None:
    made = random_report(3, num_ipus=1, tiles_per_ipu=4_000, variables=3, steps=4)
    opened = Opened("random", "random", made.report)
    found = answer(opened, "tiles", Params({"text": "total>1700"}))
    assert found.head["count"] == len(found.arrays["tiles"]) > 0
    assert len(ranges_text(found.arrays["tiles"].astype(np.int64))) > LONGEST
    assert found.head["text"] == "total>1700"
