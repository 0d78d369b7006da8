"""A sparse matrix times a dense one, three ways, with the modelled cycles of each.

Static products are compiled for one pattern. Dynamic ones take any pattern of their size while the program stays; here
two patterns run one after the other on one engine. Both are held against NumPy.

    python examples/spmm.py --rows 1024 --columns 64 --density 0.0625 --block 16
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from abele import Engine, Graph, Sequence, systems
from abele.numerics import f16
from abele.poplibs import poplin
from abele.poplibs.popsparse import dynamic, static_
from abele.sparsity import Pattern, random_pattern


@dataclass(frozen=True)
class Problem:
    """Sizes of a product: a square sparse matrix of ``rows`` by a dense one of ``columns``."""

    rows: int = 1024
    columns: int = 64
    density: float = 1 / 16
    block: int = 16
    system: str = "bow-2000"

    def pattern(self, seed: int = 0) -> Pattern:
        """Blocks drawn at random."""
        return random_pattern((self.rows, self.rows), self.density, (self.block, self.block), seed=seed)

    def values(self, pattern: Pattern) -> np.ndarray:
        """Values of a pattern."""
        drawn = np.random.default_rng(pattern.num_blocks).normal(size=(pattern.num_blocks, *pattern.block))
        return drawn.astype(np.float16)

    def dense(self) -> np.ndarray:
        """The dense operand."""
        return np.random.default_rng(1).normal(size=(self.rows, self.columns)).astype(np.float16)

    def graph(self) -> Graph:
        """An empty graph."""
        return Graph(systems.get(self.system))


def dense_product(problem: Problem) -> int:
    """Cycles of the product of a dense matrix."""
    graph, prog = problem.graph(), Sequence()
    shapes = (problem.rows, problem.rows), (problem.rows, problem.columns)
    a = poplin.create_matmul_input_lhs(graph, f16, *shapes)
    b = poplin.create_matmul_input_rhs(graph, f16, *shapes)
    poplin.matmul(graph, a, b, prog)
    with Engine(graph, prog) as engine:
        return engine.report.total_cycles


def static_product(problem: Problem) -> tuple[int, float]:
    """Cycles, and the largest error beside NumPy in float64."""
    graph, prog, pattern = problem.graph(), Sequence(), problem.pattern()
    params = static_.MatMulParams.createForSparseDense(1, problem.rows, problem.rows, problem.columns)
    a = static_.createSparseDenseMatMulLHS(graph, "half", params, pattern, "a")
    b = static_.createSparseDenseMatMulRHS(graph, "half", params, pattern, "b")
    out = static_.sparseDenseMatMul(graph, a, b, prog)
    with Engine(graph, prog) as engine:
        values, x = problem.values(pattern), problem.dense()
        engine.write(a.getNzValuesTensor(), values.reshape(-1))
        engine.write(b, x[None])
        engine.run()
        return engine.report.total_cycles, error(engine.read(out)[0], pattern, values, x)


def dynamic_product(problem: Problem, patterns: int = 2) -> tuple[int, float]:
    """Cycles, and the largest error over several patterns that one program runs with."""
    graph, prog = problem.graph(), Sequence()
    block = dynamic.SparsityParams(blockDimensions=(problem.block, problem.block))
    sizes = 1, problem.rows, problem.rows, problem.columns
    params = dynamic.MatMulParams.createWithNumNonZeroValues(block, problem.pattern().num_values, *sizes)
    a = dynamic.createSparseDenseMatMulLHS(graph, "half", params)
    b = dynamic.createSparseDenseMatMulRHS(graph, "half", params)
    out = dynamic.sparseDenseMatMul(graph, a, b, prog)
    partitioner, worst = dynamic.Partitioner(params, "half", graph), 0.0
    with Engine(graph, prog) as engine:
        for seed in range(patterns):
            pattern, x = problem.pattern(seed), problem.dense()
            values = problem.values(pattern)
            data = partitioner.createSparsityDataImpl((pattern, values))
            engine.write(a.getMetaInfoTensor(), data.metaInfo)
            engine.write(a.getNzValuesTensor(), data.nzValues)
            engine.write(b, x[None])
            engine.run()
            worst = max(worst, error(engine.read(out)[0], pattern, values, x))
        return engine.report.total_cycles, worst


def error(found: np.ndarray, pattern: Pattern, values: np.ndarray, x: np.ndarray) -> float:
    """Largest error beside float64, as a share of the largest element."""
    expected = pattern.to_dense(values.astype(np.float64)) @ x.astype(np.float64)
    return float(abs(found - expected).max() / abs(expected).max())


def main(problem: Problem) -> dict[str, int]:
    """Print and return the cycles of each way."""
    (static, first), (dynamics, second) = static_product(problem), dynamic_product(problem)
    cycles = {"dense": dense_product(problem), "static": static, "dynamic": dynamics}
    print(f"{problem.rows:,} x {problem.rows:,} by {problem.columns:,} columns, f16, density {problem.density:.3g}")
    for name, number in cycles.items():
        print(f"{name:>8} {number:10,} cycles, {cycles['dense'] / number:5.2f} times as fast as dense")
    print(f"largest errors beside float64: static {first:.1e}, dynamic {second:.1e}")
    return cycles


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--density", type=float, default=1 / 16)
    parser.add_argument("--block", type=int, default=16)
    given = parser.parse_args()
    main(Problem(given.rows, given.columns, given.density, given.block))
