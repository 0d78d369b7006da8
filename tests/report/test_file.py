"""Report files: saving and loading is the identity, and nothing but a report loads."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import FileFormatError
from abele.report import Report, file


@pytest.fixture
def saved(report: Report, tmp_path: Path) -> Path:
    path = tmp_path / "toy.abele"
    report.save(path)
    return path


def rewritten(path: Path, **members: bytes) -> Path:
    """The file with some members replaced."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents |= members
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


def header_with(path: Path, **entries: object) -> Path:
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("report.json"))
    return rewritten(path, **{"report.json": json.dumps(header | entries).encode()})


def test_save_and_load__any_report__is_the_identity(report: Report, tmp_path: Path) -> None:
    report = report.with_run(name="train", mode="native", wall_seconds=0.5)
    report.save(tmp_path / "a.abele")
    again = Report.load(tmp_path / "a.abele")
    assert again.to_json() == report.to_json()
    assert again.summary() == report.summary()
    assert [p.name for p in tmp_path.iterdir()] == ["a.abele"]


def test_save__interrupted__leaves_the_old_file(report: Report, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(file, "_write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        report.save(saved)
    assert saved.read_bytes() == before
    assert len(list(saved.parent.iterdir())) == 1


def test_save__folder_missing__says_so(report: Report, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot be written: No such file"):
        report.save(tmp_path / "nowhere" / "a.abele")


def test_load__missing_file__says_so(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"b\.abele: No such file"):
        Report.load(tmp_path / "b.abele")


def test_load__truncated__says_damaged_or_cut_short(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(FileFormatError, match="damaged or cut short"):
        Report.load(saved)


def test_load__something_else__is_not_a_report(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("hello")
    with pytest.raises(FileFormatError, match="not an Abele report"):
        Report.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello", "hello")
    with pytest.raises(FileFormatError, match=r"the archive holds no report\.json"):
        Report.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("report.json", "{}")
    with pytest.raises(FileFormatError, match="not an Abele report"):
        Report.load(path)


def test_load__newer_version__says_to_update(saved: Path) -> None:
    path = header_with(saved, version=99)
    with pytest.raises(
        FileFormatError, match=r"format version 99; this Abele reads up to version 2\n  try      install"
    ):
        Report.load(path)


def test_load__zip_bomb__is_refused_before_unpacking(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "KIND", replace(file.KIND, max_bytes=1000))
    with pytest.raises(FileFormatError, match="more than the 1,000 B that a report may hold"):
        Report.load(saved)


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=(1, 0))
    return stream.getvalue()


def huge() -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<i8", "fortran_order": False, "shape": (1 << 50,)})
    return stream.getvalue()


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize(
    ("member", "data"),
    [
        ("memory.npy", pickle.dumps(Trap())),
        ("memory.npy", npy(np.zeros(3, np.int64))),
        ("memory.npy", npy(np.zeros((9, 8), np.float32))),
        ("steps/cycles.npy", npy(np.zeros(1, np.int64))),
        ("steps/cycles.npy", huge()),
        ("steps/name.npy", npy(np.full(5, 77, np.int32))),
        ("steps/name.npy", npy(np.full(5, -1, np.int32))),
        ("steps/name.npy", b""),
        ("report.json", b'{"format": "abele-report", "version": 1}'),
        ("report.json", b"[" * 100_000),
        ("report.json", b"\xff"),
    ],
)
def test_load__damaged_member__is_a_damaged_report(saved: Path, member: str, data: bytes) -> None:
    path = rewritten(saved, **{member: data})
    with pytest.raises(FileFormatError, match="the report is damaged"):
        Report.load(path)


def test_load__target_without_clock__is_a_damaged_report(saved: Path) -> None:
    path = header_with(saved, target={"name": "x"})
    with pytest.raises(FileFormatError, match="missing required field `title`"):
        Report.load(path)


@given(data=st.data())
def test_load__any_flipped_bytes__loads_or_raises_a_file_error(
    data: st.DataObject, report: Report, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.abele"
    report.save(path)
    content = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    with contextlib.suppress(FileFormatError):
        Report.load(path)
