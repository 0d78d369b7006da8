"""The lookup of many rows of a table, and the update-add of as many."""

from __future__ import annotations

from abele.graph import Graph
from abele.graph.program import Sequence
from abele.numerics import as_element_type, f32
from abele.poplibs.popops import slicing
from abele.validation.parameters import Parameters

DIMS, SIZES = (0,), (1,)


def build(graph: Graph, given: Parameters) -> Sequence:
    """A table of ``--shape`` {entries, size} in which ``--num-indices`` rows are looked up and then added to."""
    dtype = as_element_type(given.text("data-type", "half"))
    shape, num = given.integers("shape"), given.integer("num-indices")
    entries, size = shape
    plan = slicing.embedding.plan(graph, dtype, entries, size, num)
    table = slicing.create_sliceable_tensor(graph, dtype, shape, DIMS, SIZES, plan, name="table")
    offsets = slicing.create_indices_tensor(graph, DIMS, num, plan, name="offsets")
    deltas = slicing.create_slice_tensor(graph, table, DIMS, SIZES, num, plan, name="deltas")
    scale = graph.variable(f32, (), name="scale").map(0)
    program = Sequence()
    slicing.multi_slice(graph, table, offsets, DIMS, SIZES, program, plan)
    slicing.multi_update_add(graph, table, deltas, offsets, scale, DIMS, SIZES, program, plan)
    return program
