"""Matrix products by every way that this host has, and what the measured choice costs against the best of them.

    python benchmarks/product_choice.py [--shapes 40] [--seed 1] [--json] [--torch]

Shapes are drawn anew for each seed: extents between 4 and 2,000, even on a logarithmic scale, some of them powers of
two; operands plain or transposed, a fifth with rows a power of two apart, some right ones in blocks of four; a third
with a ReLU of the results. No rate was measured, and nothing fitted, at these. All ways run in turns on one thread, by
processor time; the least of many times counts. ``--torch`` loads PyTorch, whose MKL is then a way.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from dataclasses import dataclass, replace
from typing import Any

from abele.host_facts.calm import seconds
from abele.kernels.plan.assemble import assemble
from abele.kernels.plan.measure_products import MeasuredRates, measured_target
from abele.kernels.plan.passes import run_passes
from abele.kernels.plan.product_table import chosen_way
from abele.kernels.plan.repeated import RepeatedPlan
from abele.kernels.plan.schedule_functions import generate_code
from abele.kernels.routines.product_class import ProductClass
from abele.kernels.target import HostTarget, host_target
from abele.llvm.flush import denormals_flushed
from abele.llvm.host import host_cpu

ROUNDS, ROUND_SECONDS = 7, 5e-4
LEAST, MOST = 1 << 14, 1 << 28
"""Multiply-adds of a product."""


@dataclass(frozen=True)
class Case:
    """A product: how its operands lie, its rows, columns and summed elements, and whether a ReLU follows."""

    of: ProductClass
    shape: tuple[int, int, int]
    with_relu: bool

    def __str__(self) -> str:
        return f"{self.of} {'×'.join(map(str, self.shape))}{' relu' * self.with_relu}"


def cases(count: int, seed: int) -> list[Case]:
    """So many products, all different."""
    draw = random.Random(seed)
    found: dict[Case, None] = {}
    while len(found) < count:
        logs = [draw.uniform(2, 11) for _ in range(3)]
        shape = tuple(1 << round(x) if draw.random() < 0.2 else round(2**x) for x in logs)
        of = ProductClass(draw.random() < 0.5, draw.random() < 0.5, is_crowded=draw.random() < 0.2)
        of = replace(of, is_left_crowded=of.left_turned and draw.random() < 0.2)
        near = shape[1] if not of.right_turned else shape[2]
        of = replace(of, right_in_blocks=not of.is_crowded and near % 4 == 0 and draw.random() < 0.5)
        if LEAST <= math.prod(shape) <= MOST:
            found[Case(of, (shape[0], shape[1], shape[2]), draw.random() < 1 / 3)] = None
    return list(found)


def targets() -> dict[str, HostTarget]:
    """The target that has every product run by a way."""
    target = host_target()
    costs = target.products
    assert costs is not None, "ABELE_PRODUCTS leaves no choice"
    found = {"loops": replace(target, products=None)}
    found["packed"] = replace(target, products=replace(costs, forced=True, library=None))
    if costs.library is not None:
        found[costs.library.name] = replace(target, products=replace(costs, forced=True))
    return found


def times(case: Case) -> dict[str, float]:
    """Seconds by way."""
    runs = {}
    for way, target in targets().items():
        buffers, program = MeasuredRates(run_passes).scheduled(case.of, case.shape, target, with_relu=case.with_relu)
        runs[way] = RepeatedPlan(buffers, assemble(generate_code(program)))
    counts = {}
    for way, run in runs.items():
        run(1)
        counts[way] = max(1, round(ROUND_SECONDS / seconds(run, 1)))
    found = dict.fromkeys(runs, math.inf)
    for _ in range(ROUNDS):
        for way, run in runs.items():
            run(1)
            found[way] = min(found[way], seconds(run, counts[way]) / counts[way])
    return found


def main() -> None:
    """Print a row for each product, and the losses."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--torch", action="store_true")
    arguments = parser.parse_args()
    if arguments.torch:
        import torch

        torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with denormals_flushed():
        for case in cases(arguments.shapes, arguments.seed):
            way, found = (
                chosen_way(case.of, case.shape, measured_target(run_passes), with_relu=case.with_relu),
                times(case),
            )
            rates = {name: 2 * math.prod(case.shape) / taken / 1e9 for name, taken in found.items()}
            loss = found[way] / min(found.values()) - 1
            rows.append({"product": str(case), "chosen": way, "loss": loss, "gflops": rates})
            if not arguments.json:
                numbers = " ".join(f"{name} {rate:6.1f}" for name, rate in rates.items())
                print(f"{case!s:<32} {numbers}  {way:<7} {loss:6.1%}", flush=True)
    losses = [row["loss"] for row in rows]
    summary = {"cpu": host_cpu().name, "mean": sum(losses) / len(losses), "worst": max(losses)}
    best = {way: sum(row["gflops"][way] / max(row["gflops"].values()) for row in rows) / len(rows) for way in targets()}
    if arguments.json:
        json.dump({**summary, "share_of_best": best, "products": rows}, sys.stdout, indent=1)
        return
    print(
        f"{summary['cpu']}: the choice takes {summary['mean']:.1%} more than the best in the mean, "
        f"at most {summary['worst']:.1%}"
    )
    print(
        "always one way, its mean rate by the best's: " + ", ".join(f"{way} {share:.0%}" for way, share in best.items())
    )


if __name__ == "__main__":
    main()
