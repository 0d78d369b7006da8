"""Options of library functions."""

from __future__ import annotations

import pytest

from abele.errors import InvalidOptionError
from abele.numerics import f16, f32
from abele.poplibs.poputil.options import PROPORTION, choice, element_type, flag, integer, number, read_options

TABLE = {
    "availableMemoryProportion": PROPORTION,
    "partialsType": element_type(f32),
    "enableFastReduce": flag(False),
    "pass": choice("NONE", "NONE", "TRAINING_FWD"),
    "tilesPerIPU": integer(0),
    "scaleFloatToHalfTolerance": number(1e-6),
}


def test_read_options__nothing_given__gives_defaults():
    values = read_options("poplin.matmul", None, TABLE)
    assert values == {
        "availableMemoryProportion": 0.6,
        "partialsType": f32,
        "enableFastReduce": False,
        "pass": "NONE",
        "tilesPerIPU": 0,
        "scaleFloatToHalfTolerance": 1e-6,
    }


def test_read_options__text_and_snake_case__are_understood():
    given = {
        "available_memory_proportion": "0.25",
        "partialsType": "half",
        "enableFastReduce": "true",
        "pass": "TRAINING_FWD",
        "tilesPerIPU": "12",
    }
    values = read_options("poplin.matmul", given, TABLE)
    assert (values["availableMemoryProportion"], values["partialsType"], values["enableFastReduce"]) == (
        0.25,
        f16,
        True,
    )
    assert (values["pass"], values["tilesPerIPU"]) == ("TRAINING_FWD", 12)


def test_read_options__misspelt__names_the_nearest():
    with pytest.raises(InvalidOptionError, match="has no option 'partialType'; did you mean 'partialsType'"):
        read_options("poplin.matmul", {"partialType": "half"}, TABLE)


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("availableMemoryProportion", 1.5, "a number between 0 and 1"),
        ("availableMemoryProportion", float("nan"), "a number between 0 and 1"),
        ("availableMemoryProportion", "much", "a number between 0 and 1"),
        ("partialsType", "double", "an element type"),
        ("enableFastReduce", "yes", "true or false"),
        ("pass", "FWD", "one of NONE, TRAINING_FWD"),
        ("tilesPerIPU", 1.5, "a whole number from 0 on"),
        ("tilesPerIPU", float("inf"), "a whole number from 0 on"),
    ],
)
def test_read_options__value_out_of_range__says_what_it_takes(name, value, takes):
    with pytest.raises(InvalidOptionError, match=f"poplin.matmul: option '{name}' takes {takes}"):
        read_options("poplin.matmul", {name: value}, TABLE)
