"""Loops of a known number of iterations in whole vectors: the last vector begins earlier, so that no iteration is left.

A row of a grid has few vectors, and what is left over after the last whole one takes longer than all of them: 28 of
92 cells one by one cost as much as the 64 before. Where an iteration reads nothing that the loop writes, doing it
again gives the same, so the last vector may begin wherever it ends with the row. The compiler is told the width,
too: left to itself it takes several vectors at once, of which short rows have no whole number, and unrolls a row of
one vector into elements.

Masked vectors would do as well where processors have masks, and want them at every iteration.

Several vectors at once are for short bodies. A cell of a lattice-Boltzmann flow holds nine populations and as many
results: two vectors of each do not fit the 16 registers of AVX2, and going through memory takes a third longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from abele.codelet.parallel import carries_nothing, grows, is_fixed, is_parallel
from abele.codelet.tree import (
    Assign,
    BinaryExpr,
    ConstExpr,
    Element,
    For,
    Local,
    Stmt,
    StoreStmt,
    VertexExpr,
    all_expressions,
    assigned,
)

MOST_TOGETHER = 4
"""Vectors at once that hide the latency of arithmetic."""
LEAST_WIDTH = 4
"""Iterations of the narrowest vector that is worth its while."""


class Vectors(NamedTuple):
    """Vectors that iterations are run in: iterations of each, and vectors at once."""

    width: int
    together: int


def stretches(
    start: int, stop: int, lanes: int, most: int = MOST_TOGETHER
) -> Iterator[tuple[int, int, Vectors | None]]:
    """Parts of a loop from ``start`` to ``stop``: whole vectors of up to ``lanes``, up to ``most`` of them at once, and
    the last, which may overlap."""
    count = stop - start
    width = lanes
    while width > count:
        width //= 2
    if width < LEAST_WIDTH:
        yield start, stop, None
        return
    whole = count // width
    together = next(n for n in range(min(most, whole), 0, -1) if whole % n == 0)
    yield start, start + whole * width, Vectors(width, together)
    if count % width:
        yield stop - width, stop, Vectors(width, 1)


def can_repeat(loop: For) -> bool:
    """True if iterations of a loop may be done again, and every access is to neighbours or to one element.

    Nothing that the loop writes is read in it, and no variable carries a value from one iteration to the next.
    """
    if loop.step != 1 or not is_parallel(loop) or not all(isinstance(s, Assign | StoreStmt) for s in loop.body):
        return False
    written = {s.field.name for s in loop.body if isinstance(s, StoreStmt)}
    changed = assigned(loop.body) | {loop.name}
    elements = [e for e in all_expressions(loop.body) if isinstance(e, Element)]
    if any(e.field.name in written for e in elements) or any(s.field.type.bits != 32 for s in _stores(loop)):
        return False
    places = [e.index[-1] for e in elements if e.index]
    if not all(grows(at, loop.name, changed) or is_fixed(at, changed) for at in places):
        return False
    return carries_nothing(loop)


def _stores(loop: For) -> list[StoreStmt]:
    return [s for s in loop.body if isinstance(s, StoreStmt)]


def most_held(body: list[Stmt]) -> int:
    """The most values that an iteration holds between two statements of ``body``: elements and variables that were
    there before, and are read after."""
    reads = [{_name(e) for e in all_expressions([s]) if isinstance(e, Element | Local)} for s in body]
    last = {name: n for n, names in enumerate(reads) for name in names}
    held: set[object] = set()
    most = 1
    for n, statement in enumerate(body):
        there = held | {name for name in reads[n] if isinstance(name, tuple)}
        there |= {statement.name} if isinstance(statement, Assign) else set()
        held = {name for name in there if last.get(name, n) > n}
        most = max(most, len(held))
    return most


def _name(expression: VertexExpr) -> object:
    """A key of equal values: the name of a variable, a tuple for an element."""
    match expression:
        case Local():
            return expression.name
        case ConstExpr():
            return expression.value
        case Element():
            return (expression.field.name, *map(_name, expression.index))
        case BinaryExpr():
            return (expression.op, _name(expression.left), _name(expression.right))
    return expression
