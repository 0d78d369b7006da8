"""Lowering of optimisers: one fused update a parameter; numbers that may change are scalars on the device."""

from __future__ import annotations

from functools import singledispatchmethod

from abele.graph import Copy, Graph, Sequence, Tensor
from abele.numerics import ElementType, f32, i32
from abele.parallel.optimisers import Adam, Optimiser, Sgd
from abele.poplibs import popnn
from abele.poplibs.poputil.layout import clone


class GroupUpdate:
    """The device side of one optimiser.

    Attributes:
        optimiser: The rule.
        hyper: A scalar for each hyper-parameter that may change; the host writes them.
        state: Scalars and tensors that persist from step to step.
    """

    def __init__(self, graph: Graph, optimiser: Optimiser, name: str) -> None:
        self.graph = graph
        self.optimiser = optimiser
        self.name = name
        self.state: list[Tensor] = []
        numbers = optimiser.numbers
        self.hyper = {key: self._scalar(key, numbers[key]) for key in sorted(optimiser.variable & numbers.keys())}
        self._kept: dict[str, Tensor] = {}

    def _scalar(self, name: str, initial: float, dtype: ElementType = f32) -> Tensor:
        return self.graph.variable(dtype, (), name=f"{self.name}/{name}", initial=initial).map(0)

    def _keep(self, name: str, initial: float, dtype: ElementType = f32) -> Tensor:
        """A scalar that persists."""
        self._kept[name] = self._scalar(name, initial, dtype)
        self.state.append(self._kept[name])
        return self._kept[name]

    def _number(self, name: str) -> Tensor | float:
        """A hyper-parameter: its scalar, or the number that is compiled in."""
        return self.hyper.get(name, self.optimiser.numbers[name])

    def _is_used(self, name: str) -> bool:
        return name in self.hyper or self.optimiser.numbers[name] != 0

    def _slot(self, parameter: Tensor, name: str) -> Tensor:
        """A zeroed f32 tensor beside a parameter, laid out like it."""
        slot = clone(self.graph, parameter, f"{parameter.name}/{name}", f32)
        self.graph.initialise(slot, 0.0)
        self.state.append(slot)
        return slot

    # --- once a step ---------------------------------------------------------------------------------------------

    @singledispatchmethod
    def begin(self, optimiser: Optimiser, prog: Sequence) -> None:
        """Append what comes once before the updates of a step."""

    @begin.register
    def _(self, optimiser: Adam, prog: Sequence) -> None:
        if not optimiser.bias_correction:
            return
        step = self._keep("step", 0, i32)
        corrections = self._keep("correction1", 0.0), self._keep("correction2", 0.0)
        beta1, beta2 = self._number("beta1"), self._number("beta2")
        with self.graph.scope(self.name):
            popnn.adam_bias_correction(self.graph, step, *corrections, prog, beta1=beta1, beta2=beta2)

    @begin.register
    def _(self, optimiser: Sgd, prog: Sequence) -> None:
        if self._is_used("dampening"):
            # PyTorch starts the momentum with the whole first gradient: nothing is damped before the first step.
            self._keep("dampening_now", 0.0)

    @singledispatchmethod
    def end(self, optimiser: Optimiser, prog: Sequence) -> None:
        """Append what comes once after the updates of a step."""

    @end.register
    def _(self, optimiser: Sgd, prog: Sequence) -> None:
        if self._is_used("dampening"):
            value = self._number("dampening")
            source = value if isinstance(value, Tensor) else self.graph.constant(f32, (), value, f"{self.name}/damped")
            prog.add(Copy(source, self._kept["dampening_now"]))

    # --- once a parameter ----------------------------------------------------------------------------------------

    @singledispatchmethod
    def update(self, optimiser: Optimiser, parameter: Tensor, gradient: Tensor, prog: Sequence) -> None:
        """Append the update of one parameter by its gradient."""
        raise NotImplementedError(type(optimiser).__name__)

    @update.register
    def _(self, optimiser: Sgd, parameter: Tensor, gradient: Tensor, prog: Sequence) -> None:
        moves = self._is_used("momentum")
        popnn.sgd_update(
            self.graph,
            parameter,
            gradient,
            prog,
            lr=self._number("lr"),
            momentum=self._number("momentum"),
            velocity=self._slot(parameter, "momentum") if moves else None,
            dampening=self._kept.get("dampening_now", 0.0),
            weight_decay=self._number("weight_decay"),
            nesterov=optimiser.nesterov,
        )

    @update.register
    def _(self, optimiser: Adam, parameter: Tensor, gradient: Tensor, prog: Sequence) -> None:
        popnn.adam_update(
            self.graph,
            parameter,
            gradient,
            self._slot(parameter, "moment1"),
            self._slot(parameter, "moment2"),
            prog,
            lr=self._number("lr"),
            beta1=self._number("beta1"),
            beta2=self._number("beta2"),
            eps=self._number("eps"),
            weight_decay=self._number("weight_decay"),
            decoupled=optimiser.decoupled,
            correction1=self._kept.get("correction1", 1.0),
            correction2=self._kept.get("correction2", 1.0),
        )
