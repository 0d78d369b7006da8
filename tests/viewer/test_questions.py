"""Every question of the page, asked with parameters of no page, about reports of no compiler."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from abele.errors import AbeleError, FileFormatError
from abele.report import Report
from abele.report import file as report_file
from abele.report.schema import TABLES
from abele.report.text_column import Text
from abele.viewer.answers import QUESTIONS, answer
from abele.viewer.open_reports import Opened, Shelf
from abele.viewer.params import Params
from abele.viewer.wire import pack
from support import sweeps

Damage = Callable[[Path, str], bool]

MOST_BYTES = 32 << 20
MOST_SECONDS = 3.0
ODD = (
    "-1", "0", "1", "2", "7", "-0.5", "1e308", "-1e308", "1e-308", "NaN", "inf", "-Infinity", "9007199254740993",
    "4294967296", "99999999999999999999999999", "0x10", "1_000", "²", "", " ", ",", ",,,", "1,2,3", "0-3", "3-0",
    "-5--1", "0-99999999999", "0-94207", "1,0,1,0", "x" * 5_000, "1," * 5_000, "name", "-name", "cycles", "-cycles",
    "steps", "all", "none", "true", "\x00", "<script>alert(1)</script>", "\u202e", "\ud800", "💩", "../../etc/passwd",
    "(a+)+$", "[", "*", "%s%n", "cycles>", ">1", "cycles>x", "name=\x00", "a" + "\u0301" * 500,
)  # fmt: skip


class Seen(Params):
    """Parameters that note their reads."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        self.names: set[str] = set()

    def text(self, name: str, default: str = "") -> str:
        self.names.add(name)
        return super().text(name, default)

    def real(self, name: str, default: float = 0.0) -> float:
        self.names.add(name)
        return super().real(name, default)

    def choice(self, name: str, choices: object, default: str | None = None) -> str:
        self.names.add(name)
        return super().choice(name, choices, default)  # type: ignore[arg-type]


def ask(opened: Opened, name: str, params: Mapping[str, str]) -> set[str]:
    """Ask, hold the answer against what every answer must be, and return the parameters that were looked at."""
    seen, started = Seen(params), time.process_time()
    try:
        packed = pack(answer(opened, name, seen))
        assert len(packed) < MOST_BYTES, f"{name} {params}: {len(packed):,} bytes"
    except AbeleError:
        pass
    took = time.process_time() - started
    assert took < MOST_SECONDS, f"{name} {params}: {took:.1f} s"
    return seen.names


def hostile(opened: Opened, name: str, odds: Sequence[str] = ODD) -> Iterator[dict[str, str]]:
    """Parameters of a question: none, what a static page asks, and odd ones, each alone and all at once."""
    known = list(QUESTIONS[name].frozen(opened))[:12] if QUESTIONS[name].frozen else []
    starts = [{}, *map(dict, known)]
    names: set[str] = set()
    for start in starts:
        names |= ask(opened, name, start) | set(start)
    yield from starts
    for start in starts[-1:]:
        for param in sorted(names):
            for odd in odds:
                yield {**start, param: odd}
    for odd in odds:
        yield dict.fromkeys(names, odd)


REPORTS = ("small", "tiny", "empty", "out_of_memory", "overfull")


@pytest.fixture(scope="module", params=REPORTS)
def opened(request: pytest.FixtureRequest, generators: ModuleType) -> Opened:
    report = overfull(generators.small()) if request.param == "overfull" else generators.MADE[request.param]()
    return next(iter(Shelf([report])))


def overfull(report: Report) -> Report:
    """A report with the largest numbers, and the oddest texts, that a file may hold."""
    tables: dict[str, Any] = {}
    for name, schema in TABLES.items():
        table = getattr(report, name)
        columns = {}
        for key, spec in schema.columns.items():
            held = table.columns[key]
            if isinstance(held, Text):
                words = tuple(f"</script>\x00\u202e{'/' * (i % 5)}{word}" for i, word in enumerate(held.words))
                columns[key] = held if spec.choices else Text(held.codes, words)
            elif spec.refers or key in ("program", "phase", "num_tiles", "num_groups", "superstep"):
                columns[key] = held
            elif held.dtype.kind == "i":
                largest = min((1 << 61) // (max(len(held), 1) * 10_000), np.iinfo(held.dtype).max // 4)
                columns[key] = np.full(len(held), largest, held.dtype)
            elif held.dtype.kind == "f":
                columns[key] = np.full(len(held), 1e12)
            else:
                columns[key] = held
        tables[name] = schema.table(**columns)
    return replace(report, **tables)


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_question__odd_parameters__are_answered_or_refused_in_words(
    opened: Opened, name: str, request: pytest.FixtureRequest
) -> None:
    """Each odd value of each parameter is asked about one of the reports."""
    first = REPORTS.index(request.node.callspec.params["opened"])
    for params in hostile(opened, name, ODD[first :: len(REPORTS)]):
        ask(opened, name, params)


@pytest.mark.slow
@pytest.mark.rest
@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_question__all_odd_parameters__are_answered_or_refused_in_words(opened: Opened, name: str) -> None:
    for params in hostile(opened, name):
        ask(opened, name, params)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_question__of_a_pod__is_bounded(pod64: Report, name: str) -> None:
    opened = next(iter(Shelf([pod64])))
    for params in hostile(opened, name, sweeps.sampled(ODD, len(ODD) // 5)):
        ask(opened, name, params)


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_question__asked_with_what_a_static_page_holds__is_answered_alike_twice(opened: Opened, name: str) -> None:
    frozen = QUESTIONS[name].frozen
    for params in [] if frozen is None else list(frozen(opened))[:20]:
        try:
            first = pack(answer(opened, name, Params(params)))
        except AbeleError:
            continue
        assert pack(answer(opened, name, Params(params))) == first


def column_names() -> list[str]:
    return [f"{name}/{key}" for name, schema in TABLES.items() for key in schema.columns]


@pytest.mark.slow
@pytest.mark.rest
@pytest.mark.parametrize("column", column_names())
def test_question__about_a_file_with_a_damaged_column__names_it_or_does_without(
    column: str, made_small: Report, tmp_path: Path, damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_file, "SMALL_BYTES", 0)
    path = tmp_path / "damaged.abele-report"
    made_small.save(path)
    if not len(getattr(made_small, column.split("/")[0])):
        pytest.skip("the made-up report has no such rows")
    assert damage(path, column)
    opened = next(iter(Shelf([path])))
    answer(opened, "facts", Params({}))
    told: list[FileFormatError] = []
    for question in QUESTIONS.values():
        asked: list[Mapping[str, str]] = [{}]
        try:
            asked += [] if question.frozen is None else list(question.frozen(opened))[:3]
            for params in asked:
                pack(question.answer(opened, Params(params)))
        except FileFormatError as error:
            told.append(error)
        except AbeleError:
            pass
    assert all(column in str(error.at) for error in told)
    table, key = column.split("/")
    with pytest.raises(FileFormatError, match="damaged"):
        answer(opened, "table", Params({"of": table, "columns": key}))


@pytest.mark.parametrize("name", ["facts", "program", "exchanges", "insights", "timeline.outline", "timeline.summary"])
def test_question__about_a_program_with_a_huge_number__takes_no_room_for_those_before_it(
    made_small: Report, name: str
) -> None:
    columns = {column: made_small.steps.columns[column] for column in made_small.steps.names}
    columns["program"] = columns["program"].copy()
    columns["program"][-1] = 2_000_000_000
    opened = Opened("huge", "huge", replace(made_small, steps=type(made_small.steps)(columns)))
    frozen = QUESTIONS[name].frozen
    assert frozen is not None
    tracemalloc.start()
    for given in islice(frozen(opened), 4):
        ask(opened, name, dict(given))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 << 20
