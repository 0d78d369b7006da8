"""Report files from version 3 on: arrays lie in the file as they lie in memory, read when asked for."""

from __future__ import annotations

import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from abele.errors import FileFormatError
from abele.report import RUNS, Report, file
from abele.report.archive import ALIGNMENT


def data_offset(path: Path, member: str) -> int:
    """Offset of a member's contents in the file."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(member)
    with path.open("rb") as stream:
        stream.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", stream.read(4))
    return info.header_offset + 30 + name + extra


def test_save__arrays__are_uncompressed_and_aligned(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "r"
    report.save(path)
    with zipfile.ZipFile(path) as archive:
        arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        assert archive.testzip() is None
    assert len(arrays) > 80
    assert {info.compress_type for info in arrays} == {zipfile.ZIP_STORED}
    assert {data_offset(path, info.filename) % ALIGNMENT for info in arrays} == {0}
    loaded = Report.load(path).steps["cycles"]
    assert loaded.ctypes.data % ALIGNMENT == 0
    assert loaded.tolist() == report.steps["cycles"].tolist()


def test_save__twice__gives_equal_files(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "a")
    report.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def spoilt(path: Path, member: str, at: int = 128) -> Path:
    """The file with a byte of a member's contents changed."""
    content = bytearray(path.read_bytes())
    content[data_offset(path, member) + at] ^= 0x55
    path.write_bytes(content)
    return path


@pytest.fixture
def lazy(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A saved report that counts as a large one."""
    monkeypatch.setattr(file, "SMALL_BYTES", 0)
    report.save(tmp_path / "large")
    return tmp_path / "large"


def test_load__large_file_with_a_damaged_column__reads_the_others_and_names_that_one(
    report: Report, lazy: Path
) -> None:
    loaded = Report.load(spoilt(lazy, "steps/tile_balance.npy"))
    assert loaded.steps["name"].tolist() == report.steps["name"].tolist()
    assert loaded.summary() == report.summary()
    with pytest.raises(FileFormatError, match="large: the report is damaged") as caught:
        loaded.steps["tile_balance"]
    assert "steps/tile_balance.npy" in str(caught.value)
    assert "checksum" in str(caught.value)


@pytest.mark.parametrize("member", ["steps/tile_balance.npy", "steps/name_words.npy", "variable_tiles/bytes.npy"])
def test_load__small_file_with_a_damaged_column__is_refused_at_once(
    report: Report, tmp_path: Path, member: str
) -> None:
    report.save(tmp_path / "small")
    with pytest.raises(FileFormatError, match="the report is damaged"):
        Report.load(spoilt(tmp_path / "small", member))


def test_load__large_file_replaced_while_in_use__keeps_what_it_was(report: Report, lazy: Path) -> None:
    loaded = Report.load(lazy)
    report.with_meta(name="another").with_run(name="r").save(lazy)
    assert loaded.to_json() == report.to_json()
    assert Report.load(lazy).meta["name"] == "another"


def test_load__large_file__makes_no_column_before_it_is_asked_for(report: Report, tmp_path: Path) -> None:
    rows = 1_000_000
    large = replace(report, runs=RUNS.table(name=["r"] * rows, cycles=np.arange(rows)))
    large.save(tmp_path / "large")
    assert (tmp_path / "large").stat().st_size > file.SMALL_BYTES
    loaded = Report.load(tmp_path / "large")
    assert len(loaded.runs) == rows
    made = loaded.runs.columns._made  # type: ignore[attr-defined]
    assert set(made) == set()
    assert loaded.runs["cycles"][-1] == rows - 1
    assert set(made) == {"cycles"}
    tail = loaded.runs.select(slice(-2, None))
    assert tail["cycles"].tolist() == [rows - 2, rows - 1]
    assert set(made) == {"cycles"}


def test_load__directory_that_leads_elsewhere__is_refused(report: Report, lazy: Path) -> None:
    content = bytearray(lazy.read_bytes())
    with zipfile.ZipFile(lazy) as archive:
        offset = archive.getinfo("steps/cycles.npy").header_offset
    content[offset] = 0
    lazy.write_bytes(content)
    with pytest.raises(FileFormatError, match="the archive's directory does not lead to it"):
        Report.load(lazy)
