"""Cholesky factorisations of batches of matrices."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.poplibs.poplin import linalg
from abele.validation.parameters import Parameters


def build(graph: Graph, given: Parameters) -> Sequence:
    """The factorisation that ``given`` describes, of [batches, n, n]."""
    n = given.integer("a-rank", 16)
    shape = (given.integer("batches", 1), n, n)
    options = {"blockSize": given.integer("block-size", 8)}
    a = linalg.create_cholesky_input(graph, given.text("data-type", "float"), shape, options=options, name="a")
    prog = Sequence()
    linalg.cholesky(graph, a, given.flag("lower", True), prog, options=options)
    return prog
