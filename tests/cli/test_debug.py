"""``abele debug``: the session in the documents, and what a user may get wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from abele.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def abele(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit status of the command."""
    monkeypatch.setattr("sys.argv", ["abele", *arguments])
    try:
        main()
    except SystemExit as exit_:
        return int(exit_.code or 0)
    return 0


def documented() -> tuple[str, str]:
    page = (ROOT / "docs" / "debugger.md").read_text(encoding="utf-8")
    program = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0]
    session = next(b for b in re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL) if "(abele)" in b)
    return program, session


def test_debug__recorded_session__goes_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, session = documented()
    monkeypatch.chdir(tmp_path)
    Path("normalise.py").write_text(program, encoding="utf-8")
    commands = [line.removeprefix("(abele) ") for line in session.splitlines() if line.startswith("(abele) ")]
    Path("commands").write_text("\n".join(commands) + "\n", encoding="utf-8")
    assert abele(monkeypatch, "debug", "--commands", "commands", "normalise.py") == 0
    cycles = re.compile(r"[\d,]+ cycles|cycle [\d,]+")
    shown = capsys.readouterr().out
    assert cycles.sub("", shown).split() == cycles.sub("", session).split()


def test_debug__another_run__is_the_one_that_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, _ = documented()
    monkeypatch.chdir(tmp_path)
    Path("twice.py").write_text(program.replace("engine.run()", "engine.run()\nengine.run()"), encoding="utf-8")
    Path("commands").write_text("print x[0, 3]\nquit\n", encoding="utf-8")
    assert abele(monkeypatch, "debug", "--run", "2", "--commands", "commands", "twice.py") == 0
    assert capsys.readouterr().out.count("(abele) print") == 1


def test_debug__program_without_a_run__is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.py").write_text("import sys\nprint(sys.argv[1:])\n", encoding="utf-8")
    assert abele(monkeypatch, "debug", "empty.py", "--depth", "3") == 0
    captured = capsys.readouterr()
    assert "['--depth', '3']" in captured.out
    assert "called engine.run 0 times" in captured.err


def test_debug__no_such_file__is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert abele(monkeypatch, "debug", "nowhere.py") == 2
    assert "there is no file nowhere.py" in capsys.readouterr().err
