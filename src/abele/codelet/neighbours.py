"""Elements of a row that lie next to each other, as a stencil or a filter reads them.

``row[i]``, ``row[i + 1]`` and ``row[i + 2]`` are three vectors that share all but two elements. Vectors as long as a
cache line touch two lines each wherever rows begin, which takes twice as long, and longer while the lines are on their
way. So the last neighbour alone is loaded, and the others are what it was one and two iterations ago: LLVM makes a
shuffle of two registers of each, one instruction with AVX-512. A blur of nine cells loads three vectors in place of
nine. LLVM does so by itself for some of them, by luck of the order in which the source names them.

Shorter vectors touch two lines half as often, and AVX2 shuffles by one element in three instructions: there both ways
took the same time, and code stays as the source has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from abele.codelet.memory import value_type
from abele.codelet.parallel import is_parallel
from abele.codelet.tree import (
    Assign,
    BinaryExpr,
    Choice,
    ConstExpr,
    Element,
    For,
    Leave,
    Local,
    Logic,
    Return,
    StoreStmt,
    VertexExpr,
    WhileStmt,
    assigned,
    own_expressions,
    walk,
)
from abele.codelet.values import Values
from abele.llvm.emit import I64, Value, constant
from abele.numerics import ElementType


@dataclass(frozen=True, eq=False)
class RowNeighbours:
    """Neighbours in one row.

    Attributes:
        uses: Reads of each in the source, by distance from the loop variable.
    """

    uses: dict[int, list[Element]]

    @property
    def one(self) -> Element:
        """Any of them."""
        return next(iter(self.uses.values()))[0]

    @property
    def type(self) -> ElementType:
        """Type of the elements."""
        return self.one.type

    @property
    def distances(self) -> range:
        """From the first neighbour to the last."""
        return range(min(self.uses), max(self.uses) + 1)

    @property
    def apart(self) -> int:
        """Elements between the first and the last."""
        return len(self.distances) - 1


def neighbours(loop: For, registers: int) -> Iterator[RowNeighbours]:
    """Neighbours that every iteration of an innermost loop reads, in rows without writes.

    Args:
        loop: The loop.
        registers: Registers for elements between first and last neighbours, each of which takes one from one iteration
            to the next; rows that want more are left out.
    """
    plain = all(isinstance(s, Assign | StoreStmt) for s in loop.body)
    if loop.step != 1 or loop.lanes or not plain or not is_parallel(loop):
        return
    written = {s.field.name for s in loop.body if isinstance(s, StoreStmt)}
    for uses in _rows(loop, _always_read(loop)).values():
        found = RowNeighbours(uses)
        # Vectors of narrower elements are shorter than a line: a game of life in bytes took three times as long.
        suits = found.one.field.name not in written and found.type.bits == 32
        if suits and 0 < found.apart <= registers:
            registers -= found.apart
            yield found


def certain(loop: For) -> set[Element]:
    """Elements that may be read although the source reads them at times: every iteration reads one before, or the
    same, and one after, or the same.

    Example: of ``c[i] if b[i] > 0.0 else 0.0`` it is not known whether ``c`` has such an element where ``b[i]`` is 0;
    after ``d = c[i - 1] + c[i + 1]`` it is. Reads without a condition become vectors on every CPU.
    """
    if any(isinstance(s, Leave | Return | WhileStmt) for s in walk(loop.body)):
        return set()
    always = _rows(loop, _always_read(loop))
    ranges = {row: RowNeighbours(uses).distances for row, uses in always.items()}
    every = _rows(loop, (e for s in walk(loop.body) for part in own_expressions(s) for e in part.walk()))
    return {
        e
        for row, uses in every.items()
        for distance, elements in uses.items()
        if distance in ranges.get(row, ())
        for e in elements
    }


def _rows(loop: For, expressions: Iterable[VertexExpr]) -> dict[tuple[str, ...], dict[int, list[Element]]]:
    """Elements among ``expressions`` a fixed distance from a loop's variable, by field and name of the row, and by
    distance."""
    changed = assigned(loop.body) | {loop.name}
    rows: dict[tuple[str, ...], dict[int, list[Element]]] = {}
    if loop.name in assigned(loop.body):
        return rows
    for element in expressions:
        if not isinstance(element, Element):
            continue
        *row, last = element.index
        names = [r.name for r in row if isinstance(r, Local) and r.name not in changed]
        distance = _distance(last, loop.name)
        if distance is not None and len(names) == len(row):
            rows.setdefault((element.field.name, *names), {}).setdefault(distance, []).append(element)
    return rows


def _always_read(loop: For) -> Iterator[VertexExpr]:
    return (e for s in loop.body for part in own_expressions(s) for e in _always(part))


def _always(expression: VertexExpr) -> Iterator[VertexExpr]:
    """An expression and those inside that are evaluated whenever it is."""
    yield expression
    match expression:
        case Choice():
            parts: tuple[VertexExpr, ...] = (expression.condition,)
        case Logic():
            parts = (expression.left,)
        case _:
            parts = expression.parts
    for part in parts:
        yield from _always(part)


def _distance(index: VertexExpr, variable: str) -> int | None:
    """The number that an index adds to the loop variable; None if it is anything else."""
    match index:
        case Local(name=name) if name == variable:
            return 0
        case (
            BinaryExpr(op="add", left=one, right=ConstExpr(value=number))
            | BinaryExpr(op="add", left=ConstExpr(value=number), right=one)
        ):
            inner = _distance(one, variable)
            return None if inner is None else inner + int(number)
        case BinaryExpr(op="sub", left=one, right=ConstExpr(value=number)):
            inner = _distance(one, variable)
            return None if inner is None else inner - int(number)
    return None


class Shifted:
    """Code of neighbours that move on by one element per iteration.

    Args:
        code: Emits values.
        found: The neighbours.
        slots: Stack memory for the value at each distance, from the first to the last.
    """

    def __init__(self, code: Values, found: RowNeighbours, slots: list[Value]) -> None:
        self._code, self._found, self._slots = code, found, slots

    @property
    def places(self) -> dict[Element, Value]:
        """The slot of every element that the source reads."""
        first = self._found.distances.start
        return {e: self._slots[distance - first] for distance, uses in self._found.uses.items() for e in uses}

    def begin(self, index: Value) -> None:
        """Load all but the last before the iteration of ``index``, the first one."""
        for distance, slot in list(zip(self._found.distances, self._slots, strict=True))[:-1]:
            self._load(index, distance, slot)

    def load(self, index: Value) -> None:
        """Load the last one in the iteration of ``index``."""
        self._load(index, self._found.distances[-1], self._slots[-1])

    def move(self) -> None:
        """Move all on at the end of an iteration."""
        b = self._code.builder
        for slot, following in pairwise(self._slots):
            b.store(b.load(following, typ=value_type(self._found.type)), slot)

    def _load(self, index: Value, distance: int, slot: Value) -> None:
        code, like = self._code, self._found.one
        at = code.builder.add(index, constant(I64, distance), flags=("nsw",))
        rows = [code.value(r) for r in like.index[:-1]]
        code.builder.store(code.memory.load(like.field, [*rows, at], code.row_of(like.index)), slot)
