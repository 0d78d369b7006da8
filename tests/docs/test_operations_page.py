"""The page of operations: its program runs, and its table is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from abele.expr import POPOPS, TABLE
from support.pages import load_script

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "operations.md"


def test_page__tables__are_what_the_script_writes() -> None:
    assert load_script(DOCS / "make_operations.py").page() == PAGE.read_text(encoding="utf-8"), (
        "python docs/make_operations.py writes it anew"
    )


def test_page__program__prints_what_its_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    try:
        exec(compile(code, str(PAGE), "exec"), {})
        assert capsys.readouterr().out.strip() == re.findall(r"print.*# (.*)", code)[0]
    finally:
        for table in (TABLE, POPOPS):
            table.pop("softsign", None)
