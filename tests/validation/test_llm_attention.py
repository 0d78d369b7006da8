"""Published times of attention over caches: how rows are read, and what the model makes of small and real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from abele.errors import FileFormatError
from abele.validation.llm import read_rows
from abele.validation.llm_attention import attention_rows, compare

ROW = {
    "source": "here",
    "chip": "Bow IPU 1.85 GHz",
    "n_chips": "1",
    "workload": "SparQ attention, KV in DDR",
    "setting": "decode attention, batch=1 heads=32 head_dim=128 seq=1024 r=16 k=64",
    "dtype": "fp16",
    "metric": "time per call",
    "value": "396.664",
    "unit": "us",
}


def test_compare__of_one_row_of_each_class__is_near_what_is_published_off_the_chip() -> None:
    setting = "decode attention, batch=1 heads=32 head_dim=128 seq=1024"
    rows = [
        ROW,
        {**ROW, "workload": "attention, KV in DDR", "setting": f"{setting} chunk=128", "value": "2558.22"},
        {**ROW, "workload": "attention, KV in SRAM", "setting": setting, "value": "20.8178"},
        {**ROW, "workload": "language model"},
        {**ROW, "chip": "A100"},
    ]
    made, failures = compare(attention_rows(rows))
    assert not failures
    errors = {c.key: abs(c.figures[0].error or 0) for c in made}
    assert errors["llm_attention_sparq"] < 0.1
    assert errors["llm_attention_streamed"] < 0.1
    # The published program of this one is not public; see the comparison's text.
    assert errors["llm_attention_tiles"] < 0.6


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"setting": "batch=1 heads=32 head_dim=128 seq=1024 r=16"}, "k missing"),
        ({"setting": "batch=0 heads=32 head_dim=128 seq=1024 r=16 k=2"}, "batch missing"),
        ({"value": "fast"}, "could not convert"),
        ({"value": "nan"}, "a time of nan us"),
        ({"unit": "hours"}, "known dtype and unit"),
        ({"dtype": "fp3"}, "known dtype and unit"),
    ],
)
def test_attention_rows__of_what_is_no_row__are_refused_by_line(change: dict[str, str], match: str) -> None:
    with pytest.raises(FileFormatError, match=match) as refused:
        attention_rows([{**ROW, "chip": "A100"}, {**ROW, **change}])
    assert "line 3" in str(refused.value)


def test_read_rows__of_a_file_with_ragged_lines__takes_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\ufeff" + ",".join(ROW) + "\n" + ",".join(f'"{v}"' for v in ROW.values()) + ",more,and more\nx\n")
    (row,) = attention_rows(read_rows(path))
    assert (row.positions, row.components, row.best, row.seconds) == (1024, 16, 64, pytest.approx(396.664e-6))


@pytest.mark.slow
def test_compare__of_what_does_not_fit__tells_so() -> None:
    row = {**ROW, "workload": "attention, KV in SRAM", "setting": "batch=64 heads=32 head_dim=128 seq=65536"}
    made, failures = compare(attention_rows([row]))
    assert not made
    assert failures[0].startswith("attention, KV in SRAM: batch 64, 65,536 positions: OutOfMemoryError")
