"""Native functions of a codelet: loops over vertices, with their fields taken from tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from abele.codelet.ahead import MAX_LINES, MAX_ROW_LINES, NextRows, emit_prefetch
from abele.codelet.code import BodyEmitter, Charges, LoopIds
from abele.codelet.early_exits import StoppedLoops, endless_loops, with_end_function
from abele.codelet.fields import FieldDef
from abele.codelet.memory import Aliasing, FieldPlace, Said, VertexMemory, num_columns, stored_type
from abele.codelet.printing import prints_of
from abele.codelet.rounding import NEAREST, Draws, Rounding
from abele.codelet.row_order import ByRows, Vertices
from abele.codelet.sizes import UNKNOWN, Size, Sizes
from abele.codelet.slots import MULTI_VERTEX, SUPERVISOR, VERTEX, Overhead
from abele.codelet.tree import Helper, Print, WhileStmt
from abele.codelet.vertex import NUM_WORKERS, CodeletDef
from abele.codelet.workers import as_one
from abele.llvm import flush
from abele.llvm import ir as ll
from abele.llvm.emit import I32, I64, POINTER, VOID, Value, constant, counted_loop, intrinsic

# Memory of a vertex whose every access is held against the size of its field: an index outside touches nothing.

WORDS = 4
"""Words that :attr:`CompiledCodelet.run_checked` reports in: 1 + vertex (0: nothing wrong), field, index, size."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The first access outside a field.

    Attributes:
        vertex: Number of the vertex among those that ran.
        field: Position of the field among those of the codelet.
        index: The index.
        size: Number of elements (or rows).
    """

    vertex: int
    field: int
    index: int
    size: int

    @staticmethod
    def of(words: Any) -> Violation | None:
        """The violation that words report, if any."""
        first, field, index, size = (int(w) for w in words[:WORDS])
        return Violation(first - 1, field, index, size) if first else None


class CheckedMemory(VertexMemory):
    """Loads and stores that go nowhere, and are reported, where they would leave their field."""

    may_vectorise = False

    def begin(self, report: Value, vertex: Value, fields: tuple[FieldDef, ...]) -> None:
        """Say where to report, and which vertex this is."""
        self._report, self._vertex = report, vertex
        self._numbers = {f.name: n for n, f in enumerate(fields)}
        with self.builder.goto_entry_block():
            self._nowhere = self.builder.alloca(ll.ArrayType(I64, 2), name="nowhere")
            for word in range(2):
                place = self.builder.gep(self._nowhere, [constant(I64, word)], source_etype=I64)
                self.builder.store(constant(I64, 0), place)

    def row(self, field: FieldDef, number: Value) -> Value:
        """Pointer to the first element of a row; of a row that is not there, to nothing."""
        return self._of_row(field, number, self.places[field.name].pointer, POINTER)

    def length(self, field: FieldDef, row: Value | None) -> Value:
        """Number of elements or rows; 0 for a row that is not there."""
        place = self.places[field.name]
        return place.length if row is None else self._of_row(field, row, place.row_lengths, I64)

    def element(self, field: FieldDef, index: list[Value], row: Value | None = None) -> Value:
        """Pointer to an element of a field; of one that is not there, to nothing."""
        b, pointer = self.builder, self.places[field.name].pointer
        if not index:
            return pointer
        size = self.length(field, index[0] if field.rank == 2 else None)
        if field.rank == 2:
            pointer = self.row(field, index[0]) if row is None else row
        inside = self._inside(field, index[-1], size)
        place = b.gep(pointer, [index[-1]], source_etype=stored_type(field.type))
        return b.select(inside, place, self._nowhere)

    def _of_row(self, field: FieldDef, row: Value, column: Value, type_: Any) -> Value:
        b = self.builder
        inside = self._inside(field, row, self.places[field.name].length)
        place = b.gep(column, [row], source_etype=type_)
        return b.load(b.select(inside, place, self._nowhere), align=8, typ=type_)

    def _inside(self, field: FieldDef, index: Value, size: Value) -> Value:
        """True if an index is inside; reported if not, unless something was reported before."""
        b = self.builder
        inside = b.icmp_unsigned("<", index, size)
        first = b.icmp_unsigned("==", b.load(self._report, typ=I64), constant(I64, 0))
        report, after = b.append_basic_block("outside"), b.append_basic_block("known")
        b.cbranch(b.and_(b.not_(inside), first), report, after)
        b.position_at_end(report)
        words = (b.add(self._vertex, constant(I64, 1)), constant(I64, self._numbers[field.name]), index, size)
        for word, value in reversed(list(enumerate(words))):
            b.store(value, b.gep(self._report, [constant(I64, word)], source_etype=I64))
        b.branch(after)
        b.position_at_end(after)
        return inside


VIOLATION = "violation"
OVERHEAD: dict[str, Overhead] = {"vertex": VERTEX, "multi": MULTI_VERTEX, "supervisor": SUPERVISOR}


@dataclass
class VertexLoop:
    """A function under construction, at one vertex of those that it visits.

    Attributes:
        builder: Builder, inside the loop.
        memory: Fields of the vertex at hand.
        vertex: Its number.
        out: Pointer to the counts, or None.
        ahead: Rows of the next vertex that are asked for meanwhile.
    """

    builder: ll.IRBuilder
    memory: VertexMemory
    vertex: Value
    out: Value
    ahead: tuple[NextRows, ...] = ()


class Guard(Enum):
    """True if accesses are held against the sizes of fields, and where the first one outside is reported."""

    NONE = 0
    REPORT = 1
    """In memory that the caller gives."""
    GLOBAL = 2
    """In a global of the module, ``VIOLATION``."""


def value_module(
    definition: CodeletDef,
    function: Helper,
    *,
    aliasing: bool = False,
    sizes: Sizes = UNKNOWN,
    guard: Guard = Guard.NONE,
    rounding: Rounding = NEAREST,
) -> str:
    """Text of the module with ``void run(i64 begin, i64 end, void** tables)``, and ``i64 seed`` after that where
    results are rounded at random.

    Args:
        definition: The codelet.
        function: Its ``compute``, read.
        aliasing: True if fields of one vertex may overlap.
        sizes: Sizes that all vertices have in common.
        guard: True if accesses are checked.
        rounding: Rounding of results to narrow floats.
    """
    module, ids = ll.Module("codelet"), LoopIds()

    def vertex(loop: VertexLoop) -> None:
        code = BodyEmitter(loop.builder, loop.memory, ids)
        if together is not None and not loop.ahead:
            code.body(together, {})
        else:
            _workers(definition, code, function, loop)

    # Random numbers and prints belong to a worker; rows that are asked for ahead are so in workers' shares.
    free = guard is Guard.NONE and not rounding.is_random and not prints_of(function)
    together = as_one(function) if free and definition.kind == "multi" else None
    by_rows = (
        ByRows.of(definition.fields, together or function, sizes) if free and not endless_loops(function) else None
    )
    noalias = not aliasing and guard is Guard.NONE
    _function(
        module,
        "run",
        definition,
        vertex,
        visit=None if by_rows is None else lambda vertices: by_rows.emit(vertices, ids),
        counts=False,
        noalias=noalias,
        sizes=sizes,
        guard=guard,
        rounding=rounding,
        prints=prints_of(function),
        loops=endless_loops(function),
    )
    return with_end_function(f"{module}\n{ids.text}")


def checked_module(definition: CodeletDef, function: Helper) -> str:
    """Text of the module with ``void run_checked(i64 begin, i64 end, void** tables, i64* report)``: runs, touches
    nothing outside fields, and reports the first attempt; see ``checked``."""
    module, ids = ll.Module("checked"), LoopIds()

    def vertex(loop: VertexLoop) -> None:
        _workers(definition, BodyEmitter(loop.builder, loop.memory, ids), function, loop)

    prints, loops = prints_of(function), endless_loops(function)
    _function(
        module,
        "run_checked",
        definition,
        vertex,
        counts=True,
        noalias=False,
        guard=Guard.REPORT,
        prints=prints,
        loops=loops,
    )
    return with_end_function(f"{module}\n{ids.text}", faults=False)


def counted_module(definition: CodeletDef, function: Helper, charges: Charges, guard: Guard = Guard.NONE) -> str:
    """Text of the module with ``void run_counted(i64 begin, i64 end, void** tables, i64* out)``: runs, and adds the
    cost of each vertex to ``out``."""
    module, ids = ll.Module("counted"), LoopIds()

    def vertex(loop: VertexLoop) -> None:
        counter = _entry_slot(loop.builder, "slots")
        code = BodyEmitter(loop.builder, loop.memory, ids, charges, counter)
        place = loop.builder.gep(loop.out, [loop.vertex], inbounds=True, source_etype=I64)
        cost = _workers(definition, code, function, loop)
        loop.builder.store(loop.builder.add(loop.builder.load(place, typ=I64), cost), place)

    _function(
        module,
        "run_counted",
        definition,
        vertex,
        counts=True,
        noalias=guard is Guard.NONE,
        guard=guard,
        prints=prints_of(function),
        loops=endless_loops(function),
    )
    return with_end_function(f"{module}\n{ids.text}")


def slots_module(definition: CodeletDef, body: Any, facts: dict[str, int], guard: Guard = Guard.NONE) -> str:
    """Text of the module with ``void slots(i64 begin, i64 end, void** tables, i64* out)`` and constants.

    Args:
        definition: The codelet.
        body: Makes the emitter of one vertex's count: ``body(builder, memory, counter)`` has ``run(arguments)``;
            None to leave the function out.
        facts: Numbers to keep beside the code, by name.
    """
    module = ll.Module("slots")
    for name, number in facts.items():
        known = ll.GlobalVariable(module, I64, name)
        known.initializer, known.global_constant = ll.Constant(I64, number), True

    def vertex(loop: VertexLoop) -> None:
        counter = _entry_slot(loop.builder, "slots")
        code = body(loop.builder, loop.memory, counter)
        cost = _per_worker(definition, loop, counter, code.run)
        loop.builder.store(cost, loop.builder.gep(loop.out, [loop.vertex], inbounds=True, source_etype=I64))

    if body is not None:
        noalias = guard is Guard.NONE
        _function(module, "slots", definition, vertex, counts=True, flushes=False, noalias=noalias, guard=guard)
    return str(module)


def _workers(definition: CodeletDef, code: BodyEmitter, function: Helper, loop: VertexLoop) -> Value:
    draws = loop.memory.draws

    def one(worker: Value | None) -> None:
        emit_prefetch(loop.memory, loop.ahead, worker)
        if draws is not None:
            draws.begin(loop.builder, loop.vertex, worker)
        code.body(function, {} if worker is None else {function.parameters[0]: worker})

    return _per_worker(definition, loop, code.counter, one)


def _per_worker(definition: CodeletDef, loop: VertexLoop, counter: Value | None, one: Any) -> Value:
    """Run ``one`` for the vertex, or for each of its workers; the vertex's cost in the unit of its kind."""
    b, overhead = loop.builder, OVERHEAD[definition.kind]
    zero = constant(I64, 0)
    if definition.kind != "multi":
        if counter is not None:
            b.store(zero, counter)
        one(None)
        return None if counter is None else overhead.cost(b, b.load(counter, typ=I64))
    longest = _entry_slot(b, "longest")
    b.store(zero, longest)
    with counted_loop(b, zero, constant(I64, NUM_WORKERS)) as worker:
        if counter is not None:
            b.store(zero, counter)
        one(worker)
        if counter is not None:
            mine = intrinsic(b, "llvm.smax", b.load(longest, typ=I64), b.load(counter, typ=I64))
            b.store(mine, longest)
    return None if counter is None else overhead.cost(b, b.load(longest, typ=I64))


def _entry_slot(builder: ll.IRBuilder, name: str) -> Value:
    with builder.goto_entry_block():
        return builder.alloca(I64, name=name)


def _function(
    module: ll.Module,
    name: str,
    definition: CodeletDef,
    vertex: Callable[[VertexLoop], None],
    *,
    visit: Callable[[Vertices], None] | None = None,
    counts: bool,
    flushes: bool = True,
    noalias: bool = True,
    sizes: Sizes = UNKNOWN,
    guard: Guard = Guard.NONE,
    rounding: Rounding = NEAREST,
    prints: tuple[Print, ...] = (),
    loops: tuple[WhileStmt, ...] = (),
) -> None:
    """Define function ``name``; ``vertex`` emits the code of one vertex, ``visit`` that of all where they do not run
    one after the other."""
    arguments = [I64, I64, POINTER] + [POINTER] * counts + [I64] * rounding.is_random
    fn = ll.Function(module, ll.FunctionType(VOID, arguments), name)
    begin, end, tables, *out = fn.args
    entry, start = (fn.append_basic_block(n) for n in ("entry", "start"))
    ll.IRBuilder(entry).branch(start)
    b = ll.IRBuilder(start)
    mode = flush.emit_enter(b) if flushes else None
    columns = _columns(b, tables, definition.fields)
    draws = Draws(b, out[-1]) if rounding.is_random else None
    aliasing = Aliasing(module, [f.name for f in definition.fields], noalias)

    def at(number: Value) -> VertexMemory:
        memory = (VertexMemory if guard is Guard.NONE else CheckedMemory)(b, aliasing, {}, {}, rounding, draws)
        if isinstance(memory, CheckedMemory):
            memory.begin(_violation(module) if guard is Guard.GLOBAL else out[0], number, definition.fields)
        if prints:
            column = sum(num_columns(f) for f in definition.fields)
            sink = b.load(b.gep(tables, [constant(I32, column)], source_etype=POINTER), typ=POINTER)
            memory.said = Said(sink, number, {p: n for n, p in enumerate(prints)})
        if loops:
            memory.stopped = StoppedLoops(number, {loop: n for n, loop in enumerate(loops)})
        for field, own in columns:
            memory.places[field.name] = _place(memory, field, own, number, sizes.of_field(field))
        return memory

    if visit is not None:
        visit(Vertices(b, begin, end, at))
    else:
        with counted_loop(b, begin, end, flags=("nsw",)) as number:
            memory = at(number)
            ahead = _ahead(memory, columns, number, end, sizes)
            vertex(VertexLoop(b, memory, number, out[0] if out else None, ahead))
    if mode is not None:
        flush.emit_leave(b, mode)
    b.ret_void()


def _ahead(
    memory: VertexMemory, columns: list[tuple[FieldDef, list[Value]]], vertex: Value, end: Value, sizes: Sizes
) -> tuple[NextRows, ...]:
    """The rows of the vertex after ``vertex``, or of itself where it is the last; none where sizes are not known."""
    found: list[NextRows] = []
    b, following = memory.builder, None
    for field, own in columns:
        size = sizes.of_field(field)
        if field.rank != 2 or size.length is None or size.row_length is None or size.length < 2:
            continue
        lines = NextRows.lines_of(field, size.row_length)
        if lines > MAX_ROW_LINES or lines * size.length > MAX_LINES:
            continue
        if following is None:
            one = b.add(vertex, constant(I64, 1))
            following = b.select(b.icmp_signed("<", one, end), one, vertex)
        found.append(NextRows(field, _place_of_rows(memory, own, following, size), size.length, lines))
    return tuple(found)


def _violation(module: ll.Module) -> Value:
    """The words of the module in which the first access outside a field is reported."""
    words = ll.GlobalVariable(module, ll.ArrayType(I64, WORDS), VIOLATION)
    words.initializer = ll.Constant(words.value_type, [0] * WORDS)
    return words


def _columns(b: ll.IRBuilder, tables: Value, fields: tuple[FieldDef, ...]) -> list[tuple[FieldDef, list[Value]]]:
    found, first = [], 0
    for field in fields:
        places = [b.gep(tables, [constant(I32, first + n)], source_etype=POINTER) for n in range(num_columns(field))]
        found.append((field, [b.load(p, typ=POINTER) for p in places]))
        first += len(places)
    return found


def _place(memory: VertexMemory, field: FieldDef, columns: list[Value], vertex: Value, size: Size) -> FieldPlace:
    b = memory.builder
    if field.rank == 2:
        return _place_of_rows(memory, columns, vertex, size)
    if field.rank == 0 and not field.is_edge:
        return FieldPlace(b.gep(columns[0], [vertex], inbounds=True, source_etype=stored_type(field.type)))
    pointer = memory.table(columns[0], vertex, POINTER)
    if not field.rank:
        return FieldPlace(pointer)
    return FieldPlace(
        pointer, memory.table(columns[1], vertex, I64) if size.length is None else constant(I64, size.length)
    )


def _place_of_rows(memory: VertexMemory, columns: list[Value], vertex: Value, size: Size) -> FieldPlace:
    b = memory.builder
    if size.length is None:
        first = memory.table(columns[0], vertex, I64)
    else:
        # Vertices that all have as many rows: where they begin needs no look-up, which pointers would wait for.
        begin = memory.table(columns[0], constant(I64, 0), I64)
        first = b.add(begin, b.mul(vertex, constant(I64, size.length), flags=("nsw",)), flags=("nsw",))
    rows = b.gep(columns[1], [first], inbounds=True, source_etype=POINTER)
    lengths = b.gep(columns[2], [first], inbounds=True, source_etype=I64)
    each = None if size.row_length is None else constant(I64, size.row_length)
    if size.length is not None:
        return FieldPlace(rows, constant(I64, size.length), lengths, each)
    last = memory.table(b.gep(columns[0], [constant(I64, 1)], source_etype=I64), vertex, I64)
    return FieldPlace(rows, b.sub(last, first), lengths, each)
