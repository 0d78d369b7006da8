"""Runs plans and functions that were made for AArch64 in an emulator: a C program links their objects.

The program reads its memory from a file, switches flushing on, calls the functions, and writes its memory back. Debian
has all that it takes: ``apt-get install qemu-user-static gcc-aarch64-linux-gnu``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from abele.kernels import NativePlan
from abele.llvm.cpus import cpu_named
from abele.llvm.host import code_for
from abele.llvm.jit import ForeignCode, foreign_symbol

EMULATORS, PREFIX = ("qemu-aarch64-static", "qemu-aarch64"), "aarch64-linux-gnu-"
_HEAD = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef void leaf(int64_t, int64_t, void **);
static void *place(uint64_t bytes) { return memset(aligned_alloc(64, (bytes + 127) / 64 * 64), 0xCD, bytes); }
"""
_FLUSHED = """
  uint64_t mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  __asm__ volatile("msr fpcr, %0" : : "r"(mode | 1 << 24));
"""
_USUAL = '  __asm__ volatile("msr fpcr, %0" : : "r"(mode));\n'


def missing() -> str:
    """Reason why nothing can be emulated here; empty where it can."""
    if not any(map(shutil.which, EMULATORS)):
        return "no emulator of AArch64 (qemu-user-static)"
    return "" if shutil.which(f"{PREFIX}gcc") else "no linker for AArch64 (gcc-aarch64-linux-gnu)"


class Emulation:
    """A program in C that calls functions, and its memory.

    Args:
        flushes: True if denormals are flushed, as threads of programs do.
    """

    def __init__(self, *, flushes: bool = True) -> None:
        self._flushes = flushes
        self._arrays: list[np.ndarray] = []
        self._objects: dict[tuple[str, str], ForeignCode] = {}
        self._globals: list[str] = []
        self._lines: list[str] = []
        self._pointed: dict[int, str] = {}

    def array(self, values: np.ndarray) -> str:
        """C's word for memory that holds the values; it holds the results afterwards."""
        self._arrays.append(values)
        return f"m{len(self._arrays) - 1}"

    def scratch(self, size: int) -> str:
        """C's word for memory of its own."""
        self._lines.append(f"  void *s{len(self._lines)} = place({size});")
        return f"s{len(self._lines) - 1}"

    def function(self, address: int) -> str:
        """C's word for a function."""
        found = foreign_symbol(address)
        assert found is not None
        code, symbol = found
        self._objects[code.key, symbol] = code
        return f"{symbol}_{code.key[:12]}"

    def constants(self, owners: object) -> None:
        """Let addresses of arrays in the owners be known: they become tables of the program."""
        arrays = {array.ctypes.data: array for array in _arrays(owners)}
        self._pointed = {address: f"t{n}" for n, address in enumerate(arrays)}
        named = [*zip(self._pointed.values(), arrays.values(), strict=True)]
        assert all(array.dtype == np.int64 for array in arrays.values())
        self._globals += (f"static int64_t {name}[{array.size}];" for name, array in named)
        for name, array in named:
            words = ", ".join(self.word(int(n)) for n in array.reshape(-1))
            self._globals.append(f"static int64_t {name}[{array.size}] = {{ {words} }};")

    def word(self, value: int) -> str:
        """C's word for an integer that may be an address."""
        if foreign_symbol(value) is not None:
            return f"(int64_t)&{self.function(value)}"
        return f"(int64_t){self._pointed[value]}" if value in self._pointed else f"{value}LL"

    def call(self, line: str) -> None:
        """Add a statement."""
        self._lines.append(f"  {line};")

    def run(self) -> None:
        """Run it; results are in the arrays.

        Raises:
            CalledProcessError: It cannot be linked, or ends by a fault.
        """
        with tempfile.TemporaryDirectory() as name:
            self._run(Path(name))

    def _run(self, folder: Path) -> None:
        names = []
        for (key, symbol), code in self._objects.items():
            file = folder / f"{symbol}_{key[:12]}.o"
            file.write_bytes(code.data)
            subprocess.run([f"{PREFIX}objcopy", f"--redefine-sym={symbol}={file.stem}", file], check=True)
            names.append(file)
        sizes = [f"  void *m{n} = place({a.nbytes});" for n, a in enumerate(self._arrays)]
        reads = [f"  fread(m{n}, 1, {a.nbytes}, file);" for n, a in enumerate(self._arrays)]
        writes = [f"  fwrite(m{n}, 1, {a.nbytes}, file);" for n, a in enumerate(self._arrays)]
        source = [_HEAD, *(f"extern void {file.stem}();" for file in names), *self._globals]
        source += ["int main(int n, char **names) {", *sizes, '  FILE *file = fopen(names[1], "rb");', *reads]
        source += [_FLUSHED, *self._lines, _USUAL] if self._flushes else self._lines
        source += ['  file = fopen(names[2], "wb");', *writes, "  return fclose(file);}"]
        (folder / "main.c").write_text("\n".join(source))
        (folder / "in").write_bytes(b"".join(np.ascontiguousarray(a).tobytes() for a in self._arrays))
        program = folder / "program"
        command: list[str | Path] = [f"{PREFIX}gcc", "-w", "-static", "-o", program, folder / "main.c", *names, "-lm"]
        subprocess.run(command, check=True)
        emulator = next(filter(None, map(shutil.which, EMULATORS)))
        subprocess.run([emulator, program, folder / "in", folder / "out"], check=True)
        left = (folder / "out").read_bytes()
        for array in self._arrays:
            array[...] = np.frombuffer(left[: array.nbytes], array.dtype).reshape(array.shape)
            left = left[array.nbytes :]


def run_plan(plan: NativePlan, storage: dict[int, np.ndarray], threads: int = 1) -> None:
    """Run a plan once; every leaf's units in as many shares as there are threads, one after the other."""
    emulation = Emulation()
    emulation.constants(plan.keep)
    buffers = {number: emulation.array(array) for number, array in storage.items()}
    arena = emulation.scratch(plan.arena_bytes)
    scratch = [emulation.scratch(plan.scratch_bytes) for _ in range(threads)]
    for leaf in plan.leaves:
        for thread in range(threads):
            words = []
            for argument in leaf.args:
                match argument.kind:
                    case "buffer":
                        words.append(buffers[argument.value])
                    case "arena":
                        words.append(f"(char *){arena} + {argument.value}")
                    case "scratch":
                        words.append(f"(char *){scratch[thread]} + {argument.value}")
                    case _:
                        words.append(f"(void *){emulation.word(argument.value)}")
            low, high = leaf.units * thread // threads, leaf.units * (thread + 1) // threads
            function = emulation.function(leaf.address)
            emulation.call(f"((leaf *){function})({low}, {high}, (void *[]){{ {', '.join([*words, '0'])} }})")
    emulation.run()


def _arrays(owner: object) -> Iterator[np.ndarray]:
    """Arrays that some objects hold."""
    if isinstance(owner, np.ndarray):
        yield owner
    elif isinstance(owner, tuple | list):
        for part in owner:
            yield from _arrays(part)
    elif is_dataclass(owner):
        for field in fields(owner):
            yield from _arrays(getattr(owner, field.name))


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    """With ``EMULATE=neoverse-n1`` what goes through the test kit is made for that CPU, and runs in an emulator."""
    cpu = cpu_named(os.environ.get("EMULATE", ""))
    if cpu is None:
        yield
        return
    with code_for(cpu):
        yield
