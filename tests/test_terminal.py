"""The terminal: text of files and users is shown there, not obeyed, whatever the characters that it has."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table
from rich.text import Text

import abele as ab
from abele import f32, terminal
from abele.errors import FileFormatError
from abele.report import CATEGORIES, GROUPS, LIVENESS, OPS, RUNS, SPANS, STEPS, VARIABLES, Memory, Report
from abele.report.file import program_tiles_of

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt\u2066\r\n[/nope][red]gone[/red]:smiley:\ud800"
OBEYED = ("\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\r")


def evil_report(name: str = EVIL.replace("\ud800", "")) -> Report:
    steps = STEPS.table(name=[name], kind=["compute"], op=[0], cycles=[100], compute_cycles=[100], start_cycle=[0])
    groups = GROUPS.table(name=[name, "b" + name], tiles=[1, 1], busy_cycles=[100, 9], end_cycle=[100, 9])
    return Report(
        target={"name": name, "title": name, "ipu": name, "num_ipus": 1, "num_tiles": 2, "clock_hz": 1e9},
        graph={"num_" + name: 3},
        steps=steps,
        ops=OPS.table(name=[name], path=[name], file=[name], kind=[name], line=[3], cycles=[100], compute_cycles=[100]),
        memory=Memory(np.ones((1, 2), np.int64), 100, (name,)),
        variables=VARIABLES.table(name=[name]),
        liveness=LIVENESS.empty(),
        program_tiles=program_tiles_of(np.array([100, 50])),
        runs=RUNS.table(name=[name], mode=[name]),
        groups=groups,
        spans=SPANS.table(group=[0, 1], step=[0, 0], cycles=[100, 9]),
        meta={"name": name, "step_name": name, "sample_name": name, "samples_per_run": 4},
    )


def command(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "100", **environment}
    code = "from abele.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, env=settings, check=False
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evil") / "report"
    evil_report().save(path)
    return path


def test_visible_text__control_characters__are_replaced_and_lines_kept() -> None:
    shown = terminal.visible_text("a\x1b[2J\tb\nc\u202e\x9b")
    assert shown == "a\ufffd[2J\tb\nc\ufffd\ufffd"
    assert terminal.visible_text("µ → ×\n") == "µ → ×\n"


def test_plain_text__signs_and_letters__become_ascii() -> None:
    assert terminal.plain_text("3 × 4 µs → 5 ≥ … é", "ascii") == "3 x 4 us -> 5 >= ... \\xe9"


def test_console__names_with_markup_and_escapes__shows_them() -> None:
    out = io.StringIO()
    console = terminal.console(file=out, force_terminal=True, color_system=None, width=200)
    table = Table(title=EVIL, caption=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    table.add_row(Text(EVIL))
    console.print(table)
    console.print(EVIL)
    text = out.getvalue()
    assert not any(sign in text for sign in OBEYED)
    assert text.count("[/nope][red]gone[/red]:smiley:") == 6


def test_summary__names_that_a_terminal_obeys__are_shown() -> None:
    report = evil_report()
    text = report.summary() + report.timeline_text(400) + repr(report)
    assert not any(sign in text for sign in OBEYED)
    assert "[/nope][red]gone" in text


def test_report_command__names_that_a_terminal_obeys__are_shown(saved: Path) -> None:
    done = command("report", saved)
    assert done.returncode == 0, done.stderr
    assert not any(sign in done.stdout for sign in OBEYED)
    assert "[/nope]" in done.stdout
    plain = command("report", saved, "--json").stdout
    assert plain.isascii()
    assert "\x1b" not in plain


def test_report_command__terminal_with_ascii_alone__shows_plain_signs(saved: Path) -> None:
    done = command("report", saved, PYTHONIOENCODING="ascii", LANG="C", LC_ALL="C", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "compute" in done.stdout


def test_summary__printed_where_ascii_is_all__has_plain_signs(saved: Path) -> None:
    code = f"from abele.report import Report; print(Report.load({str(saved)!r}).summary())"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 us" not in done.stdout or done.stdout.isascii()
    assert "mean tile" in done.stdout


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_command__error_about_a_name_that_a_terminal_obeys__is_shown(encoding: str) -> None:
    done = command("systems", "bow\x1b[2Jé\u202e", PYTHONIOENCODING=encoding)
    assert done.returncode == 2
    assert done.stderr.startswith("abele: ")
    assert not any(sign in done.stderr for sign in OBEYED)


def test_print_tensor__title_that_a_terminal_obeys__is_shown() -> None:
    graph = ab.Graph("bow")
    x = graph.variable(f32, (2,), name="x", initial=1).map(0)
    engine = ab.Engine(graph, ab.PrintTensor(x, EVIL))
    engine.print_stream = out = io.StringIO()
    engine.run()
    assert "[/nope][red]gone" in out.getvalue()
    assert not any(sign in out.getvalue() for sign in OBEYED)


def test_load__categories_of_the_memory__may_have_any_name(saved: Path) -> None:
    loaded = Report.load(saved)
    assert loaded.memory.categories[0] not in CATEGORIES
    with pytest.raises(FileFormatError, match="cannot be written"):
        evil_report(EVIL).save(saved.with_name("surrogate"))
