"""Queries in SQL: answers, what is refused, what is bounded."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from abele.errors import MissingPackageError, QueryError
from abele.report import SPANS, VARIABLES, Memory, Report
from abele.report.query import MOST_ROWS, table_columns
from abele.report.schema import TABLES

duckdb = pytest.importorskip("duckdb", reason="needs DuckDB")


def rows(report: Report, text: str, **limits: float) -> list[dict[str, object]]:
    return list(report.sql(text, **limits).rows())  # type: ignore[arg-type]


@pytest.mark.parametrize("table", TABLES)
def test_sql__each_table_whole__is_the_reports(report: Report, overlapped: Report, table: str) -> None:
    for each in (report, overlapped):
        held = getattr(each, table)
        found = each.sql(f"select * from {table} order by id")
        assert found.names == ("id", *held.names)
        assert found["id"].tolist() == list(range(len(held)))
        for name in held.names:
            assert found[name].tolist() == held[name].tolist()
            if len(held) and held[name].dtype != object:
                assert found[name].dtype == held[name].dtype


def test_sql__memory_and_target__are_tables_too(report: Report) -> None:
    found = report.sql("from memory order by tile")
    assert found["total_bytes"].tolist() == report.memory.by_tile.tolist()
    for place, name in enumerate(report.memory.categories):
        assert found[name].tolist() == report.memory.bytes[place].tolist()
    (clock,) = rows(report, "select value from target where name = 'clock_hz'")
    assert float(str(clock["value"])) == report.target["clock_hz"]


def test_sql__join_over_rows__follows_what_columns_refer_to(report: Report) -> None:
    found = rows(
        report,
        "select o.name, sum(s.cycles * s.executions) as cycles from steps s join ops o on s.op = o.id"
        " group by o.name order by o.name",
    )
    assert found == [{"name": "conv", "cycles": 1000}, {"name": "loss", "cycles": 200}]
    assert [row["cycles"] for row in found] == report.ops["cycles"].tolist()


def test_sql__sum_beyond_a_float__is_exact() -> None:
    most = (1 << 60) + 1
    report = _with_variables(bytes=[most, 2])
    (row,) = rows(report, "select sum(bytes) as total from variables")
    assert row["total"] == most + 2
    assert report.sql("select sum(bytes) from variables")[("sum(bytes)")].dtype == np.int64


def test_sql__types__become_those_of_arrays(report: Report) -> None:
    found = report.sql("select 1.5 as a, true as b, [1, 2] as c, date '2026-01-02' as d, 1 as a, avg(2) as e, 'x' as f")
    assert {name: found[name].tolist() for name in found.names} == {
        "a": [1.5], "b": [True], "c": ["[1, 2]"], "d": ["2026-01-02"], "a_2": [1], "e": [2.0], "f": ["x"],
    }  # fmt: skip
    assert found["b"].dtype == bool


def test_sql__no_value__is_none_or_nan(report: Report) -> None:
    found = report.sql("select null as a, null::int as b, null::double as c, sum(id) as d from ops where id > 99")
    assert found["a"].tolist() == found["b"].tolist() == found["d"].tolist() == [None]
    assert np.isnan(found["c"]).all()


def test_sql__order_of_rows__is_that_of_the_query() -> None:
    report = _with_variables(bytes=np.arange(200_000) * 7919 % 200_003)
    found = report.sql("select id, bytes from variables order by bytes desc")
    assert (np.diff(found["bytes"]) < 0).all()
    assert report.sql("select id from variables")["id"].tolist() == list(range(200_000))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("select 1;", 1),
        ("select 1 -- of all", 1),
        ("FROM Steps", 5),
        ('select "group" from spans', 0),
        ("with a as (select 1 as x) select * from a", 1),
        ("select * from query_table('st' || 'eps')", 5),
        ("describe variables", 1 + len(VARIABLES.columns)),
        ("summarize variables;", 1 + len(VARIABLES.columns)),
        ("explain select * from ops", 1),
        ("show tables", len(TABLES) + 2),
        ("select distinct table_name from information_schema.columns", len(TABLES) + 2),
        ("values (1), (2)", 2),
    ],
)
def test_sql__forms_of_reading__answer(report: Report, text: str, count: int) -> None:
    assert len(report.sql(text)) == count


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("select nmae from variables", 'column "nmae" not found', "did you mean name?"),
        ("select v.nmae from variables v", 'column named "nmae"', "did you mean name?"),
        ("select zzzz from liveness", 'column "zzzz" not found', "liveness has id, step, live_bytes, max_tile_bytes"),
        ("select * from varables", "name varables does not exist", "did you mean variables?"),
        ("select * from elsewhere", "name elsewhere does not exist", "the tables are steps, ops, "),
        ("select group from spans", "syntax error", 'a column that is called like a word of SQL has quotes: "group"'),
        ("selec 1", 'syntax error at or near "selec"', None),
        ("", "the query is empty", "one statement, as in "),
        ("-- nothing", "the query is empty", "one statement, as in "),
        ("select 1; select 2", "2 statements", "one statement, as in "),
        ("select cast('x' as int)", "Could not convert", None),
        ("select 1::hugeint << 100", "out of range", None),
        ("select nosuch(1)", "nosuch does not exist", None),
    ],
)
def test_sql__mistakes__say_what_there_is(report: Report, text: str, message: str, remedy: str | None) -> None:
    with pytest.raises(QueryError, match=message) as error:
        report.sql(text)
    assert (error.value.remedy or "").startswith(remedy or "")
    assert (error.value.remedy is None) == (remedy is None)
    assert "\n" not in error.value.message


def test_sql__mistake_in_a_query__is_shown_in_its_place(report: Report) -> None:
    with pytest.raises(QueryError) as error:
        report.sql("select nmae\nfrom variables")
    assert error.value.at == "select nmae\n       ^^^^"
    with pytest.raises(QueryError) as error:
        report.sql("select name,\n  bytes fro variables")
    line, mark = (error.value.at or "").splitlines()
    assert line[mark.index("^") :].startswith("variables")
    with pytest.raises(QueryError) as error:
        report.sql("select " + "name, " * 200 + "nmae, " + "name, " * 200 + "name from variables")
    line, mark = (error.value.at or "").splitlines()
    assert line[mark.index("^") : mark.rindex("^") + 1] == "nmae"
    assert len(line) < 200


@pytest.mark.parametrize(
    "text",
    [
        "select * from read_csv('{file}')",
        "select * from read_text('{file}')",
        "select * from '{file}'",
        "select * from read_parquet('http://127.0.0.1:9/x.parquet')",
        "select * from glob('{folder}/*')",
        "select * from sniff_csv('{file}')",
        "copy ops to '{file}'",
        "export database '{folder}'",
        "attach '{file}' as other",
        "install httpfs",
        "load httpfs",
        "set threads = 8",
        "set enable_external_access = true",
        "reset lock_configuration",
        "pragma enable_profiling",
        "create table x as select 1",
        "drop table ops",
        "insert into ops select * from ops",
        "update ops set name = 'x'",
        "call pragma_version()",
        "prepare a as select 1",
        "select * from secret",
        "select getenv('HOME')",
    ],
)
def test_sql__anything_but_reading_the_report__is_refused(report: Report, tmp_path: Path, text: str) -> None:
    secret = [{"a": 1}]  # A variable of the program, which no query may name.
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(QueryError):
        report.sql(text.format(file=file, folder=tmp_path))
    assert file.read_text() == "a,b\n1,2\n"
    assert os.listdir(tmp_path) == ["x.csv"]
    assert secret == [{"a": 1}]


def test_sql__settings__are_those_that_keep_it_apart(report: Report) -> None:
    found = {row["name"]: row["value"] for row in rows(report, "select name, value from duckdb_settings()")}
    assert found["enable_external_access"] == "false"
    assert found["lock_configuration"] == "true"
    assert found["autoload_known_extensions"] == found["autoinstall_known_extensions"] == "false"
    assert found["temp_directory"] == ""
    assert found["threads"] == "2"


def test_sql__too_long__is_stopped(report: Report) -> None:
    begin = time.perf_counter()
    with pytest.raises(QueryError, match=r"took more than 0\.2 s"):
        report.sql("select count(*) from range(10000000000000)", seconds=0.2)
    assert time.perf_counter() - begin < 20
    assert rows(report, "select 1 as a", seconds=0.2) == [{"a": 1}]


@pytest.mark.parametrize(
    "text",
    [
        "select repeat('x', 100000) from range(100000)",
        "select list(r) from range(100000000) t(r)",
        "select r from range(1000000) t(r), range(1000) order by hash(r)",
    ],
)
def test_sql__too_much_memory__is_refused(report: Report, text: str) -> None:
    with pytest.raises(QueryError, match="needs more than 100,000,000 B of memory"):
        report.sql(text, memory_bytes=100_000_000)


def test_sql__too_many_rows__are_refused(report: Report) -> None:
    with pytest.raises(QueryError, match=f"the answer has {MOST_ROWS + 1:,} rows, more than {MOST_ROWS:,}"):
        report.sql(f"select r from range({MOST_ROWS + 1}) t(r)")


def test_sql__hostile_texts__come_back_as_text(report: Report, tmp_path: Path) -> None:
    odd = ["\x1b[2J", "'; drop table ops; --", "<script>", "a\0b", "", "\N{GRINNING FACE}", "x" * 60_000]
    _with_variables(name=odd, bytes=1).save(tmp_path / "r")
    loaded = Report.load(tmp_path / "r")
    assert loaded.sql("select name from variables order by id")["name"].tolist() == odd
    assert len(loaded.sql("from ops")) == len(report.ops) * 0


def test_sql__half_of_a_surrogate_pair__becomes_a_mark() -> None:
    assert _with_variables(name=["a\ud800"], bytes=1).sql("select name from variables")["name"].tolist() == ["a?"]


def test_sql__categories_that_clash__are_told_apart(report: Report) -> None:
    names = ("tile", "TILE", "total_bytes", "", 'a"b', "variables")
    memory = Memory(np.arange(48).reshape(6, 8), 1000, names)
    odd = replace(report, memory=memory)
    found = odd.sql("from memory order by 1")
    assert found.names == table_columns(odd)["memory"]
    assert len({name.casefold() for name in found.names}) == 8
    assert [found[name].tolist() for name in found.names[2:]] == memory.bytes.tolist()


def test_sql__of_a_mapped_file__reads_the_tables_that_are_named(report: Report, tmp_path: Path) -> None:
    from abele.report.file import load

    report.save(tmp_path / "r")
    loaded = load(tmp_path / "r", whole=False)
    assert loaded.sql("select sum(bytes) as n from variables")["n"].tolist() == [96]
    made = {name for name in TABLES if getattr(loaded, name).columns._made}  # type: ignore[attr-defined]
    assert made == {"variables"}


def test_sql__on_several_threads__answers_each(report: Report) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: rows(report, f"select {k} + count(*) as n from steps"), range(8)))
    assert [row[0]["n"] for row in found] == [k + 5 for k in range(8)]


def test_sql__without_duckdb__says_how_to_install_it(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingPackageError, match="queries in SQL need DuckDB") as error:
        report.sql("select 1")
    assert error.value.remedy == "pip install 'abele[sql]'"


def test_sql__interrupted_by_the_user__stops(tmp_path: Path) -> None:
    code = """
    import os, signal, threading
    from pva.kit import bare_report
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        bare_report().sql("select count(*) from range(100000000000000)")
    except KeyboardInterrupt:
        print("stopped")
    """
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    run = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(
        run, capture_output=True, text=True, check=False, timeout=50, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.stdout.strip() == "stopped", done.stderr


def test_sql__groups_of_spans__are_read_with_quotes(overlapped: Report) -> None:
    found = overlapped.sql(
        'select g.name, sum(s.cycles) as n from spans s join groups g on s."group" = g.id group by 1'
    )
    expected = {"IPU 0": 0, "io": 0}
    for row in overlapped.spans.rows():
        expected[("IPU 0", "io")[row["group"]]] += row["cycles"]
    assert dict(zip(found["name"].tolist(), found["n"].tolist(), strict=True)) == expected
    assert "group" in SPANS.columns


def _with_variables(**columns: object) -> Report:
    from pva.kit import bare_report

    return bare_report(variables=VARIABLES.table(**columns))
