"""The ops around a statistic that are polynomials of it: found by following readers, each with its normal form.

A region begins at seeds, such as a mean or a sum of exponentials, and grows through element-wise arithmetic, casts,
broadcasts of row values and sums over rows. Where it ends, its *roots* are read by something else: those are what has
to be made of the library's ops, and everything between is not needed then.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.expr import derivative, evaluate, select
from abele.expr.nodes import Apply, Cast, Const, Expr, Load
from abele.network.ir import BlockBuilder, NetworkOp, Shape, Value
from abele.network.ops import build
from abele.network.recognition.algebra import (
    ONE,
    Atom,
    Monomial,
    Polynomial,
    RowSum,
    added,
    atom,
    atoms_of,
    constant,
    has_sums,
    is_mask,
    monomial_of,
    power_of,
    product,
    root,
    times,
)
from abele.numerics import f32, i32

FARTHEST = 400
"""Ops that a region has at most."""


class Uses:
    """The ops of a block by what they make and read.

    Args:
        ops: In order.
        results: Values that leave the block.
        sloped: Those through which gradients will be taken.
    """

    def __init__(self, ops: Sequence[NetworkOp], results: Iterable[Value], sloped: Iterable[Value] = ()) -> None:
        self.ops = ops
        self.results = frozenset(results)
        self.maker = {v: op for op in ops for v in op.outputs}
        self.place = {op: n for n, op in enumerate(ops)}
        self.readers: dict[Value, list[NetworkOp]] = {}
        for op in ops:
            for value in dict.fromkeys(op.inputs):
                self.readers.setdefault(value, []).append(op)
        self.sloped = tuple(sloped)

    def with_gradients(self, values: Container[Value]) -> set[Value]:
        """Values, of those given, that gradients flow to; nothing flows from them to what makes them."""
        found, waiting = set[Value](), list(self.sloped)
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                maker = self.maker.get(value)
                ends = value in values or maker is None or maker.kind == "detach"
                waiting.extend(() if maker is None or ends else maker.inputs)
        return {v for v in found if v in values}

    def at(self, value: Value) -> int:
        """Number of the op that makes a value; -1 for what enters."""
        maker = self.maker.get(value)
        return -1 if maker is None else self.place[maker]

    def number(self, value: Value) -> float | None:
        """The number that a constant is at every element."""
        maker = self.maker.get(value)
        if maker is None or maker.kind != "constant":
            return None
        contents = maker.attrs["value"].contents
        if not contents.size or (any(contents.strides) and not (contents == contents.flat[0]).all()):
            return None
        return float(contents.flat[0])

    def without_casts(self, value: Value) -> Value:
        """The value before conversions from float to float."""
        while (maker := self.maker.get(value)) is not None and maker.kind == "cast" and _floats(maker):
            value = maker.inputs[0]
        return value


def reshapes(op: NetworkOp) -> bool:
    """True for a view in the same order: a reshape, or a permutation that moves dims of one index alone."""
    if op.kind != "permute":
        return op.kind == "reshape"
    order = [d for d in op.attrs["order"] if op.inputs[0].shape[d] > 1]
    return order == sorted(order)


def _floats(op: NetworkOp) -> bool:
    return op.inputs[0].dtype.is_float and op.output.dtype.is_float


@dataclass
class RowRegion:
    """Normal forms of values around a statistic of rows.

    Attributes:
        uses: The block.
        shape: Shape of the full tensor.
        dims: Reduced dims with more than one index.
        known: Polynomials that are given.
        inside: Values whose forms are followed to what they are made of; others are atoms.
        zero: Atom that sums to zero over a row; ``one`` sums to one.
        positive: Samples of a value that is positive, and its normal form: what is a number for all of them is one.
        logarithms: Atoms with those of their logarithms.
    """

    uses: Uses
    shape: Shape
    dims: frozenset[int]
    known: dict[Value, Polynomial] = field(default_factory=dict)
    inside: set[Value] = field(default_factory=set)
    zero: Atom | None = None
    one: Atom | None = None
    positive: Polynomial | None = None
    logarithms: dict[Atom, Atom] = field(default_factory=dict)
    _made: dict[Value, Polynomial | None] = field(default_factory=dict)
    _samples: dict[Value, Array] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Elements of a row."""
        return int(np.prod([self.shape[d] for d in self.dims]))

    @property
    def kept(self) -> list[int]:
        """Dims with more than one index that are not reduced."""
        return [d for d, n in enumerate(self.shape) if n > 1 and d not in self.dims]

    @property
    def all_dims(self) -> frozenset[int]:
        """Dims with more than one index."""
        return frozenset(d for d, n in enumerate(self.shape) if n > 1)

    def numbers(self, net: BlockBuilder) -> Value:
        """Numbers of the elements of a row, beside rows: i32."""
        (dim,) = self.dims
        shape = tuple(n if d == dim else 1 for d, n in enumerate(self.shape))
        return net.constant(np.arange(self.count, dtype=np.int32).reshape(shape), i32)

    def is_row(self, shape: Shape) -> bool:
        """True for the shape of one number per row."""
        return [n for n in shape if n > 1] == [self.shape[d] for d in self.kept]

    def reduces(self, op: NetworkOp) -> bool:
        """True for a sum over rows of the full tensor."""
        if op.kind != "reduce" or op.attrs["operation"] != "add" or op.inputs[0].shape != self.shape:
            return False
        return frozenset(d for d in op.attrs["dims"] if self.shape[d] > 1) == self.dims

    # --- normal forms -------------------------------------------------------------------------------------------------

    def form(self, value: Value) -> Polynomial | None:
        """Normal form of a value of the region; None where it has none."""
        if value in self.known:
            return self.known[value]
        if value not in self._made:
            maker = self.uses.maker.get(value)
            self._made[value] = None if maker is None else self._of(maker)
        return self._made[value]

    def _of(self, op: NetworkOp) -> Polynomial | None:
        made = op.output.shape
        if not op.output.dtype.is_float:
            if op.kind == "map":
                self._sample(op)
            return None
        if not op.inputs:
            return None
        first = op.inputs[0]
        match "reshape" if reshapes(op) else op.kind:
            case "cast":
                if first in self._samples:
                    return self._sample(op)
                return self.form(first) if _floats(op) else None
            case "reshape" | "expand":
                fits = self.is_row(first.shape) and (self.is_row(made) or self._beside_rows(first.shape, made))
                fits |= made == self.shape == first.shape or self._flattens(first.shape, made)
                return self.form(first) if fits else None
            case "look_up":
                return self._picked(op)
            case "update_rows":
                return self._scattered(op)
            case "reduce":
                form = self.form(first) if self.reduces(op) else None
                return None if form is None else self.row_sum(form, op.attrs["scale"])
            case "map":
                found = self._map(op)
                return self._sample(op) if found is None else found
        return None

    def _beside_rows(self, shape: Shape, made: Shape) -> bool:
        """True if a row value of ``shape`` stands beside the rows of the full tensor."""
        aligned = (1,) * (len(made) - len(shape)) + shape
        return made == self.shape and all(n == (1 if d in self.dims else self.shape[d]) for d, n in enumerate(aligned))

    def _map(self, op: NetworkOp) -> Polynomial | None:
        made = op.output.shape
        if made != self.shape and not self.is_row(made):
            return None
        guarded = self._guarded(op)
        if guarded is not None:
            return guarded
        operands: list[Polynomial | None] = []
        for value in op.inputs:
            if value in self.inside:
                full, row = value.shape == self.shape, self._beside_rows(value.shape, made)
                fits = full or row if made == self.shape else self.is_row(value.shape)
                operands.append(self.form(value) if fits else None)
            else:
                operands.append(self.outside(value, made))
        return self.expression(op.attrs["expr"], operands)

    def outside(self, value: Value, made: Shape) -> Polynomial | None:
        """An operand from outside of the region, read by an op that makes a shape: an atom, or a product with one that
        does not vary along all dims."""
        if value in self._samples and (self._samples[value] == self._samples[value][0]).all():
            return constant(float(self._samples[value][0]))
        if not value.dtype.is_float:
            return None
        number = self.uses.number(value)
        if number is not None:
            return constant(number)
        aligned = (1,) * (len(made) - len(value.shape)) + value.shape
        if made == self.shape:
            dims = frozenset(d for d, n in enumerate(aligned) if n > 1)
        else:
            order = [d for d, n in enumerate(made) if n > 1]
            dims = frozenset(k for k, d in zip(self.kept, order, strict=True) if aligned[d] > 1)
        return self._atom(value, dims)

    def _atom(self, value: Value, dims: frozenset[int]) -> Polynomial:
        """A value from outside, which varies along ``dims``: taken apart where parts of it may meet what is inside."""
        value = self._stripped(value)
        if value in self.known:
            return self.known[value]
        maker = self.uses.maker.get(value)
        found: Polynomial | None = None
        if maker is not None and self.reduces(maker):
            inner = self.outside(maker.inputs[0], self.shape)
            found = None if inner is None else self.row_sum(inner, maker.attrs["scale"])
        elif maker is not None and maker.kind in ("look_up", "update_rows"):
            picked = self._picked(maker) if maker.kind == "look_up" else self._scattered(maker)
            return atom(value, dims) if picked is None else picked
        elif maker is not None and maker.kind == "map" and (guarded := self._guarded(maker)) is not None:
            return guarded
        elif maker is not None and maker.kind == "map" and self._is_taken_apart(maker, dims):
            parts = [self.outside(v, maker.output.shape) for v in maker.inputs]
            found = self.expression(maker.attrs["expr"], parts)
        return atom(value, dims) if found is None or len(found) > 2 else found

    def _is_taken_apart(self, op: NetworkOp, dims: frozenset[int]) -> bool:
        """True for signs and factors, and for products with what is known or does not vary along all dims."""
        expression, full = op.attrs["expr"], op.output.shape == self.shape
        if not isinstance(expression, Apply) or len(op.inputs) > 2:
            return False
        adds_nothing = expression.op == "add" and Const(0.0) in expression.args
        if expression.op not in ("neg", "mul") and not adds_nothing:
            return False
        if len(op.inputs) == 1:
            return full or (dims == frozenset(self.kept) and self.is_row(op.output.shape))
        return full and any(v.shape != self.shape or self._stripped(v) in self.known for v in op.inputs)

    def _stripped(self, value: Value) -> Value:
        """The value before casts, repetitions and dims of one index."""
        while True:
            if value in self.known:
                return value
            maker = self.uses.maker.get(value)
            if maker is None or not (maker.kind in ("cast", "expand") or reshapes(maker)):
                return value
            before = maker.inputs[0]
            same = [n for n in before.shape if n > 1] == [n for n in value.shape if n > 1]
            flat = self._flattens(before.shape, value.shape) or self._flattens(value.shape, before.shape)
            if not before.dtype.is_float or not (same or (reshapes(maker) and flat)):
                return value
            value = before

    # --- one element of each row --------------------------------------------------------------------------------------

    @property
    def _table(self) -> Shape:
        """Shape of the full tensor where elements of its rows are looked up; () where rows are no last dimension."""
        last = len(self.shape) - 1
        return (math.prod(self.shape[:-1]), self.shape[-1], 1) if self.dims == {last} else ()

    def _flattens(self, before: Shape, made: Shape) -> bool:
        """True for the full tensor as a table, and for row values as one dim and back."""
        if not self._table:
            return False
        flat = [self._table[0]]
        squeezed = [[n for n in shape if n > 1] for shape in (before, made)]
        as_row = (self.is_row(before) and squeezed[1] == flat) or (squeezed[0] == flat and self.is_row(made))
        return as_row or (before == self.shape and made == self._table)

    def picks(self, table: Value, index: Value) -> bool:
        """True for the full tensor as a table, and one index for each of its rows."""
        return bool(self._table) and table.shape == self._table and index.shape == (self._table[0], 1)

    def _indicator(self, index: Value) -> Atom | None:
        """The atom that is 1 at one index of each row."""
        fits = bool(self._table) and index.shape == (self._table[0], 1)
        return Atom(index, self.all_dims, "indicator") if fits else None

    def _picked(self, op: NetworkOp) -> Polynomial | None:
        """One element of each row, as the sum of products with an indicator."""
        table, index = op.inputs
        shown = self._stripped(table)
        indicator = self._indicator(index)
        if indicator is None or table.shape != self._table or shown.shape != self.shape:
            return None
        form = self.form(shown) if shown in self.inside or shown in self.known else None
        picked = None if form is None else product(form, power_of(indicator))
        total = None if picked is None else self.row_sum(picked)
        return self._in_range(total, indicator) if total is not None and self._is_always_in_range(index) else total

    def _scattered(self, op: NetworkOp) -> Polynomial | None:
        """Zeros with a number for each row added at one index, as its product with an indicator."""
        table, rows, index = op.inputs
        indicator = self._indicator(index)
        fits = indicator is not None and table.shape == self._table and op.attrs["operation"] == "add"
        if not fits or indicator is None or self.uses.number(table) != 0:
            return None
        number, shown = self.uses.number(rows), self._stripped(rows)
        if number is not None:
            return {monomial_of((indicator, 1)): number} if number else {}
        if not shown.dtype.is_float or shown.size != self._table[0]:
            return None
        by = self.form(shown) if shown in self.inside else self._atom(shown, frozenset(self.kept))
        return None if by is None else product(by, power_of(indicator))

    def _guarded(self, op: NetworkOp) -> Polynomial | None:
        """Elements picked of rows where a condition holds, else NaN."""
        match op.attrs["expr"]:
            case Apply(op="select", operands=(Load(operand=test), Load(operand=shown), Const(value=other))):
                if not np.isnan(other) or not self.is_row(op.output.shape):
                    return None
            case _:
                return None
        source = self.uses.maker.get(self._stripped(op.inputs[shown]))
        form = None if source is None or source.kind != "look_up" else self._picked(source)
        condition = op.inputs[test]
        if form is None or source is None or condition.size != self._table[0]:
            return None
        indicator = self._indicator(source.inputs[1])
        assert indicator is not None
        guarded = product(form, power_of(Atom(condition, frozenset(self.kept), "guard")))
        return None if guarded is None else self._in_range(guarded, indicator, condition)

    def _in_range(self, form: Polynomial, indicator: Atom, condition: Value | None = None) -> Polynomial:
        """A form in which an indicator sums to one, where the index is in range, or else the condition fails."""
        if condition is not None and not self._holds_in_range(condition, indicator):
            return form
        one = RowSum(monomial_of((indicator, 1)))
        made: Polynomial = {}
        for monomial, number in form.items():
            made = added(made, {frozenset((f, p) for f, p in monomial if f != one): number})
        return made

    def _written_of(self, value: Value) -> tuple[Expr, Value]:
        """A whole number, or a condition on one, as an expression of what it is made of."""
        maker = self.uses.maker.get(value)
        while maker is not None and reshapes(maker):
            value, maker = maker.inputs[0], self.uses.maker.get(maker.inputs[0])
        if maker is None or maker.kind != "map" or len(maker.inputs) != 1:
            return derivative.arg(0), value
        base = maker.inputs[0]
        while (behind := self.uses.maker.get(base)) is not None and reshapes(behind):
            base = behind.inputs[0]
        return maker.attrs["expr"], base

    def _sampled(self, expression: Expr) -> Array:
        """An expression of whole numbers, at those about the ends of a row and far beyond."""
        near = [k * self.count + d for k in range(-3, 4) for d in range(-2, 3)]
        given = np.array([*near, -(2**31), 2**31 - 1], np.int32)
        with np.errstate(all="ignore"):
            return np.broadcast_to(np.asarray(evaluate(expression, [given])), given.shape)

    def _is_always_in_range(self, index: Value) -> bool:
        made = self._sampled(self._written_of(index)[0])
        return bool(((made >= 0) & (made < self.count)).all())

    def _holds_in_range(self, condition: Value, indicator: Atom) -> bool:
        """True for a condition that holds just where an index is one of the row's."""
        assert isinstance(indicator.value, Value)
        (test, of), (number, base) = self._written_of(condition), self._written_of(indicator.value)
        if of is not base:
            return False
        made = self._sampled(number)
        return bool((self._sampled(test) == ((made >= 0) & (made < self.count))).all())

    # --- expressions --------------------------------------------------------------------------------------------------

    def expression(self, expression: Expr, operands: Sequence[Polynomial | None]) -> Polynomial | None:
        """An expression of operands with normal forms."""
        match expression:
            case Load():
                return operands[expression.operand]
            case Const():
                return constant(float(expression.value))
            case Cast():
                return self.expression(expression.arg, operands) if expression.type.is_float else None
            case Apply():
                made = [self.expression(a, operands) for a in expression.args]
                args = [a for a in made if a is not None]
                return self._operation(expression.op, args) if len(args) == len(made) else None
        return None

    def _operation(self, op: str, args: list[Polynomial]) -> Polynomial | None:
        first = args[0]
        match op:
            case "add":
                return added(first, args[1])
            case "sub":
                return added(first, args[1], -1.0)
            case "neg":
                return added({}, first, -1.0)
            case "mul":
                return product(first, args[1])
            case "square":
                return product(first, first)
            case "div":
                inverse = root(args[1], -1.0)
                return None if inverse is None else product(first, inverse)
            case "inv":
                return root(first, -1.0)
            case "sqrt":
                return root(first, 0.5)
            case "rsqrt":
                return root(first, -0.5)
            case "pow":
                power = args[1].get(ONE) if set(args[1]) == {ONE} else None
                return None if power is None else root(first, power)
            case "max" if first == self.positive and not args[1]:
                return first
            case "max" if args[1] == self.positive and not first:
                return args[1]
            case "abs" if first == self.positive:
                return first
            case "log" if len(first) == 1:
                ((monomial, number),) = first.items()
                if number == 1.0 and len(monomial) == 1:
                    ((factor, power),) = monomial
                    if factor in self.logarithms and power == 1:
                        other = self.logarithms[factor]
                        return atom(other.value, other.dims)
            case "exp":
                return self._exponential(first)
            case "select" if set(first) <= {ONE}:
                return args[1] if first else args[2]
        return None

    def _exponential(self, form: Polynomial) -> Polynomial | None:
        """The product of what logarithms are of."""
        of = {log: factor for factor, log in self.logarithms.items()}
        monomial = dict[Atom, int]()
        for term, number in form.items():
            if len(term) != 1 or number != round(number):
                return None
            ((factor, power),) = term
            if factor not in of or power != 1:
                return None
            monomial[of[factor]] = round(number)
        return {frozenset(monomial.items()): 1.0}

    def _sample(self, op: NetworkOp) -> Polynomial | None:
        """The number that a result is for all positive values, as slopes of ``max(variance, 0)`` are."""
        if self.positive is None:
            return None
        arrays: list[Any] = []
        for value in op.inputs:
            number = self.uses.number(value)
            if number is not None:
                arrays.append(np.float64(number))
            elif value in self._samples:
                arrays.append(self._samples[value])
            elif value in self.known or value in self.inside:
                if self.form(value) != self.positive:
                    return None
                arrays.append(np.array([0.01, 0.5, 3.0]))
            else:
                return None
        with np.errstate(all="ignore"):
            made = arrays[0] if op.kind == "cast" else evaluate(op.attrs["expr"], arrays)
        found = np.broadcast_to(np.asarray(made), (3,))
        self._samples[op.output] = found
        if not op.output.dtype.is_float or not np.isfinite(found).all() or (found != found[0]).any():
            return None
        return constant(float(found[0]))

    def row_sum(self, form: Polynomial, scale: float = 1.0) -> Polynomial:
        """Sums over rows, times a number."""
        total: Polynomial = {}
        for monomial, factor in form.items():
            number = factor * scale
            before: Monomial = frozenset((f, p) for f, p in monomial if isinstance(f, RowSum) or not f.dims & self.dims)
            within = monomial - before
            if not within:
                number *= self.count
            elif len(within) == 1 and (self.zero, 1) in within:
                continue
            elif not (len(within) == 1 and (self.one, 1) in within):
                before = times(before, monomial_of((RowSum(within), 1)))
            total = added(total, {before: number})
        return total

    # --- growing ------------------------------------------------------------------------------------------------------

    def grow(self, seeds: Iterable[Value], stop: Callable[[Value, Polynomial], bool]) -> list[Value]:
        """Follow readers from seeds; returns the roots of the region, values that other ops read.

        Args:
            seeds: Values to begin with; they have forms.
            stop: True for a value with a form that is not followed further.
        """
        self._made.clear()
        self._samples.clear()
        self.inside = set(seeds)
        waiting = [self.uses.at(v) for v in self.inside]
        heapq.heapify(waiting)
        stopped, flags, seen = set[Value](), set[Value](), set[int]()
        while waiting and len(seen) < FARTHEST:
            place = heapq.heappop(waiting)
            if place in seen:
                continue
            seen.add(place)
            for value in self.uses.ops[place].outputs:
                if value not in self.inside and value not in flags:
                    form = self.form(value)
                    if value in self._samples and form is None:
                        flags.add(value)
                    elif form is None:
                        continue
                    else:
                        self.inside.add(value)
                        if stop(value, form):
                            stopped.add(value)
                            continue
                for reader in self.uses.readers.get(value, ()):
                    heapq.heappush(waiting, self.uses.place[reader])
        if waiting:
            return []
        done = self.inside | flags
        self.inside -= stopped

        def is_root(value: Value) -> bool:
            if value in self.uses.results or value in stopped:
                return True
            return any(not done.issuperset(reader.outputs) for reader in self.uses.readers.get(value, ()))

        return sorted(filter(is_root, done), key=self.uses.at)


# --- what takes the place of values ----------------------------------------------------------------------------------

Emit = Callable[["Appender"], Value]


@dataclass
class Replacements:
    """Replacements of values of a block.

    Attributes:
        instead: For each value, what appends its replacement.
    """

    instead: dict[Value, Emit] = field(default_factory=dict)


class Appender:
    """The block that is made, and what became of the values of the old one."""

    def __init__(self, net: BlockBuilder, values: dict[Value, Value]) -> None:
        self.net = net
        self.values = values
        self.kept: dict[object, tuple[Value, ...]] = {}

    def once(self, key: object, make: Callable[[], tuple[Value, ...]]) -> tuple[Value, ...]:
        """Results of ops that several values are made of, appended at the first use."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def polynomial(
        self,
        rows: RowRegion,
        form: Polynomial,
        like: Value,
        special: Callable[[str], Value],
        dims: Iterable[int] | None = None,
    ) -> Value:
        """A polynomial without row sums, appended.

        Args:
            rows: The region.
            form: The polynomial.
            like: Its shape (unless ``dims`` are given) and element type.
            special: Values of atoms that the algebra has introduced: full, or one number per row beside it.
            dims: Dims that the result has, others have one index; None for the shape of ``like``.
        """
        net, operands = self.net, list[Value]()
        places: dict[Atom, Expr] = {}
        row = dims is None and like.shape != rows.shape
        for factor in sorted(atoms_of(form), key=str):
            value = special(factor.value) if isinstance(factor.value, str) else self.values[factor.value]
            varies = frozenset(rows.kept) if factor.kind == "indicator" else factor.dims
            wanted = tuple(n if d in varies else 1 for d, n in enumerate(rows.shape))
            places[factor] = derivative.arg(len(operands))
            operands.append(build.reshape(net, value, wanted))
            if factor.kind == "indicator":
                places[factor] = derivative.arg(len(operands)).eq(places[factor])
                operands.append(rows.numbers(net))
        total: Expr | None = None
        for monomial, number in form.items():
            term = _term(monomial, number, places)
            total = term if total is None else total + term
        total = total if total is not None else Const(0.0)
        extents = [*dims] if dims is not None else rows.kept if row else [*rows.all_dims]
        shape = tuple(n if d in extents else 1 for d, n in enumerate(rows.shape))
        if not operands:
            return build.full(net, float(total.value) if isinstance(total, Const) else 0.0, like.shape, like.dtype)
        if total == derivative.arg(0):
            made = build.cast(net, operands[0], like.dtype)
        else:
            wide = [build.cast(net, v, f32) if v.dtype.is_float and v.dtype != like.dtype else v for v in operands]
            made = build.map_(net, total, wide, like.dtype)
        made = build.expand(net, made, shape)
        return made if dims is not None else build.reshape(net, made, like.shape)


def _term(monomial: Monomial, number: float, places: dict[Atom, Expr]) -> Expr:
    above, below = list[Expr](), list[Expr]()
    masks = [f for f, _ in sorted(monomial, key=str) if is_mask(f)]
    for factor, power in sorted(monomial, key=str):
        if is_mask(factor):
            continue
        assert isinstance(factor, Atom)
        (above if power > 0 else below).extend([places[factor]] * abs(power))
    term: Expr | None = None
    for part in above:
        term = part if term is None else term * part
    if term is None:
        term = Const(number)
    elif number == -1.0:
        term = -term
    elif number != 1.0:
        term = Const(number) * term
    for part in below:
        term = term / part
    for mask in masks:
        term = select(places[mask], term, 0.0 if mask.kind == "indicator" else math.nan)
    return term


def is_plain(form: Polynomial, most: int = 4) -> bool:
    """True for a polynomial that costs one map."""
    return len(form) <= most and not has_sums(form)
