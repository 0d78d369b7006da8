"""Loops that carry nothing from one iteration to the next, so that they may become vector code.

The promise to LLVM (``llvm.loop.parallel_accesses``) lets it vectorise without checks at run time that fields are
apart. It must never be given wrongly, so the test is of the source's form and simple: within a written field all
accesses have the same index, and that index moves by one place per iteration, so each iteration has elements of its
own. Fields that overlap each other never get here, as code for them is made without the promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from abele.codelet.tree import (
    Assign,
    BinaryExpr,
    Element,
    For,
    HelperCall,
    IfStmt,
    Local,
    Stmt,
    StoreStmt,
    VertexExpr,
    WhileStmt,
    all_expressions,
    assigned,
    mentioned,
    own_expressions,
    walk,
)

Access = tuple[str, VertexExpr]


def is_parallel(loop: For) -> bool:
    """True if no iteration of an innermost loop touches an element of a written field that another one touches.

    Every access to a written field must have the same index, which grows with the loop. Rows of a field need not be
    told apart: two rows are either the same, then the index decides, or separate, as fields that do not overlap are.
    """
    statements = list(walk(loop.body))
    if any(isinstance(s, For | WhileStmt) for s in statements):
        return False
    expressions = list(all_expressions(loop.body))
    # What a helper touches is not looked at.
    if any(isinstance(e, HelperCall) for e in expressions) or loop.name in assigned(loop.body):
        return False
    stores = [s for s in statements if isinstance(s, StoreStmt)]
    if not stores or not all(s.index for s in stores):
        return False
    # Two stores with different indices are found out below, when all accesses are compared with one of them.
    written: dict[str, VertexExpr] = {s.field.name: s.index[-1] for s in stores}
    changed = assigned(loop.body) | {loop.name}
    return all(grows(index, loop.name, changed) for index in written.values()) and all(
        _same(index, written[name]) for name, index in _accesses(statements, expressions) if name in written
    )


def _accesses(statements: list[Stmt], expressions: list[VertexExpr]) -> Iterator[Access]:
    """Fields and innermost indices of all loads and stores."""
    for statement in statements:
        if isinstance(statement, StoreStmt):
            yield statement.field.name, statement.index[-1]
    for expression in expressions:
        if isinstance(expression, Element):
            yield expression.field.name, expression.index[-1]


def grows(index: VertexExpr, variable: str, changed: set[str]) -> bool:
    """True if an index is the loop variable plus or minus something that the loop does not change."""
    match index:
        case Local():
            return index.name == variable
        case BinaryExpr(op="add"):
            return any(grows(a, variable, changed) and is_fixed(b, changed) for a, b in _both(index))
        case BinaryExpr(op="sub"):
            return grows(index.left, variable, changed) and is_fixed(index.right, changed)
    return False


def _both(sum_: BinaryExpr) -> tuple[tuple[VertexExpr, VertexExpr], tuple[VertexExpr, VertexExpr]]:
    return (sum_.left, sum_.right), (sum_.right, sum_.left)


def is_fixed(expression: VertexExpr, changed: set[str]) -> bool:
    """True if the loop does not change a value."""
    return not any(isinstance(e, Element) or (isinstance(e, Local) and e.name in changed) for e in expression.walk())


def _same(one: object, two: object) -> bool:
    """True if two expressions are written the same."""
    if type(one) is not type(two):
        return False
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(_same(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, VertexExpr):
        names = (f.name for f in fields(one) if f.name != "line")
        return all(_same(getattr(one, n), getattr(two, n)) for n in names)
    return bool(one == two)


def carries_nothing(loop: For) -> bool:
    """True if every variable that the body of a loop sets is set before it is read."""
    return left_unset(loop.body, assigned(loop.body)) is not None


def left_unset(body: list[Stmt], unset: set[str]) -> set[str] | None:
    """Variables of ``unset`` that ``body`` leaves so; None if it reads one before it has set it."""
    for statement in body:
        if any(unset & mentioned(e) for e in own_expressions(statement)):
            return None
        match statement:
            case Assign():
                unset = unset - {statement.name}
            case IfStmt():
                sides = [left_unset(side, unset) for side in (statement.then, statement.otherwise)]
                if sides[0] is None or sides[1] is None:
                    return None
                unset = sides[0] | sides[1]
            case For():
                # There may be no iteration, which sets nothing.
                if left_unset(statement.body, unset - {statement.name}) is None:
                    return None
    return unset
