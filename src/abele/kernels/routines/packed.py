"""Matrix products with both operands packed, in the order of Goto and van de Geijn, as native code of any CPU.

``C = A·B`` or ``C += A·B`` for operands of f32, f16 or bf16, summed in f32. Tables say where rows and columns of the
matrices lie, so these may be laid out in any way: transposed, or in blocks (channels in groups, [C1, B, C0]). The
loops, outermost first:

* columns in strips, and the summed dim in slices, whose block of B fits into half of a second-level cache: it is packed
  once, panel by panel of as many columns as a register tile has, each panel contiguous;
* rows, as many as a register tile has: their slice of A is packed into the first-level cache;
* panels of B, which stream by: one register tile each.

A tile reads nothing but packed memory, front to back, so no stride of the operands can cost it anything: rows a power
of two apart, which fall on the same places of a cache, are met by the packing alone, once. Packing is a vector copy
where neighbours lie next to each other across the panel, or along the summed dim, through transposes in registers; what
is neither is copied one by one. 16-bit elements are widened on the way. Beyond the last column of a panel is whatever
was there before, whose results are not stored; for fewer rows there are smaller tiles, each a function of its own.

Slices are summed in order, whatever the threads do, so the bits of a result depend on the extents alone. Packing A
once for all strips (BLIS' order, with a block of A in the second-level cache) was no faster where shares are as small
as threads need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir as ll

from abele.llvm import convert
from abele.llvm.emit import F32, I16, I32, I64, POINTER, VOID, constant, counted_loop, declared, prefetch, suffix

Value = Any


MAX_KEPT_BYTES = 1 << 22
"""What a packed block may take that is kept for the next call: it comes from a shared cache, and is used in full."""
NARROW = 4
"""Elements in a row from which operands are transposed in registers."""


@dataclass(frozen=True)
class Blocking:
    """Sizes of a packed product.

    Attributes:
        lanes: Of a vector of f32.
        rows: Of a register tile.
        vectors: Columns of a register tile, in vectors.
        depth: Summed elements in a slice.
        strip: Columns in a strip.
    """

    lanes: int
    rows: int
    vectors: int
    depth: int
    strip: int

    @property
    def columns(self) -> int:
        """Of a register tile."""
        return self.lanes * self.vectors

    @property
    def panel_elements(self) -> int:
        """Packed elements of A, in whole vectors."""
        return -(-self.rows * self.depth // self.lanes) * self.lanes

    def keeps(self, depth: int, columns: int) -> bool:
        """True if the packed block of so many columns over the whole of ``depth`` is kept from call to call."""
        return 4 * depth * columns <= MAX_KEPT_BYTES

    def work_bytes(self, depth: int, columns: int) -> int:
        """Memory that calls over ``depth`` summed elements work in, of at most so many columns."""
        whole = -(-columns // self.columns) * self.columns
        kept = depth * whole if self.keeps(depth, columns) else self.strip * self.depth
        return 4 * (self.panel_elements + kept)


def blocking(lanes: int, registers: int, near_bytes: int, own_bytes: int) -> Blocking:
    """Sizes for a CPU.

    Args:
        lanes: Of a vector of f32.
        registers: Vector registers.
        near_bytes: First-level data cache.
        own_bytes: Second-level cache of a core.
    """
    vectors = 2
    # A tile's accumulators, a row of B and one element of A in all lanes.
    rows = (registers - vectors - 1) // vectors
    # Half of each cache: what is packed meets results and operands on their way.
    depth = max(32, near_bytes // 2 // (4 * rows) // 32 * 32)
    columns = lanes * vectors
    strip = max(columns, own_bytes // 2 // (4 * depth) // columns * columns)
    return Blocking(lanes, rows, vectors, depth, strip)


ROUTINE = ll.FunctionType(VOID, [POINTER, I64, I64, I64, I64, POINTER, POINTER, POINTER, I64, I64, POINTER])
"""A product: ``void (where*, row, rows, column, columns, A*, B*, float* C, adds, held, work*)``, numbers of 64 bits.

It makes ``rows`` × ``columns`` results from ``row`` and ``column`` on, and adds them to what is there if ``adds`` is 1.
If ``held`` is 1, ``work`` is as the last call left it, whose columns were the same.
``where`` says where the matrices' elements lie (:class:`abele.kernels.routines.places.Places`)."""
NUM_PLACES = 12
"""Numbers that ``where`` has: the summed elements; tables of A's rows and columns, B's rows and columns, C's rows and
columns; the runs without a stride of the first four; and 1 if the whole packed block is kept."""


def product_module(sizes: Blocking, left: str, right: str, name: str) -> ll.Module:
    """A module with a :data:`ROUTINE` ``name`` that multiplies elements of types ``left`` and ``right``."""
    module = ll.Module(name=name)
    _PackedWriter(module, sizes).product(left, right, name)
    return module


@dataclass(frozen=True)
class _Panel:
    """A panel to be packed: its element type, width, and how much of that there is; tables and pointers."""

    type: str
    width: int
    there: Value
    across: Value
    along: Value
    source: Value
    target: Value


class _PackedWriter:
    """The functions of a product while they are written."""

    def __init__(self, module: ll.Module, sizes: Blocking) -> None:
        self.module, self.sizes = module, sizes
        self.wide = ll.VectorType(F32, sizes.lanes)
        self.function: Any = None
        self.builder: Any = None

    def product(self, left: str, right: str, name: str) -> None:
        """The whole product: strips, slices, rows and panels."""
        sizes = self.sizes
        pack_rows = self._packing(left, sizes.rows, f"{name}_rows")
        pack_columns = self._packing(right, sizes.columns, f"{name}_columns")
        tiles = self._tiles(name)
        where, first_row, m, first_column, n, a, b, c, adds, held, panel = self._open(
            name, ROUTINE.args, internal=False
        )
        k, *tables, row_run, left_run, right_run, column_run, keeps = (
            self.builder.load(self._at(where, _i64(n), I64), typ=I64 if n == 0 or n > 6 else POINTER)
            for n in range(NUM_PLACES)
        )
        rows_a, columns_a, rows_b, columns_b, rows_c, columns_c = tables
        blocks = self._at(panel, _i64(sizes.panel_elements), F32)
        # Slices as even as may be, so that none is short.
        depth = self._parts(k, self._parts(k, sizes.depth))
        with self._loop(_i64(0), n, sizes.strip) as strip, self._loop(_i64(0), k, depth) as slice_:
            b_ = self.builder
            columns = self._least(_i64(sizes.strip), b_.sub(n, strip))
            deep = self._least(depth, b_.sub(k, slice_))
            onto = b_.select(b_.icmp_signed(">", slice_, _i64(0)), _i64(1), adds)
            from_column = b_.add(first_column, strip)
            whole = b_.mul(self._parts(columns, sizes.columns), _i64(sizes.columns))
            kept = b_.add(b_.mul(strip, k), b_.mul(slice_, whole))
            block = self._at(blocks, b_.mul(kept, keeps), F32)
            packed = b_.select(b_.icmp_signed("!=", held, _i64(0)), _i64(0), columns)
            with self._loop(_i64(0), packed, sizes.columns) as column:
                there = self._least(_i64(sizes.columns), b_.sub(columns, column))
                target = self._at(block, b_.mul(column, deep), F32)
                place = b_.add(from_column, column)
                b_.call(pack_columns, [place, there, slice_, deep, columns_b, rows_b, column_run, right_run, b, target])
            with self._loop(_i64(0), m, sizes.rows) as row:
                rows = self._least(_i64(sizes.rows), b_.sub(m, row))
                from_row = b_.add(first_row, row)
                b_.call(pack_rows, [from_row, rows, slice_, deep, rows_a, columns_a, row_run, left_run, a, panel])
                lines = self._at(rows_c, from_row, I64)
                choice = self._at(tiles, b_.sub(rows, _i64(1)), POINTER)
                with self._loop(_i64(0), columns, sizes.columns) as column:
                    there = self._least(_i64(sizes.columns), b_.sub(columns, column))
                    is_narrow = b_.icmp_signed("<=", there, _i64(sizes.lanes))
                    shift = b_.select(is_narrow, _i64(sizes.rows), _i64(0))
                    address = b_.load(self._at(choice, shift, POINTER), typ=I64)
                    tile = b_.inttoptr(address, _TILE.as_pointer())
                    right_panel = self._at(block, b_.mul(column, deep), F32)
                    places = self._at(columns_c, b_.add(from_column, column), I64)
                    b_.call(tile, [deep, panel, right_panel, c, lines, places, rows, there, onto])
        self.builder.ret_void()

    # Register tiles

    def _tiles(self, name: str) -> Any:
        """A table of tiles: for 1, 2, … rows the smallest that has them, of whole panels, then of one vector."""
        sizes = self.sizes
        heights = sorted({*range(2, sizes.rows, 2), 1, sizes.rows})
        chosen = []
        for vectors in dict.fromkeys((sizes.vectors, 1)):
            made = {h: self._tile(h, vectors, f"{name}_tile{h}x{vectors}") for h in heights}
            chosen += [made[next(h for h in heights if h >= rows)] for rows in range(1, sizes.rows + 1)]
        if sizes.vectors == 1:
            chosen += chosen
        kind = ll.ArrayType(_TILE.as_pointer(), len(chosen))
        table = ll.GlobalVariable(self.module, kind, f"{name}_tiles")
        table.linkage, table.global_constant, table.initializer = "internal", True, ll.Constant(kind, chosen)
        return table

    def _tile(self, height: int, vectors: int, name: str) -> Any:
        """``void (depth, a, b, c, lines, places, rows, columns, adds)``: one register tile of packed panels.

        Row i begins ``lines[i]`` elements from C, and column j of it ``places[j]`` further on; a vector's are in a row.
        """
        sizes = self.sizes
        depth, a, b, c, lines, places, rows, columns, adds = self._open(name, _TILE.args)
        # The second vector's place exists only if it has columns.
        last = self._least(_i64((vectors - 1) * sizes.lanes), self.builder.sub(columns, _i64(1)))
        starts = [
            self._at(c, self.builder.load(self._at(places, _i64(0) if v == 0 else last, I64), typ=I64), F32)
            for v in range(vectors)
        ]

        def element(r: int, v: int) -> Value:
            return self._at(starts[v], self.builder.load(self._at(lines, _i64(r), I64), typ=I64), F32)

        zero = constant(self.wide, 0.0)
        accumulators = [zero] * (height * vectors)
        # The results are on their way while products are summed; all rows but the last are there.
        for r in range(max(1, height - 1)):
            for v in range(vectors):
                prefetch(self.builder, element(r, v), write=True)
        # Turns of the loop cost little beside a large tile.
        unrolled = 4
        whole = self.builder.and_(depth, _i64(-unrolled))
        accumulators = self._sums((_i64(0), whole, unrolled), a, b, accumulators, vectors)
        accumulators = self._sums((whole, depth, 1), a, b, accumulators, vectors)
        grid = [accumulators[r * vectors : (r + 1) * vectors] for r in range(height)]
        b_ = self.builder
        is_whole = b_.icmp_signed("==", columns, _i64(vectors * sizes.lanes))
        is_fresh = b_.icmp_signed("==", adds, _i64(0))
        masks = [self._mask(columns, v) for v in range(vectors)]

        def row(r: int, *, whole: bool, onto: bool) -> None:
            for v, value in enumerate(grid[r]):
                place = element(r, v)
                if onto and whole:
                    value = self.builder.fadd(self.builder.load(place, typ=self.wide, align=4), value)
                elif onto:
                    value = self.builder.fadd(self._masked_load(place, masks[v], self.wide), value)
                if whole:
                    self.builder.store(value, place, align=4)
                else:
                    self._masked_store(value, place, masks[v])

        def store(*, whole: bool, onto: bool) -> None:
            for r in range(height - 1):
                row(r, whole=whole, onto=onto)
            # A tile is taken for its own number of rows, or for one less.
            with self.builder.if_then(self.builder.icmp_signed("==", rows, _i64(height))):
                row(height - 1, whole=whole, onto=onto)

        with b_.if_else(is_whole) as (then, otherwise):
            for part, is_whole_part in ((then, True), (otherwise, False)):
                with part, b_.if_else(is_fresh) as (fresh, adding):
                    for side, onto in ((fresh, False), (adding, True)):
                        with side:
                            store(whole=is_whole_part, onto=onto)
        b_.ret_void()
        return self.function

    def _sums(
        self, turns: tuple[Value, Value, int], a: Value, b: Value, accumulators: Sequence[Value], vectors: int
    ) -> list[Value]:
        """``accumulators`` after the summed elements from the first of ``turns`` to the second, so many at once."""
        sizes = self.sizes
        low, high, step = turns
        before = self.builder.block
        head, body, done = (self.function.append_basic_block(part) for part in ("head", "sum", "done"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        index = self.builder.phi(I64)
        index.add_incoming(low, before)
        sums = [self.builder.phi(self.wide) for _ in accumulators]
        for phi, value in zip(sums, accumulators, strict=True):
            phi.add_incoming(value, before)
        self.builder.cbranch(self.builder.icmp_signed("<", index, high), body, done)
        self.builder.position_at_end(body)
        left = self._at(a, self.builder.mul(index, _i64(sizes.rows)), F32)
        right = self._at(b, self.builder.mul(index, _i64(sizes.columns)), F32)
        values: list[Value] = list(sums)
        for turn in range(step):
            at = [_i64(turn * sizes.columns + v * sizes.lanes) for v in range(vectors)]
            row = [self.builder.load(self._at(right, place, F32), typ=self.wide, align=4) for place in at]
            for r in range(len(accumulators) // vectors):
                one = self.builder.load(self._at(left, _i64(turn * sizes.rows + r), F32), typ=F32, align=4)
                spread = self._splat(one, self.wide)
                for v in range(vectors):
                    number = r * vectors + v
                    values[number] = self._call("llvm.fma", self.wide, spread, row[v], values[number])
        index.add_incoming(self.builder.add(index, _i64(step)), self.builder.block)
        for phi, value in zip(sums, values, strict=True):
            phi.add_incoming(value, self.builder.block)
        self.builder.branch(head)
        self.builder.position_at_end(done)
        return sums

    # Packing

    def _packing(self, type_: str, width: int, name: str) -> Any:
        """``void (first, there, slice, depth, across*, along*, across_run, along_run, source, target)``.

        A panel of ``there`` of at most ``width`` rows or columns from ``first`` on, over ``depth`` summed elements from
        ``slice`` on: element (i, p), at ``source[across[first + i] + along[slice + p]]``, comes to
        ``target[p·width + i]``. Runs say how many neighbours lie in a row, from multiples of that number on.
        """
        args = self._open(name, [I64] * 4 + [POINTER] * 2 + [I64] * 2 + [POINTER] * 2)
        first, there, slice_, depth, across, along, across_run, along_run, source, target = args
        across, along = self._at(across, first, I64), self._at(along, slice_, I64)
        panel = _Panel(type_, width, there, across=across, along=along, source=source, target=target)
        b = self.builder
        with b.if_else(b.icmp_signed(">", across_run, _i64(1))) as (copies, others):
            with copies, self._pieces(first, there, across_run) as (i, size):
                self._pack_across(panel, (i, size), depth)
            with others, self._pieces(slice_, depth, self._most(along_run, _i64(1))) as (p, size):
                ends, last = p, self.builder.add(p, size)
                for run in dict.fromkeys((self.sizes.lanes, min(NARROW, self.sizes.lanes))):
                    left = self.builder.sub(last, ends)
                    end = self.builder.add(ends, self.builder.and_(left, _i64(-run)))
                    self._pack_along(panel, run, (ends, end))
                    ends = end
                self._pack_one_by_one(panel, (ends, last))
        self.builder.ret_void()
        return self.function

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
        at.add_incoming(_i64(0), before)
        self.builder.cbranch(self.builder.icmp_signed("<", at, count), body, done)
        self.builder.position_at_end(body)
        left = self.builder.sub(run, self.builder.srem(self.builder.add(first, at), run))
        size = self._least(left, self.builder.sub(count, at))
        yield at, size
        at.add_incoming(self.builder.add(at, size), self.builder.block)
        self.builder.branch(head)
        self.builder.position_at_end(done)

    def _entry(self, table: Value, index: Value) -> Value:
        return self.builder.load(self._at(table, index, I64), typ=I64)

    def _pack_across(self, panel: _Panel, piece: tuple[Value, Value], depth: Value) -> None:
        """Rows of the panel lie in memory as they shall: vector copies of a piece, given by its start and size."""
        type_, width, (first, size) = panel.type, panel.width, piece
        lanes, stored = self.sizes.lanes, ll.VectorType(_stored(type_), self.sizes.lanes)
        start = self._at(panel.source, self._entry(panel.across, first), _stored(type_))
        to = self._at(panel.target, first, F32)
        masks = [self._mask(size, v) for v in range(-(-width // lanes))]
        with self._loop(_i64(0), depth, 1) as p:
            line = self._at(start, self._entry(panel.along, p), _stored(type_))
            row = self._at(to, self.builder.mul(p, _i64(width)), F32)
            for v, mask in enumerate(masks):
                raw = self._masked_load(self._at(line, _i64(v * lanes), _stored(type_)), mask, stored)
                self._masked_store(self._widened(raw, type_), self._at(row, _i64(v * lanes), F32), mask)

    def _pack_along(self, panel: _Panel, run: int, ends: tuple[Value, Value]) -> None:
        """Summed elements lie in rows of ``run``: blocks of lanes × run elements, transposed in registers."""
        type_, width, there = panel.type, panel.width, panel.there
        lanes = self.sizes.lanes
        last = self.builder.sub(there, _i64(1))
        raw = ll.VectorType(_stored(type_), run)
        # Rows that are not there are copies of the last one; their results are not stored.
        starts = [
            self._at(panel.source, self._entry(panel.across, self._least(_i64(r), last)), _stored(type_))
            for r in range(width)
        ]
        masks = [self._mask(there, v) for v in range(-(-width // lanes))]
        with self._loop(*ends, run) as p:
            to = self._at(panel.target, self.builder.mul(p, _i64(width)), F32)
            from_ = self._entry(panel.along, p)
            for v, mask in enumerate(masks):
                places = [self._at(s, from_, _stored(type_)) for s in starts[v * lanes : (v + 1) * lanes]]
                square = [self._widened(self.builder.load(s, typ=raw, align=2), type_) for s in places]
                square += [ll.Constant(square[0].type, ll.Undefined)] * (lanes - len(square))
                for n, column in enumerate(self._transposed(square, run)):
                    self._masked_store(column, self._at(to, _i64(n * width + v * lanes), F32), mask)

    def _pack_one_by_one(self, panel: _Panel, ends: tuple[Value, Value]) -> None:
        """Elements that have no neighbours to go with."""
        stored = _stored(panel.type)
        with self._loop(*ends, 1) as p:
            line = self._at(panel.source, self._entry(panel.along, p), stored)
            to = self._at(panel.target, self.builder.mul(p, _i64(panel.width)), F32)
            with self._loop(_i64(0), panel.there, 1) as r:
                one = self.builder.load(self._at(line, self._entry(panel.across, r), stored), typ=stored)
                self.builder.store(self._widened(one, panel.type), self._at(to, r, F32))

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

    # Parts

    def _open(self, name: str, types: Sequence[Any], *, internal: bool = True) -> Any:
        self.function = ll.Function(self.module, ll.FunctionType(VOID, types), name)
        if internal:
            self.function.linkage = "internal"
        for argument in self.function.args:
            if argument.type == POINTER:
                argument.add_attribute("noalias")
        self.builder = ll.IRBuilder(self.function.append_basic_block("entry"))
        return self.function.args

    def _widened(self, value: Value, type_: str) -> Value:
        return value if type_ == "f32" else convert.to_f32(self.builder, value, type_)

    def _at(self, base: Value, index: Value, type_: Any) -> Value:
        return self.builder.gep(base, [index], source_etype=type_)

    def _least(self, first: Value, second: Value) -> Value:
        return self.builder.select(self.builder.icmp_signed("<", first, second), first, second)

    def _most(self, first: Value, second: Value) -> Value:
        return self.builder.select(self.builder.icmp_signed(">", first, second), first, second)

    def _parts(self, whole: Value, part: Value | int) -> Value:
        """``whole / part``, rounded up."""
        part = _i64(part) if isinstance(part, int) else part
        return self.builder.sdiv(self.builder.add(whole, self.builder.sub(part, _i64(1))), part)

    def _mask(self, there: Value, vector: int) -> Value:
        """The lanes of the ``vector``-th vector whose number is below ``there``."""
        lanes = self.sizes.lanes
        numbers = ll.Constant(ll.VectorType(I64, lanes), [ll.Constant(I64, vector * lanes + n) for n in range(lanes)])
        return self.builder.icmp_signed("<", numbers, self._splat(there, numbers.type))

    def _splat(self, value: Value, type_: Any) -> Value:
        one = self.builder.insert_element(ll.Constant(type_, ll.Undefined), value, ll.Constant(I32, 0))
        return self.builder.shuffle_vector(one, one, constant(ll.VectorType(I32, type_.count), 0))

    def _call(self, name: str, result: Any, *args: Value) -> Value:
        full = f"{name}.{suffix(result)}"
        return self.builder.call(declared(self.builder, full, result, [a.type for a in args]), args)

    def _masked_load(self, place: Value, mask: Value, type_: Any) -> Value:
        args = [place, ll.Constant(I32, 2), mask, constant(type_, 0)]
        full = f"llvm.masked.load.{suffix(type_)}.p0"
        return self.builder.call(declared(self.builder, full, type_, [a.type for a in args]), args)

    def _masked_store(self, value: Value, place: Value, mask: Value) -> None:
        args = [value, place, ll.Constant(I32, 4), mask]
        full = f"llvm.masked.store.{suffix(value.type)}.p0"
        self.builder.call(declared(self.builder, full, VOID, [a.type for a in args]), args)

    def _loop(self, low: Value, high: Value, step: Value | int) -> AbstractContextManager[Value]:
        """A loop from ``low`` to before ``high``; yields its index."""
        return counted_loop(self.builder, low, high, step)


_TILE = ll.FunctionType(VOID, [I64, *[POINTER] * 5, I64, I64, I64])


def _i64(value: int) -> Value:
    return ll.Constant(I64, value)


def _stored(type_: str) -> Any:
    return F32 if type_ == "f32" else I16
