"""Steps of a ``LightningModule`` as models: logged and measured values come back with their outputs.

While a step is recorded, ``self.log`` and metrics of torchmetrics only note what they are given. After each run the
same calls are made with the values that came back, as if the step had run on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from abele.errors import InvalidOptionError
from abele.frontends import poptorch
from abele.frontends.poptorch import logs
from abele.frontends.poptorch.values import structures

_REDUCTIONS: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": torch.sum,
    "max": torch.max,
    "min": torch.min,
    torch.sum: torch.sum,
    torch.max: torch.max,
    torch.min: torch.min,
    sum: torch.sum,
    max: torch.max,
    min: torch.min,
}
"""Reductions of the values of several micro-batches, by ``reduce_fx``; any other takes their mean."""


class BatchIndex(int):
    """The number of a batch in a step that is recorded once: 0, and a warning if the step computes with it."""

    step = "a step"
    __hash__ = int.__hash__


def _looking(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def look(self: BatchIndex, *args: Any) -> Any:
        logs.warn(
            f"{self.step} looked at batch_idx, which is 0 while it is recorded: what follows from it is the same for "
            "all batches. Hooks such as on_train_batch_end run for each batch, with its number."
        )
        return plain(self, *args)

    return look


for _name in (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__mod__", "__floordiv__", "__truediv__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__float__", "__index__", "__pow__"),
):
    setattr(BatchIndex, _name, _looking(_name))


class MetricValue:
    """The value of a metric that is computed on the host once the step has run; it can be logged."""

    def __init__(self) -> None:
        self.value: Any = None

    def __getattr__(self, name: str) -> Any:
        raise InvalidOptionError(
            f"the step uses .{name} of a metric's value, which is computed on the host after it",
            remedy="give the value to self.log as it is",
        )


class RecordedStep(torch.nn.Module):
    """One of a module's steps; ``forward`` gives its output, and the tensors that it logs and measures.

    Args:
        module: The user's module.
        name: Its method, such as ``training_step``.
        indices: Arguments of the method after the batch: the number of the batch, and that of the loader.
    """

    def __init__(self, module: Any, name: str, indices: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.module, self._name, self._indices = module, name, indices
        self._notes: list[Callable[[Any], None]] = []

    def forward(self, batch: Any) -> Any:
        """Output of the step, and the tensors of its notes in order."""
        notes = _Notes(self.module)
        with notes.taken():
            output = getattr(self.module, self._name)(batch, *self._given())
        self._notes = notes.replays
        if self._name == "training_step":
            output = _marked(output)
        return output, notes.values

    def _given(self) -> tuple[int, ...]:
        """Arguments of the method after the batch."""
        if not self._indices:
            return ()
        index = BatchIndex(0)
        index.step = self._name
        return index, *self._indices[1:]

    def results(self, returned: Any) -> Any:
        """The step's output, once the notes of the run were logged and measured."""
        output, values = returned
        for replay, value in zip(self._notes, values, strict=True):
            replay(value)
        if self._name != "training_step":
            return output
        if isinstance(output, Mapping):
            return {**output, "loss": output["loss"].mean()}
        return output.mean()


def _marked(output: Any) -> Any:
    """The output of a training step with its loss marked as the one to differentiate."""
    loss = output.get("loss") if isinstance(output, Mapping) else output
    if not isinstance(loss, torch.Tensor):
        raise InvalidOptionError(
            f"training_step returned {output!r}, which has no loss",
            because="the step is recorded once, and runs as it was recorded",
            remedy="return the loss, or a dictionary with 'loss'",
        )
    loss = poptorch.identity_loss(loss, "mean" if loss.dim() else "none")
    return {**output, "loss": loss} if isinstance(output, Mapping) else loss


class _Notes:
    """Calls of ``log`` and of metrics while a step is recorded.

    Attributes:
        values: The tensors of each call, as trees.
        replays: The same call on the host, with the tensors that a run gave.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self.values: list[Any] = []
        self.replays: list[Callable[[Any], None]] = []

    @contextmanager
    def taken(self) -> Iterator[None]:
        """``log`` and metrics take notes inside."""
        stand_ins = [(self._module, "log", self._log), (self._module, "log_dict", self._log_dict)]
        for metric in _metrics(self._module):
            stand_ins += [(metric, "forward", self._measure(metric)), (metric, "update", self._update(metric))]
        kept = [(owner, name, vars(owner).get(name)) for owner, name, _ in stand_ins]
        for owner, name, method in stand_ins:
            vars(owner)[name] = method
        try:
            yield
        finally:
            for owner, name, method in kept:
                if method is None:
                    del vars(owner)[name]
                else:
                    vars(owner)[name] = method

    def _note(self, tree: Any, replay: Callable[[Any], None]) -> None:
        tensors = [leaf for leaf in structures.leaves(tree) if isinstance(leaf, torch.Tensor)]

        def put_back(given: Any) -> None:
            found = iter(given)
            replay(structures.map_tensors(lambda _: next(found), tree))

        self.values.append(tensors)
        self.replays.append(put_back)

    def _log(self, name: str, value: Any, *args: Any, **kwargs: Any) -> None:
        reduce = _REDUCTIONS.get(kwargs.get("reduce_fx", "mean"), torch.mean)

        def replay(given: Any) -> None:
            if isinstance(given, MetricValue):
                given = given.value
            given = structures.map_tensors(lambda t: reduce(t.float() if t.dtype == torch.bool else t), _floats(given))
            self._module.log(name, given, *args, **kwargs)

        self._note(value, replay)

    def _log_dict(self, dictionary: Any, *args: Any, **kwargs: Any) -> None:
        if _is_metric(dictionary):
            self._note((), lambda _: self._module.log_dict(dictionary, *args, **kwargs))
            return
        if isinstance(dictionary, MetricValue):
            self._note((), lambda _: self._module.log_dict(dictionary.value, *args, **kwargs))
            return
        for name, value in dictionary.items():
            self._log(name, value, *args, **kwargs)

    def _measure(self, metric: Any) -> Callable[..., MetricValue]:
        def measure(*args: Any, **kwargs: Any) -> MetricValue:
            made = MetricValue()

            def replay(given: Any) -> None:
                made.value = metric(*given[0], **given[1])

            self._note((args, kwargs), replay)
            return made

        return measure

    def _update(self, metric: Any) -> Callable[..., None]:
        def update(*args: Any, **kwargs: Any) -> None:
            self._note((args, kwargs), lambda given: metric.update(*given[0], **given[1]))

        return update


def _floats(tree: Any) -> Any:
    """The tree with integers of several micro-batches as floats, which have a mean."""
    return structures.map_tensors(lambda t: t.float() if t.numel() > 1 and not t.is_floating_point() else t, tree)


def _is_metric(value: Any) -> bool:
    from torchmetrics import Metric, MetricCollection

    return isinstance(value, (Metric, MetricCollection))


def _metrics(module: torch.nn.Module) -> list[Any]:
    """Metrics of a module; of a collection the whole, which calls those in it."""
    found: list[Any] = []
    inner: set[int] = set()
    for part in module.modules():
        if _is_metric(part) and id(part) not in inner:
            found.append(part)
            inner |= {id(p) for p in part.modules()}
    return found
