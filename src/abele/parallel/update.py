"""Lowering of optimisers: one fused update a parameter, with the numbers that may change on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import singledispatchmethod

from abele.graph import Graph, Sequence, Tensor
from abele.numerics import f32
from abele.parallel.optimisers import Adam, Optimiser, Sgd
from abele.poplibs import popops
from abele.poplibs.popops.expr import Const, Expr, Op, PlaceHolder
from abele.poplibs.poputil.layout import clone


class GroupUpdate:
    """The device side of one optimiser: its variable hyper-parameters, and the state of its parameters.

    Attributes:
        hyper: A scalar for each variable hyper-parameter; the host writes them.
        state: Scalars and slots that persist from step to step.
    """

    def __init__(self, graph: Graph, optimiser: Optimiser, name: str) -> None:
        self.graph = graph
        self.optimiser = optimiser
        self.name = name
        numbers = optimiser.numbers
        self.hyper = {key: self._scalar(key, numbers[key]) for key in sorted(optimiser.variable & numbers.keys())}
        self.state: list[Tensor] = []
        self.scalars = dict(self.hyper)
        self._declare(optimiser)

    def _scalar(self, name: str, initial: float) -> Tensor:
        return self.graph.variable(f32, (), name=f"{self.name}/{name}", initial=initial).map(0)

    def _persistent(self, name: str, initial: float) -> None:
        self.scalars[name] = self._scalar(name, initial)
        self.state.append(self.scalars[name])

    # --- once a step ---------------------------------------------------------------------------------------------

    @singledispatchmethod
    def _declare(self, optimiser: Optimiser) -> None:
        """Make the scalars that the rule keeps."""

    @_declare.register
    def _(self, optimiser: Adam) -> None:
        # correction = 1 − betaᵗ by the recurrence c ← beta·c + (1 − beta), which keeps its relative precision.
        for name in ("correction1", "correction2") if optimiser.bias_correction else ():
            self._persistent(name, 0.0)
        if optimiser.bias_correction:
            self.scalars |= {name: self._scalar(name, 0.0) for name in ("step_size", "root_scale")}

    @_declare.register
    def _(self, optimiser: Sgd) -> None:
        if optimiser.dampening:
            # PyTorch starts the momentum with the whole first gradient.
            self._persistent("undamped", 1.0)

    @singledispatchmethod
    def begin(self, optimiser: Optimiser, prog: Sequence) -> None:
        """Append what comes once before the updates of a step."""

    @begin.register
    def _(self, optimiser: Adam, prog: Sequence) -> None:
        if not optimiser.bias_correction:
            return

        def exprs(n: _Numbers) -> list[Expr]:
            first = n["beta1"] * n["correction1"] + (1 - n["beta1"])
            second = n["beta2"] * n["correction2"] + (1 - n["beta2"])
            return [first, second, n["lr"] / first, Op("rsqrt", second)]

        names = ("correction1", "correction2", "step_size", "root_scale")
        self._map([], [self.scalars[n] for n in names], exprs, prog, "bias_correction")

    @singledispatchmethod
    def end(self, optimiser: Optimiser, prog: Sequence) -> None:
        """Append what comes once after the updates of a step."""

    @end.register
    def _(self, optimiser: Sgd, prog: Sequence) -> None:
        if optimiser.dampening:
            self._map(
                [], [self.scalars["undamped"]], lambda n: [1 - n["dampening"] + 0 * n["undamped"]], prog, "dampen"
            )

    # --- once a parameter ----------------------------------------------------------------------------------------

    @singledispatchmethod
    def update(self, optimiser: Optimiser, parameter: Tensor, grad: Tensor, scale: float, prog: Sequence) -> None:
        """Append the update of one parameter by its gradient times ``scale``."""
        raise NotImplementedError(type(optimiser).__name__)

    @update.register
    def _(self, optimiser: Sgd, parameter: Tensor, grad: Tensor, scale: float, prog: Sequence) -> None:
        keeps = "momentum" in optimiser.variable or optimiser.momentum != 0
        slots = self._slots(parameter, ("momentum",) if keeps else ())

        def exprs(n: _Numbers) -> list[Expr]:
            gradient = self._gradient(n, n[0], n[1], scale)
            if not keeps:
                return [n[0] - n["lr"] * gradient]
            fresh = n["undamped"] * gradient if optimiser.dampening else gradient
            momentum = n["momentum"] * n[2] + fresh
            step = gradient + n["momentum"] * momentum if optimiser.nesterov else momentum
            return [n[0] - n["lr"] * step, momentum]

        self._map([parameter, grad, *slots], [parameter, *slots], exprs, prog, "sgd")

    @update.register
    def _(self, optimiser: Adam, parameter: Tensor, grad: Tensor, scale: float, prog: Sequence) -> None:
        slots = self._slots(parameter, optimiser.slots)

        def exprs(n: _Numbers) -> list[Expr]:
            gradient = n[1] * scale if optimiser.decoupled else self._gradient(n, n[0], n[1], scale)
            gradient = -gradient if optimiser.decoupled and optimiser.maximize else gradient
            first = n["beta1"] * n[2] + (1 - n["beta1"]) * gradient
            second = n["beta2"] * n[3] + (1 - n["beta2"]) * Op("square", gradient)
            root = Op("sqrt", second)
            if optimiser.bias_correction:
                step = n["step_size"] * first / (root * n["root_scale"] + n["eps"])
            else:
                step = n["lr"] * first / (root + n["eps"])
            decays = optimiser.decoupled and self._is_used("weight_decay")
            kept = n[0] * (1 - n["lr"] * n["weight_decay"]) if decays else n[0]
            return [kept - step, first, second]

        self._map([parameter, grad, *slots], [parameter, *slots], exprs, prog, "adam")

    def _is_used(self, name: str) -> bool:
        return name in self.optimiser.variable or self.optimiser.numbers[name] != 0

    def _gradient(self, n: _Numbers, parameter: Expr, grad: Expr, scale: float) -> Expr:
        """The gradient as the rule sees it: scaled, turned for maximising, with the decay of the weights."""
        signed = -scale if getattr(self.optimiser, "maximize", False) else scale
        scaled = grad if signed == 1 else grad * signed
        return scaled + n["weight_decay"] * parameter if self._is_used("weight_decay") else scaled

    def _slots(self, parameter: Tensor, names: tuple[str, ...]) -> list[Tensor]:
        slots = [clone(self.graph, parameter, f"{parameter.name}/{name}", f32) for name in names]
        for slot in slots:
            self.graph.initialise(slot, 0.0)
        self.state += slots
        return slots

    def _map(
        self,
        tensors: list[Tensor],
        outputs: list[Tensor],
        exprs: Callable[[_Numbers], list[Expr]],
        prog: Sequence,
        name: str,
    ) -> None:
        numbers = _Numbers(self.optimiser.numbers, self.scalars, tensors)
        made = exprs(numbers)
        popops.map_with_outputs(self.graph, made, numbers.operands, outputs, prog, name=name)


class _Numbers:
    """Names of an update's expression: tensors by position, hyper-parameters by name.

    A hyper-parameter is a placeholder of its scalar where it has one, and a plain number otherwise.
    """

    def __init__(self, constants: Mapping[str, float], scalars: Mapping[str, Tensor], tensors: list[Tensor]) -> None:
        self.operands = list(tensors)
        self._constants = constants
        self._scalars = scalars
        self._place: dict[str, PlaceHolder] = {}

    def __getitem__(self, key: str | int) -> Expr:
        if isinstance(key, int):
            return PlaceHolder(key + 1)
        if key not in self._scalars:
            return self._constant(key)
        if key not in self._place:
            self.operands.append(self._scalars[key])
            self._place[key] = PlaceHolder(len(self.operands))
        return self._place[key]

    def _constant(self, key: str) -> Expr:
        return Const(self._constants[key])
