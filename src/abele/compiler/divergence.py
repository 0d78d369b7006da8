"""Divergence: all that steers the program must be provably the same in every replica.

This is taint analysis over whole variables: what may differ spreads from a variable that is read to all that the step
writes, until nothing changes. It ends, since the set only grows, and it is safe because it ignores order and
overwriting: what it clears cannot differ, while it may refuse a program whose variable is the same again by the time it
steers. The user's promise is for these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from abele.arrays import Bool
from abele.compiler.access import Access
from abele.compiler.lower import Step
from abele.compiler.nodes.lookup import meaning_of
from abele.errors import ControlProgramError
from abele.graph.control import AssumeEqualAcrossReplicas
from abele.graph.graph import Graph
from abele.graph.program import Program
from abele.graph.tensor import Tensor
from abele.words import counted


def check_divergence(graph: Graph, steps: Sequence[Step], accesses: Mapping[int, Access], always_live: Bool) -> None:
    """Refuse loops, branches and switches that can go different ways in different replicas.

    Args:
        graph: The graph; with one replica there is nothing to check.
        steps: All steps.
        accesses: Variables that each touches, by step index.
        always_live: Variables whose value comes from the host or from the run before, bool[variables].

    Raises:
        ControlProgramError: A predicate may differ between replicas.

    Model: whole variables, whatever the order of steps. A variable may differ if it is the replica's number; if it is
    written by a stream with data for each replica, a remote buffer, the host, a cycle counter or the random seeds; if
    its first value comes from the host; or if a step writes it that reads a variable that may differ. The user's word
    (AssumeEqualAcrossReplicas) stands for the tensor that it names.
    """
    if graph.replicas == 1:
        return
    deciding = [s for s in steps if s.kind == "decide"]
    if not deciding:
        return
    source = _varying(graph, steps, accesses, always_live)
    promised = [s.node.tensor for s in steps if isinstance(s.node, AssumeEqualAcrossReplicas)]
    for step in deciding:
        number = int(accesses[step.index].reads[0])
        if number in source and not any(_covers(p, _predicate(step.node)) for p in promised):
            raise _error(graph, step, number, source)


def _varying(
    graph: Graph, steps: Sequence[Step], accesses: Mapping[int, Access], always_live: Bool
) -> dict[int, int | str]:
    """Variables that may differ between replicas, with why: a variable that they come from, or a text."""
    source: dict[int, int | str] = {}
    for number, variable in enumerate(graph.variables):
        if variable.kind == "replica_index":
            source[number] = "it is the number of the replica"
        elif always_live[number] and not variable.is_constant and variable.initial is None:
            source[number] = "its first value comes from the host, which may give each replica another"
    for step in steps:
        why = meaning_of(step.node).differs(step.node)
        if why is not None:
            for number in accesses[step.index].writes.tolist():
                source.setdefault(number, f"{why} writes it")
    changed = True
    while changed:
        changed = False
        for step in steps:
            access = accesses[step.index]
            cause = next((n for n in access.reads.tolist() if n in source), None)
            fresh = [n for n in access.writes.tolist() if n not in source] if cause is not None else []
            for number in fresh:
                assert cause is not None
                source[number] = cause
                changed = True
    return source


def _predicate(node: Program) -> Tensor:
    return node.reads()[0]


def _covers(promised: Tensor, predicate: Tensor) -> bool:
    begin, length = promised.intervals()
    at = int(predicate.intervals()[0][0])
    return bool(((begin <= at) & (at < begin + length)).any())


def _error(graph: Graph, step: Step, number: int, source: Mapping[int, int | str]) -> ControlProgramError:
    chain, reason = [], source[number]
    while isinstance(reason, int):
        chain.append(f"it is computed from {graph.variables[reason].name!r}")
        number, reason = reason, source[reason]
    predicate = _predicate(step.node)
    name = type(step.node).__name__
    return ControlProgramError(
        f"{name} on {predicate!r}: control flow could diverge between the {counted(graph.replicas, 'replica')}",
        at=step.node.debug.location or None,
        because=" · ".join([*chain[:3], reason]),
        remedy=f"if it is the same in all replicas, say so before: AssumeEqualAcrossReplicas({predicate.name})",
    )
