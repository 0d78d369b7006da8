"""``abele report --sql``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from abele.report import VARIABLES
from pva.kit import bare_report

pytest.importorskip("duckdb", reason="needs DuckDB")

Run = Callable[..., Any]
NAMES = ["w", 'a "b", c', "\x1b[31mred", "[bold]x"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of four variables."""
    path = tmp_path_factory.mktemp("reports") / "v.abele-report"
    bare_report(variables=VARIABLES.table(name=NAMES, bytes=[4000, 3, 2, 1])).save(path)
    return str(path)


def test_report__sql__prints_a_table(abele: Run, file: str) -> None:
    done = abele("report", file, "--sql", "select name, bytes, null as none, 0.25 as part from variables order by id")
    head, *lines = done.out.splitlines()
    assert done.status == 0
    assert head.split() == ["name", "bytes", "none", "part"]
    assert lines[0].split() == ["w", "4,000", "–", "0.25"]
    assert "\x1b" not in done.out
    assert "[bold]x" in done.out


def test_report__sql_with_top__prints_so_many_rows_and_says_how_many_more(abele: Run, file: str) -> None:
    done = abele("report", file, "--sql", "select id from variables order by id", "--top", "3")
    assert done.out.split() == ["id", "0", "1", "2"]
    assert done.err.strip() == "1 row more: --top, --csv or --json"


def test_report__sql_as_json__is_a_list_of_objects(abele: Run, file: str) -> None:
    text = "select name, bytes, null as a, 'nan'::double as b, bytes > 2 as c from variables order by id"
    found = json.loads(abele("report", file, "--sql", text, "--json").out)
    assert [row["name"] for row in found] == NAMES
    assert found[0] == {"name": "w", "bytes": 4000, "a": None, "b": None, "c": True}


def test_report__sql_as_csv__is_read_back(abele: Run, file: str) -> None:
    done = abele(
        "report", file, "--sql", "select name, bytes, null as a from variables order by id", "--csv", "--top", "1"
    )
    found = list(csv.reader(io.StringIO(done.out)))
    assert found == [
        ["name", "bytes", "a"],
        *([name, str(b), ""] for name, b in zip(NAMES, [4000, 3, 2, 1], strict=True)),
    ]
    assert done.err == ""


def test_report__sql_without_rows__prints_the_names(abele: Run, file: str) -> None:
    assert abele("report", file, "--sql", "select id, name from ops").out.split() == ["id", "name"]
    assert abele("report", file, "--sql", "select id, name from ops", "--csv").out == "id,name\n"
    assert json.loads(abele("report", file, "--sql", "select id, name from ops", "--json").out) == []


def test_report__sql_that_is_wrong__says_what_there_is(abele: Run, file: str) -> None:
    done = abele("report", file, "--sql", "select nam from variables")
    assert done.status == 2
    assert done.out == ""
    assert done.err.startswith('abele: QueryError: Referenced column "nam" not found')
    assert "try      did you mean name?" in done.err


QUERY = ("--sql", "from ops")


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--csv",), "--csv is for the answer to a query"), ((*QUERY, "--csv", "--json"), "two forms")],
)
def test_report__forms_that_do_not_go_together__are_refused(
    abele: Run, file: str, options: tuple[str, ...], message: str
) -> None:
    done = abele("report", file, *options)
    assert done.status == 2
    assert message in done.err


def test_report__sql_of_no_report__says_so(abele: Run, tmp_path: Path) -> None:
    done = abele("report", str(tmp_path / "none"), "--sql", "select 1")
    assert done.status == 2
    assert "FileFormatError" in done.err
