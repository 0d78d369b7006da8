"""``changes_to_fit``: what would make a PyTorch model fit as it is, without spreading it over more IPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from abele.errors import InvalidOptionError
from abele.frontends.poptorch.capture.capture import check_initialised, half_arguments, half_model
from abele.frontends.poptorch.fitting.fit import batch_of, recorded, resized
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.training.rules import check_parameters, groups_of
from abele.machine import System, systems
from abele.network import OutputMode, Schedule
from abele.report import Report
from abele.session import changes_to_fit as changes_of_network
from abele.session.remedies import NetworkCase

Progress = Callable[[str, float], None]


def changes_to_fit(
    model: torch.nn.Module,
    example_inputs: Any,
    *,
    system: System | str = "bow-2000",
    optimizer: torch.optim.Optimizer | None = None,
    micro_batch: int | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Report:
    """Report of a model on one IPU of each replica, with the changes that make it fit there, found by compiling it so.

    Args:
        model: The model. Its weights need no meaning.
        example_inputs: Arguments of one micro-batch, as :func:`fit` takes them.
        system: The machine: a preset's name, a file, or a System.
        optimizer: Optimiser that trains the model; None to run it forward alone.
        micro_batch: Samples of a micro-batch; None for those of the example, or 1 where a function makes them.
        options: Further options: replicas, accumulation, precision.
        progress: Called with each stage of each compilation, and the part of it that is done.

    Returns:
        The report; ``fit_changes`` has the changes, also after it is saved.

    Raises:
        InvalidOptionError: A micro-batch that is no positive number.
        AbeleError: As of recording the model.
    """
    if micro_batch is not None and micro_batch < 1:
        raise InvalidOptionError(f"changes_to_fit: micro_batch takes a positive whole number, got {micro_batch!r}")
    check_initialised(model)
    if optimizer is not None:
        check_parameters(optimizer, model)
    made, training = options or Options(), optimizer is not None
    own = 1 if callable(example_inputs) else batch_of(example_inputs)
    size = micro_batch or own
    settings = replace(made.settings(type(model).__name__), system=systems.resolve(system))
    count = made.Training.gradient_accumulation if training else made.device_iterations

    def example(samples: int) -> Any:
        return example_inputs(samples) if callable(example_inputs) else resized(example_inputs, samples)

    def schedule(parts: int) -> Schedule:
        usual = Schedule(replicas=made.replication_factor, io_tiles=made.io_tiles)
        if training:
            return replace(usual, accumulation=parts * count, outputs=OutputMode.FINAL)
        return replace(usual, device_iterations=parts * count)

    whole = recorded(model, example(size), training=training)

    def smaller(parts: int) -> NetworkCase | None:
        if size % parts:
            return None
        cut = recorded(model, example(size // parts), training=training)
        return NetworkCase(cut.net, schedule(parts), groups_of(cut, optimizer), settings)

    def halved() -> NetworkCase:
        half = recorded(half_model(model), half_arguments(example(size)), training=training)
        # The copy's parameters stand for those that the optimiser holds.
        groups = groups_of(replace(half, weights=whole.weights), optimizer)
        return NetworkCase(half.net, schedule(1), groups, settings)

    return changes_of_network(
        whole.net,
        schedule(1),
        groups=groups_of(whole, optimizer),
        settings=settings,
        smaller=smaller,
        halved=halved,
        progress=progress,
    )
