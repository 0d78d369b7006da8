"""Lowering of optimisers: one fused update per parameter; numbers that may change are scalars on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from abele.graph import Copy, Graph, Sequence, Tensor
from abele.numerics import ElementType, f32, i32
from abele.parallel.optimisers import Adam, Optimiser, Sgd
from abele.parallel.repeats import Repeats
from abele.poplibs import popnn
from abele.poplibs.poputil.layout import clone


class GroupUpdate:
    """The device side of one optimiser.

    Attributes:
        graph: Where variables and vertices are made.
        optimiser: The rule.
        repeats: What was built so far in the graph; equal parameters have equal updates.
        name: Prefix of its scalars.
        hyper: A scalar for each hyper-parameter that may change; the host writes them.
        state: What persists from step to step, by name: scalars of the optimiser, and tensors of each parameter.
    """

    def __init__(self, graph: Graph, optimiser: Optimiser, name: str, repeats: Repeats) -> None:
        self.graph = graph
        self.optimiser = optimiser
        self.name = name
        self.repeats = repeats
        self.state: dict[str, Tensor] = {}
        numbers = optimiser.numbers
        self.hyper = {key: self._scalar(key, numbers[key]) for key in sorted(optimiser.variable & numbers.keys())}

    def begin(self, prog: Sequence) -> None:
        """Append what comes once before the updates of a step."""

    def update(self, parameter: Tensor, gradient: Tensor, prog: Sequence) -> None:
        """Append the update of one parameter by its gradient."""
        raise NotImplementedError

    def end(self, prog: Sequence) -> None:
        """Append what comes once after the updates of a step."""

    def _scalar(self, name: str, initial: float, dtype: ElementType = f32) -> Tensor:
        return self.graph.variable(dtype, (), name=f"{self.name}/{name}", initial=initial).map(0)

    def _keep(self, name: str, initial: float, dtype: ElementType = f32) -> Tensor:
        """A scalar that persists."""
        made = self.state[f"{self.name}/{name}"] = self._scalar(name, initial, dtype)
        return made

    def _slot(self, parameter: Tensor, name: str) -> Tensor:
        """A zeroed f32 tensor beside a parameter, laid out like it; it persists."""
        slot = clone(self.graph, parameter, f"{parameter.name}/{name}", f32)
        self.graph.initialise(slot, 0.0)
        self.state[f"{parameter.name}/{name}"] = slot
        return slot

    def _build(self, operands: Iterable[Tensor | float | None], prog: Sequence, make: Callable[[], tuple[()]]) -> None:
        """Append an update, which depends on the optimiser and these alone."""
        given = tuple(operands)
        numbers = tuple(None if isinstance(o, Tensor) else o for o in given)
        tensors = [o if isinstance(o, Tensor) else None for o in given]
        self.repeats.build(("update", self.name, numbers), tensors, prog, make)

    def _number(self, name: str) -> Tensor | float:
        """A hyper-parameter: its scalar, or the number that is compiled in."""
        return self.hyper.get(name, self.optimiser.numbers[name])

    def _is_used(self, name: str) -> bool:
        return name in self.hyper or self.optimiser.numbers[name] != 0


class SgdUpdate(GroupUpdate):
    """Stochastic gradient descent."""

    def __init__(self, graph: Graph, optimiser: Sgd, name: str, repeats: Repeats) -> None:
        super().__init__(graph, optimiser, name, repeats)
        self.nesterov = optimiser.nesterov
        # The momentum starts with the whole first gradient: nothing is damped before the first step.
        self.dampening = self._keep("dampening_now", 0.0) if self._is_used("dampening") else None

    def update(self, parameter: Tensor, gradient: Tensor, prog: Sequence) -> None:
        """Append the update of the parameter and its momentum."""
        lr, momentum, weight_decay = map(self._number, ("lr", "momentum", "weight_decay"))
        velocity = self._slot(parameter, "momentum") if self._is_used("momentum") else None
        dampening = 0.0 if self.dampening is None else self.dampening

        def make() -> tuple[()]:
            popnn.sgd_update(
                self.graph,
                parameter,
                gradient,
                prog,
                lr=lr,
                momentum=momentum,
                velocity=velocity,
                dampening=dampening,
                weight_decay=weight_decay,
                nesterov=self.nesterov,
            )
            return ()

        self._build((parameter, gradient, lr, momentum, velocity, dampening, weight_decay), prog, make)

    def end(self, prog: Sequence) -> None:
        """Damp from the second step on."""
        if self.dampening is not None:
            value = self._number("dampening")
            source = value if isinstance(value, Tensor) else self.graph.constant(f32, (), value, f"{self.name}/damped")
            prog.add(Copy(source, self.dampening, name="damp"))


class AdamUpdate(GroupUpdate):
    """Adam and AdamW."""

    def __init__(self, graph: Graph, optimiser: Adam, name: str, repeats: Repeats) -> None:
        super().__init__(graph, optimiser, name, repeats)
        self.decoupled = optimiser.decoupled
        self.step = self._keep("step", 0, i32) if optimiser.bias_correction else None
        names = ("correction1", "correction2") if optimiser.bias_correction else ()
        self.corrections = tuple(self._keep(n, 0.0) for n in names)

    def begin(self, prog: Sequence) -> None:
        """Advance the corrections of the moments' bias."""
        if self.step is None:
            return
        first, second = self.corrections
        beta1, beta2 = self._number("beta1"), self._number("beta2")
        with self.graph.scope(self.name):
            popnn.adam_bias_correction(self.graph, self.step, first, second, prog, beta1=beta1, beta2=beta2)

    def update(self, parameter: Tensor, gradient: Tensor, prog: Sequence) -> None:
        """Append the update of the parameter and both moments."""
        first, second = self.corrections or (1.0, 1.0)
        moment1, moment2 = self._slot(parameter, "moment1"), self._slot(parameter, "moment2")
        lr, beta1, beta2, eps, weight_decay = map(self._number, ("lr", "beta1", "beta2", "eps", "weight_decay"))

        def make() -> tuple[()]:
            popnn.adam_update(
                self.graph,
                parameter,
                gradient,
                moment1,
                moment2,
                prog,
                lr=lr,
                beta1=beta1,
                beta2=beta2,
                eps=eps,
                weight_decay=weight_decay,
                decoupled=self.decoupled,
                correction1=first,
                correction2=second,
            )
            return ()

        operands = (parameter, gradient, moment1, moment2, lr, beta1, beta2, eps, weight_decay, first, second)
        self._build(operands, prog, make)


def group_update(graph: Graph, optimiser: Optimiser, name: str, repeats: Repeats | None = None) -> GroupUpdate:
    """The device side of an optimiser."""
    built = repeats or Repeats(graph)
    match optimiser:
        case Sgd():
            return SgdUpdate(graph, optimiser, name, built)
        case Adam():
            return AdamUpdate(graph, optimiser, name, built)
    raise TypeError(f"{type(optimiser).__name__} has no update")
