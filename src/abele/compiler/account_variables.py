"""Account of variables: how large each is, when it lives, where it was made, and why it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from abele.arrays import Int64
from abele.compiler.lower import Lowered
from abele.compiler.memory import MemoryPlan
from abele.compiler.superstep import Superstep
from abele.graph.graph import Graph
from abele.graph.variable import Variable
from abele.report import VARIABLES, Table

_CONSTANTS = {"constant": "constant", "replica_index": "replica index"}


def variables_table(
    graph: Graph,
    memory: MemoryPlan,
    first_row: Int64,
    first_op: Int64,
    roles: Mapping[str, str],
) -> Table:
    """The table of the variables that programs use.

    Args:
        graph: Graph of the variables.
        memory: The memory plan.
        first_row: First row of each step in the steps table, and the number of rows, int64[steps + 1].
        first_op: The operation that writes each variable of the graph first, int64[variables]; −1 for none.
        roles: Roles of host handles, by the part of their names before the first ``/``, digits left out.
    """
    used = np.flatnonzero(memory.liveness.used)
    first, last = np.full((2, len(graph.variables)), -1, dtype=np.int64)
    first[memory.liveness.candidates], last[memory.liveness.candidates] = memory.liveness.span()
    steps = len(first_row) - 1
    variables = [graph.variables[int(v)] for v in used]
    rows_of = np.append(first_row[:steps], -1)
    ends_of = np.append(first_row[1:] - 1, -1)
    always = memory.liveness.always_live[used]
    handles = _handles(graph)
    names = [handles.get(v.id, "") for v in variables]
    interleaved = np.zeros(len(graph.variables), dtype=bool)
    interleaved[memory.are_interleaved] = True
    return VARIABLES.table(
        name=[v.name for v in variables],
        type=[v.dtype.name for v in variables],
        bytes=[v.bytes for v in variables],
        tiles=np.diff(memory.shares.ptr)[used],
        always_live=always,
        first_step=rows_of[first[used]],
        last_step=ends_of[last[used]],
        shape=[" x ".join(map(str, v.shape)) for v in variables],
        role=[
            _role(v, handle, roles) if lives else "temporary"
            for v, handle, lives in zip(variables, names, always.tolist(), strict=True)
        ],
        handle=names,
        file=[v.debug.file for v in variables],
        line=[v.debug.line for v in variables],
        op=first_op[used],
        alignment_bytes=memory.alignment_bytes[used],
        interleaved=interleaved[used],
    )


def first_writers(lowered: Lowered, plan: Sequence[Superstep], op_of: Int64, num_variables: int) -> Int64:
    """The operation of the first step that writes each variable, int64[variables]; −1 where none does.

    Args:
        lowered: The steps; supersteps are numbered in the order in which these reach them.
        plan: Supersteps of these.
        op_of: The operation of each step, int64[steps].
        num_variables: Variables of the graph.
    """
    result = np.full(num_variables, -1, dtype=np.int64)
    # The last of several assignments to one place stays, so the first writer comes last.
    for step, superstep in zip(reversed(lowered.distinct), reversed(plan), strict=True):
        result[superstep.access.writes] = op_of[step.index]
    return result


def _handles(graph: Graph) -> dict[int, str]:
    """The first handle of each variable that the host reaches, by its position in the graph."""
    found: dict[int, str] = {}
    for handle in graph.host_handles.values():
        for variable in handle.tensor.variables:
            found.setdefault(variable.id, handle.name)
    return found


def _role(variable: Variable, handle: str, roles: Mapping[str, str]) -> str:
    """Why a variable always lives, as far as that is known."""
    if variable.kind in _CONSTANTS:
        return _CONSTANTS[variable.kind]
    if handle:
        return roles.get(handle.partition("/")[0].rstrip("0123456789"), "host handle")
    return "kept" if variable.initial is None else "initial data"
