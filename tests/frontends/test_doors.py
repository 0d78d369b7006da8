"""One network by PyTorch, an ONNX file, PopART's builder and PopXL: one cost, one result."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("onnx", reason="needs onnx")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(3), ids=["perceptron", "convolutions", "transformer"])
def test_network__through_four_doors__has_one_cost_and_one_result(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import doors

    rows = doors.through_doors(doors.networks()[number])
    assert [row.door for row in rows] == ["PyTorch", "ONNX", "PopART", "PopXL"]
    for row in rows:
        assert row.holds, row
        assert row.error < 1e-5, row
