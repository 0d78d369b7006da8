"""LLVM code of one loop nest under a schedule: ``void f(i64 begin, i64 end, void** args)`` over its units.

The code has three layers. Outside, a loop over units, each decoded into one tile step of every unit dim. Inside it,
loops over tile steps of the other dims: whole tiles first, then one partial tile, each with code of its own, so that no
tile asks at run time how large it is. Innermost a register tile: all its points are unrolled, each accumulator a stack
slot that LLVM turns into a register, and the reduced loops run around them. Where more is done with the sums than the
CPU's cache of instructions holds for all of them, a loop does it row by row, with the sums in memory.

Guards become loop ranges where they can: ``0 ≤ i + k - 1 < n`` in a loop over ``k`` clamps the range of ``k``, which
costs nothing per point. Others become masks or branches. A load whose bounds fail never touches memory: its address is
replaced by a safe one, or its lanes are masked off, because operands may end at a page that does not exist. The same
holds of rows that values name: where there is no such row, the first one stands for it, and stores go nowhere.

Vectorisation, tiling and unrolling are done here and not left to LLVM, whose loop passes know neither the strides of
the operands nor that stores of one point do not alias loads of another; so code is only cleaned up (level 1).
Within a tile step, values of equal expressions at equal points are emitted once (``Points.known``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

from abele.expr.operation import identity
from abele.kernels.code.lines_ahead import LinesAhead, lines_ahead
from abele.kernels.code.memory import (
    I32,
    I64,
    element_pointer,
    first_lanes,
    gather_lanes,
    load_lanes,
    load_one,
    pointers_at,
    scatter_lanes,
    store_lanes,
    store_one,
    stream_lanes,
)
from abele.kernels.code.ops import combine, llvm_type, splat
from abele.kernels.code.panels import copy_square, copy_vector, dim_along_rows, square_step
from abele.kernels.code.points import Point, Points, Typed, combine_lanes, transposed
from abele.kernels.code.raw_moves import with_raw_moves
from abele.kernels.code.share_expressions import shared_expressions
from abele.kernels.code.streams import by_alignment, stream_pieces
from abele.kernels.nest.ir import Apply, Const, Expr, Index, compute_type
from abele.kernels.nest.loop_nest import (
    Bound,
    Fetch,
    Hash,
    LoopNest,
    NestLocal,
    NestReduction,
    Out,
    RowFetch,
    RowPlace,
    free_dims,
)
from abele.kernels.nest.operation_costs import expressions_cost
from abele.kernels.schedule.pack_panels import Panel
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.schedule.squares import is_stored_across
from abele.llvm import ir as ll
from abele.llvm.emit import constant, counted_loop, intrinsic, multiply_add, prefetch
from abele.numerics import ElementType, bool_, f32, i32

Value = Any
Body = Callable[[], None]

MAX_STRAIGHT = 1024
"""Most instructions on the sums of a tile that are written out. Measured on a Zen 5, whose first-level cache of
instructions has 32 KiB: with AVX-512, 28 vectors of GELU's gradient (1,596 as they are counted) took that much code,
and a third longer than in a loop; 12 vectors with AVX2 (840) took a tenth less than in one."""


def generate(nest: LoopNest, schedule: NestSchedule, name: str, panel: Panel | None = None) -> ll.Module:
    """A module with the function ``name`` that runs units [begin, end) of ``nest``.

    With a panel, ``nest`` reads the copy, for which there is one argument more.
    """
    module = ll.Module(name=name)
    nest = shared_expressions(with_raw_moves(nest))
    pieces = stream_pieces(nest, schedule)

    def function(ending: str = "") -> ll.Function:
        made = ll.Function(module, ll.FunctionType(ll.VoidType(), [I64, I64, ll.PointerType()]), name + ending)
        made.linkage = "internal" if ending else ""
        return made

    if not pieces:
        _NestCode(function(), nest, schedule, panel).emit()
        return module
    streaming, plain = function(".streaming"), function(".plain")
    _NestCode(streaming, nest, schedule, panel, pieces).emit()
    _NestCode(plain, nest, schedule, panel).emit()
    by_alignment(function(), pieces, streaming, plain)
    return module


class _NestCode:
    """The code of one nest while it is written."""

    def __init__(
        self,
        function: ll.Function,
        nest: LoopNest,
        schedule: NestSchedule,
        panel: Panel | None,
        pieces: Mapping[int, int] | None = None,
    ) -> None:
        self.nest, self.schedule, self.function, self.panel = nest, schedule, function, panel
        self.pieces = pieces or {}
        self.entry = ll.IRBuilder(function.append_basic_block("entry"))
        self.builder = ll.IRBuilder(function.append_basic_block("body"))
        args = function.args[2]
        arrays = [
            self.entry.load(self.entry.gep(args, [ll.Constant(I64, n)], source_etype=args.type), typ=args.type)
            for n in range(nest.num_arrays + nest.num_integers)
        ]
        integers = [self.entry.ptrtoint(a, I32) for a in arrays[nest.num_arrays :]]
        self.points = Points(
            self.builder, arrays[: nest.num_arrays], schedule.lane, schedule.lanes, self.nest.locals, integers=integers
        )
        self.extents = nest.extents
        self.size = self.points.size
        self.parallel = tuple(d for d, _ in nest.parallel)
        self.unrolled = tuple(d for d in schedule.order if schedule.step(d) > 1)
        self.unrolled_reduced = tuple(d for d in schedule.reduced if schedule.step(d) > 1)
        self.slots: dict[tuple[int, Point, Point], Value] = {}
        self.own_rows: tuple[Value, Value] | None = None
        self.is_in_row = False
        self.ahead = lines_ahead(nest, schedule, panel)

    # Loops

    def emit(self) -> None:
        """Write the whole function."""
        first = self.builder.block
        self._fix_invariants()
        begin, end = self.function.args[:2]
        units = self.schedule.order[: self.schedule.num_unit_dims]
        if self.schedule.sweeps or self.schedule.row_units:
            self._over_all(units)
            self.builder.ret_void()
            self.entry.branch(first)
            return
        if self.panel is not None:
            self.copied = self.entry.alloca(I64)
            self.entry.store(ll.Constant(I64, -1), self.copied)
        with self.loop(begin, end) as unit:

            def body() -> None:
                if self.panel is not None:
                    self._copy_once(self.panel, unit)
                with self._fixed_inside(self._inner()):
                    self._loops(self._inner(), self._tile)

            self._units(units, self._decode(units, unit), body)
        # Where a driver calls the function round after round, the fence is the driver's.
        if self.pieces and not self.nest.unit:
            self.builder.fence("seq_cst")
        self.builder.ret_void()
        self.entry.branch(first)

    def _over_all(self, units: Sequence[str]) -> None:
        """All loops, with the units inside of them, or with stores to the units' rows alone."""
        begin, end = self.function.args[:2]
        if self.schedule.row_units:
            place = self.nest.outs[0].place
            assert place is not None
            size = ll.Constant(I64, -(-place.extent // self.schedule.row_units))
            self.own_rows = self.builder.mul(begin, size), self.builder.mul(self.builder.sub(end, begin), size)
            self._loops(self.schedule.order, self._tile)
            return

        def sweep() -> None:
            with self.loop(begin, end) as unit:
                self._units(units, self._decode(units, unit), self._tile)

        self._loops(self._inner(), sweep)

    def _inner(self) -> tuple[str, ...]:
        return self.schedule.order[self.schedule.num_unit_dims :]

    def _decode(self, units: Sequence[str], unit: Value) -> dict[str, Value]:
        steps: dict[str, Value] = {}
        # Mixed-radix digits, the last unit dim fastest; the first needs no remainder.
        for dim in reversed(units):
            count = ll.Constant(I64, -(-self.extents[dim] // self.schedule.step(dim)))
            steps[dim] = unit if dim == units[0] else self.builder.urem(unit, count)
            unit = self.builder.udiv(unit, count) if dim != units[0] else unit
        return steps

    def _units(self, dims: Sequence[str], steps: dict[str, Value], body: Body) -> None:
        if not dims:
            body()
            return
        dim, step = dims[0], self.schedule.step(dims[0])
        full, rest = divmod(self.extents[dim], step)
        start = self.builder.mul(steps[dim], ll.Constant(I64, step))

        def inside(size: int) -> None:
            with self.at(dim, start, size):
                self._units(dims[1:], steps, body)

        if full and rest:
            # Whole tiles and the last, partial one have code of their own.
            whole = self.builder.icmp_signed("<", steps[dim], ll.Constant(I64, full))
            self.branch(whole, lambda: inside(step), lambda: inside(rest))
        else:
            inside(step if full else rest)

    def _loops(self, dims: Sequence[str], body: Body, clamps: dict[str, list[Bound]] | None = None) -> None:
        """Loops over all tile steps of ``dims``, whole tiles first and then the rest."""
        if not dims:
            body()
            return
        dim, step = dims[0], self.schedule.step(dims[0])
        bounds = (clamps or {}).get(dim, [])
        full, rest = divmod(self.extents[dim], step)

        def inside(start: Value, size: int) -> None:
            with self.at(dim, start, size), self._fixed_inside(dims[1:]):
                # Reduced loops alone have clamps, if none.
                for lines in self.ahead.get(dim, ()) if clamps is not None else ():
                    self._ask_for(lines, dim)
                self._loops(dims[1:], body, clamps)

        if bounds:
            low, high = self._clamped(dim, bounds)
            with self.loop(low, high) as index:
                inside(index, 1)
            return
        if full == 1:
            inside(ll.Constant(I64, 0), step)
        elif full:
            with self.loop(ll.Constant(I64, 0), ll.Constant(I64, full * step), step) as index:
                inside(index, step)
        if rest:
            inside(ll.Constant(I64, full * step), rest)

    def _ask_for(self, lines: LinesAhead, dim: str) -> None:
        """Ask for lines of later steps of ``dim``, or of the next tile's first ones."""
        b, extent = self.builder, ll.Constant(I64, self.extents[dim])
        later = b.add(self.points.base[dim], ll.Constant(I64, lines.further))
        is_next = b.icmp_signed(">=", later, extent)
        place = b.mul(b.select(is_next, b.sub(later, extent), later), ll.Constant(I64, lines.stride))
        place = b.add(place, b.select(is_next, ll.Constant(I64, lines.tile), ll.Constant(I64, 0)))
        first = self.points.pointer(lines.first, Point((), self.schedule.lanes))
        for offset in lines.offsets:
            further = b.add(place, ll.Constant(I64, offset))
            prefetch(b, element_pointer(b, first, further, lines.first.type))

    def _clamped(self, dim: str, bounds: list[Bound]) -> tuple[Value, Value]:
        """The range of ``dim`` in which ``bounds`` hold."""
        low: Value = ll.Constant(I64, 0)
        high: Value = ll.Constant(I64, self.extents[dim])
        for bound in bounds:
            factor = bound.position.coefficient(dim)
            others = replace(bound.position, terms=tuple(t for t in bound.position.terms if t[0] != dim))
            # 0 ≤ ±f·d + rest < extent, solved for d. Quotients of negative numbers may be rounded either way: what is
            # at most 0 is the same limit.
            rest = self.points.linear(others)
            limit = ll.Constant(I64, bound.extent)
            if factor > 0:
                first, last = (
                    self._quotient(self.builder.neg(rest), factor),
                    self._quotient(self.builder.sub(limit, rest), factor),
                )
            else:
                last = self._quotient(self.builder.add(rest, ll.Constant(I64, 1)), -factor)
                first = self._quotient(self.builder.add(self.builder.sub(rest, limit), ll.Constant(I64, 1)), -factor)
            low = intrinsic(self.builder, "llvm.smax", low, first)
            high = intrinsic(self.builder, "llvm.smin", high, last)
        return low, high

    def _quotient(self, value: Value, factor: int) -> Value:
        """``value / factor``, rounded up if it is positive."""
        if factor == 1:
            return value
        above = self.builder.add(value, ll.Constant(I64, factor - 1))
        return self.builder.sdiv(above, ll.Constant(I64, factor))

    def _copy_once(self, panel: Panel, unit: Value) -> None:
        """Copy the panel of ``unit``, unless the unit before has the same."""
        units = self.schedule.order[len(panel.dims) : self.schedule.num_unit_dims]
        sharing = math.prod(-(-self.extents[d] // self.schedule.step(d)) for d in units)
        number = self.builder.udiv(unit, ll.Constant(I64, sharing))
        # The first unit of a thread's share always copies, as −1 is no panel's number.
        new = self.builder.icmp_signed("!=", number, self.builder.load(self.copied, typ=I64))

        def copy() -> None:
            reduced = tuple(d for d in self.schedule.reduced if panel.packed.stride(d))
            along = dim_along_rows(panel, self.schedule, self.extents, reduced)
            if along:
                self._loops([d for d in reduced if d != along], lambda: self._copy_rows(panel, along))
            else:
                self._loops(reduced, lambda: self._copy_points(panel))
            self.builder.store(number, self.copied)

        self.branch(new, copy)

    def _copy_points(self, panel: Panel) -> None:
        """Copy the elements that one point of the reduced dims reads."""
        for point in self._points(tuple(d for d in self.unrolled if d in panel.dims)):
            copy_vector(self.points, panel, point)

    def _copy_rows(self, panel: Panel, along: str) -> None:
        """Copy the elements that all points of ``along``, a reduced dim, read."""
        extent, lanes = self.extents[along], self.schedule.lanes
        step = square_step(panel, lanes, extent)
        with self.loop(ll.Constant(I64, 0), ll.Constant(I64, extent), step) as index, self.at(along, index, step):
            points = self._points(tuple(d for d in self.unrolled if d in panel.dims))
            for point, first in product(points, range(0, step, lanes)):
                copy_square(self.points, panel, point, along, first)

    @contextmanager
    def at(self, dim: str, start: Value, size: int) -> Iterator[None]:
        """``dim`` starts at ``start`` and has ``size`` elements in the tile."""
        before = self.points.base.get(dim), self.size.get(dim, 0)
        self.points.base[dim], self.size[dim] = start, size
        # Values of before are of another tile step.
        self.points.known = {}
        yield
        self.points.known = {}
        self.points.base[dim], self.size[dim] = before

    @contextmanager
    def loop(self, low: Value, high: Value, step: int = 1) -> Iterator[Value]:
        """A loop from ``low`` to before ``high``; yields its index."""
        with counted_loop(self.builder, low, high, step, flags=("nsw", "nuw")) as index:
            self.points.known = {}
            yield index
        self.points.known = {}

    def branch(self, condition: Value, then: Body, otherwise: Body | None = None) -> None:
        """``then`` where ``condition`` holds, else ``otherwise``."""
        yes, no = self.function.append_basic_block("yes"), self.function.append_basic_block("no")
        done = self.function.append_basic_block("join") if otherwise else no
        self.builder.cbranch(condition, yes, no)
        for block, body in ((yes, then), (no, otherwise)):
            if body is None:
                continue
            self.builder.position_at_end(block)
            self.points.known = {}
            body()
            self.builder.branch(done)
        self.builder.position_at_end(done)
        self.points.known = {}

    # One register tile

    @contextmanager
    def _fixed_inside(self, loops: Sequence[str]) -> Iterator[None]:
        """Evaluate once, before ``loops`` and those of the reduction, the values that the elements of a row share."""
        inner = (*loops, *self.schedule.reduced, self.schedule.lane)
        around = frozenset(d for d, size in self.size.items() if size == 1 and d not in inner)
        before = dict(self.points.fixed)
        if around and any(d and self.extents[d] > self.schedule.step(d) for d in inner):
            self._fix_invariants(around)
        yield
        self.points.fixed = before

    def _fix_invariants(self, around: frozenset[str] = frozenset()) -> None:
        """Evaluate once, before the loops to come, values that depend on no dim but ``around`` and no store."""
        written = {out.access.array for out in self.nest.outs}
        at = Point((), self.schedule.lanes)
        # Keys of random numbers depend on seed and modifier alone.
        for part in self.nest.expressions() if not around else ():
            if isinstance(part, Hash) and part.seed.array not in written and not part.seed.address.names:
                self.points.keys_of(part, at, fix=True)

        def visit(expression: Expr, wanted: ElementType) -> None:
            if isinstance(expression, NestLocal | Const | Index) or id(expression) in self.points.fixed:
                return
            arrays = {part.access.array for part in expression.walk() if isinstance(part, Fetch | RowFetch)}
            # Locals are of a point, even where their value does not depend on one.
            known = not any(isinstance(part, NestLocal) for part in expression.walk())
            dims = self.points.dims_of(expression)
            if known and dims is not None and dims <= around and not arrays & written:
                self.points.fixed[id(expression)] = self.points.value(expression, at, wanted)
                return
            # Not invariant as a whole: its arguments may be.
            for arg in expression.args:
                if arg.args or (self.points.dims_of(arg) or frozenset()) <= around:
                    visit(arg, wanted)

        if around and self.nest.accumulates:
            # All else is worked out once per reduction anyway.
            for accumulate in self.nest.accumulates:
                visit(accumulate.value, accumulate.type)
            return
        for item in self.nest.outs:
            if item.value.args:
                visit(item.value, compute_type(item.access.type))
            if item.place is not None:
                visit(item.place.row, i32)
        for value in self.nest.locals:
            visit(value, f32)

    def _points(self, dims: Sequence[str]) -> list[Point]:
        """Every point (or vector) of the tile along ``dims``."""
        lane, lanes = self.schedule.lane, self.schedule.lanes
        ranges = [range(0, self.size[d], lanes if d == lane else 1) for d in dims]
        points = []
        for offsets in product(*ranges):
            along = dict(zip(dims, offsets, strict=True))
            valid = min(lanes, self.size[lane] - along.get(lane, 0)) if lane in self.size and lane in dims else lanes
            points.append(Point(tuple(along.items()), valid))
        return points

    def _tile(self) -> None:
        """One register tile; where all of it stores to one row, nothing is done if there is no such row."""
        (out, *others) = self.nest.outs
        dims = frozenset() if out.place is None else self.points.dims_of(out.place.row)
        apart = {*self.unrolled, self.schedule.lane}
        if out.place is None or others or dims is None or dims & apart:
            self._whole_tile()
            return
        self.points.known = {}
        condition = self._in_row(out.place, Point((), self.schedule.lanes))[1]
        self.is_in_row = True
        self.branch(condition, self._whole_tile)
        self.is_in_row = False

    def _in_row(self, place: RowPlace, at: Point) -> tuple[Value, Value]:
        """Distance of the row that ``place`` names, and true if it is among the rows to be stored to."""
        distance, inside = self.points.row(place, at)
        if self.own_rows is None:
            return distance, inside
        b, (low, size) = self.builder, self.own_rows
        number = self.points.value(place.row, at, i32).value
        lanes = number.type.count if isinstance(number.type, ll.VectorType) else 1
        scalar = number.type.element if lanes > 1 else number.type
        number = b.zext(number, ll.VectorType(I64, lanes) if lanes > 1 else I64) if scalar.width < 64 else number
        low, size = (splat(b, value, lanes) for value in (low, size))
        return distance, b.and_(inside, b.icmp_unsigned("<", b.sub(number, low), size))

    def _whole_tile(self) -> None:
        points = self._points(self.unrolled)
        self.points.known, self.points.accumulators = {}, {}
        if self.nest.accumulates:
            self._accumulate(points)
        self.points.known = {}
        across = self._stored_across()
        if across:
            self._store_squares(points, across)
        elif along := self._rolled(len(points)):
            self._store_in_turn(points, along)
        else:
            self._store_points(points)

    def _rolled(self, points: int) -> str:
        """The dim of the tile along which results are made in a loop; none where code for each of them is short."""
        values = (*self.nest.locals, *(out.value for out in self.nest.outs))
        if not self.nest.accumulates or points * expressions_cost(values).instructions <= MAX_STRAIGHT:
            return ""
        dims = [d for d in self.unrolled if d != self.schedule.lane]
        return max(dims, key=lambda d: self.size[d], default="")

    def _store_in_turn(self, points: list[Point], along: str) -> None:
        """Store the tile's results in a loop over ``along``, with the sums in memory."""
        b, first, size = self.builder, self.points.base[along], self.size[along]
        ordered = sorted(points, key=lambda p: dict(p.offsets)[along])
        sums = dict(self.points.accumulators)
        kinds = [sums[number, points[0]] for number in range(len(self.nest.accumulates))]
        slots = [self.entry.alloca(kind.value.type, ll.Constant(I64, len(points))) for kind in kinds]

        def place(number: int, at: Value) -> Value:
            return b.gep(slots[number], [at], source_etype=kinds[number].value.type)

        for number, (turn, point) in product(range(len(slots)), enumerate(ordered)):
            b.store(sums[number, point].value, place(number, ll.Constant(I64, turn)))
        with self.loop(ll.Constant(I64, 0), ll.Constant(I64, size)) as index, self.at(along, b.add(first, index), 1):
            those = self._points(self.unrolled)
            start = b.mul(index, ll.Constant(I64, len(those)))
            for (number, kind), (turn, point) in product(enumerate(kinds), enumerate(those)):
                value = b.load(place(number, b.add(start, ll.Constant(I64, turn))), typ=kind.value.type)
                self.points.accumulators[number, point] = Typed(value, kind.type)
            self._store_points(those)

    def _store_points(self, points: list[Point]) -> None:
        """Store the results of ``points``, one after the other."""
        for point in points:
            # All values before the first store: a later store of the point may overwrite what an earlier value reads.
            values = [self.points.value(o.value, point, compute_type(o.access.type)) for o in self.nest.outs]
            for out, value in zip(self.nest.outs, values, strict=True):
                self._store(out, value, point)

    def _stored_across(self) -> str:
        """The dim along which all results lie in memory, if the lanes run across it and the tile is a square."""
        lane, lanes = self.schedule.lane, self.schedule.lanes
        whole = [d for d in self.unrolled if d != lane and self.size.get(d) == lanes]
        return next((d for d in whole if all(is_stored_across(o, lane, d) for o in self.nest.outs)), "")

    def _store_squares(self, points: list[Point], along: str) -> None:
        """Store the tile's results in rows along ``along``, transposed in registers."""
        squares: dict[Point, list[Point]] = {}
        for point in points:
            others = tuple(offset for offset in point.offsets if offset[0] != along)
            squares.setdefault(Point(others, point.valid), []).append(point)
        for first, members in squares.items():
            columns = [
                [self.points.value(o.value, p, compute_type(o.access.type)) for p in members] for o in self.nest.outs
            ]
            for out, column in zip(self.nest.outs, columns, strict=True):
                self._store_square(out, [self.points.vector(typed) for typed in column], first)

    def _store_square(self, out: Out, column: list[Value], first: Point) -> None:
        b, type_, lanes = self.builder, out.access.type, self.schedule.lanes
        start = self.points.pointer(out.access, first)
        stride = out.access.stride(self.schedule.lane)
        for row, value in enumerate(transposed(b, column)[: first.valid]):
            place = element_pointer(b, start, ll.Constant(I64, row * stride), type_)
            if out.combine != "set":
                before = load_lanes(b, place, type_, lanes=lanes, stride=1, valid=lanes, mask=None)
                value = combine(b, out.combine, before, value, compute_type(type_))
            store_lanes(b, value, place, type_=type_, stride=1, valid=lanes, mask=None)

    def _is_wide(self, accumulate: NestReduction) -> bool:
        lane = self.schedule.lane
        # Over a reduced dim every lane has its own points to count, also of a value that is the same at all of them.
        names = (self.points.dims_of(accumulate.value) or frozenset()) | set(self.schedule.reduced)
        return bool(lane) and (lane in names or any(lane in g.position.names for g in accumulate.guards))

    def _accumulate(self, points: list[Point]) -> None:
        clamps = self._clamps()
        tile = dict(self.schedule.tile)
        counts = [tile.get(d, 1) for d in self.unrolled_reduced]
        shares = [Point((("share", n),), self.schedule.lanes) for n in range(math.prod(counts))]
        # A reduction unrolled into shares has one accumulator per share, so that operations overlap.
        for number, accumulate in enumerate(self.nest.accumulates):
            lanes = self.schedule.lanes if self._is_wide(accumulate) else 1
            kind = llvm_type(accumulate.type, lanes)
            start = constant(kind, identity(accumulate.combine, accumulate.type.np).item())
            for point, share in product(points, shares):
                key = (number, point, share)
                if key not in self.slots:
                    self.slots[key] = self.entry.alloca(kind)
                self.builder.store(start, self.slots[key])

        ordered = self._streamed(points)

        def body() -> None:
            for place, reduced in enumerate(self._points(self.unrolled_reduced)):
                for point in ordered:
                    self._accumulate_point(point, reduced, shares[place % len(shares)])

        self.points.sure = frozenset(bound for bounds in clamps.values() for bound in bounds)
        self._loops(self.schedule.reduced, body, clamps)
        self.points.sure = frozenset()
        for number, accumulate in enumerate(self.nest.accumulates):
            self._finish(number, accumulate, points, shares)

    def _streamed(self, points: list[Point]) -> list[Point]:
        """``points`` in the order in which the fewest loaded vectors are held in registers: those of one operand.

        The dims of the operand that has most vectors in the tile change slowest, so each of them is loaded, used with
        all vectors of the others, and dropped.
        """
        fetches = {e for a in self.nest.accumulates for e in a.value.walk() if isinstance(e, Fetch)}
        moved = [[d for d in self.unrolled if d in free_dims(f)] for f in sorted(fetches, key=str)]
        most = max(
            moved, key=lambda dims: math.prod(len({dict(p.offsets)[d] for p in points}) for d in dims), default=[]
        )
        return sorted(points, key=lambda p: [n for d, n in p.offsets if d in most])

    def _clamps(self) -> dict[str, list[Bound]]:
        """Guards of all accumulators that a loop range can express, by the loop's dim."""
        # Loops are shared by all accumulators, so only guards that all have can shorten them.
        sets = [set(a.guards) for a in self.nest.accumulates]
        clamps: dict[str, list[Bound]] = {}
        for bound in sorted(set.intersection(*sets), key=str):
            names = bound.position.names
            inside = [d for d in self.schedule.reduced if d in names]
            tiled = any(self.schedule.step(d) > 1 for d in names)
            if inside and not tiled:
                clamps.setdefault(inside[-1], []).append(bound)
        return clamps

    def _accumulate_point(self, point: Point, reduced: Point, share: Point) -> None:
        in_lanes = self.schedule.lane in dict(reduced.offsets)
        at = Point(point.offsets + reduced.offsets, reduced.valid if in_lanes else point.valid)
        for number, accumulate in enumerate(self.nest.accumulates):
            slot = self.slots[number, point, share]
            before = self.builder.load(slot, typ=slot.allocated_type)
            guards = tuple(g for g in accumulate.guards if g not in self.points.sure)
            self.builder.store(self._combined(accumulate, before, at, guards, in_lanes), slot)

    def _combined(
        self, accumulate: NestReduction, before: Value, at: Point, guards: tuple[Bound, ...], in_lanes: bool
    ) -> Value:
        wide = isinstance(before.type, ll.VectorType)

        def operand(expression: Expr) -> Value:
            typed = self.points.value(expression, at, accumulate.type)
            return self.points.vector(typed) if wide else typed.value

        value, body = accumulate.value, self.builder
        partial = in_lanes and wide and at.valid < self.schedule.lanes and not self._is_zero_beyond(value)
        plain = not guards and not partial
        if plain and accumulate.combine == "add" and accumulate.type.is_float and _is_product(value):
            return multiply_add(body, operand(value.args[0]), operand(value.args[1]), before)
        after = combine(body, accumulate.combine, before, operand(value), accumulate.type)
        if guards:
            condition = self.points.condition(guards, at)
            condition = self.points.vector(Typed(condition, bool_)) if wide else condition
            after = body.select(condition, after, before)
        if partial:
            after = body.select(first_lanes(self.schedule.lanes, at.valid), after, before)
        return after

    def _is_zero_beyond(self, value: Expr) -> bool:
        """True if ``value`` is a product of two loads along the lanes, which are zero beyond the last lane."""
        return _is_product(value) and all(
            isinstance(a, Fetch) and a.access.stride(self.schedule.lane) != 0 and self.points.sure.issuperset(a.bounds)
            for a in value.args
        )

    def _finish(self, number: int, accumulate: NestReduction, points: list[Point], shares: list[Point]) -> None:
        """Final values of one accumulator at all points: shares combined, then lanes where the lane dim is reduced."""
        values = []
        for point in points:
            slots = [self.slots[number, point, share] for share in shares]
            parts = [self.builder.load(slot, typ=slot.allocated_type) for slot in slots]
            while len(parts) > 1:
                parts = [
                    combine(self.builder, accumulate.combine, parts[n], parts[n + 1], accumulate.type)
                    if n + 1 < len(parts)
                    else parts[n]
                    for n in range(0, len(parts), 2)
                ]
            values.append(parts[0])
        if self.schedule.lane in self.schedule.reduced and isinstance(values[0].type, ll.VectorType):
            values = combine_lanes(self.builder, values, accumulate.combine, accumulate.type)
        for point, value in zip(points, values, strict=True):
            self.points.accumulators[number, point] = Typed(value, accumulate.type)

    def _store(self, out: Out, value: Typed, at: Point) -> None:
        if out.place is not None:
            self._store_in_row(out, out.place, value, at)
            return
        if not out.guards:
            self._store_point(out, value, at, None)
            return
        condition = self.points.condition(out.guards, at)
        if isinstance(condition.type, ll.VectorType):
            self._store_point(out, value, at, condition)
        else:
            self.branch(condition, lambda: self._store_point(out, value, at, None))

    def _store_in_row(self, out: Out, place: RowPlace, value: Typed, at: Point) -> None:
        """Store to the row that ``place`` names, if there is one."""
        distance, condition = self._in_row(place, at)
        if out.guards:
            more = self.points.condition(out.guards, at)
            wide = any(isinstance(c.type, ll.VectorType) for c in (more, condition))
            both = [self.points.vector(Typed(c, bool_)) if wide else c for c in (more, condition)]
            condition = self.builder.and_(*both)
        if not isinstance(condition.type, ll.VectorType):
            if self.is_in_row and not out.guards:
                self._store_point(out, value, at, None, distance)
            else:
                # What is known now is forgotten behind a branch.
                self.branch(condition, lambda: self._store_point(out, value, at, None, distance))
            return
        b, kind = self.builder, compute_type(out.access.type)
        first = self.points.pointer(out.access, at)
        far = splat(b, distance, self.schedule.lanes)
        stored = self.points.vector(value)
        pointers = pointers_at(b, first, far, out.access.type, out.access.stride(self.schedule.lane))
        if out.combine != "set":
            before = gather_lanes(b, pointers, out.access.type, valid=at.valid, mask=condition)
            stored = combine(b, out.combine, before, stored, kind)
        scatter_lanes(b, stored, pointers, out.access.type, valid=at.valid, mask=condition)

    def _store_point(
        self, out: Out, value: Typed, at: Point, mask: Value | None, distance: Value | None = None
    ) -> None:
        """Store ``value``, ``distance`` elements further on if that is given."""
        kind = compute_type(out.access.type)
        stride = out.access.stride(self.schedule.lane) if self.schedule.lane else 0
        pointer = self.points.pointer(out.access, at)
        if distance is not None:
            pointer = element_pointer(self.builder, pointer, distance, out.access.type)
        lanes = self.schedule.lanes
        in_lanes = bool(stride)
        wide = self.points.vector(value) if in_lanes else value.value
        if out.streams and out.access.array in self.pieces and at.valid == lanes and mask is None:
            stream_lanes(self.builder, wide, pointer, out.access.type, self.pieces[out.access.array])
            return
        if out.combine != "set":
            if in_lanes:
                before = load_lanes(
                    self.builder, pointer, out.access.type, lanes=lanes, stride=stride, valid=at.valid, mask=mask
                )
            else:
                before = load_one(self.builder, pointer, out.access.type)
            wide = combine(self.builder, out.combine, before, wide, kind)
        if in_lanes:
            store_lanes(self.builder, wide, pointer, type_=out.access.type, stride=stride, valid=at.valid, mask=mask)
        else:
            store_one(self.builder, wide, pointer, out.access.type)


def _is_product(value: Expr) -> bool:
    return isinstance(value, Apply) and value.op == "mul"
