"""Norms written as means, variances and inverse roots; and their gradients, by whoever differentiated them.

A norm is found by its variance: a value whose normal form is Σx²/n − (Σx)²/n², however it was computed (centred or
not), below a square root. With whitened values w, inverse deviations r and means m of the op ``norm``, x is m + w/r,
and what follows has forms in them: ``w·gain + shift`` is the norm, ``r·F − r·ΣF/n − w·r·Σ(F·w)/n`` the gradient of x
for a gradient F of w, and sums of ``F·w`` over other dims the gradient of the gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from abele.expr.nodes import Apply, Const, Load
from abele.network.ir import NetworkOp, Value
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
    divided,
    equal,
    exponent,
    has_sums,
    monomial_of,
    power_of,
    product,
)
from abele.network.recognition.region import Appender, Emit, Replacements, RowRegion, Uses, is_plain
from abele.numerics import f32

_CONE = 40
"""Most ops between what is normalised and its variance."""
_ARITHMETIC = frozenset({"map", "cast", "reshape", "expand", "reduce"})


def find_norms(uses: Uses) -> Iterator[Replacements]:
    """Norms of a block, each with what takes the place of its values."""
    seen = set[Value]()
    for op in uses.ops:
        below = _below_root(op)
        if below is not None and below not in seen:
            seen.add(below)
            norm = _Norm.of(uses, below)
            plan = None if norm is None else norm.plan()
            # Statistics that a norm gives have no derivative.
            if norm is not None and plan is not None and uses.with_gradients(plan.instead) <= {norm.result}:
                yield plan


def _below_root(op: NetworkOp) -> Value | None:
    """The value whose root, or inverse root, an op takes; small beside what it is of."""
    if op.kind != "map" or len(op.inputs) != 1:
        return None
    for part in op.attrs["expr"].walk():
        if isinstance(part, Apply) and part.op in ("rsqrt", "sqrt"):
            return op.inputs[0]
    return None


def _cone(uses: Uses, value: Value) -> list[NetworkOp]:
    """Arithmetic ops behind a value, the nearest first."""
    found, waiting = list[NetworkOp](), [value]
    while waiting and len(found) <= _CONE:
        maker = uses.maker.get(waiting.pop())
        if maker is not None and maker.kind in _ARITHMETIC and maker not in found:
            found.append(maker)
            waiting.extend(maker.inputs)
    return found


def _bare(uses: Uses, value: Value) -> Iterator[Value]:
    """A value, and what it is with a positive number added: candidates for a variance below a root."""
    yield value
    maker = uses.maker.get(value)
    while maker is not None and maker.kind in ("map", "cast", "reshape") and len(maker.inputs) == 1:
        yield maker.inputs[0]
        maker = uses.maker.get(maker.inputs[0])


@dataclass
class _Norm:
    """A norm in the making.

    Attributes:
        rows: Its region.
        x: The activations, before casts.
        variance: The variance of rows.
        eps: Number added to it below the root.
    """

    rows: RowRegion
    x: Value
    variance: Value
    eps: float
    white: Atom = field(init=False)
    mean: Atom = field(init=False)
    inverse: Atom = field(init=False)
    channels: frozenset[int] = frozenset()
    result: Value | None = None
    sides: tuple[Polynomial, Polynomial] | None = None

    def __post_init__(self) -> None:
        rows = self.rows
        self.white = Atom("white", rows.all_dims)
        self.mean, self.inverse = (Atom(name, frozenset(rows.kept)) for name in ("mean", "inverse"))

    # --- finding ------------------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, uses: Uses, below: Value) -> _Norm | None:
        """The norm whose variance, with eps, is below a root."""
        cone = _cone(uses, below)
        for op in cone:
            if op.kind != "reduce" or op.attrs["operation"] != "add" or not op.inputs[0].dtype.is_float:
                continue
            shape = op.inputs[0].shape
            dims = frozenset(d for d in op.attrs["dims"] if shape[d] > 1)
            x = uses.without_casts(op.inputs[0])
            if not dims or any(x in inner.outputs and inner.kind == "reduce" for inner in cone):
                continue
            rows = RowRegion(uses, shape, dims)
            found = cls._with(rows, x, below)
            if found is not None:
                return found
        return None

    @classmethod
    def _with(cls, rows: RowRegion, x: Value, below: Value) -> _Norm | None:
        """The norm of ``x``, if what is below the root is its variance."""
        whole = Atom("x", rows.all_dims)
        rows.known = {x: atom("x", rows.all_dims)}
        rows.inside = _values_from(rows.uses, x, below)
        plain, n = monomial_of((whole, 1)), rows.count
        target = {
            monomial_of((RowSum(monomial_of((whole, 2))), 1)): 1 / n,
            monomial_of((RowSum(plain), 2)): -1 / n**2,
        }
        for variance in _bare(rows.uses, below):
            rows._made.clear()
            rows.positive = None
            form = rows.form(variance)
            if form is None or not equal(form, target):
                continue
            # What is made of it up to the root: a shift by eps, a maximum with zero.
            rows._made.clear()
            rows.known = {variance: atom("variance", rows.kept)}
            rows.positive = rows.known[variance]
            shifted = rows.form(below) if below is not variance else rows.positive
            if shifted is None:
                return None
            ((monomial, scale),) = rows.positive.items()
            scale, eps = shifted.get(monomial, 0.0), shifted.get(ONE, 0.0)
            if scale != 1.0 or len(shifted) > 2 or eps < 0 or (len(shifted) == 2 and ONE not in shifted):
                return None
            found = cls(rows, x, variance, eps)
            found._know(below)
            return found
        return None

    def _know(self, below: Value) -> None:
        """Tell the region what is known of the norm's values."""
        rows, w, r, m = self.rows, self.white, self.inverse, self.mean
        variance: Polynomial = added(power_of(r, -2), constant(self.eps), -1.0)
        rows.known = {
            self.x: {monomial_of((m, 1)): 1.0, monomial_of((w, 1), (r, -1)): 1.0},
            self.variance: variance,
        }
        if below is not self.variance:
            rows.known[below] = power_of(r, -2)
        rows.positive, rows.zero = variance, w
        self.root_below = below

    # --- what there is of it ------------------------------------------------------------------------------------------

    def _seeds(self) -> list[Value]:
        """Sums of x, and its variance."""
        rows, seeds = self.rows, [self.variance]
        if self.root_below is not self.variance:
            seeds.append(self.root_below)
        waiting = [self.x]
        for value in waiting:
            for op in rows.uses.readers.get(value, ()):
                if op.kind == "cast" and op.output.dtype.is_float:
                    waiting.append(op.output)
                elif rows.reduces(op):
                    seeds.append(op.output)
        return seeds

    def plan(self) -> Replacements | None:
        """Replacements of the norm's values; None where nothing is normalised."""
        rows, seeds = self.rows, self._seeds()
        rows.known |= {v: f for v in seeds if v not in rows.known and (f := self._sum_of_x(v)) is not None}
        candidates: dict[Value, Polynomial] = {}

        def is_forward(value: Value, form: Polynomial) -> bool:
            """Stops at what has more in it than x and numbers per channel."""
            forward = all(
                exponent(monomial, self.white) in (0, 1) and not any(isinstance(f, RowSum) for f, _ in monomial)
                for monomial in form
            )
            channels = all(a is self.white or a == self.white or self._may_be_side(a) for a in atoms_of(form))
            if forward and channels and value.shape == rows.shape and self._is_affine(form):
                candidates[value] = form
            return not (forward and channels)

        rows.grow(seeds, is_forward)
        if not candidates:
            return None
        self._choose(candidates)
        assert self.result is not None
        plan, made = Replacements(), {self.result: candidates[self.result]}
        cuts: dict[Value, Polynomial] = {}

        own = {self.white, self.mean, self.inverse}

        def ends(value: Value, form: Polynomial) -> bool:
            if value is self.result and (self.sides is not None or rows.uses.sloped):
                # Gradients that are made of the result are no polynomials of whitened values.
                rows.known[value] = atom(value, rows.all_dims)
                return True
            if self.sides is None and not has_sums(form) and atoms_of(form) & own == {self.white}:
                # Whitened values are the result: what is made of them is no part of the norm, but for products.
                return len(form) > 1 or form.keys() == {monomial_of((self.white, 1))}
            if value.shape == rows.shape and (rest := self._gradient(form)) is not None:
                cuts[value] = rest[1]
                return True
            return False

        if self.sides is None:
            rows.known[self.result] = made[self.result]
        roots = rows.grow(seeds, ends)
        if not roots:
            return None
        self._replace(plan, roots, cuts)
        return plan

    def _sum_of_x(self, value: Value) -> Polynomial | None:
        op = self.rows.uses.maker[value]
        if not self.rows.reduces(op):
            return None
        return self.rows.row_sum(self.rows.known[self.x], op.attrs["scale"])

    def _may_be_side(self, factor: Atom) -> bool:
        """True for what may be in the form of the result, or of what it is made of."""
        if factor in (self.white, self.mean, self.inverse):
            return True
        return factor.dims <= self.rows.dims or not factor.dims & self.rows.dims

    def _is_affine(self, form: Polynomial) -> bool:
        """True for ``w · gain + shift``, of channels that are all reduced or all kept."""
        atoms = atoms_of(form) - {self.white}
        if {self.mean, self.inverse} & atoms or not any(exponent(m, self.white) for m in form):
            return False
        dims = frozenset[int]().union(*(a.dims for a in atoms))
        return dims <= self.rows.dims or not dims & self.rows.dims

    def _choose(self, candidates: dict[Value, Polynomial]) -> None:
        """Take the last in the first chain of candidates as the result."""
        uses = self.rows.uses
        value = min(candidates, key=uses.at)
        while True:
            further = [v for op in uses.readers.get(value, ()) for v in op.outputs if v in candidates]
            if len(further) != 1:
                break
            value = further[0]
        form = candidates[value]
        self.result = value
        dims = frozenset[int]().union(*(a.dims for a in atoms_of(form) - {self.white}))
        self.channels = dims
        gain = {divided(m, self.white): n for m, n in form.items() if exponent(m, self.white)}
        shift = {m: n for m, n in form.items() if not exponent(m, self.white)}
        if shift or gain != constant(1.0):
            self.sides = gain, shift

    def _gradient(self, form: Polynomial) -> tuple[Polynomial, Polynomial] | None:
        """The gradient F of whitened values in a form, and the form with its gradient by x taken out."""
        r, w, n = self.inverse, self.white, self.rows.count
        gradient: Polynomial = {}
        for monomial, number in form.items():
            plain = not any(isinstance(f, RowSum) for f, _ in monomial)
            if plain and exponent(monomial, r) == 1:
                gradient = added(gradient, {divided(monomial, r): number})
        if not gradient or any(not f.dims & self.rows.dims for m in gradient for f, _ in m if f == r):
            return None
        by_r = power_of(r)
        by_w = {monomial_of((r, 1), (w, 1)): 1.0}
        whole = product(gradient, by_r)
        of_white = product(gradient, power_of(w))
        if whole is None or of_white is None:
            return None
        mean = product(self.rows.row_sum(gradient, -1 / n), by_r)
        slope = product(self.rows.row_sum(of_white, -1 / n), by_w)
        rest = form
        for part in (whole, mean, slope):
            if part is None or not all(
                m in rest and math.isclose(rest[m], number, rel_tol=2e-3) for m, number in part.items()
            ):
                return None
            rest = {m: number for m, number in rest.items() if m not in part}
        if not is_plain(rest) or {self.mean, self.inverse, self.white} & atoms_of(rest):
            return None
        return gradient, rest

    # --- what takes its place -----------------------------------------------------------------------------------------

    def _replace(self, plan: Replacements, roots: list[Value], cuts: dict[Value, Polynomial]) -> None:
        rows, uses = self.rows, self.rows.uses
        maker = _Maker(self)
        assert self.result is not None
        plan.instead[self.result] = maker.result
        needed = [v for v in roots if v is not self.result]
        for value in needed:  # It grows.
            if value in plan.instead:
                continue
            form = rows.form(value)
            if value in cuts and form is not None:
                found = self._gradient(form)
                assert found is not None
                plan.instead[value] = maker.gradient_by_x(value, *found)
                continue
            if form is not None and self._parameters(plan, maker, value, form):
                continue
            if form is not None and is_plain(form) and value.dtype.is_float and self._worth(form):
                plan.instead[value] = maker.plain(value, form)
                continue
            op = uses.maker[value]
            needed.extend(v for v in op.inputs if v in rows.inside and v not in needed)
        first = min(map(uses.at, plan.instead))
        if self.sides is not None:
            read = [a.value for form in self.sides for a in atoms_of(form) if isinstance(a.value, Value)]
            maker.joined = all(uses.at(v) < first for v in read)

    def _worth(self, form: Polynomial) -> bool:
        """True for a form that is made at once of what the norm gives: other values keep their ops."""
        own = {self.white, self.mean, self.inverse}
        return atoms_of(form) <= own

    def _parameters(self, plan: Replacements, maker: _Maker, value: Value, form: Polynomial) -> bool:
        """Replace sums of ``F·w``, and those of F beside them, by the gradients of gain and shift."""
        rows, uses = self.rows, self.rows.uses
        if len(form) != 1:
            return False
        ((monomial, number),) = form.items()
        if value.shape == rows.shape and exponent(monomial, self.white) == 1:
            # Products that other dims than the row's are summed over.
            gradient = divided(monomial, self.white)
            if any(isinstance(f, RowSum) for f, _ in gradient) or exponent(gradient, self.inverse):
                return False
            readers = uses.readers.get(value, [])
            casts = [op for op in readers if op.kind == "cast"]
            readers = [op for op in readers if op.kind != "cast"] + [
                o for c in casts for o in uses.readers.get(c.output, [])
            ]
            if value in uses.results or not readers or not all(self._sums_channels(op) for op in readers):
                return False
            sums = [(op.output, number * op.attrs["scale"]) for op in readers]
        elif rows.is_row(value.shape) and self._parameter_dims() == frozenset(rows.kept) and len(monomial) == 1:
            ((factor, power),) = monomial
            if not isinstance(factor, RowSum) or power != 1 or exponent(factor.of, self.white) != 1:
                return False
            gradient, sums = divided(factor.of, self.white), [(value, number)]
        else:
            return False
        source = self._single(gradient)
        if source is None:
            return False
        for result, scale in sums:
            plan.instead[result] = maker.parameter(result, source, 0, scale)
        beside = [source]
        for shown in beside:
            for op in uses.readers.get(shown, ()):
                if op.kind == "cast" and op.output.dtype.is_float:
                    beside.append(op.output)
                elif self._sums_channels(op) and op.output not in plan.instead:
                    plan.instead[op.output] = maker.parameter(op.output, source, 1, op.attrs["scale"])
        return True

    def _single(self, monomial: Monomial) -> Value | None:
        """The full value that a gradient is, without a factor."""
        if len(monomial) != 1:
            return None
        ((factor, power),) = monomial
        if power != 1 or not isinstance(factor, Atom) or not isinstance(factor.value, Value):
            return None
        return factor.value if factor.value.shape == self.rows.shape else None

    def _sums_channels(self, op: NetworkOp) -> bool:
        """True for a sum that leaves the channels."""
        rows = self.rows
        if op.kind != "reduce" or op.attrs["operation"] != "add" or op.inputs[0].shape != rows.shape:
            return False
        left = frozenset(d for d, n in enumerate(rows.shape) if n > 1 and d not in op.attrs["dims"])
        return left == self._parameter_dims()

    def _parameter_dims(self) -> frozenset[int]:
        """Dims that are the norm's channels: those of gain and shift within rows, or all that are reduced or kept."""
        if self.channels and self.channels <= self.rows.dims:
            return self.channels
        return self.rows.dims if not self.channels and self._rows_first() else frozenset(self.rows.kept)

    def _rows_first(self) -> bool:
        """True where kept dims are before the reduced ones, as in a layer norm."""
        return not self.rows.kept or max(self.rows.kept) < max(self.rows.dims)

    def view(self) -> tuple[list[int], list[int], int]:
        """Order of dims, and the shape [batch, channels, *field], in which they are a norm's; and its groups."""
        rows, channels = self.rows, self._parameter_dims()
        single = [d for d, n in enumerate(rows.shape) if n == 1]
        size = {d: rows.shape[d] for d in range(len(rows.shape))}
        if channels <= rows.dims:
            kept, own = rows.kept, sorted(channels)
            rest = sorted(rows.dims - channels)
            shape = [math.prod(size[d] for d in kept), math.prod(size[d] for d in own)]
            return [*single, *kept, *own, *rest], shape + ([math.prod(size[d] for d in rest)] if rest else []), 1
        first, *field_dims = sorted(rows.dims)
        order = [*single, first, *rows.kept, *field_dims]
        return order, [size[first], math.prod(size[d] for d in rows.kept), *(size[d] for d in field_dims)], build.BATCH


class _Maker:
    """Appends what takes the place of a norm's values.

    Attributes:
        joined: True if gain and shift are known where the norm is made.
    """

    def __init__(self, norm: _Norm) -> None:
        self.norm = norm
        self.joined = False
        self.order, self.shape, self.groups = norm.view()
        self.inner = norm.rows.shape

    def _viewed(self, to: Appender, value: Value) -> Value:
        return build.reshape(to.net, build.permute(to.net, value, self.order), self.shape)

    def _back(self, to: Appender, value: Value) -> Value:
        turned = build.reshape(to.net, value, [self.inner[d] for d in self.order])
        return build.permute(to.net, turned, [self.order.index(d) for d in range(len(self.order))])

    def _made(self, to: Appender) -> tuple[Value, ...]:
        """The op ``norm``: result, whitened values, means and inverse deviations."""

        def make() -> tuple[Value, ...]:
            norm, net = self.norm, to.net
            assert norm.result is not None
            dtype = norm.result.dtype
            x = self._viewed(to, build.cast(net, to.values[norm.x], dtype))
            inputs = [x]
            if self.joined and norm.sides is not None:
                dims = sorted(norm._parameter_dims())
                like = net.value(tuple(norm.rows.shape[d] for d in dims), dtype)
                for side in norm.sides:
                    made = to.polynomial(norm.rows, side, like, self._no_special, dims)
                    inputs.append(build.reshape(net, made, (x.shape[1],)))
            statistic = ((x.shape[0] * self.groups if self.groups else x.shape[1],), f32)
            return net.emit_many(
                "norm", inputs, (x.type, x.type, statistic, statistic), groups=self.groups, replicas=1, eps=norm.eps
            )

        return to.once(self, make)

    def _no_special(self, name: str) -> Value:
        raise AssertionError(name)

    def special(self, to: Appender, name: str) -> Value:
        """Whitened values, means or inverse deviations beside the full tensor."""
        _, white, mean, inverse = self._made(to)
        if name == "white":
            return self._back(to, white)
        rows = self.norm.rows
        statistic = mean if name == "mean" else inverse
        return build.reshape(to.net, statistic, [n if d in rows.kept else 1 for d, n in enumerate(rows.shape)])

    def result(self, to: Appender) -> Value:
        """The norm's result."""
        norm = self.norm
        assert norm.result is not None
        if self.joined or norm.sides is None:
            return self._back(to, self._made(to)[0 if self.joined else 1])
        gain, shift = norm.sides
        white = power_of(norm.white)
        form = added(product(gain, white) or {}, shift)
        return to.polynomial(norm.rows, form, norm.result, lambda name: self.special(to, name))

    def plain(self, value: Value, form: Polynomial) -> Emit:
        """Function that appends a value of means, deviations and whitened values."""
        return lambda to: to.polynomial(self.norm.rows, form, value, lambda name: self.special(to, name))

    def gradient_by_x(self, value: Value, gradient: Polynomial, rest: Polynomial) -> Emit:
        """Function that appends the gradient of x, and the rest of a sum around it."""

        def make(to: Appender) -> Value:
            norm, net = self.norm, to.net
            _, white, _, inverse = self._made(to)
            by, gain = self._split(gradient)
            like = net.value(norm.rows.shape, white.dtype)
            full = to.polynomial(norm.rows, by, like, lambda name: self.special(to, name))
            inputs = [white, self._viewed(to, full), inverse]
            if gain is not None:
                dims = sorted(norm._parameter_dims())
                like = net.value(tuple(norm.rows.shape[d] for d in dims), white.dtype)
                side = to.polynomial(norm.rows, gain, like, self._no_special, dims)
                inputs.append(build.reshape(net, side, (white.shape[1],)))
            made = net.emit_like("norm_grad", inputs, white, groups=self.groups, replicas=1)
            made = build.cast(net, self._back(to, made), value.dtype)
            if not rest:
                return made
            other = to.polynomial(norm.rows, rest, value, self._no_special)
            return build.total(net, [made, other])

        return make

    def _split(self, gradient: Polynomial) -> tuple[Polynomial, Polynomial | None]:
        """A gradient of whitened values as one of results and a gain per channel."""
        if len(gradient) != 1:
            return gradient, None
        ((monomial, number),) = gradient.items()
        dims = self.norm._parameter_dims()
        sides = frozenset((f, p) for f, p in monomial if isinstance(f, Atom) and f.dims and f.dims <= dims)
        rest = monomial - sides
        if not sides or not rest:
            return gradient, None
        return {rest: 1.0}, {sides: number}

    def parameter(self, value: Value, source: Value, which: int, scale: float) -> Emit:
        """Function that appends the gradient of gain (0) or shift (1) for a gradient of results."""

        def make(to: Appender) -> Value:
            net = to.net
            white = self._made(to)[1]
            key = (self, source)

            def both() -> tuple[Value, ...]:
                grad = self._viewed(to, build.cast(net, to.values[source], white.dtype))
                kind = ((white.shape[1],), value.dtype)
                return net.emit_many("norm_grad_parameters", [white, grad], [kind, kind])

            made = build.reshape(net, to.once(key, both)[which], value.shape)
            if scale != 1.0:
                made = build.map_(net, Const(scale) * Load(0, ()), [made])
            return build.cast(net, made, value.dtype)

        return make


def _values_from(uses: Uses, x: Value, below: Value) -> set[Value]:
    """Values between ``x`` and what is below the root."""
    made = _cone(uses, below)
    reached = {x}
    for op in sorted(made, key=uses.place.__getitem__):
        if reached.intersection(op.inputs):
            reached.update(op.outputs)
    return reached
