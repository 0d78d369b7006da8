"""LLVM code of statements: the body of a codelet, for one vertex."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from abele.codelet.memory import VertexMemory, value_type
from abele.codelet.neighbours import Shifted, certain, neighbours
from abele.codelet.parallel import is_parallel
from abele.codelet.printing import emit_print
from abele.codelet.reductions import IDENTITY, LANES
from abele.codelet.tree import (
    Assign,
    DebugOnly,
    Element,
    Evaluate,
    For,
    Helper,
    HelperCall,
    IfStmt,
    Leave,
    Print,
    Return,
    Stmt,
    StoreStmt,
    WhileStmt,
    walk,
)
from abele.codelet.values import EXACT, FLOAT_BINARY, Values
from abele.codelet.vectors import MOST_TOGETHER, Vectors, can_repeat, most_held, stretches
from abele.llvm import ir as ll
from abele.llvm.emit import F32, I64, POINTER, Value, constant
from abele.llvm.host import LINE_BYTES, host_cpu
from abele.numerics import ElementType


@dataclass
class Charges:
    """Issue slots by place, for code that counts; see ``costs``.

    Attributes:
        before: Slots of the straight-line code that starts at a statement.
        iteration: Slots of one more iteration of a loop, without its body.
    """

    before: dict[Stmt, int] = field(default_factory=dict)
    iteration: dict[Stmt, int] = field(default_factory=dict)


class LoopIds:
    """Loop metadata, which refers to itself and is therefore written here.

    Attributes:
        text: Definitions, to be added to the text of the module.
    """

    _FIRST = 1_000_000

    def __init__(self) -> None:
        self.text = ""
        self._next = self._FIRST

    def parallel(self, vectors: Vectors | None = None) -> tuple[ll.Metadata, ll.Metadata]:
        """Metadata of a loop that carries nothing through memory, and the group of its accesses."""
        group = self._define("distinct !{}")
        accesses = f'!{{!"llvm.loop.parallel_accesses", {group.ref}}}'
        options = (accesses, *(_vector_options(vectors) if vectors is not None else ()))
        return self._define(f"distinct !{{!{self._next}, {', '.join(options)}}}"), group

    def vectorised(self, width: int) -> ll.Metadata:
        """Metadata of a loop of ``width`` iterations that becomes one vector operation, not unrolled before."""
        return self._define(f"distinct !{{!{self._next}, {', '.join(_vector_options(Vectors(width, 1)))}}}")

    def _define(self, content: str) -> ll.Metadata:
        number = self._next
        self._next += 1
        self.text += f"!{number} = {content}\n"
        return ll.Metadata(number)


def _vector_options(vectors: Vectors) -> tuple[str, ...]:
    return (
        '!{!"llvm.loop.unroll.disable"}',
        f'!{{!"llvm.loop.vectorize.width", i32 {vectors.width}}}',
        f'!{{!"llvm.loop.interleave.count", i32 {vectors.together}}}',
        '!{!"llvm.loop.vectorize.enable", i1 true}',
    )


@dataclass
class _Loop:
    again: Any
    after: Any


class BodyEmitter(Values):
    """Emits the body of a codelet at the builder's place.

    Args:
        builder: Builder that code is added to.
        memory: Fields of the vertex at hand.
        charges: Slots to count, or None.
        counter: Stack slot that slots are added to.
        loop_ids: Loop metadata of the module.

    Attributes:
        reads_data: True if the code may read what fields point to; counting alone may not.
    """

    reads_data = True

    def __init__(
        self,
        builder: ll.IRBuilder,
        memory: VertexMemory,
        loop_ids: LoopIds,
        charges: Charges | None = None,
        counter: Value | None = None,
    ) -> None:
        self.builder = builder
        self.memory = memory
        self.loop_ids = loop_ids
        self.charges = charges
        self.counter = counter
        self.variables: dict[str, Value] = {}
        self.rows: dict[str, Value] = {}
        self.certain: set[Element] = set()
        self.shifted: dict[Element, Value] = {}
        self.returned: Value | None = None
        self._types: dict[str, ElementType] = {}
        self._loops: list[_Loop] = []
        self._end: Any = None
        self._result: Value | None = None

    def body(self, function: Helper, arguments: dict[str, Value]) -> None:
        """The code of a function; control goes on after it."""
        saved = self.variables, self.rows, self._types, self._loops, self._end, self._result
        self._types = function.types
        # Local variables are stack slots, which LLVM's mem2reg turns into registers: no phi nodes are needed here.
        self.variables = {n: self.slot(value_type(t), n) for n, t in function.types.items()}
        self.rows = {}
        for name, value in arguments.items():
            self.builder.store(value, self.variables[name])
        self._loops, self._end = [], self.builder.append_basic_block("end")
        self._result = None if function.result is None else self.slot(value_type(function.result), "result")
        result = self._result
        self.block(function.body)
        self._branch(self._end)
        self.builder.position_at_end(self._end)
        self.variables, self.rows, self._types, self._loops, self._end, self._result = saved
        # A helper's code is put in place, so its names must not be seen by the caller's.
        self.returned = result

    def result_of(self, function: Helper, arguments: dict[str, Value]) -> Value:
        """The result of a function that has one."""
        self.body(function, arguments)
        assert function.result is not None
        assert self.returned is not None
        return self.builder.load(self.returned, typ=value_type(function.result))

    def slot(self, type_: Any, name: str) -> Value:
        """Stack memory, reserved at the start of the function."""
        with self.builder.goto_entry_block():
            return self.builder.alloca(type_, name=name)

    def call_helper(self, call: HelperCall) -> Value:
        """The result of a helper, whose code is put in place."""
        values = [self.value(a) for a in call.args]
        self.body(call.helper, dict(zip(call.helper.parameters, values, strict=True)))
        return None if self.returned is None else self.builder.load(self.returned, typ=value_type(call.type))

    def block(self, body: list[Stmt]) -> None:
        """Code of statements one after the other."""
        for statement in body:
            if self.charges is not None:
                self.charge(self.charges.before.get(statement, 0))
            self.statement(statement)

    def charge(self, slots: int) -> None:
        """Count ``slots`` issue slots."""
        if slots and self.counter is not None:
            before = self.builder.load(self.counter, typ=I64)
            self.builder.store(self.builder.add(before, constant(I64, slots)), self.counter)

    def statement(self, statement: Stmt) -> None:
        """Code of one statement."""
        match statement:
            case Assign():
                value = self.value(statement.value)
                self.builder.store(value, self.variables[statement.name])
                if statement.row_of is not None and self.reads_data:
                    self._keep_row(statement.name, self.memory.row(statement.row_of, value))
            case StoreStmt():
                self._store(statement)
            case Evaluate():
                self.value(statement.value)
            case IfStmt():
                self._if(statement)
            case WhileStmt():
                self._while(statement)
            case For():
                self._for(statement)
            case Leave():
                loop = self._loops[-1]
                self._branch(loop.after if statement.how == "break" else loop.again)
            case Return():
                if statement.value is not None and self._result is not None:
                    self.builder.store(self.value(statement.value), self._result)
                self._branch(self._end)
            case Print():
                self._print(statement)
            case DebugOnly():
                pass

    def _print(self, statement: Print) -> None:
        values = [self.value(v) for v in statement.values]
        types = [v.type for v in statement.values]
        said = self.memory.said
        assert said is not None
        emit_print(self.builder, said.address, said.sites[statement], said.vertex, types, values)

    def _keep_row(self, name: str, pointer: Value) -> None:
        if name not in self.rows:
            self.rows[name] = self.slot(POINTER, f"{name}pointer")
        self.builder.store(pointer, self.rows[name])

    def _store(self, statement: StoreStmt) -> None:
        value = self.value(statement.value)
        index = [self.value(i) for i in statement.index]
        self.memory.store(statement.field, index, value, self.row_of(statement.index))

    def _branch(self, target: Any) -> None:
        if not self.builder.block.is_terminated:
            self.builder.branch(target)

    def _new(self, *names: str) -> list[Any]:
        return [self.builder.append_basic_block(n) for n in names]

    def _if(self, statement: IfStmt) -> None:
        then, otherwise, after = self._new("then", "else", "after")
        self.builder.cbranch(self.value(statement.condition), then, otherwise)
        for block, body in ((then, statement.then), (otherwise, statement.otherwise)):
            self.builder.position_at_end(block)
            self.block(body)
            self._branch(after)
        self.builder.position_at_end(after)

    def _while(self, statement: WhileStmt) -> None:
        test, body, after = self._new("test", "body", "after")
        self.builder.branch(test)
        self.builder.position_at_end(test)
        self.builder.cbranch(self.value(statement.condition), body, after)
        self.builder.position_at_end(body)
        self._may_stop(statement, after)
        self._iteration(statement, statement.body, _Loop(test, after))
        self._branch(test)
        self.builder.position_at_end(after)

    def _may_stop(self, statement: WhileStmt, after: ll.Block) -> None:
        """Code that leaves an endless loop once the host wants it to."""
        if self.memory.stopped is not None:
            self.memory.stopped.emit(self.builder, statement, after)

    def _iteration(self, statement: Stmt, body: list[Stmt], loop: _Loop) -> None:
        if self.charges is not None:
            self.charge(self.charges.iteration.get(statement, 0))
        self._loops.append(loop)
        self.block(body)
        self._loops.pop()

    def _for(self, statement: For) -> None:
        start, stop = self.value(statement.start), self.value(statement.stop)
        if self.memory.may_vectorise:
            self.certain |= certain(statement)
        if not statement.lanes:
            for first, last, vectors in self._stretches(statement, start, stop):
                with self._shifting(statement, first, last) as body, self._parallel(statement, vectors) as loop_id:
                    self.counted(first, last, statement.step, body, loop_id)
            return
        self._in_lanes(statement, start, self.iterations(statement, start, stop))

    def _stretches(self, statement: For, start: Value, stop: Value) -> Iterator[tuple[Value, Value, Vectors | None]]:
        """Bounds of the parts of a loop that become whole vectors; of the loop itself where it does not."""
        known = isinstance(start, ll.Constant) and isinstance(stop, ll.Constant)
        if not (self._suits_vectors and known and can_repeat(statement)):
            yield start, stop, None
            return
        cpu = host_cpu()
        most = max(1, min(MOST_TOGETHER, cpu.vector_registers // most_held(statement.body)))
        for first, last, vectors in stretches(start.constant, stop.constant, cpu.vector_bytes // 4, most):
            yield constant(I64, first), constant(I64, last), vectors

    @contextmanager
    def _parallel(self, statement: For, vectors: Vectors | None = None) -> Iterator[ll.Metadata | None]:
        """Mark accesses emitted inside as those of a loop that carries nothing through memory, if that is so."""
        aliasing = self.memory.aliasing
        if not aliasing.enabled or not is_parallel(statement):
            yield None
            return
        loop_id, aliasing.access_group = self.loop_ids.parallel(vectors)
        yield loop_id
        aliasing.access_group = None

    @property
    def _suits_vectors(self) -> bool:
        return self.charges is None and self.memory.may_vectorise and self.memory.aliasing.enabled

    @contextmanager
    def _shifting(self, statement: For, first: Value, last: Value) -> Iterator[Callable[[Value, _Loop], None]]:
        """Yields what emits an iteration of a loop from ``first`` to ``last``, with neighbours that move on."""
        cpu = host_cpu()
        shifts = self._suits_vectors and cpu.vector_bytes >= LINE_BYTES
        rows = []
        for found in neighbours(statement, cpu.vector_registers // 2) if shifts else ():
            slots = [self.slot(value_type(found.type), "shifted") for _ in found.distances]
            rows.append(Shifted(self, found, slots))

        def iteration(index: Value, loop: _Loop) -> None:
            for row in rows:
                row.load(index)
            self._with(statement, index, loop)
            for row in rows:
                row.move()

        if rows:
            # A loop without iterations may have no rows to read.
            with self.builder.if_then(self.builder.icmp_signed("<", first, last)):
                for row in rows:
                    row.begin(first)
        self.shifted = {element: slot for row in rows for element, slot in row.places.items()}
        yield iteration
        self.shifted = {}

    def _with(self, statement: For, index: Value, loop: _Loop) -> None:
        """One iteration with the loop variable at ``index``."""
        self.builder.store(index, self.variables[statement.name])
        self._iteration(statement, statement.body, loop)

    def counted(
        self,
        start: Value,
        stop: Value,
        step: int,
        body: Callable[[Value, _Loop], None],
        loop_id: ll.Metadata | None = None,
    ) -> None:
        """A loop from ``start`` up to, or down to, ``stop``; ``body`` emits an iteration for an index."""
        test, inside, again, after = self._new("loop", "inside", "next", "after")
        entry = self.builder.block
        self.builder.branch(test)
        self.builder.position_at_end(test)
        index = self.builder.phi(I64)
        index.add_incoming(start, entry)
        goes_on = self.builder.icmp_signed("<" if step > 0 else ">", index, stop)
        self.builder.cbranch(goes_on, inside, after)
        self.builder.position_at_end(inside)
        body(index, _Loop(again, after))
        self._branch(again)
        self.builder.position_at_end(again)
        index.add_incoming(self.builder.add(index, constant(I64, step), flags=("nsw",)), again)
        back = self.builder.branch(test)
        if loop_id is not None:
            back.set_metadata("llvm.loop", loop_id)
        self.builder.position_at_end(after)

    def iterations(self, statement: For, start: Value, stop: Value) -> Value:
        """Number of iterations of a loop, never negative."""
        b, step = self.builder, statement.step
        low, high = (start, stop) if step > 0 else (stop, start)
        distance = b.sub(high, low)
        positive = b.icmp_signed(">", high, low)
        width = constant(I64, abs(step))
        count = distance if abs(step) == 1 else b.udiv(b.add(distance, constant(I64, abs(step) - 1)), width)
        return b.select(positive, count, constant(I64, 0))

    def _in_lanes(self, statement: For, start: Value, count: Value) -> None:
        """A loop with accumulators; see ``reductions`` for the order."""
        b = self.builder
        slots = {n: self.variables[n] for n in statement.lanes}
        arrays = {n: self.slot(ll.VectorType(F32, LANES), f"{n}.lanes") for n in slots}
        blocks = b.udiv(count, constant(I64, LANES))
        # Without a whole block of lanes nothing is combined: adding the neutral 0 would turn −0 into 0.
        some = b.icmp_signed(">", blocks, constant(I64, 0))
        whole = b.mul(blocks, constant(I64, LANES))
        main, tail = self._new("lanes", "rest")
        b.cbranch(some, main, tail)
        b.position_at_end(main)
        # What the variable held before the loop is combined last; lanes start from the neutral value.
        kept = {n: b.load(slot, typ=F32) for n, slot in slots.items()}
        for name, array in arrays.items():
            b.store(constant(ll.VectorType(F32, LANES), IDENTITY[statement.lanes[name]]), array, align=4)
        self.counted(constant(I64, 0), whole, LANES, lambda k, _: self._lane_block(statement, start, k, arrays))
        for name, op in statement.lanes.items():
            type_ = self._types[name]
            total = self._combined(op, kept[name], self._folded(op, arrays[name], type_), type_)
            b.store(total, slots[name])
        self._branch(tail)
        b.position_at_end(tail)
        self.counted(whole, count, 1, lambda k, loop: self._with(statement, self._at(statement, start, k), loop))

    def _at(self, statement: For, start: Value, k: Value) -> Value:
        step = constant(I64, statement.step)
        offset = k if statement.step == 1 else self.builder.mul(k, step, flags=("nsw",))
        return self.builder.add(start, offset, flags=("nsw",))

    def _lane_block(self, statement: For, start: Value, first: Value, arrays: dict[str, Value]) -> None:
        def one(lane: Value, loop: _Loop) -> None:
            places = {n: self.builder.gep(a, [lane], inbounds=True, source_etype=F32) for n, a in arrays.items()}
            # The body works on the variable itself, so the lane is loaded into it before and stored after.
            for name, place in places.items():
                self.builder.store(self.builder.load(place, typ=F32), self.variables[name])
            k = self.builder.add(first, lane, flags=("nsw",))
            self._with(statement, self._at(statement, start, k), loop)
            for name, place in places.items():
                self.builder.store(self.builder.load(self.variables[name], typ=F32), place)

        prints = any(isinstance(s, Print) for s in walk(statement.body))
        vectorised = self.loop_ids.vectorised(LANES) if self.memory.may_vectorise and not prints else None
        self.counted(constant(I64, 0), constant(I64, LANES), 1, one, vectorised)

    def _folded(self, op: str, array: Value, type_: ElementType) -> Value:
        """All lanes combined: lane j takes lane j + half, until one is left."""
        b, width = self.builder, LANES
        value = b.load(array, align=4, typ=ll.VectorType(F32, LANES))
        while width > 1:
            width //= 2
            low, high = (b.shuffle_vector(value, value, _indices(range(f, f + width))) for f in (0, width))
            value = self._combined(op, low, high, type_)
        return b.extract_element(value, ll.Constant(ll.IntType(32), 0))

    def _combined(self, op: str, one: Value, two: Value, type_: ElementType) -> Value:
        value = FLOAT_BINARY[op](self.builder, one, two)
        return value if type_.bits == 32 or op in EXACT else self.memory.rounded(value, type_)


def _indices(numbers: range) -> Any:
    type_ = ll.IntType(32)
    return ll.Constant(ll.VectorType(type_, len(numbers)), [ll.Constant(type_, n) for n in numbers])
