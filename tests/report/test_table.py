"""Tables: columns in, the same columns out, in any order asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import InvalidOptionError
from abele.report import STEPS, Table, Text
from abele.report.table import computed


@given(st.lists(st.text(max_size=5)))
def test_text__any_strings__decode_to_themselves(values: list[str]) -> None:
    values = [value.rstrip("\0") for value in values]
    assert Text.of(values).decode().tolist() == values


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"))))
def test_sort__any_rows__is_stable_both_ways(rows: list[tuple[int, str]]) -> None:
    table = Table({"n": np.array([n for n, _ in rows], np.int64), "s": Text.of([s for _, s in rows])})
    ordered = table.sort("n")
    assert list(zip(ordered["n"].tolist(), ordered["s"].tolist(), strict=True)) == sorted(rows, key=lambda r: r[0])
    backwards = table.sort("n", descending=True)
    expected = sorted(rows, key=lambda r: -r[0])
    assert list(zip(backwards["n"].tolist(), backwards["s"].tolist(), strict=True)) == expected
    assert table.sort("s")["s"].tolist() == sorted(s for _, s in rows)


def test_top__by_column__largest_first() -> None:
    table = Table({"name": Text.of(["a", "b", "c"]), "cycles": np.array([1, 3, 2])})
    assert table.top(2, "cycles")["name"].tolist() == ["b", "c"]


def test_where__text_and_numbers__select_equal_rows() -> None:
    table = Table({"name": Text.of(["a", "b", "a"]), "n": np.array([1, 1, 2])})
    assert table.where("name", "a")["n"].tolist() == [1, 2]
    assert table.where("n", 1)["name"].tolist() == ["a", "b"]
    assert len(table.where("name", "z")) == 0


def test_append__one_row__keeps_types() -> None:
    table = Table({"name": Text.of(["a"]), "n": np.array([1], np.int32)}).append(name="b", n=2)
    assert list(table.rows()) == [{"name": "a", "n": 1}, {"name": "b", "n": 2}]
    assert table["n"].dtype == np.int32


def test_append__column_left_out__is_named() -> None:
    with pytest.raises(InvalidOptionError, match="the new row lacks n"):
        Table({"name": Text.of(["a"]), "n": np.array([1])}).append(name="b")


def test_column__unknown__names_the_nearest() -> None:
    with pytest.raises(InvalidOptionError, match=r"no column is called 'cycle'\n  try      did you mean 'cycles'\?"):
        Table({"cycles": np.zeros(1)})["cycle"]


def test_table__in_a_loop__gives_names_of_columns() -> None:
    table = Table({"tile": np.arange(3), "cycles": np.zeros(3)})
    assert list(table) == ["tile", "cycles"]
    with pytest.raises(InvalidOptionError, match="no column is called 0"):
        table[0]  # type: ignore[index]


def test_columns__of_different_length__are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="a has 1, b has 2"):
        Table({"a": np.zeros(1), "b": np.zeros(2)})


def test_schema__missing_columns__take_defaults_and_types() -> None:
    table = STEPS.table(name=["a", "b"], cycles=[1, 2])
    assert table["op"].tolist() == [-1, -1]
    assert table["cycles"].dtype == np.int64
    assert table["kind"].tolist() == ["", ""]
    assert len(STEPS.empty()) == 0


def test_schema__unknown_column__names_the_nearest() -> None:
    with pytest.raises(InvalidOptionError, match="the steps table has no column 'cycels'"):
        STEPS.table(cycels=[1])


def test_table__of_no_columns__has_no_rows() -> None:
    assert (len(Table({})), Table({}).names) == (0, ())


def test_column__unlike_any_other__is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidOptionError, match=r"no column is called 'zzzzzz'(?s:.*)one of cycles, tile"):
        Table({"cycles": np.arange(2), "tile": np.arange(2)})["zzzzzz"]


def test_computed__columns__are_made_together_once_on_first_use() -> None:
    made: list[int] = []

    def make() -> dict[str, np.ndarray]:
        made.append(1)
        return {"tile": np.arange(3), "cycles": np.arange(3) * 10}

    table = Table(computed(["tile", "cycles"], make))
    assert not made
    assert (len(table), table["cycles"].tolist(), table["tile"].tolist()) == (3, [0, 10, 20], [0, 1, 2])
    assert made == [1]
