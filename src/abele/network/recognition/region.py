"""The ops around a statistic that are polynomials of it: found by following readers, each with its normal form.

A region begins at seeds, such as a mean or a sum of exponentials, and grows through element-wise arithmetic, casts,
broadcasts of row values and sums over rows. Where it ends, its *roots* are read by something else: those are what has
to be made of the library's ops, and everything between is not needed then.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.expr import derivative, evaluate
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
    monomial_of,
    product,
    root,
    times,
)
from abele.numerics import f32

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
        match op.kind:
            case "cast":
                if first in self._samples:
                    return self._sample(op)
                return self.form(first) if _floats(op) else None
            case "reshape" | "expand":
                fits = self.is_row(first.shape) and (self.is_row(made) or self._beside_rows(first.shape, made))
                return self.form(first) if fits or made == self.shape == first.shape else None
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
        elif maker is not None and maker.kind == "map" and self._is_taken_apart(maker, dims):
            parts = [self.outside(v, maker.output.shape) for v in maker.inputs]
            found = self.expression(maker.attrs["expr"], parts)
        return atom(value, dims) if found is None or len(found) > 2 else found

    def _is_taken_apart(self, op: NetworkOp, dims: frozenset[int]) -> bool:
        """True for signs and factors, and for products with what is known or does not vary along all dims."""
        expression, full = op.attrs["expr"], op.output.shape == self.shape
        if not isinstance(expression, Apply) or expression.op not in ("neg", "mul") or len(op.inputs) > 2:
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
            if maker is None or maker.kind not in ("cast", "reshape", "expand"):
                return value
            before = maker.inputs[0]
            if not before.dtype.is_float or [n for n in before.shape if n > 1] != [n for n in value.shape if n > 1]:
                return value
            value = before

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
            wanted = tuple(n if d in factor.dims else 1 for d, n in enumerate(rows.shape))
            value = build.reshape(net, value, wanted)
            places[factor] = derivative.arg(len(operands))
            operands.append(value)
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
            wide = [build.cast(net, v, f32) if v.dtype != like.dtype else v for v in operands]
            made = build.map_(net, total, wide, like.dtype)
        made = build.expand(net, made, shape)
        return made if dims is not None else build.reshape(net, made, like.shape)


def _term(monomial: Monomial, number: float, places: dict[Atom, Expr]) -> Expr:
    above, below = list[Expr](), list[Expr]()
    for factor, power in sorted(monomial, key=str):
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
    return term


def is_plain(form: Polynomial, most: int = 4) -> bool:
    """True for a polynomial that costs one map."""
    return len(form) <= most and not has_sums(form)
