"""Matrix products as native plans against PyTorch's library, by classes of shapes and in every layout, on one thread.

    python benchmarks/products.py [--json] [--rounds 9] [CLASS ...]
    ABELE_CPU=znver3 python benchmarks/products.py large skinny

GFLOP/s of each way: what the planner chooses, the packed routine, loops over register tiles, and ``torch.matmul``.
Processor time of the thread, the least of some rounds in turns, so that what else runs disturbs little. ``layout`` has
a letter per operand: N as it is multiplied, T transposed. ``peak`` is the share of the machine's rate that the best of
ours reaches. Each result is compared with PyTorch's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from lesser_cpu import hold_pytorch
from native_runner import Runner

from abele.host_facts import machine_rates
from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import Expr, load, nest, select, store
from abele.kernels.routines.costs import VARIABLE
from abele.numerics import f32

LAYOUTS = ("NN", "NT", "TN", "TT")
WAYS = ("auto", "packed", "loops")
SECONDS = 0.01
"""Of one timing."""


@dataclass(frozen=True)
class Product:
    """A product of rows, columns and summed elements, ``batch`` of them, in a layout; followed by a ReLU if fused."""

    kind: str
    shape: tuple[int, int, int]
    layout: str = "NN"
    batch: int = 1
    is_fused: bool = False

    @property
    def flops(self) -> int:
        """Operations: a multiply-add counts two."""
        return 2 * self.batch * math.prod(self.shape)

    def __str__(self) -> str:
        m, n, k = self.shape
        return f"{f'{self.batch}x' if self.batch > 1 else ''}[{m}, {k}]x[{k}, {n}]{' relu' if self.is_fused else ''}"


def all_products() -> Iterator[Product]:
    """Products by class: of each the layouts in which networks have them, forward and backward."""
    shapes = {
        "large": [(256, 256, 256), (512, 512, 512), (1024, 1024, 1024)],
        "layer": [(128, 1500, 1500), (512, 3072, 768), (128, 128, 1024), (1500, 1500, 128)],
        "few rows": [(1, 1024, 1024), (4, 1024, 1024), (8, 512, 512), (16, 768, 768), (13, 999, 777)],
        "few columns": [(1024, 1, 1024), (1024, 4, 1024), (512, 8, 512), (777, 13, 999), (768, 16, 768)],
        "short sum": [(512, 512, 8), (1000, 700, 33), (2048, 64, 64)],
        "long sum": [(32, 32, 8192), (64, 96, 4096)],
        "tall": [(8192, 64, 256), (5000, 37, 100)],
        "odd": [(97, 101, 103), (255, 257, 259), (333, 500, 77), (31, 17, 61)],
    }
    for kind, those in shapes.items():
        yield from (Product(kind, shape, layout) for shape in those for layout in LAYOUTS)
    batches = [(12, (128, 128, 64)), (48, (64, 64, 32)), (64, (17, 17, 16)), (6, (197, 197, 64))]
    yield from (Product("batched", shape, layout, batch) for batch, shape in batches for layout in LAYOUTS)
    yield from (Product("fused", shape, "NT", is_fused=True) for shape in ((128, 1500, 1500), (256, 2048, 512)))
    yield Product("fused", (8, 4096, 1024), "NT", is_fused=True)


def planned(product: Product, arrays: list[np.ndarray], way: str) -> Runner:
    """A runner of the product, run in ``way``."""
    m, n, k = product.shape
    dims = {"b": product.batch, "i": m, "j": n, "k": k}
    left = ("b", "i", "k") if product.layout[0] == "N" else ("b", "k", "i")
    right = ("b", "k", "j") if product.layout[1] == "N" else ("b", "j", "k")
    shapes = [tuple(dims[d] for d in names) for names in (left, right, ("b", "i", "j"))]
    names = ("a", "b", "c")
    buffers = [Buffer(number, shape, f32, name=names[number]) for number, shape in enumerate(shapes)]
    value: Expr = load(0, *left) * load(1, *right)
    kernel = HostKernel(tuple(shapes), (f32,) * 3, 2, 1, (nest(dims, store(2, ("b", "i", "j"), value, "add")),))
    calls = [BoundKernel(kernel, tuple(map(bind, buffers)), "product")]
    if product.is_fused:
        buffers[2] = Buffer(2, shapes[2], f32, pinned=False, name="y")
        buffers.append(Buffer(3, shapes[2], f32, name="z"))
        point = ("b", "i", "j")
        value = load(0, *point)
        relu = nest({d: dims[d] for d in point}, store(1, point, select(value > 0.0, value, 0.0)))
        calls = [
            BoundKernel(kernel, tuple(map(bind, buffers[:3])), "product"),
            BoundKernel(HostKernel((shapes[2],) * 2, (f32,) * 2, 1, 1, (relu,)), tuple(map(bind, buffers[2:])), "relu"),
        ]
    os.environ[VARIABLE] = way
    plan = plan_native(buffers, calls)
    result = buffers[-1].id
    storage = {
        0: arrays[0].reshape(shapes[0]),
        1: arrays[1].reshape(shapes[1]),
        result: np.zeros(shapes[2], np.float32),
    }
    return Runner(plan, storage, 1)


def torch_product(product: Product, arrays: list[np.ndarray]) -> Callable[[], torch.Tensor]:
    """PyTorch's turn of the same, into memory that is there."""
    m, n, k = product.shape
    a, b = (torch.from_numpy(x) for x in arrays)
    a = a.view(product.batch, m, k) if product.layout[0] == "N" else a.view(product.batch, k, m).transpose(1, 2)
    b = b.view(product.batch, k, n) if product.layout[1] == "N" else b.view(product.batch, n, k).transpose(1, 2)
    if product.batch == 1:
        a, b = a[0], b[0]
    out = torch.empty((m, n) if product.batch == 1 else (product.batch, m, n))
    if product.is_fused:
        return lambda: torch.relu_(torch.matmul(a, b, out=out))
    return lambda: torch.matmul(a, b, out=out)


def seconds_of(run: Callable[[int], object], count: int) -> float:
    """Processor time of one of ``count`` runs."""
    start = time.thread_time()
    run(count)
    return max(time.thread_time() - start, 1e-9) / count


def measure(product: Product, rounds: int) -> dict[str, object]:
    """One row of the table."""
    m, n, k = product.shape
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=product.batch * size).astype(np.float32) for size in (m * k, k * n)]
    runners = {way: planned(product, arrays, way) for way in WAYS}
    theirs = torch_product(product, arrays)

    def torch_runs(count: int) -> None:
        for _ in range(count):
            theirs()

    sides: dict[str, Callable[[int], object]] = {way: runner.run for way, runner in runners.items()}
    sides["torch"] = torch_runs
    counts = {}
    for name, side in sides.items():
        side(2)
        counts[name] = max(1, int(SECONDS / seconds_of(side, 2)))
    expected = theirs().numpy().ravel()
    for way, runner in runners.items():
        got = runner.storage[3 if product.is_fused else 2].ravel()
        error = np.abs(got - expected).max() / np.abs(expected).max()
        assert error < 1e-4, f"{product} {product.layout} by {way}: off by {error}"
    least = dict.fromkeys(sides, math.inf)
    for _ in range(rounds):
        for name, side in sides.items():
            least[name] = min(least[name], seconds_of(side, counts[name]))
    rates = {name: product.flops / seconds / 1e9 for name, seconds in least.items()}
    row: dict[str, object] = {"class": product.kind, "product": str(product), "layout": product.layout}
    row |= {name: round(rate, 1) for name, rate in rates.items()}
    row["ratio"] = round(rates["auto"] / rates["torch"], 2)
    row["peak"] = round(max(rates[way] for way in WAYS) * 1e9 / machine_rates().flops_per_second, 2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    products = list(all_products())
    kinds = list(dict.fromkeys(p.kind for p in products))
    parser.add_argument("classes", nargs="*", choices=[*kinds, []], metavar="CLASS", help=f"of {', '.join(kinds)}")
    parser.add_argument("--json", action="store_true", help='print one object, {"rows": [...]}')
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    hold_pytorch()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    rows = [measure(p, args.rounds) for p in products if p.kind in (args.classes or kinds)]
    if args.json:
        print(json.dumps({"rows": rows}))
        return
    print(f"machine: {machine_rates().flops_per_second / 1e9:.0f} GFLOP/s")
    print("  ".join(f"{c:>{28 if c == 'product' else 11}}" for c in rows[0]))
    for row in rows:
        print("  ".join(f"{row[c]!s:>{28 if c == 'product' else 11}}" for c in row))
    for kind in args.classes or kinds:
        ratios = [float(str(row["ratio"])) for row in rows if row["class"] == kind]
        print(f"{kind}: geometric mean of ratios {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


if __name__ == "__main__":
    main()
