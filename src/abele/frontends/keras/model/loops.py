"""``fit``, ``evaluate`` and ``predict``: the loops on the host, one execution of the device after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import jax
import numpy as np

from abele.errors import InvalidOptionError
from abele.frontends.keras import private
from abele.frontends.keras.ipu.enums import ReplicatedMetricReductionMethod as MetricReduction
from abele.frontends.keras.model.data import Batches, Steps
from abele.frontends.keras.model.programs import StepProgram, accumulation_of, replicas_of
from abele.frontends.keras.model.scopes import tracing
from abele.frontends.keras.model.state import state_of


def callback_list(callbacks: Any, model: Any, *, verbose: Any, epochs: int, steps: int, history: bool) -> Any:
    """Keras' list of callbacks, from what the user gave."""
    if isinstance(callbacks, private.CallbackList):
        return callbacks
    return private.CallbackList(
        callbacks,
        add_history=history,
        add_progbar=verbose != 0,
        verbose=verbose,
        epochs=epochs,
        steps=steps,
        model=model,
    )


def executions(batches: Iterator[Any], steps: Steps) -> Iterator[tuple[int, list[Any]]]:
    """First step of each execution of an epoch, and its batches.

    Raises:
        InvalidOptionError: The data ends before the epoch does.
    """
    for first in range(0, steps.epoch, steps.execution):
        wanted = steps.execution * steps.replicas
        group = list(islice(batches, wanted))
        if len(group) < wanted:
            raise InvalidOptionError(
                f"the data ended after {first * steps.replicas + len(group)} of {steps.epoch * steps.replicas} batches",
                because="a program that was begun is given all of its batches",
                remedy="repeat() the dataset, or fewer steps",
            )
        yield first, group


def reduced(logs: list[dict[str, Any]], method: MetricReduction) -> dict[str, Any]:
    """Logs for the host, of those of all replicas."""
    if method is MetricReduction.NONE or len(logs) == 1:
        return logs[-1]
    if method is MetricReduction.LIST:
        return {name: [one[name] for one in logs] for name in logs[0]}
    count = 1 if method is MetricReduction.SUM else len(logs)
    return {name: jax.tree.map(lambda *v: sum(v) / count, *(one[name] for one in logs)) for name in logs[0]}


def run_epoch(
    model: Any,
    program: StepProgram,
    batches: Iterator[Any],
    steps: Steps,
    *,
    mean_of: int,
    begin: Callable[[int], None],
    end: Callable[[int, Any], None],
    stops: Callable[[], bool],
) -> dict[str, Any]:
    """Run an epoch; returns its logs.

    Args:
        model: The model.
        program: Its program.
        batches: The batches of the epoch.
        steps: Their steps.
        mean_of: Last steps whose mean the logs are, where outfeeds accumulate.
        begin: Called with a step before it runs.
        end: Called with a step and its logs after it.
        stops: True if no further execution is wanted.
    """
    options, logs = state_of(model).options, dict[str, Any]()
    for first, group in executions(batches, steps):
        if options.asynchronous and not options.accumulate_outfeed:

            def told(step: int, found: dict[str, float], first: int = first) -> None:
                begin(first + step)
                end(first + step, found)

            every = program.logs(group, told=told)
            logs = reduced(every, options.metric_reduction)
        else:
            begin(first)
            every = program.logs(group, mean_of=mean_of if options.accumulate_outfeed else 1)
            logs = reduced(every, options.metric_reduction)
            end(first + steps.execution - 1, logs)
        if stops():
            break
    return logs


def fit(
    model: Any,
    x: Any,
    y: Any,
    *,
    batch_size: int | None,
    epochs: int,
    verbose: Any,
    callbacks: Any,
    validation_split: float,
    validation_data: Any,
    shuffle: bool,
    class_weight: Any,
    sample_weight: Any,
    initial_epoch: int,
    steps_per_epoch: int | None,
    validation_steps: int | None,
    validation_batch_size: int | None,
    validation_freq: int,
) -> Any:
    """Train a model; see ``keras.Model.fit`` for the arguments."""
    model._assert_compile_called("fit")
    state = state_of(model)
    state.check_training(model)
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = private.train_validation_split(
            (x, y, sample_weight), validation_split=validation_split
        )
    batches = Batches(x, y, sample_weight, batch_size=batch_size, shuffle=shuffle, class_weight=class_weight)
    stages = state.stages(model, batches.type)
    options = state.options
    state.check_pipelined_training(stages)
    steps = Steps.of(
        batches,
        wanted=steps_per_epoch,
        per_execution=model.steps_per_execution,
        accumulation=accumulation_of(options),
        replicas=replicas_of(stages),
        what="steps_per_epoch",
    )
    with tracing():
        private.build_for(model, batches.type.tree)
    program = state.programs.of_training(model, options, stages, batches.type, steps)
    callbacks = callback_list(callbacks, model, verbose=verbose, epochs=epochs, steps=steps.epoch, history=True)
    model.stop_training = False
    logs: dict[str, Any] = {}
    evaluation: dict[str, Any] | None = None
    if validation_data is not None:
        held_x, held_y, held_weight = private.unpack(validation_data)
        held = Batches(held_x, held_y, held_weight, batch_size=validation_batch_size or batch_size)
        evaluation = {"batches": held, "steps": validation_steps}
    callbacks.on_train_begin()
    try:
        for epoch in range(model._initial_epoch or initial_epoch, epochs):
            model.reset_metrics()
            callbacks.on_epoch_begin(epoch)
            logs = run_epoch(
                model,
                program,
                batches.epoch(goes_on=steps_per_epoch is not None),
                steps,
                mean_of=accumulation_of(options),
                begin=callbacks.on_train_batch_begin,
                end=callbacks.on_train_batch_end,
                stops=lambda: bool(model.stop_training),
            )
            logs = dict(logs)
            if evaluation is not None and model._should_eval(epoch, validation_freq):
                found = evaluate(model, evaluation["batches"], callbacks=callbacks, steps=evaluation["steps"])
                logs |= {f"val_{name}": value for name, value in found.items()}
            callbacks.on_epoch_end(epoch, logs)
            if model.stop_training:
                break
            # A callback may have changed what the program was compiled for.
            program = state.programs.of_training(model, options, stages, batches.type, steps)
        callbacks.on_train_end(logs)
    finally:
        if epochs > 0 and isinstance(model.optimizer, private.keras.optimizers.Optimizer):
            model.optimizer.finalize_variable_values(model.trainable_weights)
    return model.history


def evaluate(
    model: Any, batches: Batches, *, callbacks: Any = None, verbose: Any = 0, steps: int | None = None
) -> dict[str, Any]:
    """Logs of a model on held-out batches."""
    model._assert_compile_called("evaluate")
    state = state_of(model)
    state.check_forward(model, "evaluate")
    stages, options = state.stages(model, batches.type), state.options
    counted = Steps.of(
        batches,
        wanted=steps,
        per_execution=model.steps_per_execution,
        accumulation=1,
        replicas=replicas_of(stages),
        what="steps",
    )
    with tracing():
        private.build_for(model, batches.type.tree)
    program = state.programs.of_forward(model, options, stages, batches.type, counted, logs=True)
    callbacks = callback_list(callbacks, model, verbose=verbose, epochs=1, steps=counted.epoch, history=False)
    model.stop_evaluating = False
    callbacks.on_test_begin()
    model.reset_metrics()
    logs = run_epoch(
        model,
        program,
        batches.epoch(goes_on=False),
        counted,
        mean_of=counted.execution,
        begin=callbacks.on_test_batch_begin,
        end=callbacks.on_test_batch_end,
        stops=lambda: bool(model.stop_evaluating),
    )
    callbacks.on_test_end(logs)
    return dict(logs)


def predict(model: Any, batches: Batches, *, callbacks: Any, verbose: Any, steps: int | None) -> Any:
    """Predictions for all batches, joined along the first dimension."""
    state = state_of(model)
    state.check_forward(model, "predict")
    if not model.built or not all(layer.built for layer in model._flatten_layers()):
        x, _, _ = private.unpack(batches.type.tree)
        with tracing():
            private.build_layers(model, x)
    stages, options = state.stages(model, batches.type), state.options
    counted = Steps.of(
        batches,
        wanted=steps,
        per_execution=model.steps_per_execution,
        accumulation=1,
        replicas=replicas_of(stages),
        what="steps",
    )
    program = state.programs.of_forward(model, options, stages, batches.type, counted, logs=False)
    callbacks = callback_list(callbacks, model, verbose=verbose, epochs=1, steps=counted.epoch, history=False)
    model.stop_predicting = False
    callbacks.on_predict_begin()
    found: list[tuple[Any, ...]] = []
    for first, group in executions(batches.epoch(goes_on=False), counted):
        callbacks.on_predict_batch_begin(first)
        outputs = program.run(group)
        found.append(outputs)
        tree = jax.tree.unflatten(program.step.results, outputs)
        callbacks.on_predict_batch_end(first + counted.execution - 1, {"outputs": tree})
        if model.stop_predicting:
            break
    callbacks.on_predict_end()
    joined = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    return jax.tree.unflatten(program.step.results, joined)
