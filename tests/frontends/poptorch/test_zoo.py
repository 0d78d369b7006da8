"""The model zoo of the benchmarks: nothing in it runs far below the machine's rate, here and in code for a lesser CPU.

What is slow on any machine is found without timing. Slow tests take times as well, of the processor on one thread; a
part is an offender where it is one in each of several measurements.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
BENCHMARKS = str(Path(__file__).parents[3] / "benchmarks")
# Not for longer than it takes: the benchmarks have modules of the names of test folders.
sys.path.append(BENCHMARKS)
from zoo import NOTABLE_BYTES, Offender, measured_parts, profile_of, static_offenders, timed_offenders
from zoo_networks import ZOO

sys.path.remove(BENCHMARKS)

from abele.llvm.host import host_cpu
from abele.report import HOST_FUNCTIONS, HOST_LEAVES, HostProfile
from support import sweeps

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("whole_machine")]

KNOWN = {
    r"embedding/(slice|grad/update)": "indexed loads and updates cannot be said in nests: they run their vertices",
}
"""Names of leaves that run far below the machine's rate, and why they still do."""
KNOWN_SLOW = {
    r"linear/grad/matmul, update/.*adam": "a square root and two divisions a weight follow sums over few samples",
    r"(stem|first|network/2)/conv2d/grad/calculate_weight_deltas": "such layers have few products a load",
    r"network/8/conv2d/grad/convolution_backward_data": "a strided depthwise layer's gradients go to every other pixel",
    r"first/conv2d/convolution": "a first layer of three channels has 27 products for each result",
    r"body/3/conv2d/convolution": "samples in the lanes store results of which each lies in a page of its own",
    r"scaled_dot_product_attention/grad": "heads of 16 features: a tile ends almost as it begins",
    r"network/9/linear/matmul": "2 MB of weights for 16 samples come from the second-level cache or beyond",
}
"""Leaves below a third of the machine's rate on some CPU, and what is suspected."""
LESSER = ("haswell", "znver3")
"""CPUs for which code is made in a process of its own, where this one runs it."""
REPEATS = 3
"""Measurements of a network; another process may slow some of them down."""
QUICK = ("ffn-first", "last-token", "deep-sets", "tagger")
"""Networks that compile in a moment."""

NETWORKS = {work.name: work for work in ZOO}


def unknown(found: list[Offender]) -> list[Offender]:
    return [o for o in found if not any(re.search(pattern, o.name) for pattern in KNOWN)]


def check(name: str, mode: str) -> None:
    work = NETWORKS[name]
    profile = profile_of(work, mode)
    assert profile.seconds > 0
    assert unknown(static_offenders(work, mode, profile)) == []


@pytest.mark.parametrize("name", QUICK)
def test_zoo__training_of_a_quick_network__has_no_leaf_known_to_be_slow(name: str) -> None:
    check(name, "training")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"),
    sweeps.sampled(
        [(n, m) for n in NETWORKS for m in ("inference", "training") if n not in QUICK or m == "inference"], 8
    ),
)
def test_zoo__every_network__has_no_leaf_known_to_be_slow(name: str, mode: str) -> None:
    check(name, mode)


def always_slow(name: str, mode: str) -> list[Offender]:
    """Unknown parts below a third of the machine's rate in every measurement."""
    work = NETWORKS[name]
    profiles = [profile_of(work, mode, scale=4, calls=3) for _ in range(REPEATS)]
    found = [timed_offenders(work, mode, profile) for profile in profiles]
    names = set.intersection(*({o.name for o in offenders} for offenders in found))
    best = min(found, key=lambda offenders: sum(o.share for o in offenders))
    return [o for o in best if o.name in names and not any(re.search(p, o.name) for p in (*KNOWN, *KNOWN_SLOW))]


def check_times(names: Sequence[str]) -> None:
    slow = [o for name in names for mode in ("inference", "training") for o in always_slow(name, mode)]
    assert slow == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sweeps.sampled(list(NETWORKS), 4))
def test_zoo__by_the_processor_s_time__has_no_leaf_below_a_third_of_the_machine(name: str) -> None:
    check_times([name])


@pytest.mark.slow
@pytest.mark.parametrize("cpu", LESSER)
def test_zoo__in_code_for_a_lesser_cpu__has_no_leaf_below_a_third_of_the_machine(cpu: str) -> None:
    if not {"avx2", "fma"} <= host_cpu().features:
        pytest.skip(f"this CPU has no AVX2, so it does not run code for a {cpu}")
    names = [str(name) for name in sweeps.sampled(list(NETWORKS), 2)]
    folder = str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {folder!r}); import test_zoo; test_zoo.check_times({names})"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"ABELE_CPU": cpu, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]


def test_measured_parts__of_instructions_and_bytes__take_the_longer() -> None:
    leaves = HOST_LEAVES.table(
        name=["products", "divisions", "copies"],
        executions=[1, 1, 1],
        seconds=[1.0, 1.0, 2.0],
        flops=[1000, 100, 0],
        slots=[500, 1000, 0],
        written_bytes=[0, 0, 1000],
    )
    rates = {"threads": 1, "flops_per_second": 2000.0, "bytes_per_second": 1000.0}
    found = measured_parts(HostProfile(leaves, HOST_FUNCTIONS.empty(), {"rates": rates}))
    assert [(p.name, p.share, p.machine) for p in found] == [
        ("products", 0.25, 0.5), ("divisions", 0.25, 1.0), ("copies", 0.5, 0.5)
    ]  # fmt: skip


def test_offenders__scalar_arithmetic_and_vertices_of_library_calls__are_found() -> None:
    leaves = HOST_LEAVES.table(
        name=["vector", "scalar", "little", "vertices", "own vertices", "few vertices"],
        kind=["kernel", "kernel", "kernel", "vertices", "vertices", "vertices"],
        calls=["poplin.matmul", "poplin.matmul", "popops.map", "popops.slice", "", "popops.slice"],
        executions=[1] * 6,
        seconds=[1.0] * 6,
        flops=[1000, 1000, 10, 0, 0, 0],
        read_bytes=[0, 0, 0, NOTABLE_BYTES, NOTABLE_BYTES, 8],
        lanes=[16, 1, 1, 0, 0, 0],
    )
    functions = HOST_FUNCTIONS.table(leaf=[0, 0], name=["wide", "narrow"], flops=[500, 500], lanes=[16, 1])
    found = static_offenders(ZOO[0], "training", HostProfile(leaves, functions, {}))
    assert [(o.name, o.why) for o in found] == [("narrow", "scalar"), ("scalar", "scalar"), ("vertices", "vertices")]
