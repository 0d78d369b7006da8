"""One reduction of a linearly mapped operand."""

from __future__ import annotations

from abele.graph import Graph
from abele.graph.program import Sequence
from abele.numerics import as_element_type
from abele.poplibs import popops
from abele.poplibs.poputil.mapping import map_tensor_linearly
from abele.validation.parameters import Parameters


def build(graph: Graph, given: Parameters) -> Sequence:
    """A tensor of ``--shape`` reduced over ``--dims``; scaled, and added to its output with ``--update``."""
    dtype = as_element_type(given.text("type", "half"))
    out_type = as_element_type(given.text("out-type", dtype.name))
    operand = map_tensor_linearly(graph, graph.variable(dtype, given.shape("shape"), name="in"))
    dims, operation = given.integers("dims"), given.text("operation", "ADD").upper()
    program = Sequence()
    scale = given.number("scale", 1.0)
    if given.flag("update"):
        kept = [n for d, n in enumerate(operand.shape) if d not in dims]
        out = map_tensor_linearly(graph, graph.variable(out_type, kept, name="out"))
        popops.reduce_with_output(graph, operand, out, dims, operation, program, scale=scale, update=True)
        return program
    popops.reduce(graph, operand, dims, operation, program, scale=scale, out_type=out_type)
    return program
