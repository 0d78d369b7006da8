"""General matrix products: C = alpha * (A @ B) + beta * C."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.numerics import as_element_type
from abele.poplibs import poplin, popops
from abele.validation.parameters import Parameters
from abele.validation.passes import planner_options


def build(graph: Graph, given: Parameters) -> Sequence:
    """The product that ``given`` describes, [g, m, k] by [g, k, n], and the scaled addition after it.

    Operands that ``--left-matrix-op`` or ``--right-matrix-op`` transpose are views of what the product wants.
    """
    for side in ("left", "right"):
        given.choice(f"{side}-matrix-op", "normal", "normal", "n", "transpose", "t")
    groups = given.integer("g", 1)
    m, k, n = (given.required(name) for name in "mkn")
    dtype, options = as_element_type(given.text("data-type", "half")), planner_options(given, *_OPTIONS)
    a = poplin.create_matmul_input_lhs(graph, dtype, (groups, m, k), (groups, k, n), name="a", options=options)
    b = poplin.create_matmul_input_rhs(graph, dtype, (groups, m, k), (groups, k, n), name="b", options=options)
    prog = Sequence()
    product = poplin.matmul_grouped(graph, a, b, prog, options=options, name="product")
    c = graph.clone(product, name="c")
    alpha, beta = given.number("alpha", 1.0), given.number("beta", 1.0)
    popops.scaled_add_to(graph, c, product, alpha, prog, scale_a=None if beta == 1.0 else beta, name="add")
    return prog


_OPTIONS = "matmul-options", "plan-constraints"
