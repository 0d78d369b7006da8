"""Products of 8-bit floats: modelled cycles on a C600 beside those of f16, and the host's rates.

    python benchmarks/float8.py [--sizes 512 1024 2048 4096] [--host 1024] [--repeats 7] [--sparse 2048]

Cycles are those of whole programs; sparse ones have sums of halves throughout. Times are CPU time of one thread, f16
and 8-bit floats in turns, medians.
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
from abele.poplibs.popsparse import dynamic, experimental, static_
from abele.runtime import Engine
from abele.sparsity import Pattern, random_pattern

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


def sparse(n: int, columns: int = 512) -> None:
    """Cycles of n x n sparse matrices by 512 columns in all of popsparse's libraries."""
    print(f"{'library':>12} {'block':>5} {'density':>8} {'f16 cycles':>12} {'f8 cycles':>12} {'ratio':>6}")
    for library, cycles in (("static_", static_cycles), ("experimental", block_cycles), ("dynamic", dynamic_cycles)):
        for block in (8, 16):
            for part in (4, 16):
                pattern = random_pattern((n, n), 1 / part, (block, block))
                half, eight = (cycles(t, pattern, columns, 1 / part) for t in (f16, f8_143))
                print(f"{library:>12} {block:>5} {f'1/{part}':>8} {half:>12,} {eight:>12,} {half / eight:>6.2f}")


def static_cycles(dtype: ElementType, pattern: Pattern, columns: int, density: float) -> int:
    """Cycles of a product of a pattern that is known beforehand."""
    del density
    params = static_.MatMulParams.createForSparseDense(1, *pattern.shape, columns)
    graph, prog, cache = Graph(SYSTEM), Sequence(), static_.PlanningCache()
    a = static_.create_sparse_dense_matmul_lhs(graph, dtype, params, pattern, cache=cache)
    b = static_.create_sparse_dense_matmul_rhs(graph, dtype, params, pattern, cache=cache)
    static_.sparse_dense_matmul(graph, a, b, prog)
    return int(compile_program(graph, prog).report.total_cycles)


def block_cycles(dtype: ElementType, pattern: Pattern, columns: int, density: float) -> int:
    """Cycles of a dense matrix by blocks."""
    del density
    (k, n), (bk, bn) = pattern.shape, pattern.block
    params = experimental.BSMatMulParams((columns, k, n), (16, bk, bn), pattern, False, dtype, f16, f16)
    graph, prog = Graph(SYSTEM), Sequence()
    lhs = experimental.create_bs_mat_mul_input_lhs(graph, params)
    rhs = experimental.create_bs_mat_mul_input_rhs(graph, params)
    experimental.bs_mat_mul(graph, params, lhs, rhs, prog)
    return int(compile_program(graph, prog).report.total_cycles)


def dynamic_cycles(dtype: ElementType, pattern: Pattern, columns: int, density: float) -> int:
    """Cycles of a product whose pattern comes at run time."""
    options = {"partialsType": "half"}
    return dynamic.sparse_figure(
        *pattern.shape, columns, density, pattern.block, dtype, target=SYSTEM, options=options
    ).compiled


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
    parser.add_argument("--sparse", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    modelled(given.sizes)
    sparse(given.sparse)
    measured(given.host, given.repeats)


if __name__ == "__main__":
    main()
