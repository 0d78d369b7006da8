"""Native functions over tables of vertices around the code of one, as ``codelet.driver`` makes them of Python."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from abele.codelet.cpp.check_functions import FUNCTIONS as CHECKS
from abele.codelet.cpp.checking import NOWHERE_BYTES, PARAMETERS, WORKER, Checked, end_in_report
from abele.codelet.cpp.early_exits import DECLARATIONS, end_at, in_pieces, stop_globals, with_stops
from abele.codelet.cpp.entry import LENGTH_OFFSET, ROW_BYTES, parameters
from abele.codelet.cpp.extract import VertexSource
from abele.codelet.cpp.optimise import CALLED, define_division, with_counts_modulo_width
from abele.codelet.cpp.reflect import METADATA_OF, METADATA_OFFSET, Member, VertexClass
from abele.codelet.driver import OVERHEAD
from abele.codelet.early_exits import with_end_function
from abele.codelet.functions import emit
from abele.codelet.sizes import UNKNOWN, Size, Sizes
from abele.codelet.vertex import NUM_WORKERS
from abele.expr import FUNCTIONS
from abele.llvm import flush
from abele.llvm import ir as ll
from abele.llvm.emit import F32, HALF, I1, I8, I32, I64, POINTER, VOID, Value, constant, counted_loop, intrinsic, like
from abele.llvm.random import GOLDEN, emit_mix

# Elementary functions called by vertices' code, with the bodies of Python codelets, which vectorise.

_INSTRUCTIONS = ("sqrt", "floor", "ceil", "rint", "fma")
"""Functions of the table that CPUs have instructions for: left to LLVM."""
RANDOM = "@abele.urand32"


def with_functions(body: str) -> tuple[str, str]:
    """Body with calls of our functions, and the text of a module that defines them."""
    module = ll.Module("functions")

    def renamed(call: re.Match[str]) -> str:
        name = call["op"] or call["c"] or call["own"]
        suffix = call["type"] or call["half"] or "f32"
        return f"@{_function(module, name, suffix).name}"

    body = with_counts_modulo_width(_called().sub(renamed, body))
    for symbol, op, suffix in CALLED.findall(body):
        define_division(module, symbol, op, suffix)
    if RANDOM in body:
        _random(module)
    definitions = re.sub(r"^(?:target|;).*\n", "", str(module), flags=re.M)
    return body, re.sub(r"^define internal (.*)$", r"define internal \1 alwaysinline", definitions, flags=re.M)


def _called() -> re.Pattern[str]:
    """Calls of functions of the table: by intrinsics of LLVM, by the C library's names, and by the names that headers
    have for what C does not name."""
    ours = [n for n in FUNCTIONS if n not in _INSTRUCTIONS]
    names, library = "|".join(ours), "|".join(n for n in ours if hasattr(math, n))
    return re.compile(
        rf"@(?:llvm\.(?P<op>{names})\.(?P<type>\w+)|(?P<c>{library})f|abele_(?P<own>{names})_(?P<half>f32|f16))(?=\()"
    )


def _function(module: ll.Module, name: str, suffix: str) -> Any:
    symbol = f"abele.{name}.{suffix}"
    known = module.globals.get(symbol)
    if known is not None:
        return known
    type_ = _type(suffix)
    function = ll.Function(module, ll.FunctionType(type_, [type_] * FUNCTIONS[name].arity), symbol)
    function.linkage = "internal"
    b = ll.IRBuilder(function.append_basic_block())
    wide = [a if suffix.endswith("f32") else b.fpext(a, like(a, F32)) for a in function.args]
    result = emit(name, b, *wide)
    b.ret(result if suffix.endswith("f32") else b.fptrunc(result, type_))
    return function


def _type(suffix: str) -> Any:
    lanes = re.fullmatch(r"v(\d+)(f\d+)", suffix)
    element = F32 if suffix.endswith("f32") else HALF
    return ll.VectorType(element, int(lanes[1])) if lanes else element


def _random(module: ll.Module) -> None:
    """``i32 urand32(ptr state)``: a hash of a key and of how often it was drawn from, which it counts up."""
    function = ll.Function(module, ll.FunctionType(I32, [POINTER]), RANDOM[1:])
    function.linkage = "internal"
    b = ll.IRBuilder(function.append_basic_block())
    counter = b.gep(function.args[0], [ll.Constant(I32, 1)], source_etype=I32)
    key, drawn = b.load(function.args[0], typ=I32), b.load(counter, typ=I32)
    b.store(b.add(drawn, ll.Constant(I32, 1)), counter)
    b.ret(emit_mix(b, b.xor(key, emit_mix(b, b.xor(drawn, ll.Constant(I32, GOLDEN))))))


_POINTER_BYTES = 8
_PRINTS = re.compile(r"@(?:printf|puts|putchar)\(")
_NOWHERE = ll.Constant(I64, 1 << 16).inttoptr(POINTER)
"""Placeholder of data that is neither read nor written; not null, so that loops over it have their number of steps."""
_TYPES = {"ptr": POINTER, "i32": I32, "i64": I64}
VERTEX = "abele.vertex"
"""Symbol of the code of one vertex in a module."""


@dataclass(frozen=True)
class TableFunction:
    """A function over tables.

    Attributes:
        name: Its symbol: ``run``, ``run_counted`` or ``slots``.
        counts: True if it takes ``i64* out`` and gives costs.
        reads_data: True if edges may be read and written; their pointers may be null otherwise.
        adds: True if costs are added to ``out``, not set.
        checks: True if the code of a vertex is checked; then it takes ``i64* report``.
        one_worker: True if it takes the number of a worker, i64, and runs that one alone; where it checks, the number
            is in the report.
    """

    name: str
    counts: bool = False
    reads_data: bool = True
    adds: bool = False
    checks: bool = False
    one_worker: bool = False


RUN = TableFunction("run")
RUN_COUNTED = TableFunction("run_counted", counts=True, adds=True)
SLOTS = TableFunction("slots", counts=True, reads_data=False)
RUN_WORKER = TableFunction("run_worker", one_worker=True)
RUN_CHECKED = TableFunction("run_checked", checks=True)
RUN_WORKER_CHECKED = TableFunction("run_worker_checked", checks=True, one_worker=True)


def module_text(
    vertex: VertexClass,
    code: VertexSource | Checked,
    function: TableFunction,
    *,
    aliasing: bool = False,
    sizes: Sizes = UNKNOWN,
) -> str:
    """Text of a module with one function over tables.

    Args:
        vertex: The vertex class.
        code: The code of one vertex; counting, it adds to ``%slots``.
        function: Name of the function. Of code that draws random numbers, the tables have one more column: number of
            draws of each vertex, u32.
        aliasing: True if fields of one vertex may overlap.
        sizes: Sizes that all vertices have in common.
    """
    module = ll.Module("cpp")
    _VertexLoop(module, vertex, function, sizes, code.body).emit()
    text = re.sub(rf'^(?:declare void @"{VERTEX}"|target |;).*\n', "", str(module), flags=re.M)
    body, functions = with_functions(code.body)
    leave = end_in_report if function.checks else end_at
    body = with_stops(body, code.places, leave, counts=not function.reads_data)
    body, pieces = in_pieces(body)
    checks = CHECKS if function.checks else ""
    ends = stop_globals() if code.places else ""
    definition = _definition(vertex, body, function, aliasing)
    whole = with_end_function("\n".join([code.around, text, functions, pieces, checks, ends, definition]))
    return _declared_once(whole)


def readable_text(vertex: VertexClass, body: str, around: str) -> str:
    """Text of a module with the code of one vertex alone, as function :data:`VERTEX`, for readers."""
    return "\n".join(
        [around, f"declare i32 {RANDOM}(ptr)", DECLARATIONS, _definition(vertex, body, RUN_COUNTED, False)]
    )


def _declared_once(text: str) -> str:
    """The text without second declarations of functions."""
    seen = {m[1] for m in re.finditer(r"^define [^\n]*?(@[^(]*)\(", text, flags=re.M)}
    seen = {name.replace('"', "") for name in seen}

    def first(line: re.Match[str]) -> str:
        name = line[1].replace('"', "")
        known = name in seen
        seen.add(name)
        return "" if known else line[0]

    return re.sub(r"^declare [^\n]*?(@[^(]*)\([^\n]*$", first, text, flags=re.M)


def _definition(vertex: VertexClass, body: str, function: TableFunction, aliasing: bool) -> str:
    attribute = "" if aliasing else "noalias "
    declared = [f"{p.type} {attribute if p.type == 'ptr' else ''}%{p.name}" for p in parameters(vertex)]
    declared += ["ptr noalias %slots"] if function.counts else []
    declared += PARAMETERS if function.checks else []
    return f'define internal void @"{VERTEX}"({", ".join(declared)}) alwaysinline mustprogress {{\n{body}}}\n'


class _VertexLoop:
    """Emits the loop over vertices."""

    def __init__(
        self, module: ll.Module, vertex: VertexClass, function: TableFunction, sizes: Sizes, body: str
    ) -> None:
        self.module, self.vertex, self.function, self.sizes = module, vertex, function, sizes
        self.draws = RANDOM in body and function.reads_data
        self.prints = _PRINTS.search(body) is not None
        types = [_TYPES[p.type] for p in parameters(vertex)]
        types += [POINTER] if function.counts else []
        types += [POINTER, I64, POINTER] if function.checks else []
        self.callee = ll.Function(module, ll.FunctionType(VOID, types), VERTEX)

    def emit(self) -> None:
        function = self.function
        arguments = [I64, I64, POINTER] + [POINTER] * (function.counts + function.checks)
        arguments += [I64] * (function.one_worker and not function.checks)
        fn = ll.Function(self.module, ll.FunctionType(VOID, arguments), function.name)
        begin, end, tables, *out = fn.args
        b = ll.IRBuilder(fn.append_basic_block("start"))
        self.counter, self.random = b.alloca(I64, name="slots"), b.alloca(I64, name="random")
        if function.checks:
            self.report, self.nowhere = out[0], self._zeros(b)
        if function.one_worker:
            noted = (
                b.load(b.gep(out[0], [constant(I64, WORKER)], source_etype=I64), typ=I64) if function.checks else out[0]
            )
            self.worker = b.trunc(noted, I32)
        mode = flush.emit_enter(b) if function.reads_data else None
        self.columns = columns = self._columns(b, tables)
        with counted_loop(b, begin, end, flags=("nsw",)) as number:
            cost = self._vertex(b, columns, number)
            if cost is not None:
                place = b.gep(out[0], [number], inbounds=True, source_etype=I64)
                b.store(b.add(b.load(place, typ=I64), cost) if self.function.adds else cost, place)
        if mode is not None:
            flush.emit_leave(b, mode)
        if self.prints:
            b.call(self._function("fflush", I32, [POINTER]), [ll.Constant(POINTER, None)])
        b.ret_void()

    def _zeros(self, b: ll.IRBuilder) -> Value:
        place = b.alloca(ll.ArrayType(I8, NOWHERE_BYTES), align=64, name="nowhere")
        fill = self._function("llvm.memset.p0.i64", VOID, [POINTER, I8, I64, I1])
        b.call(fill, [place, constant(I8, 0), constant(I64, NOWHERE_BYTES), constant(I1, 0)])
        return place

    def _columns(self, b: ll.IRBuilder, tables: Value) -> list[list[Value]]:
        found, first = [], 0
        for member in self.vertex.members:
            places = [
                b.gep(tables, [constant(I32, first + n)], source_etype=POINTER) for n in range(num_columns(member))
            ]
            found.append([b.load(p, typ=POINTER) for p in places])
            first += len(places)
        if self.draws:
            place = b.gep(tables, [constant(I32, first)], source_etype=POINTER)
            self.drawn = b.load(place, typ=POINTER)
        return found

    def _vertex(self, b: ll.IRBuilder, columns: list[list[Value]], number: Value) -> Value:
        """Run one vertex; its cost in the unit of its kind, or None."""
        rows = any(m.shape in ("rows", "gather") for m in self.vertex.members)
        stack = b.call(self._function("llvm.stacksave.p0", POINTER, []), []) if rows else None
        fields = [v for m, c in zip(self.vertex.members, columns, strict=True) for v in self._field(b, m, c, number)]
        counts = b.gep(self.random, [constant(I32, 1)], source_etype=I32)
        drawn = b.gep(self.drawn, [number], source_etype=I32) if self.draws else None
        if drawn is not None:
            b.store(b.load(drawn, typ=I32), counts)
        if self.function.one_worker:
            self._call(b, fields, number, self.worker)
            total = None
        elif self.vertex.kind != "multi":
            self._call(b, fields, number, constant(I32, 0))
            total = b.load(self.counter, typ=I64) if self.function.counts else None
        else:
            total = self._workers(b, fields, number)
        if drawn is not None:
            b.store(b.load(counts, typ=I32), drawn)
        if stack is not None:
            b.call(self._function("llvm.stackrestore.p0", VOID, [POINTER]), [stack])
        return None if total is None else OVERHEAD[self.vertex.kind].cost(b, total)

    def _workers(self, b: ll.IRBuilder, fields: list[Value], number: Value) -> Value:
        """Run the workers of a vertex one after the other; slots of the longest."""
        before = b.block
        test, work, after = (b.append_basic_block(n) for n in ("worker", "work", "worked"))
        b.branch(test)
        b.position_at_end(test)
        worker, longest = b.phi(I32, name="id"), b.phi(I64, name="longest")
        worker.add_incoming(constant(I32, 0), before)
        longest.add_incoming(constant(I64, 0), before)
        b.cbranch(b.icmp_unsigned("<", worker, constant(I32, NUM_WORKERS)), work, after)
        b.position_at_end(work)
        self._call(b, fields, number, worker)
        mine = constant(I64, 0)
        if self.function.counts:
            mine = intrinsic(b, "llvm.smax", longest, b.load(self.counter, typ=I64))
        worker.add_incoming(b.add(worker, constant(I32, 1)), b.block)
        longest.add_incoming(mine, b.block)
        b.branch(test)
        b.position_at_end(after)
        return longest if self.function.counts else None

    def _call(self, b: ll.IRBuilder, fields: list[Value], number: Value, worker: Value) -> None:
        key = emit_mix(b, b.add(b.trunc(number, I32), emit_mix(b, b.xor(worker, constant(I32, GOLDEN)))))
        b.store(key, self.random)
        given = [*fields, worker, self.random, number]
        if self.function.counts:
            b.store(constant(I64, 0), self.counter)
            given.append(self.counter)
        if self.function.checks:
            given += [self.report, number, self.nowhere]
        b.call(self.callee, given)

    def _field(self, b: ll.IRBuilder, member: Member, columns: list[Value], number: Value) -> list[Value]:
        size = next((s for s in self.sizes.known if s.field == member.name), Size(member.name))
        if member.direction == "state" and member.shape == "scalar":
            return [b.gep(columns[0], [b.mul(number, constant(I64, member.element.bytes))], source_etype=I8)]
        if member.shape in ("rows", "gather"):
            make = self._rows if member.shape == "rows" else self._elements
            return make(b, member, columns, number, size)
        known = self.function.reads_data or member.direction == "state"
        pointer = self._entry(b, columns[0], number, POINTER) if known else _NOWHERE
        if member.shape == "scalar":
            return [pointer]
        if size.length is not None:
            return [pointer, constant(I32, size.length)]
        return [pointer, b.trunc(self._entry(b, columns[1], number, I64), I32)]

    def _rows(self, b: ll.IRBuilder, member: Member, columns: list[Value], number: Value, size: Size) -> list[Value]:
        first = self._entry(b, columns[0], number, I64)
        num: Value = constant(I64, size.length) if size.length is not None else None
        if num is None:
            num = b.sub(self._entry(b, columns[0], b.add(number, constant(I64, 1)), I64), first)
        table = self._table(b, num, ROW_BYTES)
        each = None if size.row_length is None else constant(I64, size.row_length)

        metadata = self._metadata(b, member, number)

        def row(at: Value, place: Value) -> None:
            self._row(b, place, columns, b.add(first, at), each)
            if metadata is not None:
                b.store(metadata, b.gep(place, [constant(I64, METADATA_OFFSET)], source_etype=I8))

        self._fill(b, table, num, ROW_BYTES, row)
        return [table, b.trunc(num, I32)]

    def _metadata(self, b: ll.IRBuilder, member: Member, number: Value) -> Value | None:
        """Metadata of a field of 8-bit floats, where the code reads them."""
        names = [m.name for m in self.vertex.members]
        if METADATA_OF + member.name not in names:
            return None
        column = self.columns[names.index(METADATA_OF + member.name)][0]
        return b.load(b.gep(column, [number], source_etype=I8), typ=I8)

    def _elements(
        self, b: ll.IRBuilder, member: Member, columns: list[Value], number: Value, size: Size
    ) -> list[Value]:
        num = constant(I64, size.length) if size.length is not None else self._entry(b, columns[1], number, I64)
        if not self.function.reads_data:
            return [_NOWHERE, b.trunc(num, I32)]
        base = self._entry(b, columns[0], number, POINTER)
        table = self._table(b, num, _POINTER_BYTES)

        def element(at: Value, place: Value) -> None:
            b.store(b.gep(base, [b.mul(at, constant(I64, member.element.bytes))], source_etype=I8), place)

        self._fill(b, table, num, _POINTER_BYTES, element)
        return [table, b.trunc(num, I32)]

    @staticmethod
    def _table(b: ll.IRBuilder, num: Value, each: int) -> Value:
        return b.alloca(I8, b.mul(num, constant(I64, each)), align=ROW_BYTES)

    def _row(self, b: ll.IRBuilder, place: Value, columns: list[Value], at: Value, each: Value | None) -> None:
        """Write the object of a row as the host has it."""
        pointer = self._entry(b, columns[1], at, POINTER) if self.function.reads_data else _NOWHERE
        b.store(pointer, place)
        length = self._entry(b, columns[2], at, I64) if each is None else each
        b.store(b.trunc(length, I32), b.gep(place, [constant(I64, LENGTH_OFFSET)], source_etype=I8))

    @staticmethod
    def _fill(b: ll.IRBuilder, table: Value, num: Value, each: int, write: Callable[[Value, Value], None]) -> None:
        """Write all entries of a table, ``each`` bytes apart."""
        with counted_loop(b, constant(I64, 0), num) as row:
            write(row, b.gep(table, [b.mul(row, constant(I64, each))], source_etype=I8))

    @staticmethod
    def _entry(b: ll.IRBuilder, column: Value, number: Value, type_: Any) -> Value:
        return b.load(b.gep(column, [number], inbounds=True, source_etype=type_), typ=type_)

    def _function(self, name: str, result: Any, arguments: list[Any]) -> Value:
        known = self.module.globals.get(name)
        return known or ll.Function(self.module, ll.FunctionType(result, arguments), name)


def num_columns(member: Member) -> int:
    """Columns of a field in the tables."""
    return {"scalar": 1, "rows": 3}.get(member.shape, 2)
