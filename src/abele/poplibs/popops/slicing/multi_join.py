"""Joining the partial updates of a table with the table."""

from __future__ import annotations

from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popops.elementwise.map import map_in_place
from abele.poplibs.popops.elementwise.scaled_add import scaled_add_to
from abele.poplibs.popops.expr import Op, _1, _2
from abele.poplibs.popops.reductions.reduce import reduce

_MAPS = {"MAX": "max", "MUL": "mul"}
"""Operation of two elements for each reduction of many."""


def emit_join(graph: Graph, body: Sequence, partials: Tensor, table: Tensor, op: str) -> None:
    """Append the steps that reduce ``partials`` over the parts of the indices, and join the result with ``table``.

    Two calls, as in PopLibs (DynamicSlice.cpp): a reduction whose result lies where reductions put it, and then an
    element-wise step in the layout of the table.

    Args:
        graph: Graph in which vertices and intermediate results are made.
        body: The library call's body.
        partials: [parts of the indices, groups, parts of the columns, entries, width], mapped as the plan says.
        table: [groups, entries, columns].
        op: The reduction, ADD, MAX or MUL.
    """
    rows = partials.transpose((0, 1, 3, 2, 4)).reshape((partials.shape[0], *table.shape))
    if op == "ADD":
        scaled_add_to(graph, table, reduce(graph, rows, (0,), op, body, name="join"), 1.0, body, name="join/add")
    else:
        joined = reduce(graph, rows, (0,), op, body, out_type=table.dtype, name="join")
        map_in_place(graph, Op(_MAPS[op], _1, _2), [table, joined], body, name="join/map")
