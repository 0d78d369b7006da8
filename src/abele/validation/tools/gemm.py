"""General matrix products: C = alpha * (A @ B) + beta * C."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.numerics import as_element_type
from abele.poplibs import poplin, popops
from abele.validation.parameters import Parameters


def build(graph: Graph, given: Parameters) -> Sequence:
    """The product that ``given`` describes, [g, m, k] by [g, k, n], and the scaled addition after it."""
    groups = given.integer("g", 1)
    m, k, n = (given.integer(name) for name in "mkn")
    dtype = as_element_type(given.text("data-type", "half"))
    partials = as_element_type(given.text("partials-type", "float"))
    a = poplin.create_matmul_input_lhs(graph, dtype, (groups, m, k), (groups, k, n), name="a")
    b = poplin.create_matmul_input_rhs(graph, dtype, (groups, m, k), (groups, k, n), name="b")
    prog = Sequence()
    product = poplin.matmul_grouped(graph, a, b, prog, partials_type=partials, name="product")
    c = graph.clone(product, name="c")
    popops.scaled_add_to(graph, c, product, 1.0, prog, name="add")
    return prog
