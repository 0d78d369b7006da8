"""Training steps as native plans against PyTorch, on the same threads.

    python benchmarks/kernels.py [--json] [--threads 2] [--compile] [WORKLOAD ...]

Samples/s are medians of alternating rounds; ``ratio`` columns are medians of the ratios of neighbouring rounds. Both
sides flush denormals. The plans are made of kernels written in this directory, so they measure the kernels room alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import kernel_models
import numpy as np
import torch
from kernel_models import Model
from lesser_cpu import hold_pytorch
from native_runner import Runner

from abele.kernels import plan_native

WORKLOADS = {"braggnn": kernel_models.braggnn, "digits": kernel_models.digits, "mlp": kernel_models.mlp}
ROUND_SECONDS = 0.3


def native_step(model: Model, threads: int) -> tuple[Runner, float]:
    """A runner with the model's data and parameters in place, and the seconds that planning took."""
    start = time.perf_counter()
    plan = plan_native(model.tape.buffers, model.tape.calls)
    seconds = time.perf_counter() - start
    storage = {b.id: np.zeros(b.shape, b.type.np) for b in model.tape.buffers if b.pinned}
    for value, data in zip(model.inputs, model.data, strict=False):
        storage[value.buffer.id][...] = data
    for name, parameter in model.module.named_parameters():
        storage[model.tape.parameters[name].buffer.id][...] = parameter.detach().numpy()
    return Runner(plan, storage, threads), seconds


def torch_step(model: Model, module: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], None]:
    """One training step in PyTorch."""
    x, target = (torch.tensor(d) for d in model.data)
    target = target.long() if target.dtype == torch.int32 else target
    optimiser = torch.optim.Adam(model.module.parameters(), lr=model.rate)

    def step() -> None:
        optimiser.zero_grad()
        model.criterion(module(x), target).backward()
        optimiser.step()

    return step


def seconds_a_step(step: Callable[[int], None], rounds: int) -> float:
    start = time.perf_counter()
    step(rounds)
    return (time.perf_counter() - start) / rounds


def repeated(step: Callable[[], None]) -> Callable[[int], None]:
    def run(rounds: int) -> None:
        for _ in range(rounds):
            step()

    return run


def measure(model: Model, threads: int, with_compile: bool, repeats: int) -> dict[str, object]:
    """One row of the table."""
    runner, plan_seconds = native_step(model, threads)
    sides: dict[str, Callable[[int], None]] = {"abele": runner.run, "eager": repeated(torch_step(model, model.module))}
    if with_compile:
        sides["compile"] = repeated(torch_step(model, torch.compile(model.module)))
    counts = {}
    for name, side in sides.items():
        side(3)
        counts[name] = max(1, int(ROUND_SECONDS / seconds_a_step(side, 3)))
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            times[name].append(seconds_a_step(side, counts[name]))
    row: dict[str, object] = {"workload": model.name, "plan_seconds": round(plan_seconds, 2)}
    for name, found in times.items():
        row[name] = round(model.batch / statistics.median(found), 1)
        if name != "abele":
            pairs = zip(found, times["abele"], strict=True)
            row[f"{name}_ratio"] = round(statistics.median(a / b for a, b in pairs), 2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="default: all")
    parser.add_argument("--json", action="store_true", help='print one object, {"rows": [...]}')
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--compile", action="store_true", help="torch.compile too (slow to start)")
    args = parser.parse_args()
    hold_pytorch()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    names = args.workloads or list(WORKLOADS)
    rows = [measure(WORKLOADS[n](), args.threads, args.compile, args.repeats) for n in names]
    if args.json:
        print(json.dumps({"rows": rows}))
        return
    columns = list(rows[0])
    print("  ".join(f"{c:>14}" for c in columns))
    for row in rows:
        print("  ".join(f"{row[c]!s:>14}" for c in columns))


if __name__ == "__main__":
    main()
