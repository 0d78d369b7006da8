"""Joining the partial updates of a table with the table."""

from __future__ import annotations

import numpy as np

from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popops.reductions.codelets import Finish
from abele.poplibs.popops.reductions.ops import find_reduce_op
from abele.poplibs.popops.reductions.partials import Partials
from abele.poplibs.popops.reductions.reduction import Reduction
from abele.poplibs.popops.slicing.multi_layout import blocked, entry_rows
from abele.poplibs.popops.slicing.plan import SlicePlan
from abele.poplibs.poputil.mapping import set_mapping


def emit_join(graph: Graph, body: Sequence, plan: SlicePlan, partials: Tensor, table: Tensor, op: str) -> None:
    """Append the steps that reduce ``partials`` over the parts of the indices, and join what they give with ``table``.

    No tile holds two partial results of an element, so there is nothing to reduce before they are exchanged.

    Args:
        graph: Where vertices and intermediate results are made.
        body: The library call's body.
        plan: The plan of the update.
        partials: [parts of the indices, groups, parts of the columns, entries, width], mapped as the plan says.
        table: [groups, entries, columns].
        op: The reduction, ADD, MAX or MUL.
    """
    kept = tuple(range(1, partials.ndim))
    finish = Finish(table.dtype, updates=True)
    reduction = Reduction(
        graph,
        tensor=partials,
        kept=kept,
        op=find_reduce_op(op),
        finish=finish,
        scale=None,
        name="join",
        between=partials.dtype,
    )
    given, source, out = _ranges(plan), partials.flatten(), blocked(table, plan).flatten()
    steps = reduction.planner.combinations(given, graph.mapping_of(out))
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        target = out if last else _store(graph, step.partials, partials, number)
        compute_set = graph.compute_set("join")
        reduction.add_combination(compute_set, step, source, target, last)
        body.add(Execute(compute_set))
        source = target


def _ranges(plan: SlicePlan) -> Partials:
    """What each tile holds of the partial results, in the order of their storage."""
    parts = plan.parts
    first, rows = entry_rows(plan, parts)
    begin = ((parts.group * plan.column_split + parts.column) * plan.num_entries + first) * plan.width
    order = np.lexsort((begin, parts.lookup))
    return Partials(begin[order], rows[order] * plan.width, parts.tile[order])


def _store(graph: Graph, partials: Partials, like: Tensor, number: int) -> Tensor:
    made = graph.variable(like.dtype, partials.size, name=f"partials{number + 1}")
    return set_mapping(graph, made, partials.mapping)
