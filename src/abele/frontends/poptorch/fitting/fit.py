"""``fit``: the smallest machine that holds a PyTorch model, and the fastest way to spread it over a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from abele.errors import InvalidOptionError
from abele.fitting import (
    FitSpace,
    Fitted,
    Miss,
    Model,
    Ranked,
    Spreading,
    fit_network,
    fitted_card,
    fitted_dict,
    fitted_text,
)
from abele.frontends.poptorch.capture import CapturedModel, capture
from abele.frontends.poptorch.capture.capture import check_initialised
from abele.frontends.poptorch.errors import ArgumentError
from abele.frontends.poptorch.fitting import examples
from abele.frontends.poptorch.fitting.code import plan_code
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.training.rules import check_parameters, read_optimiser
from abele.machine import System, systems
from abele.network import Group

Progress = Callable[[str, float], None]
LARGEST = 6
"""Largest number of times that the example's batch is doubled or halved."""


@dataclass(frozen=True)
class Fit:
    """Best ways to spread a model over a machine; ``print`` shows them.

    Attributes:
        fitted: The plans found.
        model: The model.
    """

    fitted: Fitted
    model: torch.nn.Module

    @property
    def ranking(self) -> tuple[Ranked, ...]:
        """Plans that fit, the fastest first, each with its estimate and the reason why it is not the best."""
        return self.fitted.ranking

    @property
    def best(self) -> Ranked:
        """The fastest plan."""
        return self.fitted.best

    @property
    def misses(self) -> tuple[Miss, ...]:
        """Plans that do not fit, with the largest lack of a stage."""
        return self.fitted.misses

    @property
    def smallest(self) -> int:
        """IPUs of the smallest machine that holds the model."""
        return self.fitted.smallest

    def code(self, ranked: Ranked | Spreading | None = None) -> str:
        """A plan, by default the best, as PopTorch code: blocks and options for ``model``."""
        plan = ranked.plan if isinstance(ranked, Ranked) else ranked or self.best.plan
        return plan_code(self.fitted, plan, self.model, self._first(plan))

    def _first(self, plan: Spreading) -> str:
        """The outermost submodule that the model begins with; empty where it begins with a call of its own."""
        ops = self.fitted.chains[plan.micro_batch].net.ops
        path = next((op.debug.path for op in ops if op.kind != "constant"), "")
        names = path.split("/") if path else []
        starts = self.fitted.space.starts or frozenset()
        paths = ("/".join(names[: n + 1]) for n in range(len(names)))
        return next((p for p in paths if p in starts), "")

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {**fitted_dict(self.fitted), "code": self.code()}

    def __str__(self) -> str:
        return f"{fitted_text(self.fitted)}\n\n{self.code()}"

    def _repr_html_(self) -> str:
        return fitted_card(self.fitted)


def fit(
    model: torch.nn.Module,
    example_inputs: Any,
    *,
    system: System | str = "pod16",
    batch: int | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    micro_batches: Sequence[int] | None = None,
    options: Options | None = None,
    check: int = 1,
    progress: Progress | None = None,
) -> Fit:
    """Find the smallest machine that holds a model and the fastest way to spread it over a machine; nothing runs.

    Args:
        model: The model. Its weights need no meaning.
        example_inputs: Arguments of one micro-batch: a tensor, a tuple, a mapping of keyword arguments; or a function
            that gives them for a number of samples.
        system: The machine: a preset's name, a file, or a System; ``pod16`` is ``bow-pod16``.
        batch: Samples of one update; None for as many as make the rest of an update hardly count.
        optimizer: Optimiser that trains the model; None to run it forward alone.
        micro_batches: Sizes to try; by default the example's, doubled while it pays, or halved until it fits.
        options: Further options of the model, such as its precision.
        check: Number of the fastest plans that are compiled as a whole, to set figures side by side.
        progress: Called with what is done and the part of it that is.

    Raises:
        FittingError: Nothing fits, nothing can be cut, or no division of the batch is left.
        MachineError: An unknown system.
        Error: The model cannot be recorded.
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f"fit takes a torch.nn.Module, got {model!r}")
    _check_counts(batch, micro_batches, check)
    check_initialised(model)
    if optimizer is not None:
        check_parameters(optimizer, model)
    make = example_inputs if callable(example_inputs) else lambda size: examples.resized(example_inputs, size)
    own = 1 if callable(example_inputs) else examples.batch_of(example_inputs)
    sizes = tuple(dict.fromkeys(micro_batches)) if micro_batches is not None else _sizes(own, batch)
    space = FitSpace(
        system=fitting_system(system),
        batch=batch,
        micro_batches=sizes,
        first=None if micro_batches is not None else own,
        settings=replace((options or Options()).settings(type(model).__name__), cache=None),
        starts=frozenset(_starts(model)),
    )

    def model_of(size: int) -> Model:
        with _mode(model, training=optimizer is not None):
            args, kwargs = examples.arguments(make(size))
            captured = capture(model, args, kwargs, training=optimizer is not None)
        return Model(captured.net, None if optimizer is None else tuple(_groups(captured, optimizer)))

    return Fit(fit_network(model_of, space, check=check, progress=progress), model)


def fitting_system(system: System | str) -> System:
    """A machine by name, in which ``pod16`` stands for ``bow-pod16``.

    Raises:
        MachineError: There is no such machine.
    """
    if isinstance(system, str) and system not in systems.names() and f"bow-{system}" in systems.names():
        system = f"bow-{system}"
    return systems.resolve(system)


def _check_counts(batch: int | None, micro_batches: Sequence[int] | None, check: int) -> None:
    counts = [("batch", batch)] if batch is not None else []
    counts += [("micro_batches", size) for size in micro_batches or ()]
    for name, count in counts:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidOptionError(f"fit: {name} takes positive whole numbers, got {count!r}")
    if micro_batches is not None and not micro_batches:
        raise InvalidOptionError("fit: micro_batches is empty", remedy="leave it out, or name a size")
    if isinstance(check, bool) or not isinstance(check, int) or check < 0:
        raise InvalidOptionError(f"fit: check is a number of plans, got {check!r}")


def _sizes(own: int, batch: int | None) -> tuple[int, ...]:
    """The example's batch with its halves and doubles, those that divide a fixed batch."""
    halves = [own >> n for n in range(1, LARGEST + 1) if own % (1 << n) == 0]
    found = [*reversed(halves), own, *(own << n for n in range(1, LARGEST + 1))]
    return tuple(size for size in found if batch is None or batch % size == 0) or (own,)


def _starts(model: torch.nn.Module) -> Iterator[str]:
    """Module paths of submodules that are called: lists of modules are not."""
    plain = torch.nn.Module().forward.__func__  # type: ignore[attr-defined]
    for name, module in model.named_modules():
        if name and getattr(type(module), "forward", plain) is not plain:
            yield name.replace(".", "/")


@contextmanager
def _mode(model: torch.nn.Module, *, training: bool) -> Iterator[None]:
    """The model in the mode that it is recorded in."""
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)


def _groups(captured: CapturedModel, optimizer: torch.optim.Optimizer) -> list[Group]:
    weights = {value: captured.weights[value.name] for value in captured.net.parameters}
    trained = {id(tensor): value for value, tensor in weights.items() if tensor.requires_grad}
    return read_optimiser(optimizer, trained)
