"""Samples per second of training on two ranks of one replica beside one process of two replicas, on this host.

Both jobs are started by ``abele run`` and live side by side; they take turns, and the best turn of each counts.
Compiling is left out. With --json one object is printed, {"rows": [...]}, each row with ``workload``, ``one`` and
``ranks`` (samples/s) and ``ratio``, by which two ranks are faster.

    python benchmarks/ranks.py [--rounds 12] [--only mlp] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

REPLICAS = 2


@dataclass(frozen=True)
class Work:
    samples: int
    """Of one micro-batch."""
    updates: int
    """Of one call."""
    shape: tuple[int, ...]
    calls: int
    """Of one turn."""


WORKS = {"mlp": Work(64, 16, (784,), 4), "cnn": Work(16, 16, (1, 28, 28), 2)}


def network(name: str):
    from torch import nn

    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    convolutions = (nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(32 * 25, 10))


def contestant(name: str) -> Callable[[], None]:
    """One call of a model that trains on this process's replicas."""
    import torch

    from abele import poptorch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.loss = network(name), torch.nn.CrossEntropyLoss()

        def forward(self, x, y):
            return self.loss(self.net(x), y)

    work = WORKS[name]
    torch.manual_seed(0)
    options = poptorch.Options().deviceIterations(work.updates)
    options.Abele.allowOutOfMemory()
    model = Model()
    training = poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=1e-3))
    count = work.updates * options.replication_factor * work.samples
    x, y = torch.randn(count, *work.shape), torch.randint(0, 10, (count,))
    return lambda: training(x, y)


def play(names: list[str]) -> None:
    """In a rank: take the turns that the first one is told to take. The others keep up with it as they meet."""
    from abele.job.launched import launched_rank

    calls = {name: contestant(name) for name in names}
    for name in names:
        calls[name]()
    if launched_rank() == 0:
        print("ready", flush=True)
    while True:
        for name in names:
            if launched_rank() == 0 and not sys.stdin.readline():
                return
            begin = time.perf_counter()
            for _ in range(WORKS[name].calls):
                calls[name]()
            if launched_rank() == 0:
                print(f"{time.perf_counter() - begin}", flush=True)


class Job:
    """A job whose turns this process gives."""

    def __init__(self, ranks: int, names: list[str]) -> None:
        options = ["--ranks", str(ranks), "--replicas", str(REPLICAS), "--no-tag-output", "--timeout", "0"]
        command = [
            sys.executable,
            "-c",
            "from abele.cli import main; main()",
            "run",
            *options,
            __file__,
            "--play",
            *names,
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders: IO[str] = self._process.stdin
        self._told: IO[str] = self._process.stdout

    def wait(self) -> None:
        if self._told.readline() != "ready\n":
            sys.exit("the ranks did not start")

    def turn(self) -> float:
        """Seconds of one turn."""
        self._orders.write("go\n")
        self._orders.flush()
        return float(self._told.readline())

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", choices=WORKS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--play", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        play(given.play)
        return
    names = [given.only] if given.only else list(WORKS)
    jobs = {"one": Job(1, names), "ranks": Job(2, names)}
    best: dict[tuple[str, str], float] = {}
    try:
        for job in jobs.values():
            job.wait()
        for _ in range(given.rounds):
            for name in names:
                for kind, job in jobs.items():
                    best[name, kind] = min(best.get((name, kind), float("inf")), job.turn())
    finally:
        for job in jobs.values():
            job.end()
    rows = []
    for name in names:
        work = WORKS[name]
        each = work.samples * work.updates * work.calls * REPLICAS
        one, ranks = each / best[name, "one"], each / best[name, "ranks"]
        rows.append({"workload": name, "one": one, "ranks": ranks, "ratio": ranks / one})
    if given.json:
        print(json.dumps({"rows": rows}))
        return
    print(f"{'workload':10}{'1 x 2, samples/s':>20}{'2 x 1, samples/s':>20}{'ratio':>8}")
    for row in rows:
        print(f"{row['workload']:10}{row['one']:20,.0f}{row['ranks']:20,.0f}{row['ratio']:8.2f}")


if __name__ == "__main__":
    main()
