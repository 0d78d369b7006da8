"""Sparse products by host kernels beside SciPy, PyTorch (CSR, BSR) and MKL's sparse BLAS, in one process.

    python benchmarks/sparse.py [--sizes 256,1024,4096] [--blocks 1,4,8,16] [--densities 4,8,16,32]
        [--columns 1,4,16,37,64,256,1024] [--passes forward,transposed,sampled] [--dtype f32] [--threads 2] [--json]

Random square matrices of uniform density; forward is S·X, transposed Sᵀ·G, sampled G·Xᵀ at the pattern. Ours is an
engine that runs a program of the product alone, as often as a round lasts: its steps, from operands in the engine's
variables to a result in one, with all copies between; entering the engine is shared by the repeats. Others are called
as often, from Python, on operands in the layout that suits them; transposes of S are made for them beforehand, with
their values, and one column is a vector, for which they have products of their own. Rounds alternate and the least time
of each counts, so that other work on the machine matters little; with --threads 1 --cpu processor time counts in its
place. Figures are ratios, above 1 where ours is faster than the best of the others. Others work in f32 with --dtype f16
as well, which none of them multiplies sparsely. With --turned our dense operands and results are [columns, rows], as
those of fully connected layers; the others' stay as they are.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from lesser_cpu import cpu_of_both, hold_pytorch
from library import keep_freed_memory, small_chip
from rich.console import Console
from rich.table import Table
from sparse_others import Call, products, sampled_products, transposed_products

from abele.graph import Graph, Repeat, Sequence
from abele.numerics import ElementType, as_element_type
from abele.poplibs.popsparse.host import host_product, host_sampled_product
from abele.runtime import Engine
from abele.sparsity import Pattern, random_pattern

PASSES = ("forward", "transposed", "sampled")
TOLERANCE = {"f32": 1e-3, "f16": 5e-2}
Row = dict[str, Any]
Clock = Callable[[], float]


def engine_of(
    pattern: Pattern, what: str, n: int, dtype: ElementType, *, turned: bool
) -> Callable[[int, int, dict[str, Any]], Engine]:
    """Makes an engine for a pass, of so many threads, that repeats the product so often."""
    (m, k), size = pattern.shape, pattern.num_values
    shapes = {
        "forward": {"values": (size,), "x": (k, n), "out": (m, n)},
        "transposed": {"values": (size,), "x": (m, n), "out": (k, n)},
        "sampled": {"g": (m, n), "x": (k, n), "out": (size,)},
    }[what]

    def make(threads: int, repeats: int, data: dict[str, Any]) -> Engine:
        graph = Graph(small_chip())
        stored = {name: shape[::-1] if turned else shape for name, shape in shapes.items()}
        held = {name: graph.variable(dtype, shape, name=name, map="linear") for name, shape in stored.items()}
        views = {name: t.transpose((1, 0)) if turned and t.ndim == 2 else t for name, t in held.items()}
        if what == "sampled":
            steps = host_sampled_product(graph, pattern, views["g"], views["x"], views["out"], name="product")
        else:
            steps = host_product(
                graph,
                pattern,
                views["values"],
                views["x"],
                views["out"],
                name="product",
                transposed=what == "transposed",
            )
        engine = Engine(
            graph,
            Repeat(repeats, Sequence(steps)),
            threads=threads,
            allow_out_of_memory=True,
            keep=list(held.values()),
        )
        for name in shapes:
            if name in data:
                given = data[name].reshape(shapes[name]).astype(dtype.np)
                engine[held[name]] = given.T if turned else given
        return engine

    return make


def least(call: Call, times: int, best: float, clock: Clock) -> float:
    """Seconds of one of ``times`` calls, or those of before if they were fewer."""
    start = clock()
    for _ in range(times):
        call()
    return min(best, (clock() - start) / times)


def measure(pattern: Pattern, what: str, n: int, dtype: ElementType, arguments: argparse.Namespace) -> Row:
    """One row of the table."""
    rng = np.random.default_rng(n)
    m, k = pattern.shape
    values = rng.standard_normal((pattern.num_blocks, *pattern.block)).astype(np.float32)
    data: dict[str, Any] = {"values": values, "x": rng.standard_normal((k, n)).astype(np.float32)}
    if what == "forward":
        others = products(pattern, values, data["x"])
    else:
        g = rng.standard_normal((m, n)).astype(np.float32)
        if what == "transposed":
            data["x"] = g
            others = transposed_products(pattern, values, g)
        else:
            data["g"] = g
            others = sampled_products(pattern, g, data["x"])
    wants = {name: call() for name, call in others.items()}
    once = {name: min(least(call, 1, np.inf, arguments.clock) for _ in range(2)) for name, call in others.items()}
    # Those far behind are left out of the rounds.
    others = {name: call for name, call in others.items() if once[name] < 4 * min(once.values())}
    repeats = max(1, int(arguments.round_seconds / min(once.values())))
    engine = engine_of(pattern, what, n, dtype, turned=arguments.turned)(arguments.threads, repeats, data)
    with engine:
        engine.run()
        made = np.asarray(engine["out"], np.float32)
        check(made.T if arguments.turned else made, wants, dtype)
        ours, theirs = np.inf, dict.fromkeys(others, np.inf)
        for _ in range(arguments.rounds):
            ours = min(ours, least(engine.run, 1, np.inf, arguments.clock) / repeats)
            theirs = {name: least(call, repeats, theirs[name], arguments.clock) for name, call in others.items()}
    best = min(theirs, key=lambda name: theirs[name])
    work = 2 * pattern.num_values * n
    return {
        "size": m,
        "density": pattern.density,
        "block": pattern.block[0],
        "columns": n,
        "pass": what,
        "ours": work / ours / 1e9,
        "best": work / theirs[best] / 1e9,
        "other": best,
        "ratio": theirs[best] / ours,
    }


def check(ours: Any, wants: dict[str, Any], dtype: ElementType) -> None:
    """Stop if our result is not theirs."""
    for name, want in wants.items():
        if isinstance(want, torch.Tensor):
            want = (want.values() if want.layout == torch.sparse_csr else want).numpy()
        want = np.asarray(want)
        if want.ndim == ours.ndim or want.size == ours.size:
            scale = np.abs(want).max() + 1e-9
            wrong = np.abs(ours.reshape(-1) - want.reshape(-1)).max() / scale
            is_blocks = name.startswith("PyTorch") and ours.ndim == 1
            if wrong > TOLERANCE[str(dtype)] and not is_blocks:
                raise SystemExit(f"ours is off by {wrong:.2g} from {name}")


def show(rows: list[Row], console: Console) -> None:
    """Print rows as a table, and the means of groups."""
    table = Table(title=f"sparse products, {cpu_of_both()}, GFLOP/s", box=None, padding=(0, 2, 0, 0))
    for heading in ("m = k", "density", "block", "n", "pass", "ours", "best other", "", "ratio"):
        table.add_column(heading, justify="left" if heading in ("pass", "") else "right")
    for row in rows:
        density = f"1/{round(1 / row['density'])}"
        figures = f"{row['ours']:.1f}", f"{row['best']:.1f}", row["other"], f"{row['ratio']:.2f}"
        table.add_row(str(row["size"]), density, str(row["block"]), str(row["columns"]), row["pass"], *figures)
    console.print(table)
    for what, block in itertools.product(PASSES, sorted({row["block"] for row in rows})):
        found = [row for row in rows if (row["pass"], row["block"]) == (what, block)]
        if found:
            wanted = 1.0 if block == 1 else 1.5
            ratios = [row["ratio"] for row in found]
            worst = min(found, key=lambda row: row["ratio"])
            console.print(
                f"{what}, block {block}: {len(ratios)} rows, geometric mean {statistics.geometric_mean(ratios):.2f}, "
                f"{sum(r < wanted for r in ratios)} below {wanted}, least {worst['ratio']:.2f} (m {worst['size']}, "
                f"1/{round(1 / worst['density'])}, n {worst['columns']})"
            )


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=_numbers, default=[256, 1024, 4096], help="rows and columns of S")
    parser.add_argument("--blocks", type=_numbers, default=[1, 4, 8, 16], help="edges of blocks")
    parser.add_argument("--densities", type=_numbers, default=[4, 8, 16, 32], help="4 for a quarter of the blocks")
    parser.add_argument("--columns", type=_numbers, default=[1, 4, 16, 37, 64, 256, 1024], help="columns of X")
    parser.add_argument("--passes", type=lambda text: text.split(","), default=list(PASSES), help="of " + str(PASSES))
    parser.add_argument("--dtype", default="f32", help="type of our operands: f32 or f16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="host threads of each")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds of each side")
    parser.add_argument("--round-seconds", type=float, default=0.01, help="what one round lasts, if not a single call")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--turned", action="store_true", help="our dense operands have their columns in stretches")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of wall time, for one thread")
    arguments = parser.parse_args()
    arguments.clock = time.process_time if arguments.cpu else time.perf_counter
    warnings.filterwarnings("ignore", category=UserWarning)
    hold_pytorch()
    keep_freed_memory()
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    dtype = as_element_type(arguments.dtype)
    rows = []
    for size, block, density in itertools.product(arguments.sizes, arguments.blocks, arguments.densities):
        pattern = random_pattern((size, size), 1 / density, (block, block), seed=size + density)
        for what, n in itertools.product(arguments.passes, arguments.columns):
            rows.append(measure(pattern, what, n, dtype, arguments))
    if arguments.json:
        print(json.dumps({"rows": rows}))
    else:
        show(rows, Console(width=120))


if __name__ == "__main__":
    main()
