"""Reading benchmark rows and their parameters, and the errors of what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from abele.errors import FileFormatError, InvalidOptionError
from abele.validation import amp, tools
from abele.validation.measure import read_rows
from abele.validation.options import known_options, understood
from abele.validation.parameters import Parameters

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
    assert "line 1" in str(caught.value)


def test_read_rows__figure_is_no_number__says_so(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="many"):
        read_rows(written(tmp_path / "a.csv", HEADER + "sum,reduction,--shape 4,many,20,,\n"))


def test_parse__spaces_in_braces_and_a_remark__are_left_out() -> None:
    given = Parameters.parse("--field {8, 9} --batch-size 1024   (as coded in CMake)")
    assert given.values == {"field": "{8,9}", "batch-size": "1024"}


def test_parse__word_without_option__is_named() -> None:
    with pytest.raises(InvalidOptionError, match="'9' belongs to no option"):
        Parameters.parse("--field 8 9")
    with pytest.raises(InvalidOptionError, match="cannot be read: No closing quotation"):
        Parameters.parse("--name 'open")


@pytest.mark.parametrize(
    ("line", "read", "message"),
    [
        ("--kernel {3,3}", lambda p: p.per_dim("kernel", 3, 1), "--kernel has 2 numbers"),
        ("--m {3,3}", lambda p: p.integer("m"), "--m takes a whole number"),
        ("--m 3", lambda p: p.required("k"), "--k is missing"),
        ("--m 3", lambda p: p.shape("field"), "--field is missing"),
        ("--bias maybe", lambda p: p.flag("bias"), "--bias takes true or false, got 'maybe'"),
        ("--phase none", lambda p: p.choice("phase", "fwd", "fwd", "all"), "--phase takes fwd, all, got 'none'"),
        ("--options [1]", lambda p: p.mapping("options"), "--options takes a JSON object"),
        ("--options {", lambda p: p.mapping("options"), "--options takes a JSON object"),
    ],
)
def test_parameters__value_that_an_option_does_not_take__names_it(
    line: str, read: Callable[[Parameters], object], message: str
) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        read(Parameters.parse(line))


def test_parameters__values__are_read_in_every_spelling() -> None:
    given = Parameters.parse("""--kernel 3 --bias NO --on Yes --phase ALL --options '{"partialsType": "half"}'""")
    assert given.per_dim("kernel", 2, 1) == (3, 3)
    assert given.per_dim("stride", 2, 1) == (1, 1)
    assert not given.flag("bias", default=True)
    assert given.flag("on")
    assert given.choice("phase", "fwd", "fwd", "all") == "all"
    assert given.mapping("options") == {"partialsType": "half"}
    assert given.mapping("others") == {}


def test_understood__spellings_and_beginnings__lead_to_one_name() -> None:
    given, left_out = understood("conv", Parameters.parse("--groups 4 --input-chan 8 --seed 3 --padd 1 --colour red"))
    assert given.values == {"conv-groups": "4", "input-channels": "8", "seed": "3"}
    assert left_out == ("padd", "colour")


@pytest.mark.parametrize("kind", tools.names())
def test_known_options__every_kind_of_operator__has_its_own(kind: str) -> None:
    assert len(known_options(kind)) > len(known_options(""))


def test_read_rows__no_figures_at_all__rows_are_read(tmp_path: Path) -> None:
    text = 'name,tool,params\nsum,reduction,"--shape {4,10} --dims 0"\nodd,reduction,4\n'
    rows = read_rows(written(tmp_path / "a.csv", text))
    assert [r.references for r in rows] == [{}, {}]
    assert rows[0].parameters.integers("shape") == (4, 10)
    assert "InvalidOptionError" in rows[1].unread


def test_read_rows__side_of_a_solver__is_in_its_name_unless_given(tmp_path: Path) -> None:
    text = "name,tool,params\na_right,matrix_solver,--a-rank 4\nb_right,matrix_solver,--a-rank 4 --left-side true\n"
    first, second = read_rows(written(tmp_path / "a.csv", text))
    assert not first.parameters.flag("left-side", default=True)
    assert second.parameters.flag("left-side")


def test_read_rows__no_file__says_so(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"there is no file .*b\.csv"):
        read_rows(tmp_path / "b.csv")


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
