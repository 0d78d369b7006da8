"""Quotes of the page about insights are output of its snippets."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pages import ROOT, blocks, run_page

PAGE = ROOT / "docs" / "insights.md"


def test_insights_page__each_quoted_line__is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE, tmp_path)
    printed = [" ".join(line.split("  (")[0].split()) for line in capsys.readouterr().out.splitlines()]
    quoted = [line for block in blocks(PAGE) if block.language == "text" for line in block.code.splitlines()]
    # Lines end where the page leaves something out, and sources are called after the file that is run.
    told = [" ".join(line.split("…")[0].split("  (")[0].split()) for line in quoted]
    assert len([line for line in told if line]) > 12
    for line in told:
        assert any(found.startswith(line) for found in printed), line
