"""Report files: saving and loading is the identity, and nothing but a report loads."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import resource
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import FileFormatError
from abele.report import LIFETIMES, OPS, RUNS, Report, archive, file
from abele.report.file import portable_path
from support.earlier_reports import save_as


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
        FileFormatError, match=r"format version 99; this Abele reads up to version 12\n  try      install"
    ):
        Report.load(path)


def test_load__zip_bomb__is_refused_before_unpacking(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "KIND", replace(file.KIND, max_bytes=1000))
    with pytest.raises(FileFormatError, match="more than the 1,000 B that a report may hold"):
        Report.load(save_as(report, tmp_path / "packed", 2))


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
        ("memory/bytes.npy", pickle.dumps(Trap())),
        ("memory/bytes.npy", npy(np.zeros(3, np.int64))),
        ("memory/bytes.npy", npy(np.zeros((9, 8), np.float32))),
        ("memory/run_tiles.npy", npy(np.ones(7, np.int64))),
        ("steps/name_words.npy", npy(np.full(46, 255, np.uint8))),
        ("steps/name_ends.npy", npy(np.full(5, 1 << 40, np.int64))),
        ("steps/name_ends.npy", npy(np.array([3, 2, 1, 46], np.int64))),
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


# --- what a file may cost, and what it may hold ----------------------------------------------------------------------


def document_with(path: Path, meta: bytes) -> Path:
    """A report whose ``meta`` is a text."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(contents["report.json"]) | {"meta": "@"}
    contents["report.json"] = json.dumps(document).encode().replace(b'"@"', meta)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize(
    "meta",
    [
        b'{"x": [' + b"[]," * 8_000_000 + b"[]]}",
        b"[" * 20_000_000,
        b'{"a":' * 5_000_000,
        b'{"x": [' + b"1," * 12_000_000 + b"1]}",
    ],
    ids=["lists", "depth", "mappings", "numbers"],
)
def test_load__small_file_with_millions_of_values__is_refused_before_they_are_made(saved: Path, meta: bytes) -> None:
    hostile = document_with(saved, meta)
    assert hostile.stat().st_size < 250_000
    start, before = time.process_time(), peak_bytes()
    with pytest.raises(FileFormatError, match=r"report\.json"):
        Report.load(hostile)
    assert time.process_time() - start < 1.0
    assert peak_bytes() - before < 100 << 20


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.parametrize(
    ("entries", "part"),
    [
        ({"graph": {"num_steps": [3]}}, "graph"),
        ({"graph": {"num_steps": -1}}, "graph"),
        ({"graph": {"num_steps": 2**63}}, "graph"),
        ({"meta": {"samples_per_run": [8]}}, "meta"),
        ({"meta": {"steps_per_run": "two"}}, "meta"),
        ({"meta": {"compile_seconds": -1}}, "meta"),
        ({"meta": {"name": 3}}, "meta"),
        ({"meta": {"x": {"a": {"b": {"c": {"d": 1}}}}}}, "meta"),
        ({"memory": {"categories": ["a"], "available_bytes": 0}}, "memory"),
        ({"memory": {"categories": [1], "available_bytes": 10}}, "memory"),
        ({"words": {"steps": {"name": [1]}}}, "words"),
    ],
)
def test_load__entries_that_do_not_fit_the_schema__are_refused_by_name(
    saved: Path, entries: dict[str, object], part: str
) -> None:
    with pytest.raises(FileFormatError, match="the report is damaged") as caught:
        Report.load(header_with(saved, **entries))
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("member", "values"),
    [
        ("steps/cycles.npy", np.full(5, -1, np.int64)),
        ("steps/cycles.npy", np.full(5, (1 << 63) - 1, np.int64)),
        ("steps/executions.npy", np.full(5, 1 << 61, np.int64)),
        ("steps/op.npy", np.full(5, 9, np.int32)),
        ("steps/tile_balance.npy", np.full(5, np.nan)),
        ("steps/kind.npy", np.zeros((5, 1), np.int32)),
        ("liveness/step.npy", np.full(2, -1, np.int32)),
        ("memory/bytes.npy", np.full((9, 8), -1, np.int64)),
        ("memory/bytes.npy", np.zeros((9, 0), np.int64)),
        ("memory/run_tiles.npy", np.full(8, 1 << 50, np.int64)),
        ("memory/run_tiles.npy", np.zeros(8, np.int64)),
        ("program_tiles/first_tile.npy", np.array([0, 99], np.int32)),
        ("program_tiles/num_tiles.npy", np.array([9, 1], np.int32)),
        ("program_tiles/num_tiles.npy", np.array([0, 1], np.int32)),
        ("program_tiles/program.npy", np.array([1, 0], np.int32)),
        ("program_tiles/compute_cycles.npy", np.full(2, 1 << 60, np.int64)),
        ("phase_tiles/received_bytes.npy", np.full(4, -1, np.int64)),
        ("lifetimes/last_step.npy", np.array([1, 99], np.int32)),
    ],
)
def test_load__columns_that_do_not_fit_the_schema__are_refused_by_name(
    saved: Path, member: str, values: np.ndarray
) -> None:
    with pytest.raises(FileFormatError, match="the report is damaged") as caught:
        Report.load(rewritten(saved, **{member: npy(values)}))
    assert member.partition("/")[0].removesuffix(".npy") in str(caught.value)


def test_load__a_long_word_beside_many_rows__costs_what_it_holds(report: Report, tmp_path: Path) -> None:
    rows = 100_000
    runs = RUNS.table(name=["x" * 60_000] + ["y"] * (rows - 1), mode="native")
    replace(report, runs=runs).save(tmp_path / "long")
    before = peak_bytes()
    loaded = Report.load(tmp_path / "long")
    assert loaded.runs["name"][1] == "y"
    assert len(loaded.runs["name"][0]) == 60_000
    assert peak_bytes() - before < 200 << 20


def test_save__source_files__are_told_from_the_root_of_their_project(report: Report, tmp_path: Path) -> None:
    (tmp_path / "project" / "models").mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").touch()
    file = tmp_path / "project" / "models" / "net.py"
    ops = OPS.table(name=["a", "b"], file=[str(file), "<stdin>"], cycles=[1, 1])
    placed = replace(report, ops=ops, steps=report.steps.where("op", -1), lifetimes=LIFETIMES.empty())
    placed.save(tmp_path / "short")
    placed.save(tmp_path / "full", full_paths=True)
    assert Report.load(tmp_path / "short").ops["file"].tolist() == ["models/net.py", "<stdin>"]
    assert Report.load(tmp_path / "full").ops["file"].tolist() == [str(file), "<stdin>"]
    assert placed.ops["file"][0] == str(file)


def test_portable_path__files_of_the_package_and_of_libraries__keep_their_package() -> None:
    assert portable_path(np.__file__) == "numpy/__init__.py"
    assert portable_path(archive.__file__) == "abele/report/archive.py"
    assert portable_path("/nowhere/at/all/net.py") == "net.py"
    assert portable_path("models/net.py") == "models/net.py"
    assert portable_path("") == ""


def test_save__more_zeros_than_a_bomb_may_hold__can_be_loaded(report: Report, tmp_path: Path) -> None:
    kind = replace(file.KIND, free_bytes=1 << 16, ratio=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "KIND", kind)
        large = replace(report, runs=RUNS.table(name=["r"] * 20_000))
        large.save(tmp_path / "zeros")
        assert len(Report.load(tmp_path / "zeros").runs) == 20_000
