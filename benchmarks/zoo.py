"""The model zoo on this host: which leaves of inference and training run far below the machine's rate.

Every network of ``zoo_networks`` is measured on one thread by the processor's time, and each leaf (or function of a
leaf) is held against what the machine could do: its instructions on elements (a multiply-add is one, a division or an
exponential what its code has) at the rate of multiply-adds, its bytes at memory's rate, whichever takes longer. A leaf
that reaches less than a third of that, and takes 2 % of a step or more, is an offender. Which leaves are depends on
the CPU: its caches, its divider, its memory. So no test asks for it, and this benchmark lists them.
``ABELE_CPU=haswell`` and such measure code for a lesser CPU, against the rates of that.

Without timing, two things are known to be slow before anything runs, and a test looks for these: arithmetic in code
that fills no vector lanes, and library calls whose vertices run one by one since they have no host kernel.

    python benchmarks/zoo.py [--networks encoder mixer] [--batch-scale 4] [--static] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from workloads import Workload
from zoo_networks import ZOO

from abele import poptorch
from abele.report import HostProfile

MODES = ("inference", "training")
SLOW = 1 / 3
"""Part of the machine's rate below which a leaf is an offender."""
NOTABLE_SHARE = 0.02
"""Part of a step's time from which on a leaf matters."""
NOTABLE_FLOPS = 0.01
"""Part of a step's arithmetic from which on scalar code matters."""
NOTABLE_BYTES = 1 << 16
"""Bytes touched by vertices from which on they matter."""


@dataclass(frozen=True)
class Offender:
    """A leaf, or a function of one, that runs far below the machine's rate.

    Attributes:
        network: In which network.
        mode: ``inference`` or ``training``.
        name: Functions that it carries out.
        why: ``slow`` where it was measured; ``scalar`` or ``vertices`` where that is plain without.
        share: Of the step's time; 0 where it was not measured.
        machine: Part of the machine's rate that it reaches; 0 where it was not measured.
    """

    network: str
    mode: str
    name: str
    why: str
    share: float = 0.0
    machine: float = 0.0


def profile_of(work: Workload, mode: str, *, scale: int = 1, calls: int = 1) -> HostProfile:
    """The profile of so many calls of a network on one thread, by the processor's time."""
    options = poptorch.Options().deviceIterations(work.steps)
    options.Abele.threads(1).allowOutOfMemory()
    model = work.model()
    x, target = work.data(work.batch * work.steps * scale)
    if mode == "training":
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        wrapped, inputs = poptorch.trainingModel(model, options, optimizer=optimizer), (x, target)
    else:
        wrapped, inputs = poptorch.inferenceModel(model.network, options), (x,)
    wrapped(*inputs)
    with wrapped.profiling("processor"):
        for _ in range(calls):
            wrapped(*inputs)
    found = wrapped.profile()
    wrapped.destroy()
    return found


def static_offenders(work: Workload, mode: str, profile: HostProfile) -> list[Offender]:
    """Parts that are slow whatever the machine: scalar arithmetic, and library calls that run as vertices."""
    total = float((profile.leaves["flops"] * profile.leaves["executions"]).sum())
    found = []
    for row, times in _parts(profile):
        if row["lanes"] == 1 and row["flops"] * times > NOTABLE_FLOPS * total:
            found.append(Offender(work.name, mode, row["name"], "scalar"))
    for row in profile.leaves.rows():
        if row["kind"] == "vertices" and row["calls"] and row["read_bytes"] + row["written_bytes"] >= NOTABLE_BYTES:
            found.append(Offender(work.name, mode, row["name"], "vertices"))
    return found


@dataclass(frozen=True)
class MeasuredPart:
    """A leaf, or a function of one, with its share of a step's time and of the machine's rate."""

    name: str
    share: float
    machine: float


def measured_parts(profile: HostProfile) -> list[MeasuredPart]:
    """All parts with the part of the machine's rate that each reaches."""
    found = []
    for row, times in _parts(profile):
        needed = max(row["flops"], 2 * row["slots"]) / profile.machine_flops_per_second
        needed = max(needed, (row["read_bytes"] + row["written_bytes"]) / profile.machine_bytes_per_second)
        machine = needed * times / row["seconds"] if row["seconds"] else 1.0
        found.append(MeasuredPart(row["name"], row["seconds"] / profile.seconds, machine))
    return found


def timed_offenders(work: Workload, mode: str, profile: HostProfile) -> list[Offender]:
    """Parts that took more than three times as long as the machine would need."""
    found = [
        Offender(work.name, mode, part.name, "slow", part.share, part.machine)
        for part in measured_parts(profile)
        if part.share >= NOTABLE_SHARE and part.machine < SLOW
    ]
    return sorted(found, key=lambda o: -o.share)


def mean_rate(profile: HostProfile) -> float:
    """Part of the machine's rate that a step reaches: the mean over its parts by time, each at most 1."""
    parts = measured_parts(profile)
    return sum(p.share * min(1.0, p.machine) for p in parts) / max(sum(p.share for p in parts), 1e-12)


def slow_share(profile: HostProfile, machine: float = SLOW) -> float:
    """Part of a step's time in parts that reach less than ``machine`` of the machine's rate."""
    parts = measured_parts(profile)
    return sum(p.share for p in parts if p.machine < machine) / max(sum(p.share for p in parts), 1e-12)


def _parts(profile: HostProfile) -> Iterator[tuple[dict[str, Any], int]]:
    """Functions of leaves that call several, and leaves by themselves, with the executions of the leaf."""
    for number, leaf in enumerate(profile.leaves.rows()):
        functions = list(profile.functions.where("leaf", number).rows())
        for row in functions or [leaf]:
            yield row, leaf["executions"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="*", default=[work.name for work in ZOO])
    parser.add_argument("--modes", nargs="*", default=MODES, choices=MODES)
    parser.add_argument("--batch-scale", type=int, default=4, help="times the batch of the zoo")
    parser.add_argument("--calls", type=int, default=3, help="measured calls")
    parser.add_argument("--static", action="store_true", help="list what is slow on any machine")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[Offender] = []
    for work in (work for work in ZOO if work.name in options.networks):
        for mode in options.modes:
            profile = profile_of(work, mode, scale=options.batch_scale, calls=options.calls)
            find = static_offenders if options.static else timed_offenders
            found = find(work, mode, profile)
            rows += found
            if not options.json:
                seconds = profile.seconds / options.calls / work.steps
                shares = sum(o.share for o in found)
                print(f"{work.name:<14} {mode:<10} {seconds * 1e3:9.3f} ms a step, {len(profile.leaves):3d} leaves, "
                      f"{len(found):2d} offenders with {shares:.0%}, "
                      f"{mean_rate(profile):.0%} of the machine", flush=True)  # fmt: skip
                for o in found:
                    print(f"    {o.why:<9}{o.share:5.0%} of the step, {o.machine:6.1%} of the machine  {o.name[:90]}")
    if options.json:
        print(json.dumps({"offenders": [asdict(o) for o in rows]}))


if __name__ == "__main__":
    main()
