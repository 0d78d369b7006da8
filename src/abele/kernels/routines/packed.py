"""Matrix products with both operands packed, in the order of Goto and van de Geijn, as native code of any CPU.

``C = A·B`` or ``C += A·B`` for operands of f32, f16, bf16 or 8-bit floats, summed in f32. Tables say where rows and
columns of the matrices lie, so these may be laid out in any way: transposed, or in blocks (channels in groups, [C1, B,
C0]). The loops, outermost first:

* the summed dim in slices, and rows in blocks;
* columns in strips, whose slice of B fits into half of a second-level cache: it is packed once, panel by panel of as
  many columns as a register tile has, each panel contiguous;
* rows, as many as a register tile has: their slice of A is packed for all strips, and stays in the first-level cache;
* panels of B, which stream by: one register tile each.

A tile reads nothing but packed memory, front to back, so no stride of the operands can cost it anything: rows a power
of two apart, which fall on the same places of a cache, are met by the packing alone, once. Packing is a vector copy
where neighbours lie next to each other across the panel, or along the summed dim, through transposes in registers; what
is neither is copied one by one. 16-bit elements are widened on the way, or put in pairs. Beyond the last
column of a panel is whatever was there before, whose results are not stored; for fewer rows there are smaller tiles,
each a function of its own.

Where the CPU multiplies pairs of bf16 and adds both products to an f32 lane, and both operands are bf16, a word of four
bytes in packed memory is such a pair of neighbours along the summed dim, so twice as many products go through the same
tiles. Products of bf16 are exact in f32. The instruction takes denormal operands as zeros, makes zeros of denormal
results and rounds to nearest, as do our threads, which flush denormals (a denormal bf16 is one in f32, too).

Slices are summed in order, whatever the threads do, so the bits of a result depend on the extents alone.

Example: a share of 154 × 384 results and 768 summed elements on a CPU with AVX2 and 32 KiB and 512 KiB of cache: slices
of 384, blocks of 96 rows, strips of 96 columns, tiles of 6 × 16. A's 96 × 384 elements are packed for four strips.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from abele.kernels.routines.blocking import GROUP, LINE_WORDS, Blocking, Kept
from abele.kernels.routines.packing import PackedPanel, PackingWriter, RoutineWriter, halves, i64
from abele.llvm import ir as ll
from abele.llvm.emit import BF16, F32, I1, I16, I32, I64, POINTER, VOID, constant, declared, multiply_add, prefetch

# Functions that pack panels of bf16 in pairs: two neighbours along the summed dim are a word of four bytes.
#
# Where the elements of a row lie one after the other along the summed dim, they are such words already, and go through
# the transposes of f32. A pair that two rows have in common is packed one element at a time. After an odd number of
# elements the last pair has a zero, in both operands, since what is there by chance could be infinite.

Value = Any


class PairPackingWriter(PackingWriter):
    """The functions that pack pairs while they are written."""

    def _run_parts(self, width: int) -> list[int]:
        # Pairs are made of neighbours along the summed dim.
        return []

    def _in_rows(self, first: Value, last: Value, run: int) -> Value:
        # A piece that begins with the second of a pair has none of its pairs in one word.
        is_odd = self.builder.trunc(first, ll.IntType(1))
        whole = self.builder.and_(self.builder.sub(last, first), i64(-2 * run))
        return self.builder.select(is_odd, i64(0), whole)

    def _pack_across(self, panel: PackedPanel, piece: tuple[Value, Value], depth: Value) -> None:
        first, size = piece
        lanes, b = self.sizes.lanes, self.builder
        halves = ll.VectorType(I16, lanes)
        words = ll.VectorType(I32, lanes)
        start = self.at(panel.source, self._entry(panel.across, first), I16)
        to = self.at(panel.target, first, F32)
        masks = [self.mask(size, v) for v in range(-(-panel.width // lanes))]

        def loaded(p: Value, v: int) -> Value:
            line = self.at(start, self._entry(panel.along, p), I16)
            return b.zext(self.masked_load(self.at(line, i64(v * lanes), I16), masks[v], halves), words)

        def store(value: Value, p: Value, v: int) -> None:
            row = self.at(to, b.mul(b.lshr(p, i64(1)), i64(panel.width)), F32)
            self.masked_store(value, self.at(row, i64(v * lanes), F32), masks[v])

        even = b.and_(depth, i64(-2))
        with self.loop(i64(0), even, 2) as p:
            for v in range(len(masks)):
                second = b.shl(loaded(b.add(p, i64(1)), v), constant(words, 16))
                store(b.or_(loaded(p, v), second), p, v)
        with b.if_then(b.icmp_signed("<", even, depth)):
            for v in range(len(masks)):
                store(loaded(even, v), even, v)

    def _pack_along(self, panel: PackedPanel, run: int, ends: tuple[Value, Value]) -> None:
        lanes, width, b = self.sizes.lanes, panel.width, self.builder
        last = b.sub(panel.there, i64(1))
        raw = ll.VectorType(I32, run)
        # Rows that are not there are copies of the last one; their results are not stored.
        starts = [self.at(panel.source, self._entry(panel.across, self.least(i64(r), last)), I16) for r in range(width)]
        with self.loop(*ends, 2 * run) as p:
            to = self.at(panel.target, b.mul(b.lshr(p, i64(1)), i64(width)), F32)
            from_ = self._entry(panel.along, p)
            for v in range(-(-width // lanes)):
                places = [self.at(s, from_, I16) for s in starts[v * lanes : (v + 1) * lanes]]
                square = [b.load(s, typ=raw, align=2) for s in places]
                square += [ll.Constant(raw, ll.Undefined)] * (lanes - len(square))
                for n, column in enumerate(self._transposed(square, run)):
                    self._store_whole(column, self.at(to, i64(n * width), F32), v, width)

    def _pack_one_by_one(self, panel: PackedPanel, ends: tuple[Value, Value]) -> None:
        with self.loop(*ends, 1) as p:
            line = self.at(panel.source, self._entry(panel.along, p), I16)
            with self.loop(i64(0), panel.there, 1) as r:
                one = self.builder.load(self.at(line, self._entry(panel.across, r), I16), typ=I16, align=2)
                self.builder.store(one, self._half(panel, p, r), align=2)

    def _fill(self, panel: PackedPanel, depth: Value) -> None:
        is_odd = self.builder.trunc(depth, ll.IntType(1))
        with self.builder.if_then(is_odd), self.loop(i64(0), panel.there, 1) as r:
            self.builder.store(constant(I16, 0), self._half(panel, depth, r), align=2)

    def _half(self, panel: PackedPanel, p: Value, r: Value) -> Value:
        """Address of element (r, p) of the panel."""
        b = self.builder
        pair = b.add(b.mul(b.lshr(p, i64(1)), i64(panel.width)), r)
        return self.at(panel.target, b.add(b.mul(pair, i64(2)), b.and_(p, i64(1))), I16)


PAIRS = "llvm.x86.avx512bf16.dpbf16ps.512"
"""Adds up products of pairs of bf16 in the lanes of f32."""

ROUTINE = ll.FunctionType(VOID, [POINTER, I64, I64, I64, I64, POINTER, POINTER, POINTER, I64, I64, POINTER])
"""A product: ``void (where*, row, rows, column, columns, A*, B*, float* C, adds, held, work*)``, numbers of 64 bits.

It makes ``rows`` × ``columns`` results from ``row`` and ``column`` on, and adds them to what is there if ``adds`` is 1.
If ``held`` is 1, ``work`` is as the last call left it, whose columns, or rows, were the same: what is kept of them.
``where`` says where the matrices' elements lie (:class:`abele.kernels.routines.multiply.Places`)."""
FEW_STRIPS = 2
"""Strips up to which rows are packed anew for each: packed once, they come from the second-level cache, not the first.
From four strips on that was faster in both sizes of tile on an AMD Zen 5; at two it was not in each."""
NUM_PLACES = 12
"""Numbers that ``where`` has: the summed elements; tables of A's rows and columns, B's rows and columns, C's rows and
columns; the runs without a stride of the first four; and what is kept
(:class:`abele.kernels.routines.blocking.Kept`)."""


def product_module(sizes: Blocking, left: str, right: str, name: str) -> ll.Module:
    """A module with a :data:`ROUTINE` ``name`` that multiplies elements of types ``left`` and ``right``."""
    module = ll.Module(name=name)
    _PackedWriter(module, sizes).product(left, right, name)
    return module


class _PackedWriter(RoutineWriter):
    """The functions of a product while they are written."""

    def product(self, left: str, right: str, name: str) -> None:
        """The whole product: strips, slices, rows and panels."""
        sizes = self.sizes
        packing = (PairPackingWriter if sizes.word == 2 else PackingWriter)(self.module, sizes)
        pack_rows = packing.packing(left, sizes.rows, f"{name}_rows")
        pack_columns = packing.packing(right, sizes.columns, f"{name}_columns")
        pack_group = None if sizes.word == 2 else packing.group_packing(left, sizes.rows, f"{name}_group")
        tiles = self._tiles(name)
        where, first_row, m, first_column, n, a, b, c, adds, held, packed_rows = self.open(
            name, ROUTINE.args, internal=False
        )
        k, *tables, row_run, left_run, right_run, column_run, keeps = (
            self.builder.load(self.at(where, i64(n), I64), typ=I64 if n == 0 or n > 6 else POINTER)
            for n in range(NUM_PLACES)
        )
        rows_a, columns_a, rows_b, columns_b, rows_c, columns_c = tables
        whole = self.builder.mul(self.parts(n, sizes.columns), i64(sizes.columns))
        # Slices as even as may be, so that none is short.
        slices = self.parts(k, sizes.depth)
        most_words = self.parts(self.parts(k, slices), sizes.word)
        depth = self.builder.mul(most_words, i64(sizes.word))
        keeps_columns, keeps_rows = (
            self.builder.icmp_signed("==", keeps, i64(kept)) for kept in (Kept.COLUMNS, Kept.ROWS)
        )
        # Panels of a block of rows, or of all rows and slices where these are kept, then columns.
        slice_panels = self.builder.mul(
            self.parts(m, sizes.rows), self.builder.add(self.builder.mul(most_words, i64(sizes.rows)), i64(sizes.lanes))
        )
        all_panels = self.builder.mul(self.parts(self.builder.mul(slices, slice_panels), LINE_WORDS), i64(LINE_WORDS))
        room = self.builder.select(keeps_rows, all_panels, i64(sizes.panel_elements))
        blocks = self.at(packed_rows, room, F32)
        is_held = self.builder.icmp_signed("!=", held, i64(0))
        columns_held, rows_held = (self.builder.and_(is_held, kept) for kept in (keeps_columns, keeps_rows))
        with (
            self.loop(i64(0), k, depth) as slice_,
            self.loop(i64(0), m, sizes.block) as block_row,
            self.loop(i64(0), n, sizes.strip) as strip,
        ):
            b_ = self.builder
            columns = self.least(i64(sizes.strip), b_.sub(n, strip))
            deep = self.least(depth, b_.sub(k, slice_))
            words = self.parts(deep, sizes.word)
            onto = b_.select(b_.icmp_signed(">", slice_, i64(0)), i64(1), adds)
            from_column = b_.add(first_column, strip)
            # Slices lie behind each other where all are kept, in each the panels of all columns.
            before = b_.select(keeps_columns, b_.mul(self.parts(slice_, sizes.word), whole), i64(0))
            block = self.at(blocks, b_.add(before, b_.mul(strip, words)), F32)
            is_there = b_.or_(columns_held, b_.icmp_signed(">", block_row, i64(0)))
            with self.loop(i64(0), b_.select(is_there, i64(0), columns), sizes.columns) as column:
                there = self.least(i64(sizes.columns), b_.sub(columns, column))
                target = self.at(block, b_.mul(column, words), F32)
                place = b_.add(from_column, column)
                b_.call(pack_columns, [place, there, slice_, deep, columns_b, rows_b, column_run, right_run, b, target])
            rows_here = self.least(i64(sizes.block), b_.sub(m, block_row))
            stride = b_.add(b_.mul(words, i64(sizes.rows)), i64(sizes.lanes))
            # Rows that few strips need are packed for each of them, where the last ones were: they never leave the
            # first cache, of which a panel takes half. Packed once for all strips they come from the second. Panels
            # side by side must fit into the first as well.
            is_kept = b_.or_(keeps_rows, b_.icmp_signed(">", n, i64(FEW_STRIPS * sizes.strip)))
            is_near = b_.or_(is_kept, b_.icmp_signed("<=", words, i64(2 * sizes.words(sizes.depth) // GROUP)))
            is_needed = b_.or_(b_.not_(is_kept), b_.icmp_signed("==", strip, i64(0)))
            is_needed = b_.and_(is_needed, b_.not_(rows_held))
            # Where rows are kept, panels of all slices and blocks follow each other.
            earlier = b_.add(
                b_.mul(b_.sdiv(slice_, depth), slice_panels), b_.mul(b_.sdiv(block_row, i64(sizes.rows)), stride)
            )
            block_panels = self.at(packed_rows, b_.select(keeps_rows, earlier, i64(0)), F32)
            with self.loop(i64(0), rows_here, GROUP * sizes.rows) as group:
                there = self.least(i64(GROUP * sizes.rows), b_.sub(rows_here, group))
                from_row = b_.add(b_.add(first_row, block_row), group)
                before = b_.select(is_kept, b_.mul(b_.sdiv(group, i64(sizes.rows)), stride), i64(0))
                panels = self.at(block_panels, before, F32)
                is_grouped: Value = ll.Constant(I1, 0)
                if pack_group is not None:
                    is_grouped = b_.and_(is_near, self._is_in_run(from_row, there, row_run))
                    with b_.if_then(b_.and_(is_needed, is_grouped)):
                        b_.call(pack_group, [from_row, slice_, deep, stride, rows_a, columns_a, a, panels])
                apart = b_.select(b_.or_(is_kept, is_grouped), stride, i64(0))
                with self.loop(i64(0), there, sizes.rows) as row:
                    rows = self.least(i64(sizes.rows), b_.sub(there, row))
                    panel = self.at(panels, b_.mul(b_.sdiv(row, i64(sizes.rows)), apart), F32)
                    with b_.if_then(b_.and_(is_needed, b_.not_(is_grouped))):
                        at = [b_.add(from_row, row), rows, slice_, deep]
                        b_.call(pack_rows, [*at, rows_a, columns_a, row_run, left_run, a, panel])
                    lines = self.at(rows_c, b_.add(from_row, row), I64)
                    choice = self.at(tiles, b_.sub(rows, i64(1)), POINTER)
                    with self.loop(i64(0), columns, sizes.columns) as column:
                        wide = self.least(i64(sizes.columns), b_.sub(columns, column))
                        missing = b_.sub(i64(sizes.vectors), self.parts(wide, sizes.lanes))
                        shift = b_.mul(missing, i64(sizes.rows))
                        address = b_.load(self.at(choice, shift, POINTER), typ=I64)
                        tile = b_.inttoptr(address, _TILE.as_pointer())
                        right_panel = self.at(block, b_.mul(column, words), F32)
                        places = self.at(columns_c, b_.add(from_column, column), I64)
                        b_.call(tile, [words, panel, right_panel, c, lines, places, rows, wide, onto])
        self.builder.ret_void()

    def _is_in_run(self, first: Value, there: Value, run: Value) -> Value:
        """True if the rows from ``first`` on are a whole group whose elements lie next to each other."""
        b, size = self.builder, i64(GROUP * self.sizes.rows)
        end = b.add(b.srem(first, self.most(run, i64(1))), size)
        return b.and_(b.icmp_signed("==", there, size), b.icmp_signed("<=", end, run))

    # Register tiles

    def _tiles(self, name: str) -> Any:
        """A table of tiles: of whole panels, then of a vector less and so on, each for 1, 2, … rows."""
        sizes = self.sizes
        heights = sorted({*range(2, sizes.rows, 2), 1, sizes.rows})
        self.edge = None if sizes.masks else self._edge(f"{name}_edge")
        chosen = []
        for vectors in range(sizes.vectors, 0, -1):
            made = {h: self._tile(h, vectors, f"{name}_tile{h}x{vectors}") for h in heights}
            chosen += [made[next(h for h in heights if h >= rows)] for rows in range(1, sizes.rows + 1)]
        kind = ll.ArrayType(_TILE.as_pointer(), len(chosen))
        table = ll.GlobalVariable(self.module, kind, f"{name}_tiles")
        table.linkage, table.global_constant, table.initializer = "internal", True, ll.Constant(kind, chosen)
        return table

    def _tile(self, height: int, vectors: int, name: str) -> Any:
        """``void (depth, a, b, c, lines, places, rows, columns, adds)``: one register tile of packed panels.

        Row i begins ``lines[i]`` elements from C, and column j of it ``places[j]`` further on; a vector's are in a row.
        """
        sizes = self.sizes
        depth, a, b, c, lines, places, rows, columns, adds = self.open(name, _TILE.args)
        sums = None if sizes.masks else self.builder.alloca(self.wide, i64(height * vectors))
        # A vector's place exists only if it has columns.
        last = self.builder.sub(columns, i64(1))
        # Places of the vectors in a row at the start of C; row r lies `lines[r]` elements further on.
        firsts = [i64(0), *(self.least(i64(v * sizes.lanes), last) for v in range(1, vectors))]
        starts = [self.at(c, self.builder.load(self.at(places, first, I64), typ=I64), F32) for first in firsts]

        def element(r: int, v: int) -> Value:
            return self.at(starts[v], self.builder.load(self.at(lines, i64(r), I64), typ=I64), F32)

        zero = constant(self.wide, 0.0)
        accumulators = [zero] * (height * vectors)
        # The results are on their way while products are summed; all rows but the last are there.
        for r in range(max(1, height - 1)):
            for v in range(vectors):
                prefetch(self.builder, element(r, v), write=True)
        # Turns of the loop cost little beside a large tile.
        unrolled = 4
        whole = self.builder.and_(depth, i64(-unrolled))
        accumulators = self._sums((i64(0), whole, unrolled), a, b, accumulators, vectors)
        accumulators = self._sums((whole, depth, 1), a, b, accumulators, vectors)
        grid = [accumulators[r * vectors : (r + 1) * vectors] for r in range(height)]
        b_ = self.builder
        # Four ways to store: whole vectors or masked ones, over the old values or added to them.
        # The tests are outside of the loops over rows, so each way is straight-line code.
        is_whole = b_.icmp_signed("==", columns, i64(vectors * sizes.lanes))
        is_fresh = b_.icmp_signed("==", adds, i64(0))
        masks = [self.mask(columns, v) for v in range(vectors)] if sizes.masks else []

        def row(r: int, *, whole: bool, onto: bool) -> None:
            for v, value in enumerate(grid[r]):
                place = element(r, v)
                if onto and whole:
                    value = self.builder.fadd(self.builder.load(place, typ=self.wide, align=4), value)
                elif onto:
                    value = self.builder.fadd(self.masked_load(place, masks[v], self.wide), value)
                if whole:
                    self.builder.store(value, place, align=4)
                else:
                    self.masked_store(value, place, masks[v])

        def store(*, whole: bool, onto: bool) -> None:
            for r in range(height - 1):
                row(r, whole=whole, onto=onto)
            # A tile is taken for its own number of rows, or for one less.
            with self.builder.if_then(self.builder.icmp_signed("==", rows, i64(height))):
                row(height - 1, whole=whole, onto=onto)

        def either(*, whole: bool) -> None:
            with self.builder.if_else(is_fresh) as (fresh, adding):
                for side, onto in ((fresh, False), (adding, True)):
                    with side:
                        store(whole=whole, onto=onto)

        def by_edge() -> None:
            for number, value in enumerate(accumulators):
                self.builder.store(value, self.at(sums, i64(number), self.wide), align=4)
            place = self.at(sums, i64(0), self.wide)
            self.builder.call(self.edge, [place, i64(vectors), c, lines, places, rows, columns, adds])

        with b_.if_else(is_whole) as (then, otherwise):
            with then:
                either(whole=True)
            with otherwise:
                either(whole=False) if sizes.masks else by_edge()
        b_.ret_void()
        return self.function

    def _edge(self, name: str) -> Any:
        """``void (sums, vectors, c, lines, places, rows, columns, adds)``: store a tile that is no whole vectors wide.

        Parts of a vector are stored in halves, as far as there are columns, without masks.
        """
        sizes = self.sizes
        sums, vectors, c, lines, places, rows, columns, adds = self.open(
            name, [POINTER, I64, POINTER, POINTER, POINTER, I64, I64, I64]
        )
        is_fresh = self.builder.icmp_signed("==", adds, i64(0))
        with self.loop(i64(0), rows, 1) as r, self.loop(i64(0), columns, sizes.lanes) as column:
            b = self.builder
            left = b.sub(columns, column)
            number = b.add(b.mul(b.mul(r, vectors), i64(sizes.lanes)), column)
            row = self.at(c, b.load(self.at(lines, r, I64), typ=I64), F32)
            place = self.at(row, b.load(self.at(places, column, I64), typ=I64), F32)

            def move(kind: Any, offset: Value) -> None:
                b = self.builder
                target = self.at(place, offset, F32)
                new = b.load(self.at(sums, b.add(number, offset), F32), typ=kind, align=4)
                with b.if_else(is_fresh) as (fresh, adding):
                    with fresh:
                        b.store(new, target, align=4)
                    with adding:
                        b.store(b.fadd(b.load(target, typ=kind, align=4), new), target, align=4)

            with b.if_else(b.icmp_signed(">=", left, i64(sizes.lanes))) as (whole, part):
                with whole:
                    move(self.wide, i64(0))
                with part:
                    done: Value = i64(0)
                    for size in halves(sizes.lanes - 1, sizes.lanes):
                        bit = b.and_(left, i64(size))
                        with b.if_then(b.icmp_signed("!=", bit, i64(0))):
                            move(ll.VectorType(F32, size) if size > 1 else F32, done)
                        done = b.add(done, bit)
        self.builder.ret_void()
        return self.function

    def _sums(
        self, turns: tuple[Value, Value, int], a: Value, b: Value, accumulators: Sequence[Value], vectors: int
    ) -> list[Value]:
        """``accumulators`` after the summed elements from the first of ``turns`` to the second, by steps."""
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
        left = self.at(a, self.builder.mul(index, i64(sizes.rows)), F32)
        right = self.at(b, self.builder.mul(index, i64(sizes.columns)), F32)
        values: list[Value] = list(sums)
        height = len(accumulators) // vectors
        for turn in range(step):
            at = [i64(turn * sizes.columns + v * sizes.lanes) for v in range(vectors)]
            row = [self.builder.load(self.at(right, place, F32), typ=self.wide, align=4) for place in at]
            for r, spread in enumerate(self._spread_column(left, turn * sizes.rows, height)):
                for v in range(vectors):
                    number = r * vectors + v
                    values[number] = self._multiply_add(spread, row[v], values[number])
        index.add_incoming(self.builder.add(index, i64(step)), self.builder.block)
        for phi, value in zip(sums, values, strict=True):
            phi.add_incoming(value, self.builder.block)
        self.builder.branch(head)
        self.builder.position_at_end(done)
        return sums

    def _spread_column(self, column: Value, first: int, height: int) -> Iterator[Value]:
        """``height`` elements from the ``first`` of a packed column of A on, each in all lanes."""
        lanes = self.sizes.lanes
        for r in range(height):
            if not self.sizes.splits_vectors:
                one = self.builder.load(self.at(column, i64(first + r), F32), typ=F32, align=4)
                yield self.splat(one, self.wide)
                continue
            if r % lanes == 0:
                several = self.builder.load(self.at(column, i64(first + r), F32), typ=self.wide, align=4)
            chosen = constant(ll.VectorType(I32, lanes), r % lanes)
            yield self.builder.shuffle_vector(several, several, chosen)

    def _multiply_add(self, left: Value, right: Value, onto: Value) -> Value:
        """``onto`` plus the products of the words of two vectors."""
        if self.sizes.word == 1:
            return multiply_add(self.builder, left, right, onto)
        pairs = ll.VectorType(BF16, 2 * self.sizes.lanes)
        factors = [self.builder.bitcast(value, pairs) for value in (left, right)]
        return self.builder.call(declared(self.builder, PAIRS, self.wide, [self.wide, pairs, pairs]), [onto, *factors])


_TILE = ll.FunctionType(VOID, [I64, *[POINTER] * 5, I64, I64, I64])
