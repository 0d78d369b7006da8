"""The lookup of many rows of a table, and the update-add of as many."""

from __future__ import annotations

from typing import Any

from abele.errors import InvalidOptionError
from abele.graph import Graph
from abele.graph.program import Sequence
from abele.numerics import as_element_type, f32
from abele.poplibs.popops import slicing
from abele.validation.parameters import Parameters

DIMS, SIZES = (0,), (1,)


def build(graph: Graph, given: Parameters) -> Sequence:
    """A table of ``--shape`` {entries, size} in which ``--num-indices`` rows are looked up and then added to."""
    dtype = as_element_type(given.text("data-type", "half"))
    shape, num = given.shape("shape"), given.required("num-indices")
    if len(shape) != 2:
        raise InvalidOptionError(f"--shape takes {{entries, size}}, got {given.text('shape')!r}")
    wanted = given.choice("pass", "both", "both", "all", "fwd", "wu")
    looks, updates = wanted != "wu", wanted != "fwd"
    plan = slicing.embedding.plan(graph, dtype, *shape, num, options=_options(given, looks, updates))
    table = slicing.create_sliceable_tensor(graph, dtype, shape, DIMS, SIZES, plan, name="table")
    offsets = slicing.create_indices_tensor(graph, DIMS, num, plan, name="offsets")
    program = Sequence()
    if looks:
        slicing.multi_slice(graph, table, offsets, dims=DIMS, sizes=SIZES, prog=program, plan=plan)
    if updates:
        deltas = slicing.create_slice_tensor(graph, table, DIMS, SIZES, num, plan, name="deltas")
        scale = graph.variable(f32, (), name="scale").map(0)
        slicing.multi_update_add(
            graph, table, deltas, offsets=offsets, scale=scale, dims=DIMS, sizes=SIZES, prog=program, plan=plan
        )
    return program


def _options(given: Parameters, looks: bool, updates: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"usedForSlice": looks, "usedForUpdate": updates}
    if "available-memory-proportion" in given.values:
        options["availableMemoryProportion"] = given.number("available-memory-proportion")
    if "plan-constraints" in given.values:
        options["planConstraints"] = given.text("plan-constraints")
    return options
