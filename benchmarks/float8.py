"""Products of 8-bit floats: modelled cycles on a C600 beside those of f16, and the host's rates.

    python benchmarks/float8.py [--sizes 512 1024 2048 4096] [--host 1024] [--repeats 7]

Cycles are those of whole programs. Times are CPU time of one thread, f16 and 8-bit floats in turns, medians.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from abele.compiler import Executable, compile_program
from abele.graph import Graph, Sequence, Tensor
from abele.machine import systems
from abele.numerics import ElementType, f8_143, f8_152, f16, to_device
from abele.poplibs import poplin
from abele.runtime import Engine

SYSTEM = systems.c600()


def product(dtype: ElementType, n: int) -> tuple[Executable, Tensor, Tensor]:
    """A product of squares, compiled, and its operands."""
    graph, prog, shape = Graph(SYSTEM), Sequence(), (n, n)
    a = poplin.create_matmul_input_lhs(graph, dtype, shape, shape, name="a", partials_type=f16)
    b = poplin.create_matmul_input_rhs(graph, dtype, shape, shape, name="b", partials_type=f16)
    poplin.matmul(graph, a, b, prog, partials_type=f16)
    return compile_program(graph, prog), a, b


def modelled(sizes: list[int]) -> None:
    """Cycles, and what they come to."""
    print(f"{'n':>6} {'f16 cycles':>12} {'f8 cycles':>12} {'ratio':>6} {'f16 TFLOP/s':>12} {'f8 TFLOP/s':>11}")
    for n in sizes:
        half, eight = (product(t, n)[0].report.total_cycles for t in (f16, f8_143))
        rates = [2 * n**3 / SYSTEM.seconds(c) / 1e12 for c in (half, eight)]
        print(f"{n:>6} {half:>12,} {eight:>12,} {half / eight:>6.2f} {rates[0]:>12.0f} {rates[1]:>11.0f}")
    peaks = [SYSTEM.peak_flops(t, "f16") / 1e12 for t in ("f16", "f8")]
    print(f"peaks {peaks[0]:.1f} and {peaks[1]:.1f} TFLOP/s; published 280 (as sold) and 560 by construction")


def measured(n: int, repeats: int) -> None:
    """CPU time of native kernels."""
    engines = {}
    for dtype in (f16, f8_143, f8_152):
        executable, a, b = product(dtype, n)
        engine = Engine(executable, mode="native", threads=1, keep=[a, b])
        rng = np.random.default_rng(0)
        for tensor in (a, b):
            engine[tensor] = to_device(rng.normal(size=(n, n)).astype(np.float32), dtype)
        engine.run()
        engines[dtype] = engine
    times: dict[ElementType, list[float]] = {t: [] for t in engines}
    for _ in range(repeats):
        for dtype, engine in engines.items():
            before = time.process_time()
            engine.run()
            times[dtype].append(time.process_time() - before)
    half = statistics.median(times[f16])
    for dtype, found in times.items():
        middle = statistics.median(found)
        print(f"host, {n}³, {dtype}: {2 * n**3 / middle / 1e9:.1f} GFLOP/s, {middle / half:.2f} of the time of f16")
        engines[dtype].close()


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[512, 1024, 2048, 4096])
    parser.add_argument("--host", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    modelled(given.sizes)
    measured(given.host, given.repeats)


if __name__ == "__main__":
    main()
