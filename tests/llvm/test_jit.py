from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from abele.llvm import cache, jit
from abele.llvm.flush import denormals_flushed
from abele.llvm.host import host_cpu, num_threads


def adder(step: int) -> str:
    return f"define i64 @next(i64 %x) {{\n  %y = add i64 %x, {step}\n  ret i64 %y\n}}\n"


def call(native: jit.Native, x: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(native.address("next"))(x))


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and no code in memory."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(jit, "_loaded", {})
    return tmp_path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_loaded", {})


def test_compile_ir__a_function__runs(objects: Path) -> None:
    assert call(jit.compile_ir(adder(3)), 4) == 7


def test_compile_ir__same_text_again__same_object(objects: Path) -> None:
    assert jit.compile_ir(adder(3)) is jit.compile_ir(adder(3))


def test_compile_ir__second_process__comes_from_disk(objects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not jit.compile_ir(adder(5)).cached
    forget(monkeypatch)
    again = jit.compile_ir(adder(5))
    assert again.cached
    assert call(again, 1) == 6


def test_compile_keyed__known_content__is_not_made_again(objects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jit.compile_keyed("adder 6", lambda: adder(6))
    forget(monkeypatch)
    assert call(jit.compile_keyed("adder 6", lambda: pytest.fail("made again")), 1) == 7


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"short"])
def test_compile_ir__damaged_entry__is_rebuilt(objects: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    jit.compile_ir(adder(7))
    forget(monkeypatch)
    (entry,) = objects.rglob("*.o")
    entry.write_bytes(damage)
    again = jit.compile_ir(adder(7))
    assert not again.cached
    assert call(again, 1) == 8
    assert cache.load_object(entry.stem) is not None


def test_compile_ir__one_bit_flipped__is_rebuilt(objects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jit.compile_ir(adder(8))
    forget(monkeypatch)
    (entry,) = objects.rglob("*.o")
    stored = bytearray(entry.read_bytes())
    stored[len(stored) // 2] ^= 1
    entry.write_bytes(bytes(stored))
    assert not jit.compile_ir(adder(8)).cached


def test_compile_ir__cache_off__writes_nothing(objects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, "off")
    assert call(jit.compile_ir(adder(9)), 1) == 10
    assert not list(objects.iterdir())


def test_compile_ir__unwritable_directory__still_works(objects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (objects / "file").write_text("in the way")
    monkeypatch.setenv(cache.VARIABLE, str(objects / "file"))
    assert call(jit.compile_ir(adder(10)), 1) == 11


def test_compile_ir__no_partial_files_left(objects: Path) -> None:
    jit.compile_ir(adder(11))
    assert [p.suffix for p in (objects / "objects").rglob("*") if p.is_file()] == [".o"]


def test_optimised_ir__constant_expression__is_folded() -> None:
    assert "ret i64 3" in jit.optimised_ir("define i64 @f() {\n  %y = add i64 1, 2\n  ret i64 %y\n}\n")


def test_assembly__a_function__names_it() -> None:
    assert "next" in jit.assembly(adder(1))


def test_host_cpu__this_machine__is_described() -> None:
    cpu = host_cpu()
    assert cpu.is_x86 != cpu.is_aarch64
    assert cpu.vector_bytes in (16, 32, 64)
    assert num_threads() >= 1


def test_denormals_flushed__within_the_block_only() -> None:
    tiny, one = np.float32(1e-39), np.float32(1.0)
    with denormals_flushed():
        assert tiny * one == 0
    assert tiny * one == tiny
