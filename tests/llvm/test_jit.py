from __future__ import annotations

import ctypes
import os
import subprocess
import sys
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
    monkeypatch.setattr(jit, "_built", {})
    return tmp_path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_loaded", {})
    monkeypatch.setattr(jit, "_built", {})


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


def source(step: int, content: str = "") -> jit.ModuleSource:
    return jit.ModuleSource(content or f"adder {step}", lambda: adder(step))


@pytest.mark.parametrize("threads", [1, 3])
def test_compile_all__known_equal_and_new_modules__each_has_its_code(
    objects: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(jit, "num_threads", lambda: threads)
    known, interval = jit.compile_keyed("adder 1", lambda: adder(1)), sys.getswitchinterval()
    wanted = [source(1), *map(source, range(2, 12)), source(2), source(3, "another name of adder 3")]
    found = jit.compile_all(wanted)
    assert [call(native, 0) for native in found] == [*range(1, 12), 2, 3]
    assert found[0] is known
    assert found[1] is found[-2]
    assert found[2] is found[-1]
    assert sys.getswitchinterval() == interval
    forget(monkeypatch)
    assert all(native.cached for native in jit.compile_all(wanted))


def test_compile_all__in_several_threads__makes_the_same_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [adder(step) for step in range(20, 40)]
    with monkeypatch.context() as patch:
        patch.setattr(jit, "num_threads", lambda: 3)
        with jit._object_makers(len(texts)) as make:
            waiting = [make(text, 1) for text in texts]
            made = [wait() for wait in waiting]
    assert made == [jit._compiler().object_of(text, 1) for text in texts]


@pytest.mark.parametrize("threads", [1, 3])
def test_compile_all__a_module_that_llvm_cannot_read__says_so(
    objects: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(jit, "num_threads", lambda: threads)
    with pytest.raises(RuntimeError, match="cannot read"):
        jit.compile_all([source(1), jit.ModuleSource("none", lambda: "no module"), source(2)])
    assert call(jit.compile_all([source(1), source(2)])[1], 1) == 3


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


IN_PIECES = """
import ctypes

from abele.llvm.jit import compile_ir

compile_ir("define void @first() { ret void }").address("first")

RESERVED, GAP = 0x4022, 5 << 30  # private, anonymous, without memory behind it
system = ctypes.CDLL(None)
system.mmap.restype = ctypes.c_void_p
system.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
system.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def reserve(size):
    return system.mmap(None, size, 0, RESERVED, -1, 0)


low = reserve(GAP)
for size in (1 << 20, 1 << 16, 1 << 12):
    while reserve(size) > low:  # until no hole above takes it
        pass
system.munmap(low + GAP - (1 << 13), 1 << 12)  # a page for code, but none for what it reads

text = "a" * (1 << 18)
native = compile_ir(f'''
@text = private constant [{len(text)} x i8] c"{text}"
define i64 @read(i64 %at) {{
  %place = getelementptr i8, ptr @text, i64 %at
  %word = load i64, ptr %place
  ret i64 %word
}}''')
assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(native.address("read"))(16) == 0x6161616161616161
"""


@pytest.mark.skipif(sys.platform != "linux", reason="address space is divided as Linux does it")
def test_compile_ir__address_space_in_pieces__code_lies_beside_what_it_reads(tmp_path: Path) -> None:
    environment = {**os.environ, cache.VARIABLE: str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", IN_PIECES], env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_compile_keyed__other_content_of_equal_text__shares_the_code(objects: Path) -> None:
    one, other = (jit.compile_keyed(content, lambda: adder(6)) for content in ("i + 6", "j + 6"))
    assert one is other
    assert jit.compile_keyed("k + 6", lambda: adder(6), speed=0) is not one
    # Each is found by what it was made from, in other processes too.
    assert len(list(objects.rglob("*.o"))) == 3


def test_assembly__of_a_block_of_many_accesses__is_as_llvm_alone_would_make_it() -> None:
    begin, compared = "define void @f(ptr %a, ptr %b) {\n", jit._MOST_COMPARED
    lines = [
        f"  %p{n} = getelementptr float, ptr %a, i64 {n}\n  %x{n} = load float, ptr %p{n}\n"
        f"  %q{n} = getelementptr float, ptr %b, i64 {n}\n  store float %x{n}, ptr %q{n}\n"
        for n in range(compared)
    ]
    text = begin + "".join(lines) + "  ret void\n}\n"
    ours = jit.assembly(text, speed=1)
    jit.binding.set_option("abele", "-dag-maps-huge-region=1000")
    try:
        assert jit.assembly(text, speed=1) == ours
    finally:
        jit.binding.set_option("abele", f"-dag-maps-huge-region={compared}")
