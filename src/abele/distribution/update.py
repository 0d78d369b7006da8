"""Lowering of optimisers: fused updates of parameters, side by side; numbers that change are scalars on the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import ClassVar

from abele.distribution.lowering_cache import Repeats
from abele.distribution.remote_weights import WeightRow
from abele.distribution.state_units import RemoteState, StateUnit, SumPart, UpdateTarget, Waiting, units
from abele.graph import Call, Copy, Function, Graph, Steps, Tensor, concat
from abele.machine import System
from abele.network.gradient_scale import GradientScale
from abele.network.ir.network import attribute_key
from abele.network.joined_copies import joined, joined_copies
from abele.network.locations import ON_CHIP, TensorLocation
from abele.network.optimisers import GRADIENT, PARAMETER, Lamb, Lars, Optimiser, Sgd, StateSlot, Terms
from abele.network.optimisers.base import SCALE
from abele.network.replicated_sharding import FlatState, ShardedGradient, Shards
from abele.numerics import ElementType, f32
from abele.poplibs import gcl, popnn, popops
from abele.poplibs.gcl import CommGroup
from abele.poplibs.popops import ReduceParams, SingleReduceOp
from abele.poplibs.popops.elementwise.map import map_with_outputs
from abele.poplibs.popops.expr import Cast, Expr
from abele.poplibs.popops.programs.side_by_side import zip_on_machine
from abele.poplibs.poputil.layout import clone


class GroupUpdate:
    """The device side of one optimiser.

    Args:
        graph: Graph of variables and vertices.
        optimiser: The rule.
        name: Prefix of its scalars.
        repeats: Updates built so far in the graph; equal parameters have equal updates.
        scale: Factor of gradients before updates see them.
        share: Further factor: −1 to climb, or the inverse number of addends to make a mean of a sum.
        location: Place of the optimiser's state.
        parts: Names of parameters of which a replica has a part, and the replicas that have all parts together.
        shared_functions: True if the machine is to have one copy of the updates of equal units.
        momenta: Names of parameters whose momentum has taken up the gradients.

    Attributes:
        hyper: A scalar for each hyper-parameter that may change; the host writes them.
        state: Tensors that persist from step to step whole on the chip, by name: scalars of the optimiser, and tensors
            of each parameter.
        flat: Tensors that persist elsewhere: shares of tensors, and tensors in streaming memory.
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
        *,
        parts: Mapping[str, CommGroup],
        shared_functions: bool = False,
        momenta: frozenset[str] = frozenset(),
    ) -> None:
        self.graph = graph
        self.optimiser = optimiser
        self.name = name
        self.repeats = repeats
        self.scale = scale
        self.share = share
        self.location = location
        self.parts = parts
        self.shared_functions = shared_functions
        self.momenta = momenta
        self._functions: dict[Hashable, tuple[Function, list[Waiting], list[UpdateTarget]]] = {}
        self.state: dict[str, Tensor] = {}
        self.flat: dict[str, FlatState] = {}
        self._units = count()
        self._waiting: list[Waiting] = []
        self._on_chip: list[UpdateTarget] = []
        numbers = optimiser.numbers
        mine = (optimiser.variable & numbers.keys()) - {"loss_scaling"}
        self._elsewhere: list[GroupUpdate] = []
        self.hyper = {key: self._scalar(key, numbers[key]) for key in sorted(mine)}
        self.scalars = {key: self._kept(key, slot) for key, slot in optimiser.scalars().items()}

    def on(self, graph: Graph) -> GroupUpdate:
        """The same optimiser for parameters on another IPU, which is sent the scalars at the begin of each step."""
        scale = self.scale.on(graph)
        other = type(self)(
            graph,
            self.optimiser,
            self.name,
            self.repeats,
            scale,
            share=self.share,
            location=self.location,
            parts=self.parts,
            shared_functions=self.shared_functions,
            momenta=self.momenta,
        )
        other.state, other.flat, other._units = self.state, self.flat, self._units
        self._elsewhere.append(other)
        return other

    def begin(self, prog: Steps) -> None:
        """Append steps before the updates of a step: scalars advance, and are sent to other IPUs."""
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
        self,
        parameter: Tensor,
        gradient: Tensor | ShardedGradient,
        prog: Steps,
        name: str,
        *,
        row: WeightRow | None = None,
        sums: SumPart | None = None,
    ) -> None:
        """Append the update of one parameter by :meth:`flush`, with others; at once where replicas have parts of it.

        Args:
            parameter: The parameter.
            gradient: Its gradient, or this replica's share of it.
            prog: Sequence that an update at once is appended to.
            name: Of the parameter.
            row: Place of the parameter in streaming memory, if it is there.
            sums: Place of its gradient in streaming memory, if it is there still.
        """
        slots = self.optimiser.slots()
        off_chip = bool(slots) and self.location.is_off_chip(parameter.size)
        if isinstance(gradient, ShardedGradient):
            self._waiting.append(
                Waiting(name, parameter, gradient.tensor, gradient.shards, off_chip, row=row, sums=sums)
            )
        elif off_chip or row is not None or sums is not None:
            self._waiting.append(Waiting(name, parameter, gradient, Shards.of(parameter), off_chip, row=row, sums=sums))
        else:
            made = {key: self._slot(parameter, f"{name}/{key}", slot) for key, slot in slots.items()}
            target = UpdateTarget(name, parameter, gradient, made)
            if name in self.parts:
                # Replicas exchange norms in the middle of it.
                self.update(target, prog)
            else:
                self._on_chip.append(target)

    def flush(self, prog: Steps) -> None:
        """Append the waiting updates: those with state on the chip side by side, others unit by unit."""
        targets, self._on_chip = self._on_chip, []
        for beside in _together(targets, self.graph.system):
            lanes = [Steps(name=target.name) for target in beside]
            for target, lane in zip(beside, lanes, strict=True):
                with self.graph.scope(f"update/{target.name}"):
                    self.update(target, lane)
            with self.graph.scope(self.name):
                prog.add(zip_on_machine(self.graph, lanes, "update") if len(lanes) > 1 else lanes[0])
        slots, waiting = self.optimiser.slots(), self._waiting
        self._waiting = []
        every = units(waiting, slots, self.graph.system)
        keys = [self._key(together) for together in every]
        for together, key in zip(every, keys, strict=True):
            name = f"{self.name}/state{next(self._units)}"
            with self.graph.scope(name):
                if key is not None and keys.count(key) > 1:
                    self._call(key, together, prog)
                    continue
                unit = StateUnit(self.graph, together, slots)
                remote = RemoteState(self.graph, together, unit.targets, slots, "buffer")
                remote.load(prog)
                self._in_unit(unit, prog)
                remote.store(prog)
            self.state |= unit.whole
            self.flat |= unit.flat | remote.flat

    def _in_unit(self, unit: StateUnit, prog: Steps) -> None:
        unit.share(prog)
        self.update_unit(unit.targets, prog)
        unit.gather(prog)

    def _key(self, waiting: Sequence[Waiting]) -> Hashable | None:
        """Key of units that may be calls of one function; None for one that stays where it is."""
        if not self.shared_functions or not all(
            one.off_chip and one.row is None and one.sums is None for one in waiting
        ):
            return None
        like = self.repeats.likeness([t for one in waiting for t in (one.parameter, one.gradient)])
        kinds = tuple((one.parameter.shape, one.shards, self.parts.get(one.name)) for one in waiting)
        return None if like is None else (like, kinds)

    def _call(self, key: Hashable, waiting: Sequence[Waiting], prog: Steps) -> None:
        """Append the updates of a unit as a call of the function that it shares with others."""
        slots = self.optimiser.slots()
        if key not in self._functions:
            formal = [
                replace(
                    one,
                    parameter=clone(self.graph, one.parameter, "parameter"),
                    gradient=clone(self.graph, one.gradient, "gradient"),
                )
                for one in waiting
            ]
            unit, steps = StateUnit(self.graph, formal, slots), Steps(name="update")
            self._in_unit(unit, steps)
            given, made = _arguments(formal, formal)
            function = self.graph.function(steps, "update", parameters=given, results=made)
            self._functions[key] = function, formal, unit.targets
        function, formal, targets = self._functions[key]
        remote = RemoteState(self.graph, waiting, targets, slots, "buffer")
        remote.load(prog)
        prog.add(Call(function, *_arguments(waiting, formal)))
        remote.store(prog)
        self.flat |= remote.flat

    def update_unit(self, targets: Sequence[UpdateTarget], prog: Steps) -> None:
        """Append the updates of several parameters."""
        for target in targets:
            self.update(target, prog)

    def update(self, target: UpdateTarget, prog: Steps) -> None:
        """Append the update of one parameter, and of its state, by its gradient."""
        self._emit(self.optimiser.update, _walked(target), prog, type(self.optimiser).__name__.lower())

    def end(self, prog: Steps) -> None:
        """Append steps after the updates of a step."""

    def rates_of_momentum(self, into: Mapping[str, Tensor], replicas: int, prog: Steps) -> None:
        """Append what computes the scalars by which momenta take up gradients."""
        assert isinstance(self.optimiser, Sgd)
        terms = self._terms({})
        exprs = self.optimiser.rates_of_momentum(terms, replicas)
        outputs = [into[name] for name in exprs]
        map_with_outputs(self.graph, list(exprs.values()), self._operands(terms, {}), outputs, prog, "momentum_rates")

    @property
    def factor(self) -> float:
        """The fixed number that gradients are multiplied by."""
        return self.scale.number * self.share

    @cached_property
    def _rule(self) -> tuple[object, ...]:
        """Everything that an update depends on besides its tensors."""
        scaled = self.scale.scalar is not None
        return ("update", self.name, attribute_key(self.optimiser), repr(self.factor), scaled)

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
        self.repeats.build((*self._rule, *what), list(operands), prog, make)

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

    def _slot(self, parameter: Tensor, name: str, slot: StateSlot) -> Tensor:
        """A tensor beside a parameter, laid out like it; it persists."""
        made = clone(self.graph, parameter, name, slot.dtype)
        self.graph.initialise(made, slot.initial)
        self.state[name] = made
        return made


class SgdUpdate(GroupUpdate):
    """Stochastic gradient descent: what needs no state has vertices of its own, and damping begins with step two."""

    optimiser: Sgd

    def take(
        self,
        parameter: Tensor,
        gradient: Tensor | ShardedGradient,
        prog: Steps,
        name: str,
        *,
        row: WeightRow | None = None,
        sums: SumPart | None = None,
    ) -> None:
        """Append the update of one parameter; a momentum that has taken up the gradients is the step."""
        if name not in self.momenta:
            super().take(parameter, gradient, prog, name, row=row, sums=sums)
            return
        assert isinstance(gradient, Tensor)
        self.state[f"{name}/momentum"] = gradient
        self._on_chip.append(UpdateTarget(name, parameter, gradient, {}))

    def update(self, target: UpdateTarget, prog: Steps) -> None:
        """Append the update of the parameter and its momentum."""
        if target.name in self.momenta:
            self._emit(self.optimiser.descend, _walked(target), prog, "descend")
            return
        o, parameter, gradient = self.optimiser, target.parameter, target.gradient
        decays = "weight_decay" in o.variable or o.weight_decay != 0
        is_plain = not (o.has_velocity or o.nesterov or decays or (o.dampens and o.dampens_all))
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


class NormedUpdate(GroupUpdate, ABC):
    """Base of rules whose rate for a parameter depends on its norm and on another one.

    Attributes:
        normed_square: Name in the rule for the square of the other norm.
    """

    normed_square: ClassVar[str]

    def update(self, target: UpdateTarget, prog: Steps) -> None:
        """Append the update of one parameter and its state."""
        normed = self._normed(target, prog)
        norms = self._squares(target.parameter, normed, prog, self.parts.get(target.name))
        self._descend(target, normed, norms, prog)

    def update_unit(self, targets: Sequence[UpdateTarget], prog: Steps) -> None:
        """Append the updates of several parameters; the norms of those that replicas share in one sum over them."""
        shared = [target for target in targets if target.is_share]
        for target in targets:
            if not target.is_share:
                self.update(target, prog)
        if not shared:
            return
        normed = [self._normed(target, prog) for target in shared]
        parts = [s for t, d in zip(shared, normed, strict=True) for s in self._squares(t.parameter, d, prog, None)]
        together = concat([part.reshape((1,)) for part in parts])
        norms = gcl.all_reduce_cross_replica(self.graph, together, "add", prog, name="norms_of_replicas")
        for n, (target, direction) in enumerate(zip(shared, normed, strict=True)):
            self._descend(target, direction, (norms[2 * n], norms[2 * n + 1]), prog)

    @abstractmethod
    def _normed(self, target: UpdateTarget, prog: Steps) -> Tensor:
        """Tensor with the other norm."""

    @abstractmethod
    def _trust(self, terms: Terms) -> Expr:
        """The rate, by the rule."""

    @abstractmethod
    def _descend(self, target: UpdateTarget, normed: Tensor, norms: tuple[Tensor, Tensor], prog: Steps) -> None:
        """Append the step itself."""

    def _squares(
        self, parameter: Tensor, normed: Tensor, prog: Steps, group: CommGroup | None
    ) -> tuple[Tensor, Tensor]:
        """The squared norms of both, in f32; ``group`` has the parts of a layer together."""

        def make() -> tuple[Tensor, ...]:
            wanted = [
                SingleReduceOp(t, tuple(range(t.ndim)), ReduceParams("SQUARE_ADD"), f32, "square")
                for t in (parameter, normed)
            ]
            return tuple(popops.reduce_many(self.graph, wanted, prog, name="norms"))

        weight, step = self.repeats.build((*self._rule, "norms"), [parameter, normed], prog, make)
        assert weight is not None
        assert step is not None
        if group is None:
            return weight, step
        both = concat([weight.reshape((1,)), step.reshape((1,))])
        total = gcl.all_reduce_cross_replica(self.graph, both, "add", prog, group, name="norms_of_parts")
        return total[0], total[1]

    def _rate(self, norms: tuple[Tensor, Tensor], prog: Steps) -> Tensor:
        """The learning rate times the trust ratio."""
        terms = self._terms({})
        expr = self._trust(terms)
        given = self._operands(terms, dict(zip(("weight_square", self.normed_square), norms, strict=True)))

        def make() -> tuple[Tensor]:
            return (popops.map(self.graph, expr, given, prog, name="trust"),)

        (rate,) = self.repeats.build((*self._rule, "trust"), given, prog, make)
        assert rate is not None
        return rate


class LarsUpdate(NormedUpdate):
    """LARS: the norms of parameter and gradient, then one pass."""

    optimiser: Lars
    normed_square = "gradient_square"

    def _normed(self, target: UpdateTarget, prog: Steps) -> Tensor:
        return target.gradient

    def _trust(self, terms: Terms) -> Expr:
        return self.optimiser.trust(terms)

    def _descend(self, target: UpdateTarget, normed: Tensor, norms: tuple[Tensor, Tensor], prog: Steps) -> None:
        tensors = {**_walked(target), "rate": self._rate(norms, prog)}
        self._emit(self.optimiser.descend, tensors, prog, "lars", scalars=("rate",))


class LambUpdate(NormedUpdate):
    """LAMB: a pass for direction and means, both norms side by side, and a pass for the parameter.

    The direction is written down in between. Computing it again from the means in the second pass would save its
    memory, but read three tensors and take a root and two quotients per element in place of reading one.
    """

    optimiser: Lamb
    normed_square = "direction_square"

    def _normed(self, target: UpdateTarget, prog: Steps) -> Tensor:
        direction = clone(self.graph, target.parameter, f"{target.name}/direction", f32)
        self._emit_direction(_walked(target), direction, prog)
        return direction

    def _trust(self, terms: Terms) -> Expr:
        return self.optimiser.trust(terms)

    def _descend(self, target: UpdateTarget, normed: Tensor, norms: tuple[Tensor, Tensor], prog: Steps) -> None:
        tensors = {PARAMETER: target.parameter, "direction": normed, "rate": self._rate(norms, prog)}
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


_BYTES_TOGETHER = 8192
"""Bytes of parameters and gradients per tile that are updated side by side. Chosen: an update may hold as much in
buffers, which is a hundredth of a tile, and takes some ten steps.
"""


def _together(targets: Sequence[UpdateTarget], system: System) -> Iterator[list[UpdateTarget]]:
    """Parameters that are updated side by side, in order; what their vertices read has room beside all else."""
    most = _BYTES_TOGETHER * system.num_tiles
    found, held = list[UpdateTarget](), 0
    for target in targets:
        size = target.parameter.bytes + target.gradient.bytes
        if found and held + size > most:
            yield found
            found, held = [], 0
        found.append(target)
        held += size
    if found:
        yield found


def _walked(target: UpdateTarget) -> dict[str, Tensor]:
    """The tensors of an update by the names that the rule has for them."""
    return {PARAMETER: target.parameter, GRADIENT: target.gradient, **target.slots}


def _arguments(waiting: Sequence[Waiting], beside: Sequence[Waiting]) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors read by a call and tensors left by it, joined by type in the memory order of ``beside``."""
    parameters = [(one.parameter, other.parameter) for one, other in zip(waiting, beside, strict=True)]
    gradients = [(one.gradient, other.gradient) for one, other in zip(waiting, beside, strict=True)]
    return joined([*parameters, *gradients]), joined(parameters)


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
    parts: Mapping[str, CommGroup] | None = None,
    shared_functions: bool = False,
    momenta: frozenset[str] = frozenset(),
) -> GroupUpdate:
    """The device side of an optimiser."""
    kinds: dict[type[Optimiser], type[GroupUpdate]] = {Sgd: SgdUpdate, Lamb: LambUpdate, Lars: LarsUpdate}
    # A rule that goes by no norms is a pass like that of others.
    is_plain = isinstance(optimiser, Lars) and not optimiser.layerwise
    kind = GroupUpdate if is_plain else kinds.get(type(optimiser), GroupUpdate)
    scale = scale or GradientScale(graph, ())
    repeats = repeats or Repeats(graph)
    return kind(
        graph,
        optimiser,
        name,
        repeats,
        scale,
        share=share,
        location=location,
        parts=parts or {},
        shared_functions=shared_functions,
        momenta=momenta,
    )
