"""Softmaxes and their logarithms written as exponentials over their sums, and their gradients.

A softmax is found by a sum over rows of exponentials. With y of the op ``softmax``, s that sum and z the logarithm of
y, the exponentials are y·s, and what follows has forms in y and z: ``y·F − y·Σ(F·y)`` is the gradient of a softmax for
a gradient F of y, ``F − y·ΣF`` that of its logarithm. Where anything needs s itself, as a log of a sum of exponentials
does, the string stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from abele.expr import apply, derivative, select
from abele.expr.nodes import Apply, Load
from abele.network.ir import NetworkOp, Value
from abele.network.ops import build
from abele.network.recognition.algebra import (
    Atom,
    Factor,
    Polynomial,
    RowSum,
    added,
    atom,
    atoms_of,
    divided,
    exponent,
    is_mask,
    monomial_of,
    power_of,
    product,
)
from abele.network.recognition.region import Appender, Emit, Replacements, RowRegion, Uses, is_plain, reshapes

_X, _Y, _Z = (derivative.arg(n) for n in range(3))


def find_softmaxes(uses: Uses) -> Iterator[Replacements]:
    """Softmaxes of a block, each with what takes the place of its values."""
    for op in uses.ops:
        if op.kind == "map" and isinstance(op.attrs["expr"], Apply) and op.attrs["expr"].op == "exp":
            for dims in _summed_dims(uses, op.output):
                found = _Softmax.of(uses, op, dims)
                plan = None if found is None else found.plan()
                if plan is not None:
                    yield plan
                    break


def _summed_dims(uses: Uses, value: Value) -> set[frozenset[int]]:
    """Dims over which a value is summed."""
    waiting, found = [value], set[frozenset[int]]()
    for shown in waiting:
        for op in uses.readers.get(shown, ()):
            if op.kind == "cast" and op.output.dtype.is_float:
                waiting.append(op.output)
            elif op.kind == "reduce" and op.attrs["operation"] == "add":
                found.add(frozenset(d for d in op.attrs["dims"] if shown.shape[d] > 1))
    return {dims for dims in found if dims}


@dataclass
class _Softmax:
    """A softmax in the making.

    Attributes:
        rows: Its region.
        x: The scores.
        seeds: Exponentials, and what they are of.
        picks: Indicators of the elements of z that are picked, by names of atoms for them.
        by_logarithm: True where z is made, of which y is then a map.
    """

    rows: RowRegion
    x: Value
    seeds: list[Value]
    picks: dict[str, Atom] = field(default_factory=dict)
    by_logarithm: bool = False
    y: Atom = field(init=False)
    z: Atom = field(init=False)
    s: Atom = field(init=False)
    log_s: Atom = field(init=False)

    def __post_init__(self) -> None:
        rows = self.rows
        self.y, self.z = Atom("y", rows.all_dims), Atom("z", rows.all_dims)
        self.s, self.log_s = Atom("s", frozenset(rows.kept)), Atom("log_s", frozenset(rows.kept))

    @classmethod
    def of(cls, uses: Uses, op: NetworkOp, dims: frozenset[int]) -> _Softmax | None:
        """The softmax over ``dims`` of the exponentials that an op computes."""
        rows = RowRegion(uses, op.output.shape, dims)
        inner, seeds = op, [op.output]
        expression = op.attrs["expr"].args[0]
        if isinstance(expression, Load):
            maker = uses.maker.get(op.inputs[expression.operand])
            if maker is not None and maker.kind == "map" and maker.output.shape == rows.shape:
                inner, expression = maker, maker.attrs["expr"]
        x: Value | None = None
        shift: Polynomial = {}
        match expression:
            case Apply(op="sub", operands=(Load(operand=first), Load(operand=second))):
                x, other = inner.inputs[first], inner.inputs[second]
                form = rows.outside(other, rows.shape) if x.shape == rows.shape else None
                if form is None or any(a.dims & dims for a in atoms_of(form)):
                    x = None
                else:
                    shift = form
                    seeds += [inner.output] if inner is not op else []
            case Load(operand=first):
                x = inner.inputs[first]
        if x is None:
            # Exponentials of something else: of what the op itself reads.
            expression = op.attrs["expr"].args[0]
            if not isinstance(expression, Load) or op.inputs[expression.operand].shape != rows.shape:
                return None
            x, shift, seeds = op.inputs[expression.operand], {}, [op.output]
        if x.shape != rows.shape:
            return None
        found = cls(rows, x, seeds)
        found._know(shift, op.output)
        return found

    def _know(self, shift: Polynomial, powers: Value) -> None:
        rows = self.rows
        logarithm = {monomial_of((self.z, 1)): 1.0, monomial_of((self.log_s, 1)): 1.0}
        rows.known = {
            self.x: added(logarithm, shift),
            powers: {monomial_of((self.y, 1), (self.s, 1)): 1.0},
        }
        for seed in self.seeds:
            if seed is not powers:
                rows.known[seed] = logarithm
        rows.one, rows.logarithms = self.y, {self.s: self.log_s, self.y: self.z}
        rows.positive = power_of(self.s)

    def plan(self) -> Replacements | None:
        """Replacements of its values; None where the exponentials or their sum are needed themselves."""
        rows, uses = self.rows, self.rows.uses
        own = {self.y, self.z, self.s, self.log_s}
        results: dict[Atom, Value] = {}

        def is_forward(value: Value, form: Polynomial) -> bool:
            for result in (self.y, self.z):
                if form == atom(result.value, result.dims) and value.shape == rows.shape:
                    results.setdefault(result, value)
                    return True
            return not all(f in own or not f.dims & rows.dims for f in atoms_of(form)) or len(form) > 4

        rows.grow(self.seeds, is_forward)
        rows.known |= {v: atom(a.value, a.dims) for a, v in results.items()}
        made = set(results.values())
        cuts: dict[Value, tuple[str, Polynomial, Polynomial]] = {}
        picked: dict[Value, Polynomial] = {}

        def ends(value: Value, form: Polynomial) -> bool:
            if value in made:
                return True
            if rows.is_row(value.shape) and self._is_made(value, form):
                # What is made of a picked element is no part of the softmax.
                picked[value], rows.known[value] = form, atom(value, rows.kept)
                return True
            found = self._gradient(form) if value.shape == rows.shape else None
            if found is not None:
                cuts[value] = found
            return found is not None

        roots = rows.grow(self.seeds, ends)
        plan, needed = Replacements(), list(roots)
        for value in needed:  # It grows.
            if value in made:
                which = self.y if results.get(self.y) is value else self.z
                plan.instead[value] = lambda to, value=value, which=which: self._result(to, value, which)  # type: ignore[misc]
            elif value in cuts:
                plan.instead[value] = lambda to, value=value: self._by_x(to, value, *cuts[value])  # type: ignore[misc]
            elif value in self.seeds:
                return None
            else:
                form, op = picked.get(value, rows.form(value)), uses.maker[value]
                if form is not None and atoms_of(form) <= {self.y, self.z} and is_plain(form, 1):
                    plan.instead[value] = self._plain(value, form)
                    continue
                if form is not None and self._is_made(value, form):
                    plan.instead[value] = self._plain(value, self._with_picks(form))
                    continue
                if self.rows.reduces(op):
                    return None
                needed.extend(v for v in op.inputs if (v in rows.inside or v in made) and v not in needed)
        for value in made:
            self._pick_of(plan, value)
        return plan if plan.instead else None

    def _plain(self, value: Value, form: Polynomial) -> Emit:
        """Function that appends a value of softmax, logarithm and values from outside."""
        return lambda to: to.polynomial(self.rows, form, value, lambda name: self._special(to, name))

    def _pick_of(self, plan: Replacements, value: Value) -> None:
        """Replace look-ups of one element of each row of a result by sums over rows."""
        uses, rows = self.rows.uses, self.rows
        for table in (op.output for op in uses.readers.get(value, ()) if reshapes(op)):
            for op in uses.readers.get(table, ()):
                if op.kind == "look_up" and rows.picks(table, op.inputs[1]):
                    index = op.inputs[1]
                    plan.instead[op.output] = lambda to, index=index, op=op: build.reshape(  # type: ignore[misc]
                        to.net, self._picked(to, to.values[value], to.values[index]), op.output.shape
                    )

    def _picked(self, to: Appender, full: Value, index: Value) -> Value:
        """One element of each row, by number; zero for a number that is none of one."""
        net, rows = to.net, self.rows
        (dim,) = rows.dims
        beside = build.reshape(net, index, [1 if d == dim else n for d, n in enumerate(rows.shape)])
        hits = build.map_(net, select(_X.eq(_Y), _Z, 0.0), [rows.numbers(net), beside, full], full.dtype)
        return build.reduce(net, hits, [dim], "add", keep=True)

    def _with_picks(self, form: Polynomial) -> Polynomial:
        """A form with an atom for each sum of products of an indicator and z; other sums stay."""
        made: Polynomial = {}
        for monomial, number in form.items():
            factors = dict[Factor, int]()
            for factor, power in monomial:
                masks = [f for f, _ in factor.of if is_mask(f)] if isinstance(factor, RowSum) else []
                if len(masks) == 1 and factor == RowSum(monomial_of((masks[0], 1), (self.z, 1))):
                    name = f"picked {masks[0].value}"
                    self.picks[name] = masks[0]
                    factor = Atom(name, frozenset(self.rows.kept))
                factors[factor] = power
            made = added(made, {frozenset(factors.items()): number})
        return made

    def _is_made(self, value: Value, form: Polynomial) -> bool:
        """True for a form with picks or indicators that y, z and values from outside give at once."""
        form = self._with_picks(form)
        atoms = atoms_of(form)
        picks = any(a.value in self.picks for a in atoms)
        varies = frozenset().union(*(a.dims for a in atoms))
        fits = is_plain(form, 3) and not {self.s, self.log_s} & atoms
        fits &= value.shape == self.rows.shape or varies <= {*self.rows.kept}
        fits &= picks or any(map(is_mask, atoms))
        self.by_logarithm |= fits and (picks or self.z in atoms)
        return fits

    def _gradient(self, form: Polynomial) -> tuple[str, Polynomial, Polynomial] | None:
        """Kind of the gradient in a form, the gradient that it is for, and the form with it taken out."""
        y, rows = self.y, self.rows
        own = {self.y, self.z, self.s, self.log_s}
        plain = {m: n for m, n in form.items() if not any(isinstance(f, RowSum) or f in own - {y} for f, _ in m)}
        of_y = {divided(m, y): n for m, n in plain.items() if exponent(m, y) == 1}
        by_y = power_of(y)
        if of_y:
            inner = product(of_y, by_y)
            outer = None if inner is None else product(rows.row_sum(inner, -1.0), by_y)
            rest = None if inner is None or outer is None else _without(form, inner, outer)
            if rest is not None and is_plain(rest) and not own & atoms_of(rest):
                return "softmax_grad", of_y, rest
        for given in _parts({m: n for m, n in plain.items() if not exponent(m, y)}):
            outer = product(rows.row_sum(given, -1.0), by_y)
            rest = None if outer is None else _without(form, given, outer)
            if rest is not None and is_plain(rest) and not own & atoms_of(rest):
                return "log_softmax_grad", given, rest
        return None

    # --- what takes its place -----------------------------------------------------------------------------------------

    def _viewed(self, to: Appender, value: Value) -> Value:
        """A full value with its reduced dims as one, the last."""
        rows = self.rows
        order = [d for d in range(len(rows.shape)) if d not in rows.dims] + sorted(rows.dims)
        turned = build.permute(to.net, value, order)
        kept = [n for d, n in enumerate(rows.shape) if d not in rows.dims]
        return build.reshape(to.net, turned, (*kept, rows.count))

    def _back(self, to: Appender, value: Value) -> Value:
        rows = self.rows
        order = [d for d in range(len(rows.shape)) if d not in rows.dims] + sorted(rows.dims)
        turned = build.reshape(to.net, value, [rows.shape[d] for d in order])
        return build.permute(to.net, turned, [order.index(d) for d in range(len(order))])

    def _made(self, to: Appender, which: Atom) -> Value:
        """Softmax or its logarithm, reduced dims last."""
        kind = "log_softmax" if which == self.z else "softmax"

        def make() -> tuple[Value, ...]:
            x = self._viewed(to, to.values[self.x])
            return (to.net.emit_like(kind, [x], x),)

        return to.once((self.x, self.rows.dims, kind), make)[0]

    def _special(self, to: Appender, name: str) -> Value:
        if name in self.picks:
            index = self.picks[name].value
            assert isinstance(index, Value)
            return self._picked(to, self._special(to, "z"), to.values[index])
        if name == "y" and self.by_logarithm:
            z = self._special(to, "z")
            return build.map_(to.net, apply("exp", _X), [z])
        return self._back(to, self._made(to, self.y if name == "y" else self.z))

    def _result(self, to: Appender, value: Value, which: Atom) -> Value:
        return build.cast(to.net, self._special(to, "z" if which == self.z else "y"), value.dtype)

    def _by_x(self, to: Appender, value: Value, kind: str, gradient: Polynomial, rest: Polynomial) -> Value:
        """The gradient of what enters, and the rest of a sum that it is part of."""
        net, rows = to.net, self.rows
        saved = self._made(to, self.z if kind == "log_softmax_grad" else self.y)
        like = net.value(rows.shape, saved.dtype)
        given = self._viewed(to, to.polynomial(rows, gradient, like, lambda name: self._special(to, name)))
        made = build.cast(net, self._back(to, net.emit_like(kind, [saved, given], saved)), value.dtype)
        if not rest:
            return made
        return build.total(net, [made, to.polynomial(rows, rest, value, lambda name: self._special(to, name))])


def _without(form: Polynomial, *parts: Polynomial) -> Polynomial | None:
    """A form without parts of it; None where it does not have them."""
    rest = form
    for part in parts:
        if not all(m in rest and math.isclose(rest[m], n, rel_tol=2e-3) for m, n in part.items()):
            return None
        rest = {m: n for m, n in rest.items() if m not in part}
    return rest


def _parts(form: Polynomial) -> Iterator[Polynomial]:
    """All of a polynomial, then each of its terms."""
    if form:
        yield form
    if len(form) > 1:
        for monomial, number in form.items():
            yield {monomial: number}
