"""Objects on disk: found again, kept to a limit, shared by processes, and removed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from abele.errors import InvalidOptionError
from abele.llvm import cache, cache_limit
from abele.llvm.cache import kept_choice, load_object, store_object
from abele.llvm.cache_limit import clear, entries, limit_bytes, parse_size, remove_oldest, usage

BLOCK = 4096


def key(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of 32 blocks at most."""
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ABELE_CACHE_LIMIT", str(32 * BLOCK))
    monkeypatch.setattr(cache_limit, "_stored_bytes", {})
    return tmp_path / "cache"


def stored(folder: Path, name: object, age_hours: float = 0.0) -> Path:
    """Store an object of one block that was last used so long ago; the file."""
    store_object(key(name), b"x" * 1000)
    path = folder / "objects" / key(name)[:2] / f"{key(name)}.o"
    if path.exists():
        used = time.time() - 3600 * age_hours
        os.utime(path, (used, used))
    return path


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("500 MB", 500_000_000), ("1.5GiB", 3 << 29), ("2g", 2_000_000_000), ("0", 0), ("64 KiB", 65536)],
)
def test_parse_size__numbers_with_units__are_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["much", "-1", "1 XB", "1e9", "nan"])
def test_limit__that_is_no_size__is_refused_by_name(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABELE_CACHE_LIMIT", text)
    with pytest.raises(InvalidOptionError, match=r"ABELE_CACHE_LIMIT = .*: not a size") as caught:
        store_object(key("a"), b"a")
    assert "500 MB" in str(caught.value)


def test_limit__left_out_or_none__is_a_gibibyte_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABELE_CACHE_LIMIT", raising=False)
    assert limit_bytes() == 1 << 30
    monkeypatch.setenv("ABELE_CACHE_LIMIT", "none")
    assert limit_bytes() is None


def test_store__more_than_the_limit__removes_what_was_not_used_for_longest(folder: Path) -> None:
    files = [stored(folder, i, age_hours=100 - i) for i in range(32)]
    assert all(file.exists() for file in files)
    newest = stored(folder, "new")
    assert newest.exists()
    left = [file.exists() for file in files]
    assert left == sorted(left)
    assert usage(folder).bytes <= 32 * BLOCK * 0.8 + BLOCK
    assert usage(folder).objects >= 24


def test_load__object_that_is_used__is_kept_before_newer_ones(folder: Path) -> None:
    old = stored(folder, "old", age_hours=500)
    for i in range(31):
        stored(folder, i, age_hours=100 - i)
    assert load_object(key("old")) == b"x" * 1000
    stored(folder, "new")
    assert old.exists()


def test_load__object_used_just_now__is_not_written_to(folder: Path) -> None:
    path = stored(folder, "a", age_hours=0.5)
    before = path.stat().st_mtime_ns
    assert load_object(key("a")) is not None
    assert path.stat().st_mtime_ns == before


def test_many_short_processes__each_storing_little__are_noticed_once_a_day(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABELE_CACHE_LIMIT", str(1 << 30))
    for i in range(64):
        stored(folder, i, age_hours=200 - i)
    monkeypatch.setenv("ABELE_CACHE_LIMIT", str(64 * BLOCK))
    monkeypatch.setattr(cache_limit, "_stored_bytes", {})
    stored(folder, "soon")
    assert usage(folder).objects == 65
    yesterday = time.time() - 100_000
    os.utime(folder / "looked-through", (yesterday, yesterday))
    monkeypatch.setattr(cache_limit, "_stored_bytes", {})
    stored(folder, "late")
    assert usage(folder).objects <= 52


def test_remove_oldest__two_processes_at_once__remove_no_more_than_one_would(folder: Path) -> None:
    for i in range(600):
        stored(folder, i, age_hours=2000 - i)
        cache_limit._stored_bytes.clear()
        (folder / "looked-through").touch()
    before = {e.path: e.used for e in entries(folder)}
    limit = len(before) * BLOCK // 2
    call = f"remove_oldest(Path({str(folder)!r}), {limit})"
    code = f"from pathlib import Path; from abele.llvm.cache_limit import remove_oldest; {call}"
    processes = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    left = {e.path for e in entries(folder)}
    assert len(left) == int(0.8 * limit) // BLOCK
    assert min(before[path] for path in left) > max(used for path, used in before.items() if path not in left)


def test_remove_oldest__files_of_others__are_neither_counted_nor_removed(folder: Path) -> None:
    stored(folder, "a")
    shard = folder / "objects" / key("a")[:2]
    foreign = [folder / "notes.txt", folder / "objects" / "readme", shard / "thesis.pdf", shard / f"{key('b')}.o.bak"]
    for path in foreign:
        path.write_bytes(b"y" * 10 * BLOCK)
    (folder / "objects" / "zz").mkdir()
    (shard / f"{key('link')}.o").symlink_to(foreign[0])
    (shard / f"{key('folder')}.o").mkdir()
    assert usage(folder).objects == 1
    assert remove_oldest(folder, 0).objects == 1
    assert clear(folder).objects == 0
    assert all(path.exists() for path in foreign)


def test_remove_oldest__unfinished_files__go_when_their_process_must_be_gone(folder: Path) -> None:
    stored(folder, "a")
    shard = folder / "objects" / key("a")[:2]
    old, new = shard / "tmpabcd1234", shard / "tmpefgh5678"
    for path, hours in ((old, 2), (new, 0)):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - 3600 * hours,) * 2)
    remove_oldest(folder, 10 * BLOCK)
    assert (old.exists(), new.exists()) == (False, True)


def test_clear__everything__leaves_no_folder_and_later_objects_are_kept(folder: Path) -> None:
    for i in range(10):
        stored(folder, i)
    removed = clear(folder)
    assert (removed.objects, removed.bytes, removed.left) == (10, 10 * BLOCK, 0)
    assert list((folder / "objects").iterdir()) == []
    assert stored(folder, 1).exists()


def test_clear__objects_that_cannot_be_removed__are_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(folder, "a")

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("abele.llvm.cache_limit.os.unlink", refuse)
    removed = clear(folder)
    assert (removed.objects, removed.left, removed.why) == (0, 1, "Permission denied")


def test_clear__one_object_that_cannot_be_removed__goes_on_with_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):
        stored(folder, i)
    unlink, asked = os.unlink, []

    def refuse_first(path: str) -> None:
        asked.append(path)
        if len(asked) == 1:
            raise PermissionError(13, "Permission denied", path)
        unlink(path)

    monkeypatch.setattr("abele.llvm.cache_limit.os.unlink", refuse_first)
    removed = clear(folder)
    assert (removed.objects, removed.bytes, removed.left) == (2, 2 * BLOCK, 1)
    assert usage(folder).objects == 1


@pytest.mark.parametrize("what", ["missing", "a file", "inside a file"])
def test_directory__that_cannot_be_used__costs_nothing_but_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    (tmp_path / "file").write_text("not a directory")
    place = {"missing": tmp_path / "none", "a file": tmp_path / "file", "inside a file": tmp_path / "file" / "deeper"}
    monkeypatch.setenv("ABELE_CACHE_DIR", str(place[what]))
    assert load_object(key("a")) is None
    assert usage(place[what]).objects == 0
    assert clear(place[what]).left == 0
    store_object(key("a"), b"a")
    assert (load_object(key("a")) is not None) == (what == "missing")
    assert (tmp_path / "file").read_text() == "not a directory"


def test_object__damaged__is_none(folder: Path) -> None:
    path = stored(folder, "a")
    path.write_bytes(path.read_bytes()[:-1])
    assert load_object(key("a")) is None
    path.write_bytes(b"")
    assert load_object(key("a")) is None


def test_cache__switched_off__is_nowhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABELE_CACHE_DIR", "off")
    store_object(key("a"), b"a")
    assert load_object(key("a")) is None
    assert cache.cache_directory() is None


def test_choice__that_took_long__is_made_once_until_content_or_code_differ(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_WORTH_SECONDS", 0.0)
    made = iter([("a", 1.5), ("b", 0.1), ("c", 2.0)])

    def chosen(content: str, *folders: str) -> tuple[str, float]:
        return kept_choice(content, tuple[str, float], lambda: next(made), *folders)

    assert chosen("x", "llvm") == chosen("x", "llvm") == ("a", 1.5)
    assert chosen("y", "llvm") == ("b", 0.1)
    assert chosen("x", "expr") == ("c", 2.0)
    assert usage(folder).objects == 3


def test_choice__that_is_quick__takes_no_room(folder: Path) -> None:
    assert kept_choice("x", int, lambda: 7) == 7
    assert usage(folder).objects == 0


def test_choice__of_another_form_on_disk__is_made_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_WORTH_SECONDS", 0.0)
    kept_choice("x", str, lambda: "old")
    assert kept_choice("x", int, lambda: 7) == 7
