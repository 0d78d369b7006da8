"""Account of operations: library calls, and steps outside of any, with their costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.arrays import Int64
from abele.compiler.footprint import code_bytes_of
from abele.compiler.lower import Lowered
from abele.compiler.superstep import Superstep
from abele.graph.program import Copy, Execute, LibraryCall, Program
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import Stream
from abele.report import OPS, Table, sum_by_op

if TYPE_CHECKING:
    from abele.codelet import CodeletDef


def ops_of(lowered: Lowered) -> tuple[list[Program], Int64]:
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


def ops_table(
    ops: Sequence[Program],
    lowered: Lowered,
    supersteps: Sequence[Superstep],
    op_of: Int64,
    executions: Int64,
    steps: Table,
) -> Table:
    """The table of operations.

    Args:
        ops: The operations; see :func:`ops_of`.
        lowered: The steps.
        supersteps: Supersteps of these.
        op_of: The operation of each step, int64[steps].
        executions: Times that each step runs in one run of its program, int64[steps].
        steps: The table of steps.
    """
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
        arithmetic=[_arithmetic(used) for used in codelets],
        **sum_by_op(steps, len(ops)),
    )


def _op_executions(lowered: Lowered, op_of: Int64, executions: Int64, num_ops: int) -> Int64:
    """Executions of each operation: those of the first step of each of its call sites."""
    runs = np.zeros(num_ops, dtype=np.int64)
    seen: set[tuple[int, int]] = set()
    for step in lowered.steps:
        # The steps of one call site run equally often; the first stands for all.
        site = (int(op_of[step.index]), step.call if step.call >= 0 else -1 - step.index)
        if site not in seen:
            seen.add(site)
            runs[site[0]] += executions[step.index]
    return runs


def _flops(node: Program, superstep_of: Mapping[int, Superstep]) -> int:
    """Operations of a library call, or those by the estimators of a compute set."""
    if isinstance(node, LibraryCall):
        return node.flops
    compute = superstep_of[id(node)].compute
    return compute.flops if compute is not None else 0


_PRODUCTS = ("ConvPartial",)
"""Prefixes of codelets whose vertices multiply on the matrix unit."""


def _arithmetic(codelets: Iterable[CodeletDef]) -> str:
    """Element type of an operation's arithmetic, by the vertices that it runs; see ``abele.report.schema.ARITHMETIC``.

    The vertices of products decide where there are some. Otherwise it is f32 if a vertex has a field of it: f16 that is
    summed in f32 is summed by instructions of f32.
    """
    products: dict[bool, set[str]] = {True: set(), False: set()}
    vectors: set[str] = set()
    for codelet in codelets:
        floats = [f for f in codelet.fields if f.type.is_float]
        if codelet.name.startswith(_PRODUCTS):
            for f in floats:
                products[f.is_edge and not f.writable].add(f.type.name)
        else:
            vectors.update(f.type.name for f in floats)
    if inputs := products[True]:
        given = "f32" if "f32" in inputs else "f16" if inputs & {"f16", "bf16"} else "f8"
        return "f16 to f32" if given == "f16" and "f32" in products[False] else given
    return "vectors of f32" if "f32" in vectors else "vectors of f16" if vectors else ""


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
