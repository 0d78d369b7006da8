"""Triangular solves: A·X = B, or X·A = B."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.poplibs.poplin import linalg
from abele.validation.parameters import Parameters


def build(graph: Graph, given: Parameters) -> Sequence:
    """The solve that ``given`` describes, of [batches, n, n] with right-hand sides of rank ``b-rank``."""
    n, rank, batches = given.integer("a-rank", 16), given.integer("b-rank", 1), given.integer("batches", 1)
    left = given.flag("left-side", True)
    shapes = (batches, n, n), (batches, n, rank) if left else (batches, rank, n)
    dtype, options = given.text("data-type", "float"), {"blockSize": given.integer("block-size", 64)}
    a = linalg.create_triangular_solve_input_lhs(graph, dtype, *shapes, left, options=options, name="a")
    b = linalg.create_triangular_solve_input_rhs(graph, dtype, *shapes, left, options=options, name="b")
    lower, unit = given.flag("lower", True), given.flag("unit-diagonal")
    prog = Sequence()
    linalg.triangular_solve(graph, a, b, left_side=left, lower=lower, unit_diagonal=unit, prog=prog, options=options)
    return prog
