"""The model zoo of the benchmarks in code for AArch64: every plan of its networks is made, and none is run."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
BENCHMARKS = str(Path(__file__).parents[3] / "benchmarks")
# Not for longer than it takes: the benchmarks have modules of the names of test folders.
sys.path.append(BENCHMARKS)
from zoo import profile_of
from zoo_networks import ZOO

sys.path.remove(BENCHMARKS)

from abele.kernels import NativePlan, plan_native
from abele.llvm.cpus import cpu_named
from abele.llvm.host import code_for
from abele.llvm.jit import foreign_symbol
from abele.runtime.native import plan_runs
from support import sweeps

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("whole_machine")]
NETWORKS = {work.name: work for work in ZOO}


def check(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[NativePlan] = []
    arm = cpu_named("neoverse-n1")
    assert arm is not None

    def planned(*args: object, **named: object) -> NativePlan:
        with code_for(arm):
            made.append(plan_native(*args, **named))
        return plan_native(*args, **named)

    monkeypatch.setattr(plan_runs, "plan_native", planned)
    profile_of(NETWORKS[name], mode)
    leaves = [leaf for plan in made for leaf in plan.leaves]
    assert leaves
    assert all(foreign_symbol(leaf.address) is not None for leaf in leaves)


def test_zoo__training_of_a_small_network__has_code_for_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    check("deep-sets", "training", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", sweeps.sampled([n for n in NETWORKS if n != "deep-sets"], 5))
def test_zoo__any_network__has_code_for_arm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, "training", monkeypatch)
