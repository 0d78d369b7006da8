"""The model zoo of the benchmarks: nothing in it is known, without timing, to run far below the machine's rate.

``benchmarks/zoo.py`` times it.
"""

import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
BENCHMARKS = str(Path(__file__).parents[3] / "benchmarks")
# Not for longer than it takes: the benchmarks have modules of the names of test folders.
sys.path.append(BENCHMARKS)
from zoo import NOTABLE_BYTES, Offender, profile_of, static_offenders
from zoo_networks import ZOO

sys.path.remove(BENCHMARKS)

from abele.report import HOST_FUNCTIONS, HOST_LEAVES, HostProfile

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("whole_machine")]

KNOWN = {
    r"embedding/(slice|grad/update)": "indexed loads and updates cannot be said in nests: they run their vertices",
}
"""Names of leaves that run far below the machine's rate, and why they still do."""
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
    [
        (name, mode)
        for name in NETWORKS
        for mode in ("inference", "training")
        if name not in QUICK or mode != "training"
    ],
)
def test_zoo__every_network__has_no_leaf_known_to_be_slow(name: str, mode: str) -> None:
    check(name, mode)


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
