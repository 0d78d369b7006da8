"""Modelled seconds of the products that published sparse benchmarks time, by mode.

The operand is made by the library, and the product is the whole program: its compute and exchange, without the host.
"""

from __future__ import annotations

from functools import lru_cache

from abele.compiler import compile_program
from abele.graph import Graph, Sequence
from abele.machine import System
from abele.poplibs import poplin
from abele.poplibs.popsparse import static_
from abele.poplibs.popsparse.explanation import SparseProblem
from abele.sparsity import Pattern, random_pattern


def static_seconds(problem: SparseProblem, system: System) -> float:
    """Seconds of ``popsparse::static_``.

    Raises:
        OutOfMemoryError: It fits no tile.
    """
    graph, main = Graph(system), Sequence()
    pattern = _pattern(problem.m, problem.k, problem.density, problem.block)
    params = static_.MatMulParams.createForSparseDense(1, problem.m, problem.k, problem.n)
    cache = static_.PlanningCache()
    sparse = static_.create_sparse_dense_matmul_lhs(graph, problem.dtype, params, pattern, cache=cache)
    dense = static_.create_sparse_dense_matmul_rhs(graph, problem.dtype, params, pattern, cache=cache)
    static_.sparse_dense_matmul(graph, sparse, dense, main)
    return _seconds(graph, main)


@lru_cache(maxsize=1)
def _pattern(m: int, k: int, density: float, block: int) -> Pattern:
    return random_pattern((m, k), density, (block, block))


def dense_seconds(problem: SparseProblem, system: System) -> float:
    """Seconds of the dense product of the same sizes, with partial sums of the operands' type.

    Raises:
        OutOfMemoryError: It fits no tile.
    """
    graph, main = Graph(system), Sequence()
    shapes, options = ((problem.m, problem.k), (problem.k, problem.n)), {"partialsType": problem.dtype}
    left = poplin.create_matmul_input_lhs(graph, problem.dtype, *shapes, options=options)
    right = poplin.create_matmul_input_rhs(graph, problem.dtype, *shapes, options=options)
    poplin.matmul(graph, left, right, main, options=options)
    return _seconds(graph, main)


def _seconds(graph: Graph, main: Sequence) -> float:
    report = compile_program(graph, main).report
    return float(report.seconds(report.cycles().total))
