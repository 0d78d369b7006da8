"""Vertices side by side, run row by row.

Vertices that each hold a block of a grid have rows that are parts of the grid's rows. One vertex after the other, a
host reads 46 rows of 736 elements that lie 1,472 apart: what the processor fetches ahead at the end of each part is
the next vertex's, the part that comes next is found anew, and every page is walked to once per vertex. Vertices of a
compute set may run in any order, and so may a row of one beside a row of the other. So those whose rows continue one
another run as one: the first row of all, the second row of all, and so on, each of which is one stretch of memory.

That is right where a vertex is a loop over rows, of the same bounds in all vertices, and no variable goes from one row
to the next; rows of one vertex keep their order. Whether vertices lie side by side is seen when they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from abele.codelet.ahead import MAX_ROW_LINES, NextRows
from abele.codelet.code import BodyEmitter, LoopIds
from abele.codelet.costs import stored_fields
from abele.codelet.fields import FieldDef
from abele.codelet.memory import VertexMemory
from abele.codelet.sizes import Sizes
from abele.codelet.tree import (
    Assign,
    BinaryExpr,
    CastExpr,
    ConstExpr,
    DebugOnly,
    For,
    Helper,
    HelperCall,
    Length,
    Local,
    Return,
    Scalar,
    Stmt,
    UnaryExpr,
    VertexExpr,
    all_expressions,
    assigned,
    walk,
)
from abele.codelet.vertex import NUM_WORKERS
from abele.codelet.workers import stands_alone
from abele.llvm import ir as ll
from abele.llvm.emit import I64, Value, constant, counted_loop
from abele.llvm.host import LINE_BYTES

MOST_BYTES = 1 << 16
"""Bytes of a row of all vertices side by side: a stencil comes back to a row two rows later, and should find it in a
second-level cache of 256 KiB."""


@dataclass(frozen=True)
class RowLoop:
    """A vertex that is a loop over rows, in functions of their own.

    Attributes:
        start: Gives the first row; its parameters are those of ``compute``.
        stop: Gives the row that is not reached.
        step: Rows from one iteration to the next.
        row: Runs a row; its last parameter is the row's number.
    """

    start: Helper
    stop: Helper
    step: int
    row: Helper

    @staticmethod
    def of(function: Helper, sizes: Sizes) -> RowLoop | None:
        """The loop that a ``compute`` consists of, if it has the same bounds in all vertices; else None."""
        *before, last = [s for s in function.body if not isinstance(s, DebugOnly)]
        # Columns of single elements, without a loop over them, are not rows.
        rows = isinstance(last, For) and last.step > 0 and any(isinstance(s, For) for s in _all_statements(last.body))
        if not isinstance(last, For) or not rows or not stands_alone(last) or last.name in assigned(before):
            return None
        common = set(function.parameters)
        for statement in before:
            if not isinstance(statement, Assign) or not _is_plain(statement, stored_fields(function.body)):
                return None
            common = (
                common | {statement.name} if _is_common(statement.value, common, sizes) else common - {statement.name}
            )
        if not all(_is_common(e, common, sizes) for e in (last.start, last.stop)):
            return None

        def bound(expression: VertexExpr) -> Helper:
            return replace(function, body=[*before, Return(value=expression)], result=expression.type)

        row = replace(function, body=[*before, *last.body], parameters=(*function.parameters, last.name))
        return RowLoop(bound(last.start), bound(last.stop), last.step, row)


def _is_plain(statement: Assign, stored: set[str]) -> bool:
    """True if a statement gives the same before every row."""
    parts = list(all_expressions([statement]))
    kinds = ConstExpr | Local | Length | Scalar | BinaryExpr | CastExpr | UnaryExpr
    return all(isinstance(e, kinds) for e in parts) and not any(
        isinstance(e, Scalar) and e.field.name in stored for e in parts
    )


def _is_common(expression: VertexExpr, common: set[str], sizes: Sizes) -> bool:
    """True if an expression is the same in all vertices."""

    def known(e: VertexExpr) -> bool:
        match e:
            case Local():
                return e.name in common
            case Length(row=None):
                return sizes.of_field(e.field).length is not None
        return isinstance(e, ConstExpr | BinaryExpr | CastExpr | UnaryExpr)

    return all(known(e) for e in expression.walk())


def _all_statements(body: list[Stmt]) -> Iterator[Stmt]:
    yield from walk(body)
    for expression in all_expressions(body):
        if isinstance(expression, HelperCall):
            yield from walk(expression.helper.body)


def most_beside(fields: Iterable[FieldDef], sizes: Sizes) -> int:
    """The most vertices side by side that may run row by row, as far as their sizes are known."""
    known = [(f, sizes.of_field(f)) for f in fields if f.rank == 2]
    sized = [(f.type.bytes, s.length, s.row_length) for f, s in known if s.length and s.row_length]
    rows = min((length for _, length, _ in sized), default=1)
    return MOST_BYTES // max(1, sum(size * length * each for size, length, each in sized) // rows)


@contextmanager
def side_by_side(
    b: ll.IRBuilder, begin: Value, end: Value, most: int, row: Callable[[Value], Value], row_bytes: int
) -> Iterator[tuple[Value, Value]]:
    """A loop over vertices ``begin`` to ``end``, as many at once as lie side by side; yields the first of them and the
    one after the last.

    Args:
        b: Builder that code is added to.
        begin: The first vertex.
        end: The one after the last.
        most: The most vertices at once.
        row: Emits the pointer to a vertex's first row.
        row_bytes: Bytes of a row.
    """
    with b.goto_entry_block():
        slot = b.alloca(I64, name="first")
    b.store(begin, slot)
    with counted_loop(b, begin, end, flags=("nsw",)) as vertex:
        first, after = b.load(slot, typ=I64), b.add(vertex, constant(I64, 1), flags=("nsw",))
        # The last vertex is compared with itself, beside which it does not lie.
        following = b.select(b.icmp_signed("<", after, end), after, vertex)
        here, there = (b.ptrtoint(row(v), I64) for v in (vertex, following))
        gap = b.sub(there, b.add(here, constant(I64, row_bytes)))
        beside = b.icmp_unsigned("<", gap, constant(I64, LINE_BYTES))
        few = b.icmp_signed("<", b.sub(after, first), constant(I64, most))
        with b.if_then(b.not_(b.and_(beside, few))):
            yield first, after
            b.store(after, slot)


@dataclass
class Vertices:
    """The vertices of a function under construction.

    Attributes:
        builder: Builder that code is added to.
        begin: The first one.
        end: The one after the last.
        at: Gives the fields of a vertex.
    """

    builder: ll.IRBuilder
    begin: Value
    end: Value
    at: Callable[[Value], VertexMemory]


@dataclass(frozen=True)
class ByRows:
    """Vertices that run row by row where they lie side by side.

    Attributes:
        loop: The loop that a vertex consists of.
        results: The rows that tell which vertices lie side by side.
        row_length: Elements of each.
        most: The most vertices at once.
    """

    loop: RowLoop
    results: FieldDef
    row_length: int
    most: int

    @staticmethod
    def of(fields: tuple[FieldDef, ...], function: Helper, sizes: Sizes) -> ByRows | None:
        """The way to run vertices row by row; None where they cannot, or gain nothing."""
        loop, most = RowLoop.of(function, sizes), most_beside(fields, sizes)
        if loop is None or most < 2:
            return None
        for field in (f for f in fields if f.rank == 2 and f.writable):
            size = sizes.of_field(field)
            if size.row_length and NextRows.lines_of(field, size.row_length) > MAX_ROW_LINES:
                return ByRows(loop, field, size.row_length, most)
        return None

    def emit(self, vertices: Vertices, ids: LoopIds) -> None:
        """Code that runs all vertices."""
        b, parameters = vertices.builder, self.loop.row.parameters
        bytes_ = self.row_length * self.results.type.bytes

        def first_row(vertex: Value) -> Value:
            return vertices.at(vertex).row(self.results, constant(I64, 0))

        def rows_of(first: Value, after: Value, arguments: dict[str, Value]) -> None:
            code = BodyEmitter(b, vertices.at(first), ids)
            start, stop = (code.result_of(bound, arguments) for bound in (self.loop.start, self.loop.stop))
            rows = counted_loop(b, start, stop, self.loop.step, flags=("nsw",))
            with rows as row, counted_loop(b, first, after, flags=("nsw",)) as vertex:
                BodyEmitter(b, vertices.at(vertex), ids).body(self.loop.row, arguments | {parameters[-1]: row})

        with side_by_side(b, vertices.begin, vertices.end, self.most, first_row, bytes_) as (first, after):
            if len(parameters) == 1:
                rows_of(first, after, {})
            else:
                with counted_loop(b, constant(I64, 0), constant(I64, NUM_WORKERS)) as worker:
                    rows_of(first, after, {parameters[0]: worker})
