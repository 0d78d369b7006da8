"""Functions that pack panels of a product's operands, wherever their elements lie.

Packing is a vector copy where neighbours lie next to each other across the panel, or along the summed dim, through
transposes in registers; what is neither is copied one by one. Narrow elements are widened on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from abele.kernels.routines.blocking import GROUP, Blocking
from abele.llvm import ir as ll
from abele.llvm.emit import F32, I32, I64, POINTER, VOID, constant, counted_loop, declared, suffix
from abele.llvm.narrow import widened
from abele.numerics import as_element_type

# Writer of the functions of the packed routine.

Value = Any


class RoutineWriter:
    """A module's functions, one after the other, and their common parts."""

    def __init__(self, module: ll.Module, sizes: Blocking) -> None:
        self.module, self.sizes = module, sizes
        self.wide = ll.VectorType(F32, sizes.lanes)
        self.function: Any = None
        self.builder: Any = None

    def open(self, name: str, types: Sequence[Any], *, internal: bool = True) -> Any:
        """Begin function ``name`` with arguments of ``types``; gives the arguments. Pointers among them never meet."""
        self.function = ll.Function(self.module, ll.FunctionType(VOID, types), name)
        if internal:
            self.function.linkage = "internal"
        for argument in self.function.args:
            if argument.type == POINTER:
                argument.add_attribute("noalias")
        self.builder = ll.IRBuilder(self.function.append_basic_block("entry"))
        return self.function.args

    def at(self, base: Value, index: Value, type_: Any) -> Value:
        """The address of element ``index`` of ``type_`` from ``base`` on."""
        return self.builder.gep(base, [index], source_etype=type_)

    def least(self, first: Value, second: Value) -> Value:
        """The smaller of two integers."""
        return self.builder.select(self.builder.icmp_signed("<", first, second), first, second)

    def most(self, first: Value, second: Value) -> Value:
        """The larger of two integers."""
        return self.builder.select(self.builder.icmp_signed(">", first, second), first, second)

    def parts(self, whole: Value, part: Value | int) -> Value:
        """``whole / part``, rounded up."""
        part = i64(part) if isinstance(part, int) else part
        return self.builder.sdiv(self.builder.add(whole, self.builder.sub(part, i64(1))), part)

    def mask(self, there: Value, vector: int) -> Value:
        """The lanes of the ``vector``-th vector whose number is below ``there``."""
        lanes = self.sizes.lanes
        numbers = ll.Constant(ll.VectorType(I32, lanes), [ll.Constant(I32, vector * lanes + n) for n in range(lanes)])
        return self.builder.icmp_signed("<", numbers, self.splat(self.builder.trunc(there, I32), numbers.type))

    def splat(self, value: Value, type_: Any) -> Value:
        """A vector of ``type_`` with ``value`` in every lane."""
        one = self.builder.insert_element(ll.Constant(type_, ll.Undefined), value, ll.Constant(I32, 0))
        return self.builder.shuffle_vector(one, one, constant(ll.VectorType(I32, type_.count), 0))

    def call(self, name: str, result: Any, *args: Value) -> Value:
        """A call of the intrinsic ``name``, overloaded on the type of its result."""
        full = f"{name}.{suffix(result)}"
        return self.builder.call(declared(self.builder, full, result, [a.type for a in args]), args)

    def masked_load(self, place: Value, mask: Value, type_: Any, align: int = 2) -> Value:
        """The lanes of ``mask`` from memory at an address that ``align`` divides, zeros in the others."""
        args = [place, ll.Constant(I32, align), mask, constant(type_, 0)]
        full = f"llvm.masked.load.{suffix(type_)}.p0"
        return self.builder.call(declared(self.builder, full, type_, [a.type for a in args]), args)

    def masked_store(self, value: Value, place: Value, mask: Value) -> None:
        """Store the lanes of ``mask``."""
        args = [value, place, ll.Constant(I32, 4), mask]
        full = f"llvm.masked.store.{suffix(value.type)}.p0"
        self.builder.call(declared(self.builder, full, VOID, [a.type for a in args]), args)

    def loop(self, low: Value, high: Value, step: Value | int) -> AbstractContextManager[Value]:
        """A loop from ``low`` to before ``high``; yields its index."""
        return counted_loop(self.builder, low, high, step)


def i64(value: int) -> Value:
    """A constant of 64 bits."""
    return ll.Constant(I64, value)


def stored_type(type_: str) -> Any:
    """LLVM type of elements in memory."""
    return F32 if type_ == "f32" else ll.IntType(8 * element_bytes(type_))


def element_bytes(type_: str) -> int:
    """Bytes of an element."""
    return as_element_type(type_).bytes


def halves(width: int, lanes: int) -> list[int]:
    """Parts of ``width`` elements: as many vectors of ``lanes`` as there are, then a half, a quarter and so on."""
    parts = []
    while width:
        while lanes > width:
            lanes //= 2
        parts.append(lanes)
        width -= lanes
    return parts


NARROW = 4
"""Elements in a row from which operands are transposed in registers."""


@dataclass(frozen=True)
class PackedPanel:
    """A panel to be packed: its element type, width, and how much of that there is; tables and pointers."""

    type: str
    width: int
    there: Value
    across: Value
    along: Value
    source: Value
    target: Value


class PackingWriter(RoutineWriter):
    """The functions that pack while they are written."""

    def packing(self, type_: str, width: int, name: str) -> Any:
        """``void (first, there, slice, depth, across*, along*, across_run, along_run, source, target)``.

        A panel of ``there`` of at most ``width`` rows or columns from ``first`` on, over ``depth`` summed elements from
        ``slice`` on: element (i, p), at ``source[across[first + i] + along[slice + p]]``, comes to
        ``target[p·width + i]``. Runs say how many neighbours lie in a row, from multiples of that number on.
        """
        args = self.open(name, [I64] * 4 + [POINTER] * 2 + [I64] * 2 + [POINTER] * 2)
        first, there, slice_, depth, across, along, across_run, along_run, source, target = args
        across, along = self.at(across, first, I64), self.at(along, slice_, I64)
        panel = PackedPanel(type_, width, there, across=across, along=along, source=source, target=target)
        b = self.builder
        with b.if_else(b.icmp_signed(">", across_run, i64(1))) as (copies, others):
            with copies:
                self._pack_runs(panel, first, across_run, depth)
            with others, self._pieces(slice_, depth, self.most(along_run, i64(1))) as (p, size):
                ends, last = p, self.builder.add(p, size)
                for run in dict.fromkeys((self.sizes.lanes, min(NARROW, self.sizes.lanes))):
                    end = self.builder.add(ends, self._in_rows(ends, last, run))
                    self._pack_along(panel, run, (ends, end))
                    ends = end
                self._pack_one_by_one(panel, (ends, last))
        self._fill(panel, depth)
        self.builder.ret_void()
        return self.function

    def _in_rows(self, first: Value, last: Value, run: int) -> Value:
        """Number of the summed elements from ``first`` to before ``last`` that are packed ``run`` words at a time."""
        return self.builder.and_(self.builder.sub(last, first), i64(-run))

    def _fill(self, panel: PackedPanel, depth: Value) -> None:
        """Fill the rest of the last words after ``depth`` elements; whole elements leave none."""

    @contextmanager
    def _pieces(self, first: Value, count: Value, run: Value) -> Iterator[tuple[Value, Value]]:
        """A loop over the pieces of ``count`` elements from ``first`` on that end where runs do.

        Yields the first element of a piece, counted from ``first``, and how many it has.
        """
        head, body, done = (self.function.append_basic_block(part) for part in ("head", "piece", "done"))
        before = self.builder.block
        self.builder.branch(head)
        self.builder.position_at_end(head)
        at = self.builder.phi(I64)
        at.add_incoming(i64(0), before)
        self.builder.cbranch(self.builder.icmp_signed("<", at, count), body, done)
        self.builder.position_at_end(body)
        left = self.builder.sub(run, self.builder.srem(self.builder.add(first, at), run))
        size = self.least(left, self.builder.sub(count, at))
        yield at, size
        at.add_incoming(self.builder.add(at, size), self.builder.block)
        self.builder.branch(head)
        self.builder.position_at_end(done)

    def _entry(self, table: Value, index: Value) -> Value:
        return self.builder.load(self.at(table, index, I64), typ=I64)

    def _pack_runs(self, panel: PackedPanel, first: Value, run: Value, depth: Value) -> None:
        """Neighbours lie across the panel in runs: those of a whole panel are copied row after row, else run by run."""
        b, width = self.builder, panel.width
        is_cut = b.icmp_signed(">", b.add(b.srem(first, run), i64(width)), run)
        is_cut = b.and_(is_cut, b.icmp_signed("==", panel.there, i64(width)))
        ends = b.or_(first, run)
        done, pieces = (self.function.append_basic_block(part) for part in ("done", "pieces"))
        for size in self._run_parts(width):
            copy, other = (self.function.append_basic_block(part) for part in ("copy", "other"))
            fits = b.icmp_signed("==", b.and_(ends, i64(size - 1)), i64(0))
            b.cbranch(b.and_(is_cut, fits), copy, other)
            b.position_at_end(copy)
            self._copy_parts(panel, size, depth)
            b.branch(done)
            b.position_at_end(other)
        b.branch(pieces)
        b.position_at_end(pieces)
        with self._pieces(first, panel.there, run) as (i, count):
            self._pack_across(panel, (i, count), depth)
        b.branch(done)
        b.position_at_end(done)

    def _run_parts(self, width: int) -> list[int]:
        """Sizes of equal parts for rows of a panel that several runs make up; largest first."""
        return [size for size in dict.fromkeys((self.sizes.lanes, NARROW, 2)) if width % size == 0][:2]

    def _copy_parts(self, panel: PackedPanel, size: int, depth: Value) -> None:
        """Copy whole rows of a panel in parts of ``size``, each from a place of its own."""
        type_, width = stored_type(panel.type), panel.width
        kind = ll.VectorType(type_, size)
        starts = [self.at(panel.source, self._entry(panel.across, i64(i)), type_) for i in range(0, width, size)]
        with self.loop(i64(0), depth, 1) as p:
            line = self._entry(panel.along, p)
            row = self.at(panel.target, self.builder.mul(p, i64(width)), F32)
            for part, start in enumerate(starts):
                raw = self.builder.load(self.at(start, line, type_), typ=kind, align=element_bytes(panel.type))
                self.builder.store(self._widened(raw, panel.type), self.at(row, i64(part * size), F32), align=4)

    def _pack_across(self, panel: PackedPanel, piece: tuple[Value, Value], depth: Value) -> None:
        """Rows of the panel lie in memory as they shall: vector copies of a piece, given by its start and size."""
        type_, width, (first, size) = panel.type, panel.width, piece
        start = self.at(panel.source, self._entry(panel.across, first), stored_type(type_))
        to = self.at(panel.target, first, F32)
        masks = [self.mask(size, v) for v in range(-(-width // self.sizes.lanes))]
        with self.builder.if_else(self.builder.icmp_signed("==", size, i64(width))) as (whole, part):
            for side, chosen in ((whole, None), (part, masks)):
                with side, self.loop(i64(0), depth, 1) as p:
                    line = self.at(start, self._entry(panel.along, p), stored_type(type_))
                    self._copy(line, self.at(to, self.builder.mul(p, i64(width)), F32), type_, width, chosen)

    def _copy(self, line: Value, row: Value, type_: str, width: int, masks: Sequence[Value] | None = None) -> None:
        """Copy ``width`` elements from ``line`` to ``row``; those of ``masks`` alone where there are any."""
        lanes, place = self.sizes.lanes, 0
        if masks is None and self.sizes.masks and width % lanes:
            masks = [self.mask(i64(width), v) for v in range(-(-width // lanes))]
        if masks is not None:
            for v, mask in enumerate(masks):
                place = self.at(line, i64(v * lanes), stored_type(type_))
                raw = self.masked_load(place, mask, ll.VectorType(stored_type(type_), lanes), element_bytes(type_))
                self.masked_store(self._widened(raw, type_), self.at(row, i64(v * lanes), F32), mask)
            return
        # Nothing beyond the row may be read, so the rest goes in halves.
        for part in halves(width, lanes):
            kind = ll.VectorType(stored_type(type_), part)
            raw = self.builder.load(self.at(line, i64(place), stored_type(type_)), typ=kind, align=element_bytes(type_))
            self.builder.store(self._widened(raw, type_), self.at(row, i64(place), F32), align=4)
            place += part

    def group_packing(self, type_: str, width: int, name: str) -> Any:
        """``void (first, slice, depth, stride, across*, along*, source, target)``.

        :data:`GROUP` whole panels of rows whose elements lie next to each other, ``stride`` words apart once packed: a
        line of the caches has elements of several panels, and is read once for all of them.
        """
        args = self.open(name, [I64] * 4 + [POINTER] * 4)
        first, slice_, depth, stride, across, along, source, target = args
        start = self.at(source, self._entry(across, first), stored_type(type_))
        along = self.at(along, slice_, I64)
        targets = [self.at(target, self.builder.mul(stride, i64(n)), F32) for n in range(GROUP)]
        with self.loop(i64(0), depth, 1) as p:
            line = self.at(start, self._entry(along, p), stored_type(type_))
            place = self.builder.mul(p, i64(width))
            for n, panel in enumerate(targets):
                part = self.at(line, i64(n * width), stored_type(type_))
                self._copy(part, self.at(panel, place, F32), type_, width)
        self.builder.ret_void()
        return self.function

    def _pack_along(self, panel: PackedPanel, run: int, ends: tuple[Value, Value]) -> None:
        """Summed elements lie in rows of ``run``: blocks of lanes × run elements, transposed in registers."""
        type_, width, there = panel.type, panel.width, panel.there
        lanes = self.sizes.lanes
        last = self.builder.sub(there, i64(1))
        raw = ll.VectorType(stored_type(type_), run)
        # Rows that are not there are copies of the last one; their results are not stored.
        starts = [
            self.at(panel.source, self._entry(panel.across, self.least(i64(r), last)), stored_type(type_))
            for r in range(width)
        ]
        with self.loop(*ends, run) as p:
            to = self.at(panel.target, self.builder.mul(p, i64(width)), F32)
            from_ = self._entry(panel.along, p)
            for v in reversed(range(-(-width // lanes))):
                places = [self.at(s, from_, stored_type(type_)) for s in starts[v * lanes : (v + 1) * lanes]]
                square = [
                    self._widened(self.builder.load(s, typ=raw, align=element_bytes(type_)), type_) for s in places
                ]
                square += [ll.Constant(square[0].type, ll.Undefined)] * (lanes - len(square))
                for n, column in enumerate(self._transposed(square, run)):
                    self._store_whole(column, self.at(to, i64(n * width), F32), v, width)

    def _store_whole(self, value: Value, row: Value, vector: int, width: int) -> None:
        """Store the ``vector``-th vector of a row of ``width``.

        Rows come from the first to the last, and their last vectors before the first ones, so that each row is written
        over what was stored beyond the one before.
        """
        place = self.at(row, i64(vector * self.sizes.lanes), F32)
        if self.sizes.masks and (vector + 1) * self.sizes.lanes > width:
            self.masked_store(value, place, self.mask(i64(width), vector))
        else:
            self.builder.store(value, place, align=4)

    def _pack_one_by_one(self, panel: PackedPanel, ends: tuple[Value, Value]) -> None:
        """Elements that have no neighbours to go with."""
        stored = stored_type(panel.type)
        with self.loop(*ends, 1) as p:
            line = self.at(panel.source, self._entry(panel.along, p), stored)
            to = self.at(panel.target, self.builder.mul(p, i64(panel.width)), F32)
            with self.loop(i64(0), panel.there, 1) as r:
                one = self.builder.load(self.at(line, self._entry(panel.across, r), stored), typ=stored)
                self.builder.store(self._widened(one, panel.type), self.at(to, r, F32))

    def _widened(self, value: Value, type_: str) -> Value:
        return value if type_ == "f32" else widened(self.builder, value, as_element_type(type_))

    def _transposed(self, rows: list[Value], run: int) -> list[Value]:
        """The ``run`` columns of ``rows``, of which there are as many as lanes.

        Rows are put one after the other until vectors are full. Then each pair of neighbours becomes two vectors, one
        with the first half of both's columns and one with the second, until each has one column, in order of rows.
        """
        while len(rows) > run:
            rows = [self._chosen(rows[n], rows[n + 1], range(2 * rows[n].type.count)) for n in range(0, len(rows), 2)]
        groups, columns = [rows], run
        while columns > 1:
            halves = []
            for group in groups:
                for part in (0, columns // 2):
                    kept = [n + part + i for n in range(0, 2 * self.sizes.lanes, columns) for i in range(columns // 2)]
                    halves.append([self._chosen(group[n], group[n + 1], kept) for n in range(0, len(group), 2)])
            groups, columns = halves, columns // 2
        return [group[0] for group in groups]

    def _chosen(self, first: Value, second: Value, lanes: Sequence[int]) -> Value:
        """Lanes of two vectors, numbered through both."""
        order = ll.VectorType(I32, len(lanes))
        return self.builder.shuffle_vector(first, second, ll.Constant(order, [ll.Constant(I32, n) for n in lanes]))
