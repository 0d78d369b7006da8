"""Reading benchmark rows and their parameters, and the errors of what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from abele.errors import FileFormatError, InvalidOptionError
from abele.validation import amp
from abele.validation.parameters import Parameters
from abele.validation.rows import read_rows

HEADER = "name,tool,params,mk1_cycles,mk1_total_mem_bytes,mk2_cycles,mk2_total_mem_bytes\n"


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_parse__both_spellings_of_values__are_read() -> None:
    given = Parameters.parse("--conv --field {8,9} --kernel-size=3 --bias 0 --inference-only")
    assert given.integers("field") == (8, 9)
    assert given.integer("kernel-size") == 3
    assert given.flag("inference-only")
    assert not given.flag("bias", default=True)
    assert given.number("rate", 0.5) == 0.5


def test_parameters__no_number__names_the_option() -> None:
    given = Parameters.parse("--field eight --rate fast")
    with pytest.raises(InvalidOptionError, match="--field takes whole numbers, got 'eight'"):
        given.integers("field")
    with pytest.raises(InvalidOptionError, match="--rate takes a number, got 'fast'"):
        given.number("rate")


def test_read_rows__chip_without_figures__is_left_out(tmp_path: Path) -> None:
    rows = read_rows(written(tmp_path / "a.csv", HEADER + "sum,reduction,--shape 4,10,20,,\n"))
    assert rows[0].references.keys() == {"gc2"}
    assert rows[0].references["gc2"].cycles == 10
    assert rows[0].parameters.integer("shape") == 4


def test_read_rows__column_missing__says_which_and_where(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"a\.csv has no column 'tool'") as caught:
        read_rows(written(tmp_path / "a.csv", HEADER.replace("tool,", "") + "sum,--shape 4,10,20,30,40\n"))
    assert "line 2" in str(caught.value)


def test_read_rows__figure_is_no_number__says_so(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="many"):
        read_rows(written(tmp_path / "a.csv", HEADER + "sum,reduction,--shape 4,many,20,,\n"))


def test_read_silicon__rows__are_sizes_and_cycles(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "N,tflops_measured,cycles_measured\n16,55.5,402.0\n48,127.7,524\n")
    assert amp.read_silicon(path) == [(16, 402.0), (48, 524.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows,cycles_measured\n16,402\n", "has no column 'N'"),
        ("N,cycles_measured\n16,fast\n", "could not convert"),
        ("N,cycles_measured\n16\n", "a.csv: "),
        ("N,cycles_measured\n", "has no rows"),
    ],
)
def test_read_silicon__what_cannot_be_read__is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        amp.read_silicon(written(tmp_path / "a.csv", text))
