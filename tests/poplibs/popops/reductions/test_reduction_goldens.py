"""Cuts of reductions over the tiles, as text: their supersteps, vertices, tiles and elements.

A change of a plan is a change of cycles: where one is meant, ``pytest --snapshot-update`` writes the texts anew.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.poplibs import popops

REDUCTIONS = {
    "all to one": ((1000, 100), (0, 1), "f32", "ADD"),
    "columns": ((4096, 64), (0,), "f16", "ADD"),
    "rows": ((64, 4096), (1,), "f32", "MAX"),
    "middle": ((32, 28, 28), (1, 2), "f16", "SQUARE_ADD"),
    "few elements": ((5, 3), (0,), "f32", "MUL"),
    "of integers": ((200000,), (0,), "i32", "MIN"),
    "booleans": ((64, 64), (0, 1), "bool", "LOGICAL_AND"),
}


def steps_text(graph: Graph) -> str:
    """One line for each kind of vertex of each superstep."""
    lines = []
    for compute_set in graph.compute_sets:
        lines.append(compute_set.name)
        for group in compute_set.groups:
            kind = re.sub("_[0-9a-f]{12}$", "", group.codelet.name)
            edges = ", ".join(f"{n} {int(e.regions.sizes.sum()):,}" for n, e in group.edges.items())
            tiles = len(np.unique(group.tile))
            lines.append(f"  {len(group.tile):,} x {kind} on {tiles:,} tiles, elements: {edges}")
    return "\n".join(lines)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduce__of_each_form__has_the_steps_of_the_golden(name: str, snapshot: SnapshotAssertion) -> None:
    shape, dims, dtype, op = REDUCTIONS[name]
    graph = Graph(systems.get("bow-2000:1"))
    x = graph.variable(dtype, shape, name="x").map_linear()
    popops.reduce(graph, x, dims, op, Sequence())
    assert steps_text(graph) == snapshot


def test_reduce__to_a_mapped_output__ends_where_that_lies(snapshot: SnapshotAssertion) -> None:
    graph = Graph(systems.get("bow-2000:1"))
    x = graph.variable("f32", (1000, 300), name="x").map_linear()
    out = graph.variable("f32", (300,), name="out").map(7)
    popops.reduce_with_output(graph, x, out, (0,), "ADD", Sequence())
    assert steps_text(graph) == snapshot
    assert np.unique(graph.compute_sets[-1].groups[0].tile).tolist() == [7]
