"""Lowering of optimisers: one fused update per parameter; numbers that may change are scalars on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

from abele.graph import Copy, Graph, Tensor, concat
from abele.graph import Sequence as Steps
from abele.numerics import ElementType, f32
from abele.parallel.gradient_scale import GradientScale
from abele.parallel.joined_copies import joined_copies
from abele.parallel.locations import ON_CHIP, TensorLocation
from abele.parallel.optimisers import GRADIENT, PARAMETER, Lamb, Optimiser, Sgd, StateSlot, Terms
from abele.parallel.optimisers.terms import SCALE
from abele.parallel.remote_weights import RemoteRow
from abele.parallel.repeats import Repeats
from abele.parallel.shards import FlatState, ShardedGradient, Shards
from abele.parallel.state_units import StateUnit, Target, Waiting, units
from abele.poplibs import gcl, popnn, popops
from abele.poplibs.popops import ReduceParams, SingleReduceOp
from abele.poplibs.popops.elementwise.map import map_with_outputs
from abele.poplibs.popops.expr import Cast, Expr
from abele.poplibs.poputil.layout import clone


class GroupUpdate:
    """The device side of one optimiser.

    Args:
        graph: Where variables and vertices are made.
        optimiser: The rule.
        name: Prefix of its scalars.
        repeats: What was built so far in the graph; equal parameters have equal updates.
        scale: What gradients are multiplied by before updates see them.
        share: What else they are multiplied by: −1 to climb, or what makes a mean of a sum.
        location: Where what is kept beside parameters lies.

    Attributes:
        hyper: A scalar for each hyper-parameter that may change; the host writes them.
        state: What persists from step to step whole on the chip, by name: scalars of the optimiser, and tensors of
            each parameter.
        flat: What persists elsewhere: shares of tensors, and tensors in streaming memory.
    """

    def __init__(
        self,
        graph: Graph,
        optimiser: Optimiser,
        name: str,
        repeats: Repeats,
        scale: GradientScale,
        share: float,
        location: TensorLocation = ON_CHIP,
    ) -> None:
        self.graph = graph
        self.optimiser = optimiser
        self.name = name
        self.repeats = repeats
        self.scale = scale
        self.share = share
        self.location = location
        self.state: dict[str, Tensor] = {}
        self.flat: dict[str, FlatState] = {}
        self._units = count()
        self._waiting: list[Waiting] = []
        numbers = optimiser.numbers
        mine = (optimiser.variable & numbers.keys()) - {"loss_scaling"}
        self._elsewhere: list[GroupUpdate] = []
        self.hyper = {key: self._scalar(key, numbers[key]) for key in sorted(mine)}
        self.scalars = {key: self._kept(key, slot) for key, slot in optimiser.scalars().items()}

    def on(self, graph: Graph) -> GroupUpdate:
        """The same optimiser for parameters on another IPU, which is sent the scalars at the begin of each step."""
        scale = self.scale.on(graph)
        other = type(self)(graph, self.optimiser, self.name, self.repeats, scale, self.share, self.location)
        other.state, other.flat, other._units = self.state, self.flat, self._units
        self._elsewhere.append(other)
        return other

    def begin(self, prog: Steps) -> None:
        """Append what comes once before the updates of a step: scalars advance, and are sent to other IPUs."""
        terms = Terms({}, self.optimiser.numbers, self.optimiser.variable)
        exprs = self.optimiser.advance(terms)
        if exprs:
            with self.graph.scope(self.name):
                outputs = [self.scalars[name] for name in exprs]
                map_with_outputs(self.graph, list(exprs.values()), self._operands(terms, {}), outputs, prog, "advance")
        pairs = [p for other in self._elsewhere for p in zip(self._numbers(), other._numbers(), strict=True)]
        for copy in joined_copies(pairs, f"{self.name}/numbers"):
            prog.add(copy)

    def _numbers(self) -> list[Tensor]:
        """The scalars that updates read."""
        scale = [] if self.scale.scalar is None else [self.scale.scalar]
        return [*self.hyper.values(), *self.scalars.values(), *scale]

    def take(
        self, parameter: Tensor, gradient: Tensor | ShardedGradient, prog: Steps, *, row: RemoteRow | None = None
    ) -> None:
        """Append the update of one parameter, at once or with those of its unit by :meth:`flush`.

        Args:
            parameter: The parameter.
            gradient: Its gradient, or this replica's share of it.
            prog: Sequence that an update at once is appended to.
            row: Where the parameter is in streaming memory, if it is.
        """
        slots = self.optimiser.slots()
        off_chip = bool(slots) and self.location.is_off_chip(parameter.size)
        if isinstance(gradient, ShardedGradient):
            self._waiting.append(Waiting(parameter, gradient.tensor, gradient.shards, off_chip, row))
        elif off_chip or row is not None:
            self._waiting.append(Waiting(parameter, gradient, Shards.of(parameter), off_chip, row))
        else:
            made = {key: self._slot(parameter, key, slot.initial, slot.dtype) for key, slot in slots.items()}
            self.update(Target(parameter.name, parameter, gradient, made), prog)

    def flush(self, prog: Steps) -> None:
        """Append the updates of what waits, unit by unit."""
        slots, waiting = self.optimiser.slots(), self._waiting
        self._waiting = []
        for together in units(waiting, slots, self.graph.system):
            name = f"{self.name}/state{next(self._units)}"
            with self.graph.scope(name):
                unit = StateUnit(self.graph, together, slots, "buffer")
                unit.begin(prog)
                self.update_unit(unit.targets, prog)
                unit.end(prog)
            self.state |= unit.whole
            self.flat |= unit.flat

    def update_unit(self, targets: Sequence[Target], prog: Steps) -> None:
        """Append the updates of several parameters."""
        for target in targets:
            self.update(target, prog)

    def update(self, target: Target, prog: Steps) -> None:
        """Append the update of one parameter, and of what is kept beside it, by its gradient."""
        self._emit(self.optimiser.update, _walked(target), prog, type(self.optimiser).__name__.lower())

    def end(self, prog: Steps) -> None:
        """Append what comes once after the updates of a step."""

    @property
    def factor(self) -> float:
        """The fixed number that gradients are multiplied by."""
        return self.scale.number * self.share

    # --- pieces of updates ---------------------------------------------------------------------------------------

    def _terms(self, types: Mapping[str, ElementType]) -> Terms:
        numbers, variable = self.optimiser.numbers, self.optimiser.variable
        return Terms(types, numbers, variable, factor=self.factor, scaled=self.scale.scalar is not None)

    def _emit(
        self,
        rule: Callable[[Terms], Mapping[str, Expr]],
        tensors: Mapping[str, Tensor],
        prog: Steps,
        name: str,
        scalars: Sequence[str] = (),
    ) -> None:
        """Append one pass over tensors; ``scalars`` of them are one element."""
        types = {key: t.dtype for key, t in tensors.items() if key not in scalars}
        terms = self._terms(types)
        exprs = rule(terms)
        operands = self._operands(terms, tensors)
        outputs = [tensors[key] for key in exprs]
        stored = [_stored(e, t) for e, t in zip(exprs.values(), outputs, strict=True)]

        def make() -> tuple[()]:
            map_with_outputs(self.graph, stored, operands, outputs, prog, name)
            return ()

        self._build((name,), operands, prog, make)

    def _build(
        self, what: tuple[object, ...], operands: Iterable[Tensor | None], prog: Steps, make: Callable[[], tuple[()]]
    ) -> None:
        """Append an update, which depends on the optimiser, on ``what`` and on the operands alone."""
        self.repeats.build(("update", self.name, *what), list(operands), prog, make)

    def _operands(self, terms: Terms, tensors: Mapping[str, Tensor]) -> list[Tensor]:
        """The tensors behind the placeholders of a rule."""
        state = {**self.scalars, **tensors}
        if self.scale.scalar is not None:
            state[SCALE] = self.scale.scalar
        return [self.hyper[name] if kind == "number" else state[name] for kind, name in terms.operands]

    def _scalar(self, name: str, initial: float, dtype: ElementType = f32) -> Tensor:
        return self.graph.map(self.graph.variable(dtype, (), name=f"{self.name}/{name}", initial=initial), 0)

    def _kept(self, name: str, slot: StateSlot) -> Tensor:
        """A scalar of the optimiser, which persists where it is lasting."""
        made = self._scalar(name, slot.initial, slot.dtype)
        if slot.lasting:
            self.state[f"{self.name}/{name}"] = made
        return made

    def _slot(self, parameter: Tensor, name: str, initial: float, dtype: ElementType) -> Tensor:
        """A tensor beside a parameter, laid out like it; it persists."""
        slot = clone(self.graph, parameter, f"{parameter.name}/{name}", dtype)
        self.graph.initialise(slot, initial)
        self.state[f"{parameter.name}/{name}"] = slot
        return slot


class SgdUpdate(GroupUpdate):
    """Stochastic gradient descent: what needs no state has vertices of its own, and damping begins with step two."""

    optimiser: Sgd

    def update(self, target: Target, prog: Steps) -> None:
        """Append the update of the parameter and its momentum."""
        o, parameter, gradient = self.optimiser, target.parameter, target.gradient
        is_plain = not o.has_velocity and not o.nesterov and "weight_decay" not in o.variable and not o.weight_decay
        as_they_are = self.factor == 1 and self.scale.scalar is None and o.keeps_gradients
        if not is_plain or not as_they_are:
            super().update(target, prog)
            return
        lr = self.hyper.get("lr", o.lr)

        def make() -> tuple[()]:
            popnn.sgd_update(self.graph, parameter, gradient, prog, lr=lr)
            return ()

        rate = lr if isinstance(lr, Tensor) else None
        self._build(("plain",), [parameter, gradient, rate], prog, make)

    def end(self, prog: Steps) -> None:
        """Damp from the second step on."""
        if "dampening_now" in self.scalars:
            value = self.hyper.get("dampening")
            if value is None:
                value = self.graph.constant(f32, (), self.optimiser.dampening, f"{self.name}/damped")
            prog.add(Copy(value, self.scalars["dampening_now"], name="damp"))


class LambUpdate(GroupUpdate):
    """LAMB: a pass for direction and means, both norms side by side, and a pass for the parameter.

    The direction is written down in between. Computing it again from the means in the second pass would save its
    memory, but read three tensors and take a root and two quotients per element in place of reading one.
    """

    optimiser: Lamb

    def update(self, target: Target, prog: Steps) -> None:
        """Append the update of one parameter and its means."""
        direction = self._direction(target, prog)
        self._descend(target, direction, self._squares(target.parameter, direction, prog), prog)

    def update_unit(self, targets: Sequence[Target], prog: Steps) -> None:
        """Append the updates of several parameters; the norms of those that replicas share in one sum over them."""
        shared = [target for target in targets if target.is_share]
        for target in targets:
            if not target.is_share:
                self.update(target, prog)
        if not shared:
            return
        directions = [self._direction(target, prog) for target in shared]
        parts = [s for t, d in zip(shared, directions, strict=True) for s in self._squares(t.parameter, d, prog)]
        together = concat([part.reshape((1,)) for part in parts])
        norms = gcl.all_reduce_cross_replica(self.graph, together, "add", prog, name="norms_of_replicas")
        for n, (target, direction) in enumerate(zip(shared, directions, strict=True)):
            self._descend(target, direction, (norms[2 * n], norms[2 * n + 1]), prog)

    def _direction(self, target: Target, prog: Steps) -> Tensor:
        direction = clone(self.graph, target.parameter, f"{target.name}/direction", f32)
        self._emit_direction(_walked(target), direction, prog)
        return direction

    def _descend(self, target: Target, direction: Tensor, norms: tuple[Tensor, Tensor], prog: Steps) -> None:
        tensors = {PARAMETER: target.parameter, "direction": direction, "rate": self._rate(norms, prog)}
        self._emit(self.optimiser.descend, tensors, prog, "descend", scalars=("rate",))

    def _emit_direction(self, tensors: Mapping[str, Tensor], direction: Tensor, prog: Steps) -> None:
        types = {key: t.dtype for key, t in tensors.items()}
        terms = self._terms(types)
        exprs = self.optimiser.direction(terms)
        operands = self._operands(terms, tensors)
        outputs = [{**tensors, "direction": direction}[key] for key in exprs]
        stored = [_stored(e, t) for e, t in zip(exprs.values(), outputs, strict=True)]

        def make() -> tuple[()]:
            map_with_outputs(self.graph, stored, operands, outputs, prog, "direction")
            return ()

        self._build(("direction",), [*operands, direction], prog, make)

    def _squares(self, parameter: Tensor, direction: Tensor, prog: Steps) -> tuple[Tensor, Tensor]:
        """The squared norms of both, in f32."""

        def make() -> tuple[Tensor, ...]:
            wanted = [
                SingleReduceOp(t, tuple(range(t.ndim)), ReduceParams("SQUARE_ADD"), f32, "square")
                for t in (parameter, direction)
            ]
            return tuple(popops.reduce_many(self.graph, wanted, prog, name="norms"))

        weight, step = self.repeats.build(("update", self.name, "norms"), [parameter, direction], prog, make)
        assert weight is not None
        assert step is not None
        return weight, step

    def _rate(self, norms: tuple[Tensor, Tensor], prog: Steps) -> Tensor:
        """The learning rate times the trust ratio."""
        terms = Terms({}, self.optimiser.numbers, self.optimiser.variable)
        expr = self.optimiser.trust(terms)
        given = self._operands(terms, dict(zip(("weight_square", "direction_square"), norms, strict=True)))

        def make() -> tuple[Tensor]:
            return (popops.map(self.graph, expr, given, prog, name="trust"),)

        (rate,) = self.repeats.build(("update", self.name, "trust"), given, prog, make)
        assert rate is not None
        return rate


def _walked(target: Target) -> dict[str, Tensor]:
    """The tensors of an update by the names that the rule has for them."""
    return {PARAMETER: target.parameter, GRADIENT: target.gradient, **target.slots}


def _stored(expression: Expr, tensor: Tensor) -> Expr:
    """An expression in f32 as the elements of a tensor; whole numbers are of their own type already."""
    return Cast(expression, tensor.dtype) if tensor.dtype.is_float and tensor.dtype != f32 else expression


def group_update(
    graph: Graph,
    optimiser: Optimiser,
    name: str,
    *,
    repeats: Repeats | None = None,
    scale: GradientScale | None = None,
    share: float = 1.0,
    location: TensorLocation = ON_CHIP,
) -> GroupUpdate:
    """The device side of an optimiser."""
    kinds: dict[type[Optimiser], type[GroupUpdate]] = {Sgd: SgdUpdate, Lamb: LambUpdate}
    kind = kinds.get(type(optimiser), GroupUpdate)
    scale = scale or GradientScale(graph, ())
    return kind(graph, optimiser, name, repeats or Repeats(graph), scale, share, location)
