"""Programs in code for CPUs other than this machine's, in processes of their own: tests of all rooms and their oracles.

Lesser CPUs of x86 run here, and the objects that were made are searched for instructions that those do not have. Code
for AArch64 runs in an emulator, where there is one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from abele.llvm.cache import VARIABLE as CACHE
from abele.llvm.cpus import cpu_named
from abele.llvm.host import VARIABLE, own_cpu
from support import emulator, sweeps

ROOT = Path(__file__).resolve().parents[1]
NARROW = r"%zmm|%[xy]mm(?:1[6-9]|2\d|3[01])\b|%k[0-7]\b"
"""Registers that only AVX-512 has."""
OLD = rf"{NARROW}|\tvf(?:n?m)(?:add|sub)|\tvcvtph2ps|\tvcvtps2ph|\tvpgather|\tvpermd"
FORBIDDEN = {
    "x86-64-v2": rf"{OLD}|%ymm|\tv\w+ .*%xmm|\t(?:andn|sarx|shlx|shrx|mulx|pdep|pext|movbe)\b",
    "sandybridge": OLD,
    "haswell": NARROW,
    "skylake-avx512": r"\tvdpbf16ps|\tvcvtne|\tgf2p8|\tvgf2p8|\tvpermi?2?b\b|\tvpdp|\tvpopcnt",
}
"""Instructions and registers that the code of a CPU must not have, as objdump writes them."""
FEW = (
    "kernels/plan/test_native_programs.py",
    "kernels/products/test_packed_products.py::test_product__of_16_bit_operands__is_summed_in_32",
    "llvm/test_convert.py",
)
KERNELS = (
    *FEW,
    "kernels/products/test_packed_products.py",
    "kernels/plan/test_native_torch.py",
    "kernels/plan/test_native_rows.py",
    "kernels/plan/test_native_transposes.py",
    "kernels/plan/test_native_ops.py",
    "kernels/plan/test_native_attention.py::test_plan__attention_with_gradients__gives_what_numpy_gives_and_the_same_"
    "bits_for_any_threads",
    "llvm/test_math.py",
    "llvm/test_narrow_ir.py",
    "llvm/test_random.py",
)
ALL = (
    *KERNELS,
    "codelet/test_narrow_floats.py",
    "codelet/test_language.py",
    "codelet/cpp/test_halves.py",
    "codelet/cpp/test_blur.py",
    "poplibs/popnn/test_popnn_lstm.py::test_lstm__natively__values_and_all_gradients_agree_with_torch",
    "poplibs/popnn/test_popnn_gru.py",
    "poplibs/popops/sorting/test_popops_sort.py::test_sort_with_permutation__equal_keys__keep_their_order",
    "frontends/poptorch/fp8/test_casts.py",
    "runtime/native/test_plan_runs.py",
    "runtime/supersteps/test_floats.py",
)


def run_tests(nodes: Sequence[str], folder: Path, **environment: str) -> None:
    """Run tests in a process of its own with an empty cache, and ask that all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {CACHE: str(folder)}
    paths = [str(ROOT / "tests" / node) for node in dict.fromkeys(nodes)]
    ran = subprocess.run([*command, *paths], cwd=ROOT, env=kept | environment, capture_output=True, text=True)
    assert ran.returncode == 0, f"{ran.stdout[-8000:]}\n{ran.stderr[-2000:]}"
    assert "changes nothing" not in ran.stdout + ran.stderr


def disassembled(folder: Path) -> Iterator[str]:
    """Lines of the code of all objects in a cache."""
    objects = folder / "plain"
    objects.mkdir()
    for file in folder.glob("objects/*/*.o"):
        data = file.read_bytes()[32:]  # behind a digest
        if data.startswith(b"\x7fELF"):
            (objects / file.name).write_bytes(data)
    names = sorted(map(str, objects.iterdir()))
    assert names
    for at in range(0, len(names), 200):
        command = ["objdump", "-d", "--no-show-raw-insn", *names[at : at + 200]]
        yield from subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def check_lesser(name: str, nodes: Sequence[str], folder: Path) -> None:
    cpu = cpu_named(name)
    assert cpu is not None
    if not own_cpu().is_x86 or not cpu.features <= own_cpu().features:
        pytest.skip(f"this machine cannot run code for {name}")
    run_tests(nodes, folder, **{VARIABLE: name})
    if shutil.which("objdump") is None:
        pytest.skip("programs ran; there is no objdump to look into their code")
    foreign = re.compile(FORBIDDEN[name])
    assert not [line for line in disassembled(folder) if foreign.search(line)][:10]


def test_lesser_cpu__no_fused_steps_nor_halves__a_few_programs_agree(tmp_path: Path) -> None:
    check_lesser("sandybridge", FEW, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sweeps.sampled(sorted(FORBIDDEN), 1))
def test_lesser_cpu__programs_of_all_kinds__agree_and_use_its_instructions_alone(name: str, tmp_path: Path) -> None:
    check_lesser(name, ALL, tmp_path)


@pytest.mark.slow
def test_arm__programs_in_an_emulator__agree(tmp_path: Path) -> None:
    if lacking := emulator.missing():
        pytest.skip(lacking)
    run_tests(KERNELS, tmp_path, EMULATE="neoverse-n1")
