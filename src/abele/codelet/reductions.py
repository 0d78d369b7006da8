"""Accumulators: the order in which a loop adds up floating-point values.

In a ``for`` loop without inner loops, ``break``, ``continue`` or ``return``, a float variable that is only ever
accumulated — ``a += e``, ``a *= e``, ``a = max(a, e)``, ``a = min(a, e)``, one operation per variable — and not read
otherwise is kept in ``LANES`` lanes. Iteration k of the first ``LANES * (n // LANES)`` works on lane k % LANES; then
the lanes are halved, lane j taking lane j + half, until one is left, which is combined into the variable; the
remaining iterations follow one by one. That order is part of the language: it lets the loop use vectors, compiled code
and debug mode follow it, and results do not depend on the CPU.
"""

from __future__ import annotations

import math

from abele.codelet.tree import (
    Assign,
    BinaryExpr,
    For,
    HelperCall,
    Leave,
    Local,
    Math,
    Print,
    Return,
    Stmt,
    VertexExpr,
    WhileStmt,
    mentioned,
    own_expressions,
    walk,
)

LANES = 32
"""Accumulators of a loop; two registers of 512 bits."""

IDENTITY = {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}
"""Start of a lane, for each operation."""


def accumulators(body: list[Stmt]) -> dict[str, str]:
    """Variables that a loop with this body keeps in lanes, and the operation of each."""
    statements = list(walk(body))
    if any(isinstance(s, For | WhileStmt | Leave | Return) for s in statements):
        return {}
    expressions = [e for s in statements for e in own_expressions(s)]
    # A helper may have accumulators of its own, and loops.
    if any(isinstance(p, HelperCall) for e in expressions for p in e.walk()):
        return {}
    found: dict[str, str | None] = {}
    reads: dict[str, int] = {}
    # A print does not count: saying what a lane holds must not change the order of a sum.
    for expression in (e for s in statements if not isinstance(s, Print) for e in own_expressions(s)):
        for part in expression.walk():
            if isinstance(part, Local):
                reads[part.name] = reads.get(part.name, 0) + 1
    updates: dict[str, int] = {}
    for statement in statements:
        if isinstance(statement, Assign):
            op = _combines(statement)
            known = found.setdefault(statement.name, op)
            found[statement.name] = op if op == known else None
            updates[statement.name] = updates.get(statement.name, 0) + 1
    # Each update reads its variable once; a further read would see a single lane.
    return {n: op for n, op in found.items() if op is not None and reads.get(n, 0) == updates[n]}


def _combines(statement: Assign) -> str | None:
    """The operation by which a statement accumulates into its variable; None if it does something else."""
    name, value = statement.name, statement.value
    if not value.type.is_float:
        return None
    if isinstance(value, Math) and value.function == "fma":
        x, y, z = value.args
        return "add" if _is(z, name) and name not in mentioned(x) | mentioned(y) else None
    if not isinstance(value, BinaryExpr):
        return None
    left, right = _is(value.left, name), _is(value.right, name)
    if value.op == "sub":
        return "add" if left and name not in mentioned(value.right) else None
    if value.op not in IDENTITY or left == right:
        return None
    other = value.right if left else value.left
    return value.op if name not in mentioned(other) else None


def _is(value: VertexExpr, name: str) -> bool:
    return isinstance(value, Local) and value.name == name
