"""Names that errors offer in place of unknown ones."""

from __future__ import annotations

import time

import pytest

from abele.errors import nearest

NAMES = "goto memory tiles train bow-2000 bow availableMemoryProportion setTileMapping values"
CHOICES = NAMES.split()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("memroy", "memory"),
        ("trian", "train"),
        ("tile", "tiles"),
        ("bow2000", "bow-2000"),
        ("BOW_2000", "bow-2000"),
        ("set_tile_mapping", "setTileMapping"),
        ("vales", "values"),
        ("availableMemory", "availableMemoryProportion"),
        ("available_memory_proportions", "availableMemoryProportion"),
        ("boe", "bow"),
    ],
)
def test_nearest__slips_case_separators_and_beginnings__are_understood(name: str, wanted: str) -> None:
    assert nearest(name, CHOICES) == wanted


@pytest.mark.parametrize("name", ["foo", "", "x", "gate", "values of tiles", "xmemox", "train a model"])
def test_nearest__names_that_only_share_letters__offer_nothing(name: str) -> None:
    assert nearest(name, CHOICES) is None


def test_nearest__several_are_close__the_closest() -> None:
    assert nearest("conv2", ["conv3", "conv", "conv22", "conv2d"]) in ("conv3", "conv", "conv22", "conv2d")
    assert nearest("weights1", ["weight1", "Weights_1"]) == "Weights_1"
    assert nearest("a", iter(["b", "A"])) == "A"


def test_nearest__very_long_name_and_many_choices__takes_no_time() -> None:
    start = time.perf_counter()
    assert nearest("x" * 1_000_000, [f"variable{i}" for i in range(2000)]) is None
    assert nearest("variabel7", [f"variable{i}" for i in range(2000)]) == "variable7"
    assert time.perf_counter() - start < 3
