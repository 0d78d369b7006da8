"""Options: what kinds of them read, what they take in words, and how tables refuse."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta
from syrupy.assertion import SnapshotAssertion

from abele.errors import InvalidOptionError
from abele.numerics import f16
from abele.options import Option, OptionTable, choice, element_type, flag, integer, number, read_options, text


class Colour(IntEnum):
    """Some words with numbers."""

    RED = 0
    BLUE = 1


KINDS = {
    "flag": flag(True, doc="goes on or off"),
    "share": number(0.6, 0.0, 1.0, doc="part of a whole"),
    "positive": Option(None, Annotated[float, Meta(gt=0)] | None, doc="more than nothing"),
    "count": integer(0, doc="how many"),
    "few": integer(1, 1, 3, doc="a handful", honoured=False),
    "workers": integer("auto", 0, None, "auto", doc="threads"),
    "level": choice("vertex", "off", "ipu", doc="how much"),
    "type": element_type(f16, doc="of partials"),
    "folder": text(".", doc="where"),
    "splits": Option({}, dict[Literal["rows", "columns"], Annotated[int, Meta(ge=1)]], doc="by name"),
    "colour": Option(Colour.RED, Colour, doc="of the bicycle shed"),
    "names": Option([], list[str], doc="several"),
    "file": Option(None, str | Path | None, doc="a place"),
    "told": integer(4, doc="from outside", variable="ABELE_TEST_TOLD"),
}
TABLE = OptionTable("the test", KINDS, listed="this file lists them")


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("flag", "TRUE", True),
        ("flag", "0", False),
        ("flag", np.True_, True),
        ("share", "0.25", 0.25),
        ("share", 1, 1.0),
        ("share", np.float32(0.5), 0.5),
        ("count", "0x10", 16),
        ("count", 3.0, 3),
        ("count", np.int64(7), 7),
        ("workers", "Auto", "auto"),
        ("workers", " 3 ", 3),
        ("level", "OFF", "off"),
        ("type", "half", f16),
        ("type", "float16", f16),
        ("splits", '{"rows": 2}', {"rows": 2}),
        ("splits", {"columns": "3"}, {"columns": 3}),
        ("splits", "", {}),
        ("folder", "auto", "auto"),
        ("file", "here", "here"),
        ("file", type(Path())("here"), Path("here")),
    ],
)
def test_parse__value_or_text__is_read(name: str, value: Any, read: Any) -> None:
    found = KINDS[name].parse(value)
    assert found == read
    assert type(found) is type(read)


def test_number__without_limits__is_from_zero_on() -> None:
    option = number(0.5)
    assert option.takes == "a number from 0 on"
    assert option.parse(0) == 0.0
    with pytest.raises(ValueError, match="a number from 0 on"):
        option.parse(-0.5)


def test_choice__default_among_the_names__comes_first_and_once() -> None:
    assert choice("fast", "exact", "fast", "small").takes == "one of fast, exact, small"


def test_option__once_made__stays() -> None:
    with pytest.raises(FrozenInstanceError):
        flag(True).default = False  # type: ignore[misc]


REFUSED: list[tuple[str, Any]] = [
    ("flag", "yes"),
    ("flag", 2),
    ("share", 1.5),
    ("share", float("nan")),
    ("share", "nan"),
    ("share", True),
    ("positive", 0),
    ("count", -1),
    ("count", 1.5),
    ("count", float("inf")),
    ("count", True),
    ("few", 4),
    ("workers", "many"),
    ("level", "tile"),
    ("type", "double"),
    ("folder", 3),
    ("splits", '{"rows": 0}'),
    ("splits", '{"depth": 1}'),
    ("splits", "{"),
    ("colour", 7),
    ("names", "one"),
    ("names", None),
    ("file", 3),
]


def test_parse__values_that_are_not_taken__are_told_what_is(snapshot: SnapshotAssertion) -> None:
    told = []
    for name, value in REFUSED:
        with pytest.raises(InvalidOptionError) as caught:
            TABLE.parse(name, value)
        told.append(str(caught.value))
    assert "\n".join(told) == snapshot


def test_check__values_of_another_type__are_not_converted() -> None:
    assert KINDS["colour"].check(Colour.BLUE) is Colour.BLUE
    assert KINDS["count"].check(3) == 3
    assert (KINDS["file"].check("here"), KINDS["file"].check(Path("here"))) == ("here", Path("here"))
    for name, value in (("count", "3"), ("flag", 1), ("share", "0.5"), ("count", -1)):
        with pytest.raises(ValueError, match="is not"):
            KINDS[name].check(value)


def test_table__as_a_page_has_it__lists_everything(snapshot: SnapshotAssertion) -> None:
    assert TABLE.markdown() == snapshot


def test_read__nothing_given__gives_defaults_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABELE_TEST_TOLD", raising=False)
    assert TABLE.read(None) == {name: option.default for name, option in KINDS.items()}
    monkeypatch.setenv("ABELE_TEST_TOLD", "9")
    assert TABLE.read({"count": "2"})["told"] == 9
    assert TABLE.read({"told": 1})["told"] == 1
    monkeypatch.setenv("ABELE_TEST_TOLD", "nine")
    with pytest.raises(InvalidOptionError, match="'told' takes a whole number from 0 on, got 'nine'") as caught:
        TABLE.read(None)
    assert caught.value.at == "environment variable ABELE_TEST_TOLD"


def test_read__names__in_camel_case_or_ours() -> None:
    table = {"partialsType": element_type(None), "planOnly": flag(False)}
    assert read_options("f", {"partials_type": "half", "planOnly": 1}, table) == {"partialsType": f16, "planOnly": True}


def test_read__name_that_does_not_exist__names_the_nearest() -> None:
    with pytest.raises(InvalidOptionError, match="the test has no option 'colours'; did you mean 'colour'") as caught:
        TABLE.read({"colours": 1})
    assert caught.value.remedy == "this file lists them"
    with pytest.raises(InvalidOptionError, match="f has no option 'x'") as caught:
        read_options("f", {"x": 1}, {})
    assert caught.value.because == "its options are none"


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers(), max_size=3)))
def test_parse__anything__is_a_value_that_reads_as_itself_or_a_value_error(value: Any) -> None:
    for option in KINDS.values():
        try:
            found = option.parse(value)
        except ValueError:
            continue
        assert option.parse(found) == found
