"""LLVM code that runs many nest functions as one leaf: block after block of samples, side by side, or in order.

A driver may be made a second time, *timed*: it then takes one pointer more, to notes of the running thread, and adds
to them what each step took. Notes begin with the number of the clock and a word that is not used here; then each step
has a row of :data:`STEP_WORDS` words: how often it was called, and how long that took, in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from abele.llvm import ir as ll
from abele.llvm.emit import F32, I8, I32, I64, POINTER, VOID, counted_loop, declared

Value = Any

STEP_WORDS = 2
"""Words of a timed driver's notes before its steps, and for each of them."""


@dataclass(frozen=True)
class Pointer:
    """A nest's argument: byte ``offset`` of the driver's pointer ``slot``.

    It is ``per_unit`` bytes further on for every unit, ``per_block`` for every block of rows, and ``per_key`` for every
    key before the range at hand.
    """

    slot: int
    offset: int = 0
    per_unit: int = 0
    per_block: int = 0
    per_key: int = 0


@dataclass(frozen=True)
class UnitPlaces:
    """Places of a step's units among a driver's: evenly apart on a stretch of these.

    Attributes:
        first: Begin of the stretch.
        span: Length of the stretch.
        offset: Shift towards the begin, in parts of ``span`` of the distance of two units: none has the end of each
            unit where the next begins.
    """

    first: int
    span: int
    offset: int = 0


@dataclass(frozen=True)
class DriverStep:
    """A nest function, at the driver's pointer ``function``, with its arguments.

    Attributes:
        function: Slot of its address.
        pointers: Its arguments.
        is_start: In a loop over blocks: true if it runs once at the start of every unit, not for every block.
        units: Units of the function. In a loop over blocks: of one call at the start of a unit.
        places: Side by side: where its units lie among the driver's.
        kind: In a loop over blocks of rows: the place of its number of keys; -1 before the blocks, the number of places
            after them.
    """

    function: int
    pointers: tuple[Pointer, ...]
    is_start: bool = False
    units: int = 1
    places: UnitPlaces | None = None
    kind: int = 0


@dataclass(frozen=True)
class DriverRows:
    """Blocks of rows that a driver's steps run one after the other, each with the keys in a table.

    Attributes:
        blocks: Blocks of rows.
        keys: Number of keys.
        step: Factor that numbers of keys are multiples of, but for the last.
        grain: Factor that ranges start at multiples of, but for those that end at the last key.
        kinds: Number of distinct counts of keys.
        table: The slots of the first keys seen, and of those after the last: f32.
        point: Of every outer dim: units that it takes to step once, its extent, and table elements from step to step.
        block_stride: Table elements from block to block.
    """

    blocks: int
    keys: int
    step: int
    grain: int
    kinds: int
    table: tuple[int, int]
    point: tuple[tuple[int, int, int], ...]
    block_stride: int


@dataclass(frozen=True)
class Driver:
    """A function that calls others.

    Attributes:
        steps: Functions to call.
        units: Parallel units: runs of blocks; side by side, points of an axis along which the steps' units lie.
        blocks: Blocks of all units together; 0 where its steps are side by side, or run in order without places.
        streams: True if its functions store past the caches, and leave the fence after that to it.
        rows: Blocks of rows that its steps run in every unit; None: they run each unit as a whole.
    """

    steps: tuple[DriverStep, ...]
    units: int
    blocks: int = 0
    streams: bool = False
    rows: DriverRows | None = None


def driver_module(driver: Driver, name: str, *, timed: bool = False) -> ll.Module:
    """A module with the driver as its function."""
    if driver.rows is not None:
        return _rows_loop(driver, driver.rows, DriverWriter(name, timed))
    if driver.blocks:
        return _block_loop(driver, DriverWriter(name, timed))
    if all(step.places is None for step in driver.steps):
        return _in_order(driver.steps, DriverWriter(name, timed))
    return _side_by_side(driver.steps, DriverWriter(name, timed))


def _block_loop(driver: Driver, code: DriverWriter) -> ll.Module:
    """A module whose function runs, for every unit (chunk of blocks), all steps block after block."""
    steps = driver.steps

    def chunk(unit: Value) -> None:
        arrays = [code.arrays(s.pointers, unit) for s in steps]
        for number, (step, array) in enumerate(zip(steps, arrays, strict=True)):
            if step.is_start:
                with code.noting(number):
                    code.call(step.function, ll.Constant(I64, 0), ll.Constant(I64, step.units), array)
        low = code.share(unit, driver.blocks, driver.units)
        high = code.share(code.builder.add(unit, ll.Constant(I64, 1)), driver.blocks, driver.units)
        with code.loop(low, high) as block:
            after = code.builder.add(block, ll.Constant(I64, 1))
            for number, (step, array) in enumerate(zip(steps, arrays, strict=True)):
                if not step.is_start:
                    with code.noting(number):
                        code.call(step.function, block, after, array)

    with code.loop(code.begin, code.end) as unit:
        chunk(unit)
    if driver.streams:
        code.builder.fence("seq_cst")
    return code.finish()


def _rows_loop(driver: Driver, rows: DriverRows, code: DriverWriter) -> ll.Module:
    """A module whose function runs, for every unit, steps for each block of rows with as many keys as it sees."""

    def run(unit: Value, kind: int, block: Value, key: Value) -> None:
        after = code.builder.add(unit, ll.Constant(I64, 1))
        for number, step in enumerate(driver.steps):
            if step.kind == kind:
                array = code.arrays(step.pointers, unit, block, key)
                with code.noting(number):
                    code.call(step.function, unit, after, array)

    nothing = ll.Constant(I64, 0)
    with code.loop(code.begin, code.end) as unit:
        run(unit, -1, nothing, nothing)
        with code.loop(nothing, ll.Constant(I64, rows.blocks)) as block:
            kind, key = _range_of_keys(code, rows, unit, block)
            for number in range(rows.kinds):
                with code.builder.if_then(code.builder.icmp_signed("==", kind, ll.Constant(I64, number))):
                    run(unit, number, block, key)
        run(unit, rows.kinds, nothing, nothing)
    if driver.streams:
        code.builder.fence("seq_cst")
    return code.finish()


def _range_of_keys(code: DriverWriter, rows: DriverRows, unit: Value, block: Value) -> tuple[Value, Value]:
    """Place of the number of keys, and the first key, of the range that covers the keys of ``block``."""
    builder = code.builder

    def number(value: int) -> Value:
        return ll.Constant(I64, value)

    place = builder.mul(block, number(rows.block_stride))
    for inner, extent, stride in rows.point:
        at = builder.urem(builder.udiv(unit, number(inner)), number(extent))
        place = builder.add(place, builder.mul(at, number(stride)))
    first, last = (
        builder.fptosi(builder.load(builder.gep(code.slot(slot), [place], source_etype=F32), typ=F32), I64)
        for slot in rows.table
    )
    start = builder.mul(builder.udiv(first, number(rows.grain)), number(rows.grain))
    length = builder.sub(last, start)
    length = builder.select(builder.icmp_signed(">", length, number(1)), length, number(1))
    kind = builder.udiv(builder.sub(length, number(1)), number(rows.step))
    count = builder.mul(builder.add(kind, number(1)), number(rows.step))
    count = builder.select(builder.icmp_signed(">", count, number(rows.keys)), number(rows.keys), count)
    latest = builder.sub(number(rows.keys), count)
    return kind, builder.select(builder.icmp_signed("<", start, latest), start, latest)


def _in_order(steps: Sequence[DriverStep], code: DriverWriter) -> ll.Module:
    """A module whose function runs all units of one step after the other, for whoever has its one unit."""
    nothing = ll.Constant(I64, 0)

    def run() -> None:
        for number, step in enumerate(steps):
            array = code.arrays(step.pointers, nothing)
            with code.noting(number):
                code.call(step.function, nothing, ll.Constant(I64, step.units), array)

    code.when(code.builder.icmp_signed("<", code.begin, code.end), run)
    return code.finish()


def _side_by_side(steps: Sequence[DriverStep], code: DriverWriter) -> ll.Module:
    """A module whose function runs the units of every step on its part of the axis."""
    for number, step in enumerate(steps):
        places = step.places
        assert places is not None
        first, last = ll.Constant(I64, places.first), ll.Constant(I64, places.first + places.span)
        begin, end = (
            code.share(code.builder.sub(code.clamp(point, first, last), first), step.units, places.span, places.offset)
            for point in (code.begin, code.end)
        )

        def run(step: DriverStep = step, begin: Value = begin, end: Value = end, number: int = number) -> None:
            array = code.arrays(step.pointers, ll.Constant(I64, 0))
            with code.noting(number):
                code.call(step.function, begin, end, array)

        code.when(code.builder.icmp_signed("<", begin, end), run)
    return code.finish()


class DriverWriter:
    """A driver function while it is written."""

    def __init__(self, name: str, timed: bool = False) -> None:
        self.module = ll.Module(name=name)
        self.kind = ll.FunctionType(VOID, [I64, I64, POINTER])
        own = ll.FunctionType(VOID, [I64, I64, POINTER, POINTER]) if timed else self.kind
        self.function = ll.Function(self.module, own, name)
        self.begin, self.end, self.args, *notes = self.function.args
        self.notes: Value = notes[0] if timed else None
        self._time: Value = None
        self.entry = ll.IRBuilder(self.function.append_basic_block("entry"))
        self.builder = ll.IRBuilder(self.function.append_basic_block("body"))
        self.start = self.builder.block

    def finish(self) -> ll.Module:
        """The module, its function closed."""
        self.builder.ret_void()
        self.entry.branch(self.start)
        return self.module

    def slot(self, number: int) -> Value:
        """The driver's own pointer argument ``number``."""
        place = self.builder.gep(self.args, [ll.Constant(I64, number)], source_etype=POINTER)
        return self.builder.load(place, typ=POINTER)

    def arrays(self, pointers: Sequence[Pointer], unit: Value, block: Value = None, key: Value = None) -> Value:
        """An array in memory with ``pointers`` for ``unit``, and for a block of rows and its first key."""
        array = self.entry.alloca(POINTER, ll.Constant(I64, max(1, len(pointers))))
        for number, pointer in enumerate(pointers):
            offset: Value = ll.Constant(I64, pointer.offset)
            steps = (unit, pointer.per_unit), (block, pointer.per_block), (key, pointer.per_key)
            for steps_on, size in steps:
                if size:
                    moved = self.builder.mul(steps_on, ll.Constant(I64, size))
                    offset = self.builder.add(offset, moved)
            value = self.builder.gep(self.slot(pointer.slot), [offset], source_etype=I8)
            place = self.builder.gep(array, [ll.Constant(I64, number)], source_etype=POINTER)
            self.builder.store(value, place)
        return array

    def call(self, slot: int, begin: Value, end: Value, array: Value) -> None:
        """Call the function at pointer ``slot``."""
        number = self.builder.ptrtoint(self.slot(slot), I64)
        target = self.builder.inttoptr(number, self.kind.as_pointer())
        self.builder.call(target, [begin, end, array])

    @contextmanager
    def noting(self, step: int) -> Iterator[None]:
        """Code whose time is noted as that of a step, in a timed driver."""
        if self.notes is None:
            yield
            return
        begin = self._now()
        yield
        took = self.builder.sub(self._now(), begin)
        for word, amount in enumerate((ll.Constant(I64, 1), took)):
            place = self.builder.gep(self.notes, [ll.Constant(I64, (1 + step) * STEP_WORDS + word)], source_etype=I64)
            self.builder.store(self.builder.add(self.builder.load(place, typ=I64), amount), place)

    def _now(self) -> Value:
        """Time of the clock, in nanoseconds."""
        builder = self.builder
        self._time = self._time or self.entry.alloca(I64, ll.Constant(I64, 2))
        clock = builder.trunc(builder.load(self.notes, typ=I64), I32)
        builder.call(declared(builder, "clock_gettime", I32, [I32, POINTER]), [clock, self._time])
        rest = builder.load(builder.gep(self._time, [ll.Constant(I64, 1)], source_etype=I64), typ=I64)
        return builder.add(builder.mul(builder.load(self._time, typ=I64), ll.Constant(I64, 10**9)), rest)

    def share(self, part: Value, total: int, parts: int, offset: int = 0) -> Value:
        """First element of ``part``, of ``parts`` equal shares of ``total``; ``offset`` of ``parts`` of one earlier."""
        before = self.builder.mul(part, ll.Constant(I64, total))
        if offset:
            before = self.builder.add(before, ll.Constant(I64, offset))
        return self.builder.udiv(before, ll.Constant(I64, parts))

    def clamp(self, value: Value, low: Value, high: Value) -> Value:
        """``value`` moved into [low, high]."""
        value = self.builder.select(self.builder.icmp_signed("<", value, low), low, value)
        return self.builder.select(self.builder.icmp_signed(">", value, high), high, value)

    def when(self, condition: Value, body: Callable[[], None]) -> None:
        """``body`` where ``condition`` holds."""
        with self.builder.if_then(condition):
            body()

    def loop(self, low: Value, high: Value) -> AbstractContextManager[Value]:
        """A loop from ``low`` to before ``high``; yields its index."""
        return counted_loop(self.builder, low, high)
