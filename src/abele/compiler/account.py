"""Account: the report's static part from the analysed program."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.compiler.account_groups import GroupTables, group_tables
from abele.compiler.account_tiles import program_tiles
from abele.compiler.footprint import code_bytes_of
from abele.compiler.lower import Lowered, Step
from abele.compiler.memory import MemoryPlan
from abele.compiler.superstep import Superstep
from abele.compiler.sync_groups import SyncGroups
from abele.compiler.timeline import Part, parts_of
from abele.graph.graph import Graph
from abele.graph.intervals import Int64
from abele.graph.program import Copy, Execute, LibraryCall, Program
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import Stream
from abele.report import LIVENESS, OPS, STEPS, VARIABLES, Memory, Report, Table, sum_by_op


def build_report(
    graph: Graph,
    lowered: Lowered,
    supersteps: Sequence[Superstep],
    memory: MemoryPlan,
    executions: Int64,
    assumed: npt.NDArray[np.bool_],
    meta: Mapping[str, Any],
) -> Report:
    """The report of a compiled program.

    Args:
        graph: Its graph.
        lowered: Its steps.
        supersteps: What they run.
        memory: What fills the tiles.
        executions: Times that each step runs in one run of its program, int64[steps].
        assumed: Whether the executions of a step are assumed, bool[steps].
        meta: Further entries of the report's ``meta``.
    """
    parts = [parts_of(s, graph.system) for s in supersteps]
    rows = [(step, part) for step in lowered.steps for part in parts[step.superstep]]
    ops, op_of = _ops_of(lowered)
    first_row = np.cumsum([0, *(len(parts[s.superstep]) for s in lowered.steps)])
    groups = group_tables(lowered, supersteps, rows, first_row, executions, SyncGroups.of(graph))
    steps = _steps_table(rows, op_of, executions, groups, [_basis(r, supersteps, assumed) for r in rows])
    return Report(
        target=_target(graph),
        graph={**_counts(graph, lowered, supersteps), "num_assumed_steps": int(assumed.sum())},
        steps=steps,
        ops=_ops_table(ops, lowered, supersteps, op_of, executions, steps),
        memory=Memory.of(graph.num_tiles, memory.available_bytes, **memory.by_category),
        variables=_variables_table(graph, memory, first_row),
        liveness=_liveness_table(memory, first_row, len(rows)),
        program_tiles=program_tiles(lowered, supersteps, executions, graph.num_tiles),
        groups=groups.groups,
        spans=groups.spans,
        step_groups=groups.step_groups,
        meta={"abele_version": version("abele"), "created": _now(), **meta},
    )


def _target(graph: Graph) -> dict[str, float | int | str]:
    """The machine of one replica, and how many there are on which."""
    whole = graph.whole_system
    return {
        **graph.system.figures(),
        "num_replicas": graph.replicas,
        "whole_system": whole.name,
        "whole_system_num_ipus": whole.num_ipus,
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _counts(graph: Graph, lowered: Lowered, supersteps: Sequence[Superstep]) -> dict[str, int]:
    return {
        "num_variables": len(graph.variables),
        "num_compute_sets": sum(s.kind == "execute" for s in supersteps),
        "num_vertices": sum(s.num_vertices for s in supersteps),
        "num_edges": sum(s.num_edges for s in supersteps),
        "num_steps": len(lowered.steps),
        "num_supersteps": len(supersteps),
        "num_estimated_steps": sum(bool(s.estimated) for s in supersteps),
    }


def _basis(row: tuple[Step, Part], supersteps: Sequence[Superstep], assumed: npt.NDArray[np.bool_]) -> str:
    """What the figures of a row rest on: one of ``BASES``."""
    step, part = row
    superstep = supersteps[step.superstep]
    if assumed[step.index] or (part.kind == "compute" and superstep.estimated):
        return "assumed"
    return "counted" if step.is_assumed or (part.kind == "compute" and superstep.data_dependent) else "static"


def _steps_table(
    rows: Sequence[tuple[Step, Part]], op_of: Int64, executions: Int64, groups: GroupTables, basis: Sequence[str]
) -> Table:
    index = np.array([s.index for s, _ in rows], dtype=np.int64)
    parts = [p for _, p in rows]
    return STEPS.table(
        name=[f"{s.name}: {p.name}" if p.name else s.name for s, p in rows],
        kind=[p.kind for p in parts],
        program=[s.program for s, _ in rows],
        op=op_of[index],
        superstep=[s.superstep for s, _ in rows],
        executions=executions[index],
        cycles=[p.cycles for p in parts],
        compute_cycles=[p.compute for p in parts],
        exchange_cycles=[p.exchange for p in parts],
        sync_cycles=[p.sync for p in parts],
        host_cycles=[p.host for p in parts],
        tile_balance=[p.balance for p in parts],
        exchanged_bytes=[p.bytes for p in parts],
        max_receive_bytes=[p.max_receive_bytes for p in parts],
        num_vertices=[p.num_vertices for p in parts],
        active_tiles=[p.active_tiles for p in parts],
        start_cycle=groups.starts,
        block=[s.block for s, _ in rows],
        basis=basis,
    )


def _ops_of(lowered: Lowered) -> tuple[list[Program], Int64]:
    """The distinct operations (library calls, or steps outside of any), and that of each step."""
    ops: dict[int, int] = {}
    nodes: list[Program] = []
    op_of = np.empty(len(lowered.steps), dtype=np.int64)
    for step in lowered.steps:
        node = lowered.calls[step.call] if step.call >= 0 else step.node
        if id(node) not in ops:
            ops[id(node)] = len(nodes)
            nodes.append(node)
        op_of[step.index] = ops[id(node)]
    return nodes, op_of


def _ops_table(
    ops: Sequence[Program],
    lowered: Lowered,
    supersteps: Sequence[Superstep],
    op_of: Int64,
    executions: Int64,
    steps: Table,
) -> Table:
    runs = _op_executions(lowered, op_of, executions, len(ops))
    codelets: list[set[Any]] = [set() for _ in ops]
    for step in lowered.steps:
        codelets[op_of[step.index]].update(supersteps[step.superstep].codelets)
    debug = [_debug(node) for node in ops]
    of_node = {id(step.node): supersteps[step.superstep] for step in lowered.steps}
    return OPS.table(
        name=[_name(node) for node in ops],
        kind=[_kind(node) for node in ops],
        path=[d.text or d.path for d in debug],
        file=[d.file for d in debug],
        line=[d.line for d in debug],
        executions=runs,
        flops=runs * np.array([_flops(node, of_node) for node in ops], dtype=np.int64),
        code_bytes=[sum(code_bytes_of(c) for c in used) for used in codelets],
        **sum_by_op(steps, len(ops)),
    )


def _op_executions(lowered: Lowered, op_of: Int64, executions: Int64, num_ops: int) -> Int64:
    """Times that each operation runs: what the first step of each of its call sites does."""
    runs = np.zeros(num_ops, dtype=np.int64)
    seen: set[tuple[int, int]] = set()
    for step in lowered.steps:
        site = (int(op_of[step.index]), step.call if step.call >= 0 else -1 - step.index)
        if site not in seen:
            seen.add(site)
            runs[site[0]] += executions[step.index]
    return runs


def _flops(node: Program, superstep_of: Mapping[int, Superstep]) -> int:
    """Operations of a library call, or those that estimators tell of a compute set."""
    if isinstance(node, LibraryCall):
        return node.flops
    compute = superstep_of[id(node)].compute
    return compute.flops if compute is not None else 0


def _debug(node: Program) -> Any:
    return node.compute_set.debug if isinstance(node, Execute) else node.debug


def _name(node: Program) -> str:
    """Name of an operation; a copy from or to the host is called after its stream."""
    ends = (node.source, node.destination) if isinstance(node, Copy) else ()
    for end in ends:
        if isinstance(end, Stream | RemoteBuffer):
            return f"{'stream' if isinstance(end, Stream) else 'remote buffer'} {end.name}"
    return str(_debug(node).name)


def _kind(node: Program) -> str:
    if isinstance(node, LibraryCall):
        return node.name
    return "compute set" if isinstance(node, Execute) else type(node).__name__.lower()


def _variables_table(graph: Graph, memory: MemoryPlan, first_row: Int64) -> Table:
    used = np.flatnonzero(memory.liveness.used)
    first, last = _lifetimes(memory, len(graph.variables))
    steps = len(first_row) - 1
    variables = [graph.variables[int(v)] for v in used]
    rows_of = np.append(first_row[:steps], -1)
    ends_of = np.append(first_row[1:] - 1, -1)
    return VARIABLES.table(
        name=[v.name for v in variables],
        type=[v.dtype.name for v in variables],
        bytes=[v.bytes for v in variables],
        tiles=np.diff(memory.shares.ptr)[used],
        always_live=memory.liveness.always_live[used],
        first_step=rows_of[first[used]],
        last_step=ends_of[last[used]],
    )


def _lifetimes(memory: MemoryPlan, num_variables: int) -> tuple[Int64, Int64]:
    """First and last step at which each variable is live; −1 where it always is."""
    first, last = np.full(num_variables, -1, np.int64), np.full(num_variables, -1, np.int64)
    candidates = memory.liveness.candidates
    for step in range(len(memory.liveness.live)):
        now = candidates[memory.liveness.at(step)]
        last[now] = step
        fresh = now[first[now] < 0]
        first[fresh] = step
    return first, last


def _liveness_table(memory: MemoryPlan, first_row: Int64, num_rows: int) -> Table:
    kept = np.flatnonzero(np.diff(first_row) > 0)
    assert int(first_row[-1]) == num_rows
    return LIVENESS.table(
        step=first_row[kept], live_bytes=memory.step_bytes[kept], max_tile_bytes=memory.step_max_bytes[kept]
    )
