"""The page of library vertices: its program runs, and its tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.pages import load_script

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "library_vertices.md"


def test_page__tables__are_what_the_script_writes() -> None:
    assert load_script(DOCS / "make_library_vertices.py").page() == PAGE.read_text(encoding="utf-8"), (
        "python docs/make_library_vertices.py writes it anew"
    )


def test_page__program__prints_what_its_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"# (.*)", code)
