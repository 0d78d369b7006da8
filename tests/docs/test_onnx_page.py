"""The table of ONNX operators is that of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pages import load_script

onnx = pytest.importorskip("onnx", reason="needs onnx")

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_page__of_operators__is_what_the_script_writes() -> None:
    written = load_script(DOCS / "make_onnx_operators.py")
    if onnx.defs.onnx_opset_version() != written.NEWEST:
        pytest.skip(f"the page is of opset {written.NEWEST}")
    assert written.page() == (DOCS / "onnx_operators.md").read_text(encoding="utf-8"), (
        "python docs/make_onnx_operators.py writes it anew"
    )
