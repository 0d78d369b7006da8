"""The page on codelets: its code runs, and its tables say what the code does."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import abele as ab
from abele.codelet import CompiledCodelet, layouts, slots
from support.pages import ROOT, run_page

PAGE = (ROOT / "docs" / "codelets.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Definitions of the page's blocks, run in order."""
    return vars(run_page(ROOT / "docs" / "codelets.md", tmp_path_factory.mktemp("page")))


def test_page__codelets__run_and_cost_what_was_said(names: dict[str, Any]) -> None:
    engine = ab.Engine(names["graph"], ab.Execute(names["step"]))
    engine["x"] = engine["y"] = np.ones((8, 100))
    engine.run()
    np.testing.assert_array_equal(engine["y"], 3)
    assert engine.report.cycles().compute >= 6 * 500
    assert names["Scale"][ab.f16, 3].codelet.name == "Scale<half,3>"
    assert names["Add"].codelet.constraints[0].kind == "elem"


def test_page__table_of_layouts__has_their_bytes() -> None:
    for name, size in re.findall(r"`([A-Z_0-9]{4,})`(?:, `[A-Z_0-9]+`)* \| (\d)", PAGE):
        known = {**layouts.VECTOR_LAYOUTS, **layouts.LIST_LAYOUTS}[name if name != "SCALED_PTR" else "SCALED_PTR32"]
        assert known.bytes == int(size)
    assert f"{layouts.SHORT_SPAN.max_size:,} elements" in PAGE
    assert f"{slots.PRINT.main} slots" in PAGE


def test_page__table_of_native_code__names_what_there_is() -> None:
    table = PAGE[PAGE.index("## Native code, called directly") : PAGE.index("## The cache")]
    for name in re.findall(r"^\| `(\w+)", table, flags=re.MULTILINE):
        assert hasattr(CompiledCodelet, name)
