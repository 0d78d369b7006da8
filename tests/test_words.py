"""Words that every room writes alike."""

from __future__ import annotations

import numpy as np
import pytest

from abele.words import counted, ordinal, plural, shortened, tiles_text, visible


@pytest.mark.parametrize(
    ("noun", "many"),
    [
        ("tile", "tiles"),
        ("vertex", "vertices"),
        ("matrix", "matrices"),
        ("index", "indices"),
        ("axis", "axes"),
        ("graph entry", "graph entries"),
        ("array", "arrays"),
        ("batch", "batches"),
        ("box", "boxes"),
        ("class", "classes"),
        ("dish", "dishes"),
        ("leaf", "leaves"),
        ("long key", "long keys"),
        ("compute set", "compute sets"),
        ("Bow IPU", "Bow IPUs"),
    ],
)
def test_plural__nouns_of_this_field__are_english(noun: str, many: str) -> None:
    assert plural(noun) == many


def test_counted__one_none_and_thousands__agree_with_their_noun() -> None:
    assert [counted(n, "vertex") for n in (0, 1, 1200)] == ["0 vertices", "1 vertex", "1,200 vertices"]


def test_ordinal__teens_and_others__end_as_spoken() -> None:
    assert [ordinal(n) for n in (0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 21, 111, 122, 1003)] == (
        ["0th", "1st", "2nd", "3rd", "4th", "10th", "11th", "12th", "13th", "14th", "21st", "111th", "122nd", "1,003rd"]
    )


def test_shortened__long_text__keeps_both_ends() -> None:
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghijk", 7) == "abc…ijk"
    assert shortened("abcdefghijk", 8) == "abc…hijk"
    assert shortened("abcdefghijk", 1) == "…"


def test_visible__control_and_direction_characters__are_replaced() -> None:
    assert visible("é ok") == "é ok"
    assert visible("a\x1b[2Jb\u202ec\nd") == "a�[2Jb�c�d"


def test_tiles_text__two_neighbours_and_six_or_seven_apart__are_listed_up_to_six() -> None:
    apart = [1, 1, 3, 5, 7, 9, 1100]
    assert tiles_text(np.array([5, 4])) == "tiles 4, 5"
    assert tiles_text(np.array(apart)) == "tiles 1, 3, 5, 7, 9, 1,100"
    assert tiles_text(np.array([*apart, 1200])) == "7 tiles, 1 to 1,200"


def test_tiles_text__few_ranges_and_many__are_short() -> None:
    assert [tiles_text(np.array(t)) for t in ([], [3], [0, 1, 2], [4, 1, 9], range(0, 2000, 2))] == (
        ["no tile", "tile 3", "tiles 0 to 2", "tiles 1, 4, 9", "1,000 tiles, 0 to 1,998"]
    )
