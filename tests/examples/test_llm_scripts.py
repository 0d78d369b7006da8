"""Language models of the examples: their figures on fewer documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pages import load_script

pytest.importorskip("torch")
SCRIPT = Path(__file__).parents[2] / "examples" / "llm" / "adapters.py"
pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_adapters__a_few_documents__make_what_is_held_out_likelier(capsys: pytest.CaptureFixture[str]) -> None:
    tuned = load_script(SCRIPT, "llm_adapters").main(updates=10, documents=120, length=64)
    assert tuned.after < tuned.before
    assert tuned.trained < 0.05 * tuned.frozen
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("all weights: 10 updates")
    assert second.endswith(f"{tuned.before:.3f} → {tuned.after:.3f}")
