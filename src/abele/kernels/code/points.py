"""LLVM code of expressions at the points of one register tile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from abele.kernels.code.memory import I32, I64, element_pointer, gather_lanes, iota, load_lanes, load_one, pointers_at
from abele.kernels.code.ops import apply_op, combine, llvm_type, saturated, splat
from abele.kernels.nest.ir import Affine, Apply, Cast, Const, Expr, Index, Rounded, compute_type
from abele.kernels.nest.loop_nest import (
    Acc,
    Bound,
    ElementAccess,
    Fetch,
    Hash,
    IntegerArgument,
    NestLocal,
    RowFetch,
    RowPlace,
    affine_dims,
)
from abele.llvm import ir as ll
from abele.llvm import random as llvm_random
from abele.llvm.emit import OPAQUE_LANES, constant, like, opaque
from abele.llvm.narrow import narrowed, widened
from abele.numerics import ElementType, bool_, f32, i32, u32

# LLVM code that combines across the lanes of many vectors at once, by transposing as it goes.
#
# Summing one vector's lanes takes log L shuffles and adds, and most lanes of the later ones are waste. Two vectors
# folded together use all lanes: half of the result belongs to each, so after log L rounds L vectors have become one
# whose lanes are L results. ``names`` records whose partial result each lane holds; which lanes meet in which round
# depends on the number of lanes alone, so the order of additions, and with it the bits, is the same for every vector.

Value = Any


def combine_lanes(builder: ll.IRBuilder, vectors: list[Value], name: str, type_: ElementType) -> list[Value]:
    """The combination over the lanes of each of ``vectors``, as scalars.

    Vectors are folded in pairs, so that L vectors of L lanes take L − 1 combines instead of L·log L.
    """
    lanes = vectors[0].type.count
    scalars: list[Value] = []
    for start in range(0, len(vectors), lanes):
        scalars += _fold(builder, vectors[start : start + lanes], name, type_, lanes)
    return scalars


def _fold(builder: ll.IRBuilder, vectors: list[Value], name: str, type_: ElementType, lanes: int) -> list[Value]:
    rows = [(v, [n] * lanes) for n, v in enumerate(vectors)]
    half = lanes // 2
    while half:
        pairs = [(rows[n], rows[min(n + 1, len(rows) - 1)]) for n in range(0, len(rows), 2)]
        rows = [_fold_pair(builder, a, b, half, name, type_) for a, b in pairs]
        half //= 2
    # Any lane that a vector owns has its result; the first is taken.
    owners = [(row, lane, owner) for row, names in rows for lane, owner in enumerate(names)]
    places = {owner: (row, lane) for row, lane, owner in reversed(owners)}
    return [
        builder.extract_element(places[n][0], ll.Constant(ll.IntType(32), places[n][1])) for n in range(len(vectors))
    ]


def _fold_pair(
    builder: ll.IRBuilder,
    first: tuple[Value, list[int]],
    second: tuple[Value, list[int]],
    half: int,
    name: str,
    type_: ElementType,
) -> tuple[Value, list[int]]:
    lanes = len(first[1])
    # Lanes of the lower halves of both vectors, side by side; those `half` further on are their partners.
    low = [lane if lane % (2 * half) < half else lane - half + lanes for lane in range(lanes)]
    order = ll.VectorType(ll.IntType(32), lanes)
    parts = [
        builder.shuffle_vector(first[0], second[0], ll.Constant(order, [n + shift for n in low])) for shift in (0, half)
    ]
    owners = first[1] + second[1]
    return combine(builder, name, parts[0], parts[1], type_), [owners[n] for n in low]


def transposed(builder: ll.IRBuilder, rows: list[Value]) -> list[Value]:
    """Vector n has lane n of every one of ``rows``, of which there are as many as a vector has lanes.

    Blocks of one lane, then of two, four, … change places across the diagonal of pairs of rows: L·log L shuffles.
    """
    lanes = rows[0].type.count
    order = ll.VectorType(ll.IntType(32), lanes)
    rows, half = list(rows), 1
    while half < lanes:
        low = [n if not n & half else n - half + lanes for n in range(lanes)]
        high = [n + half if not n & half else n + lanes for n in range(lanes)]
        for n in (n for n in range(lanes) if not n & half):
            pair = rows[n], rows[n + half]
            rows[n], rows[n + half] = (
                builder.shuffle_vector(*pair, ll.Constant(order, places)) for places in (low, high)
            )
        half *= 2
        if half == OPAQUE_LANES < lanes:
            rows = [opaque(builder, row) for row in rows]
    return rows


@dataclass(frozen=True)
class Point:
    """One point (or vector of points) of a tile.

    Attributes:
        offsets: Distance from the tile's first element along each tiled dim.
        valid: Lanes that exist; the others must not be touched.
    """

    offsets: tuple[tuple[str, int], ...]
    valid: int

    def offset(self, position: Affine) -> int:
        """Amount that the offsets add to ``position``."""
        return sum(position.coefficient(dim) * n for dim, n in self.offsets)


@dataclass
class Typed:
    """An LLVM value with its compute type; a vector if it differs between lanes."""

    value: Value
    type: ElementType

    @property
    def wide(self) -> bool:
        """True if it has a value per lane."""
        return isinstance(self.value.type, ll.VectorType)


@dataclass
class Points:
    """Evaluates expressions, each once in a straight line of code.

    Attributes:
        builder: Builder of the code.
        arrays: The pointer arguments.
        lane: Dim in the lanes, or empty.
        lanes: Number of lanes.
        locals: Values of ``NestLocal``, by number.
        base: Value of every dim at the tile's first element, as i64.
        size: Elements of every dim in the tile.
        known: Values of this straight line of code, by expression and the offsets that it depends on.
        fixed: Values that hold in the whole function.
        sure: Bounds that hold at every point of the loops around.
        accumulators: Values of ``Acc``, by number and point.
        integers: The integer arguments, i32.
        keys: Keys of hashes that hold in the whole function, by seed and modifier.
    """

    builder: ll.IRBuilder
    arrays: list[Value]
    lane: str
    lanes: int
    locals: tuple[Expr, ...] = ()
    base: dict[str, Value] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    known: dict[object, Any] = field(default_factory=dict)
    fixed: dict[int, Typed] = field(default_factory=dict)
    accumulators: dict[tuple[int, Point], Typed] = field(default_factory=dict)
    dims: dict[int, frozenset[str] | None] = field(default_factory=dict)
    sure: frozenset[Bound] = frozenset()
    integers: Sequence[Value] = ()
    keys: dict[tuple[ElementAccess, int | IntegerArgument], llvm_random.Keys] = field(default_factory=dict)

    def dims_of(self, expression: Expr) -> frozenset[str] | None:
        """The dims that ``expression`` depends on; None if it depends on accumulators."""
        key = id(expression)
        if key not in self.dims:
            own: frozenset[str] | None = None if isinstance(expression, Acc) else frozenset(affine_dims(expression))
            args = (self.locals[expression.number],) if isinstance(expression, NestLocal) else expression.args
            for arg in args:
                below = self.dims_of(arg)
                own = None if own is None or below is None else own | below
            self.dims[key] = own
        return self.dims[key]

    def value(self, expression: Expr, at: Point, wanted: ElementType = f32) -> Typed:
        """``expression`` at ``at``; a constant takes the type ``wanted``."""
        if isinstance(expression, Const):
            return Typed(constant(llvm_type(compute_type(wanted)), _number(expression.value, wanted)), wanted)
        if id(expression) in self.fixed:
            return self.fixed[id(expression)]
        dims = self.dims_of(expression)
        offsets = at.offsets if dims is None else tuple(o for o in at.offsets if o[0] in dims)
        key = (id(expression), offsets, at.valid if dims is None or self.lane in dims else 0)
        if key not in self.known:
            self.known[key] = self._evaluate(expression, at)
        result: Typed = self.known[key]
        return result

    def vector(self, typed: Typed) -> Value:
        """``typed`` with a value in every lane."""
        return splat(self.builder, typed.value, self.lanes)

    def _evaluate(self, expression: Expr, at: Point) -> Typed:
        match expression:
            case Fetch():
                return self._fetch(expression, at)
            case RowFetch():
                return self._row_fetch(expression, at)
            case Acc():
                return self.accumulators[expression.number, at]
            case NestLocal():
                return self.value(self.locals[expression.number], at)
            case Index():
                return Typed(self.position(expression.affine, at, I32), i32)
            case Hash():
                return self._hash(expression, at)
            case Cast():
                return self._cast(expression, at)
            case Rounded():
                return self._rounded(expression, at)
            case Apply():
                return self._apply(expression, at)
        raise TypeError(f"{expression!r} cannot be generated")

    def _apply(self, expression: Apply, at: Point) -> Typed:
        args = list(expression.args)
        head = [self.value(args.pop(0), at, bool_)] if expression.op == "select" else []
        concrete = [self.value(a, at) for a in args if not isinstance(a, Const)]
        first = args[0]
        type_ = concrete[0].type if concrete else (first.type if isinstance(first, Const) else f32)
        typed = head + [self.value(a, at, type_) for a in args]
        values = [self.vector(t) for t in typed] if any(t.wide for t in typed) else [t.value for t in typed]
        result = apply_op(self.builder, expression.op, values, type_)
        scalar = result.type.element if isinstance(result.type, ll.VectorType) else result.type
        return Typed(result, bool_ if isinstance(scalar, ll.IntType) and scalar.width == 1 else type_)

    def _cast(self, expression: Cast, at: Point) -> Typed:
        arg = self.value(expression.arg, at, f32 if expression.type.is_float else compute_type(expression.type))
        wanted = compute_type(expression.type)
        value = convert_value(self.builder, arg.value, arg.type, wanted)
        if expression.type.is_narrow:
            value = widened(self.builder, narrowed(self.builder, value, expression.type), expression.type)
        elif expression.type.kind in ("int", "uint") and expression.type.bits < wanted.bits:
            extended = self.builder.sext if expression.type.kind == "int" else self.builder.zext
            value = extended(self.builder.trunc(value, like(value, ll.IntType(expression.type.bits))), value.type)
        return Typed(value, wanted)

    def _rounded(self, expression: Rounded, at: Point) -> Typed:
        parts = [self.value(a, at, wanted) for a, wanted in zip(expression.args, (f32, u32), strict=False)]
        values = [self.vector(p) for p in parts] if any(p.wide for p in parts) else [p.value for p in parts]
        # A store of the result has nothing left to round, and LLVM leaves out the way to f32 and back.
        bits = narrowed(self.builder, values[0], expression.type, *values[1:], saturate=expression.saturates)
        return Typed(widened(self.builder, bits, expression.type), f32)

    def _hash(self, expression: Hash, at: Point) -> Typed:
        keys = self.keys_of(expression, at)
        if expression.quick:
            return Typed(self._quick_hash(expression, keys, at), u32)
        # Of a long index the low half counts.
        index = self.position(expression.index, at, I32)
        if expression.start is not None:
            start = self.integers[expression.start.number]
            index = self.builder.add(index, start if index.type == I32 else splat(self.builder, start, self.lanes))
        return Typed(llvm_random.emit_hash_of_keys(self.builder, keys, index), u32)

    def _quick_hash(self, expression: Hash, keys: llvm_random.Keys, at: Point) -> Value:
        """Words of a quick hash: a counter of the tile, from which its points and lanes are known numbers away."""
        b, step = self.builder, expression.index.coefficient(self.lane) if self.lane else 0
        lanes = self.lanes if step else 1
        key = ("counter", expression.seed, expression.modifier, expression.index, expression.start, lanes)
        if key not in self.known:
            first = b.trunc(self.linear(expression.index), I32)
            if expression.start is not None:
                first = b.add(first, self.integers[expression.start.number])
            self.known[key] = splat(b, llvm_random.emit_quick_counter(b, keys, first), lanes)
        offset = at.offset(expression.index)
        offsets = [offset + n * step for n in range(lanes)] if lanes > 1 else offset
        return llvm_random.emit_quick_hash(b, keys, self.known[key], offsets)

    def keys_of(self, expression: Hash, at: Point, *, fix: bool = False) -> llvm_random.Keys:
        """The keys of a hash; with ``fix`` they hold in the whole function."""
        key = (expression.seed, expression.modifier)
        if key not in self.keys:
            halves = [
                self.load(ElementAccess(expression.seed.array, u32, expression.seed.address + n), at, None).value
                for n in (0, 1)
            ]
            modifier = expression.modifier
            number = self.integers[modifier.number] if isinstance(modifier, IntegerArgument) else modifier
            keys = llvm_random.emit_keys(self.builder, halves[0], halves[1], number)
            if not fix:
                return keys
            self.keys[key] = keys
        return self.keys[key]

    def _fetch(self, fetch: Fetch, at: Point) -> Typed:
        bounds = [b for b in fetch.bounds if b not in self.sure]
        if not bounds:
            return self.load(fetch.access, at, None)
        kind = compute_type(fetch.access.type)
        fill = constant(llvm_type(kind), _number(fetch.fill or 0, kind))
        if any(b.extent == 0 for b in bounds):
            return Typed(fill, kind)
        condition = self.condition(bounds, at)
        loaded = self.load(fetch.access, at, condition)
        if fetch.fill is None:
            return loaded
        if isinstance(condition.type, ll.VectorType) or loaded.wide:
            wide = self.vector(Typed(condition, bool_)) if loaded.wide else condition
            both = self.vector(loaded), splat(self.builder, fill, self.lanes)
            return Typed(self.builder.select(wide, *both), loaded.type)
        return Typed(self.builder.select(condition, loaded.value, fill), loaded.type)

    def _row_fetch(self, fetch: RowFetch, at: Point) -> Typed:
        """The element of a row that a value names; memory is touched only where there is such a row."""
        distance, inside = self.row(fetch.place, at)
        type_, kind = fetch.access.type, compute_type(fetch.access.type)
        stride = fetch.access.stride(self.lane) if self.lane else 0
        fill = constant(llvm_type(kind), _number(fetch.fill, kind))
        first = self.pointer(fetch.access, at)
        if isinstance(distance.type, ll.VectorType):
            pointers = pointers_at(self.builder, first, distance, type_, stride)
            loaded = gather_lanes(self.builder, pointers, type_, valid=at.valid, mask=inside)
            if not fetch.fill:
                return Typed(loaded, kind)
            return Typed(self.builder.select(inside, loaded, splat(self.builder, fill, self.lanes)), kind)
        pointer = element_pointer(self.builder, first, distance, type_)
        if not stride:
            return Typed(self.builder.select(inside, load_one(self.builder, pointer, type_), fill), kind)
        loaded = load_lanes(self.builder, pointer, type_, self.lanes, stride=stride, valid=at.valid, mask=None)
        both = loaded, splat(self.builder, fill, self.lanes)
        return Typed(self.builder.select(splat(self.builder, inside, self.lanes), *both), kind)

    def row(self, place: RowPlace, at: Point) -> tuple[Value, Value]:
        """Distance in elements from the first row to the row that ``place`` names, and true if there is such a row.

        Where there is none, the first row stands for it. Vectors, if the lanes have rows of their own.
        """
        dims = self.dims_of(place.row)
        offsets = at.offsets if dims is None else tuple(o for o in at.offsets if o[0] in dims)
        key = ("row", id(place.row), place.factors, offsets, at.valid if dims is None or self.lane in dims else 0)
        if key not in self.known:
            self.known[key] = self._row(place, at)
        found: tuple[Value, Value] = self.known[key]
        return found

    def _row(self, place: RowPlace, at: Point) -> tuple[Value, Value]:
        b, number = self.builder, self.value(place.row, at, i32).value
        lanes = number.type.count if isinstance(number.type, ll.VectorType) else 1
        wide = ll.VectorType(I64, lanes) if lanes > 1 else I64
        scalar = number.type.element if lanes > 1 else number.type
        # Negative numbers become large ones, beyond any row.
        number = b.zext(number, wide) if scalar.width < 64 else number
        inside = b.icmp_unsigned("<", number, constant(wide, place.extent))
        left, total = b.select(inside, number, constant(wide, 0)), constant(wide, 0)
        for digit, (extent, stride) in enumerate(reversed(place.factors)):
            is_last = digit == len(place.factors) - 1
            part = left if is_last else b.urem(left, constant(wide, extent))
            left = left if is_last else b.udiv(left, constant(wide, extent))
            total = b.add(total, b.mul(part, constant(wide, stride)))
        return total, inside

    def load(self, access: ElementAccess, at: Point, condition: Value | None) -> Typed:
        """The element of ``access`` at ``at``, widened; not touched where ``condition`` fails."""
        stride = access.stride(self.lane) if self.lane else 0
        masked = condition is not None and isinstance(condition.type, ll.VectorType)
        safe = None if masked else condition
        pointer = self.pointer(access, at, safe, stride)
        kind = compute_type(access.type)
        if not stride and not masked:
            return Typed(load_one(self.builder, pointer, access.type), kind)
        if condition is None and stride not in (0, 1):
            across = self._across(access, at, stride)
            if across is not None:
                return Typed(across, kind)
        mask = condition if masked else None
        return Typed(
            load_lanes(self.builder, pointer, access.type, lanes=self.lanes, stride=stride, valid=at.valid, mask=mask),
            kind,
        )

    def _across(self, access: ElementAccess, at: Point, stride: int) -> Value | None:
        """Values across the lanes, from a square of elements that is loaded along its rows and transposed.

        None where the tile has no such square: no dim that steps by one and has as many points as there are lanes.
        """
        along = next((d for d, _ in at.offsets if access.stride(d) == 1 and self.size.get(d) == self.lanes), None)
        if along is None or along == self.lane or at.valid < self.lanes:
            return None
        others = tuple(o for o in at.offsets if o[0] != along)
        key = ("square", access, others)
        if key not in self.known:
            first = self.pointer(access, Point(others, at.valid))
            rows = []
            for lane in range(self.lanes):
                place = element_pointer(self.builder, first, ll.Constant(I64, lane * stride), access.type)
                rows.append(
                    load_lanes(self.builder, place, access.type, self.lanes, stride=1, valid=at.valid, mask=None)
                )
            self.known[key] = transposed(self.builder, rows)
        return self.known[key][dict(at.offsets)[along]]

    def pointer(self, access: ElementAccess, at: Point, condition: Value | None = None, stride: int = 0) -> Value:
        """Address of ``access`` in the first lane.

        Where ``condition`` fails, one from which lanes ``stride`` apart stay inside the array: none of its bounds
        mentions the lane dim, so the array has as many elements along it.
        """
        start = self.linear(access.start)
        offset = at.offset(access.address)
        if condition is not None:
            index = self.builder.add(start, ll.Constant(I64, offset))
            # Element 0, or with a negative stride the one from which all lanes stay inside.
            index = self.builder.select(condition, index, ll.Constant(I64, max(0, -stride) * (at.valid - 1)))
            return element_pointer(self.builder, self.arrays[access.array], index, access.type)
        key = ("pointer", access)
        if key not in self.known:
            self.known[key] = element_pointer(self.builder, self.arrays[access.array], start, access.type)
        base = self.known[key]
        return element_pointer(self.builder, base, ll.Constant(I64, offset), access.type) if offset else base

    def linear(self, position: Affine) -> Value:
        """``position`` at the tile's first element, as i64."""
        key = ("linear", position)
        if key not in self.known:
            # Without what adds or multiplies nothing: text that would be written, read and taken out again.
            total: Value = ll.Constant(I64, position.const) if position.const or not position.terms else None
            for dim, factor in position.terms:
                start = self.base[dim]
                start = start if factor == 1 else self.builder.mul(start, ll.Constant(I64, factor))
                total = start if total is None else self.builder.add(total, start)
            self.known[key] = total
        return self.known[key]

    def position(self, position: Affine, at: Point, type_: Any = I64) -> Value:
        """``position`` at ``at`` as an integer of ``type_``; a vector if it differs between lanes."""
        start = self.builder.add(self.linear(position), ll.Constant(I64, at.offset(position)))
        value = self.builder.trunc(start, type_) if type_ != I64 else start
        step = position.coefficient(self.lane) if self.lane else 0
        if not step:
            return value
        return self.builder.add(splat(self.builder, value, self.lanes), iota(self.lanes, step, type_))

    def condition(self, bounds: Iterable[Bound], at: Point) -> Value:
        """True if all ``bounds`` hold at ``at``, as i1; a vector if that differs between lanes."""
        result: Value = None
        for bound in bounds:
            place = self.position(bound.position, at)
            holds = self.builder.icmp_unsigned("<", place, constant(place.type, bound.extent))
            if result is not None and holds.type != result.type:
                holds, result = splat(self.builder, holds, self.lanes), splat(self.builder, result, self.lanes)
            result = holds if result is None else self.builder.and_(result, holds)
        return result


def convert_value(builder: ll.IRBuilder, value: Value, source: ElementType, wanted: ElementType) -> Value:
    """``value`` of compute type ``source`` converted to compute type ``wanted``."""
    if source == wanted:
        return value
    lanes = value.type.count if isinstance(value.type, ll.VectorType) else 1
    target = llvm_type(wanted, lanes)
    if wanted == bool_:
        zero = constant(value.type, 0)
        return builder.fcmp_unordered("!=", value, zero) if source.is_float else builder.icmp_signed("!=", value, zero)
    if wanted.is_float:
        return (builder.sitofp if source.kind == "int" else builder.uitofp)(value, target)
    if source.is_float:
        return saturated(builder, value, target, signed=wanted.kind == "int")
    width = 1 if source == bool_ else source.bits
    if width > wanted.bits:
        return builder.trunc(value, target)
    if width == wanted.bits:
        return value
    return (builder.sext if source.kind == "int" else builder.zext)(value, target)


def _number(value: float | int | bool, type_: ElementType) -> float | int:
    return float(value) if compute_type(type_).is_float else int(value)
