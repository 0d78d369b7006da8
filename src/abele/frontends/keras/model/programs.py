"""Programs of a model: its steps compiled for one shape of batches and one number of steps, with its variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from abele.arrays import Array
from abele.compiler.compile import collector_paused
from abele.frontends.keras.ipu.config import get_ipu_config
from abele.frontends.keras.ipu.enums import GradientAccumulationReductionMethod as Reduction
from abele.frontends.keras.ipu.environment import settings_of
from abele.frontends.keras.model.assignment import labelled
from abele.frontends.keras.model.data import Steps
from abele.frontends.keras.model.norms import shared_statistics
from abele.frontends.keras.model.options import ModelOptions
from abele.frontends.keras.model.seeds import seeds_of_replicas
from abele.frontends.keras.model.stages import LayerStages, placed
from abele.frontends.keras.model.steps import BatchType, StepNetwork, forward_step, training_step
from abele.network import Group, Locations, MeanStrategy, OutputMode, Schedule, TensorLocation
from abele.network.locations import AS_USUAL
from abele.session import Session, SharedArrays

Told = Callable[[int, dict[str, float]], None]
"""Takes the number of a step and its logs."""


@dataclass(frozen=True)
class StepProgram:
    """A step, compiled to run several times in one execution.

    Attributes:
        session: The compiled network with its data.
        step: The step.
        replicas: Batches of a step.
    """

    session: Session
    step: StepNetwork
    replicas: int

    def run(self, batches: Sequence[Any]) -> tuple[Array, ...]:
        """The outputs of an execution.

        Args:
            batches: Its batches, those of all replicas of a step one after the other.
        """
        if self.session.compiled.settings.synthetic_data:
            return self._synthetic()
        return self.session.run(_joined(batches)).outputs

    def _synthetic(self) -> tuple[Array, ...]:
        """Zeros, after a run whose data the device made: nothing comes back."""
        self.session.run()
        schedule = self.session.schedule
        count = schedule.sent_back
        return tuple(
            np.zeros((count * v.shape[0], *v.shape[1:]) if v.shape else (count,), v.dtype.np)
            for v in self.step.network.outputs
        )

    def logs(self, batches: Sequence[Any], *, mean_of: int = 1, told: Told | None = None) -> list[dict[str, Any]]:
        """Logs of the last step, for each replica.

        Args:
            batches: As of :meth:`run`.
            mean_of: Last steps whose mean the logs are.
            told: Called with the number of each step and its logs on the last replica, while the execution goes on.
        """
        if told is None or self.session.compiled.settings.synthetic_data:
            outputs, steps = self.run(batches), mean_of if mean_of > 1 else 1
            shapes = [v.shape for v in self.step.network.outputs]
            rows = [
                np.asarray(v, np.float32).reshape(-1, self.replicas, *shape)[-steps:].mean(0)
                for v, shape in zip(outputs, shapes, strict=True)
            ]
            return [self._named([row[replica] for row in rows]) for replica in range(self.replicas)]
        found: list[dict[str, Any]] = [{}] * self.replicas

        def step_ended(number: int, outputs: tuple[Array, ...]) -> None:
            step, replica = divmod(number, self.replicas)
            found[replica] = self._named(outputs)
            if replica == self.replicas - 1:
                told(step, found[replica])

        self.session.run(_joined(batches), outfeed=step_ended)
        return found

    def _named(self, outputs: Sequence[Any]) -> dict[str, Any]:
        """Logs by name; a metric may be a dict of several."""
        numbers = iter([float(v) if np.ndim(v) == 0 else np.asarray(v) for v in outputs])
        structures: dict[str, Any] = self.step.results
        return {
            name: jax.tree.unflatten(tree, [next(numbers) for _ in range(tree.num_leaves)])
            for name, tree in structures.items()
        }


def _joined(batches: Sequence[Any]) -> list[Array]:
    """For each array of a batch, those of all batches along the first dimension."""
    columns = zip(*(jax.tree.leaves(batch) for batch in batches), strict=True)
    return [np.concatenate(column) if np.ndim(column[0]) else np.stack(column) for column in columns]


def replicas_of(stages: LayerStages) -> int:
    """Replicas of a model on the IPUs that were asked for: each has a power of two of them, one for each stage.

    Raises:
        InvalidOptionError: Fewer IPUs than one replica needs.
    """
    return stages.replicas_on(get_ipu_config().num_ipus)


class Programs:
    """The programs of one model, each compiled when it is first needed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], StepProgram] = {}
        self.last: StepProgram | None = None

    def drop(self) -> None:
        """Forget all; what the device has learnt is brought to the variables."""
        for program in self._known.values():
            program.session.close()
        self._known.clear()

    def of_training(
        self, model: Any, options: ModelOptions, stages: LayerStages, batch: BatchType, steps: Steps
    ) -> StepProgram:
        """The program of ``fit``."""
        accumulation, reduction = accumulation_of(options), reduction_of(options)
        half = accumulator_of(options).name == "f16"
        runs = accumulation > 1 and reduction is Reduction.RUNNING_MEAN
        share = accumulation if reduction is Reduction.MEAN else 1
        schedule = Schedule(
            device_iterations=steps.execution // accumulation,
            accumulation=accumulation,
            mean=runs,
            strategy=MeanStrategy.RUNNING if runs else MeanStrategy.POST,
            replicas=steps.replicas,
            outputs=OutputMode.ALL if options.asynchronous or options.accumulate_outfeed else OutputMode.FINAL,
            pipeline=stages.schedule_name(options),
            io_tiles=_io_tiles(),
            locations=Locations(activations=TensorLocation(on_chip=False)) if options.offload_activations else AS_USUAL,
        )
        arriving = None if accumulation == 1 else np.float16 if half else np.float32

        def make() -> StepProgram:
            factor = 1.0 if runs else 1 / (share * steps.replicas)
            with (
                labelled(list(stages.layers), steps.replicas),
                shared_statistics(steps.replicas),
                seeds_of_replicas(steps.replicas),
            ):
                step = training_step(model, batch, factor=factor, gradients=arriving)
            step = placed(step, stages, options)
            assert step.update is not None
            rule = replace(step.update, accumulation=accumulator_of(options))
            groups = [Group(rule, step.network.parameters)]
            return _compiled(model, step, schedule, groups, stages)

        return self._of(("fit", batch.key, schedule, _variables(model)), make)

    def of_forward(
        self, model: Any, options: ModelOptions, stages: LayerStages, batch: BatchType, steps: Steps, *, logs: bool
    ) -> StepProgram:
        """The program of ``evaluate``, or of ``predict``.

        Args:
            model: The model.
            options: Its options.
            stages: Stages of its layers.
            batch: Type of a batch.
            steps: Steps of an execution.
            logs: True for ``evaluate``.
        """
        each = not logs or options.asynchronous or options.accumulate_outfeed
        schedule = Schedule(
            device_iterations=steps.execution,
            replicas=steps.replicas,
            outputs=OutputMode.ALL if each else OutputMode.FINAL,
            io_tiles=_io_tiles(),
        )

        def make() -> StepProgram:
            with labelled(list(stages.layers), steps.replicas):
                made = forward_step(model, batch, with_metrics=logs)
            return _compiled(model, placed(made, stages, options), schedule, None, stages)

        return self._of(("logs" if logs else "predict", batch.key, schedule, _variables(model)), make)

    def _of(self, key: tuple[Any, ...], make: Callable[[], StepProgram]) -> StepProgram:
        if key not in self._known:
            with collector_paused():
                self._known[key] = make()
        self.last = self._known[key]
        return self.last


def _compiled(model: Any, step: StepNetwork, schedule: Schedule, groups: Any, stages: LayerStages) -> StepProgram:
    settings = replace(settings_of(get_ipu_config(), model.name), ipus_per_replica=stages.ipus)
    if groups is None:
        settings = replace(settings, report_folder="")
    session = Session.of(step.network, schedule, groups=groups, settings=settings, weights=SharedArrays(step.weights))
    return StepProgram(session, step, schedule.replicas)


def _variables(model: Any) -> tuple[int, ...]:
    return tuple(id(v) for v in (*model.trainable_variables, *model.non_trainable_variables))


def _io_tiles() -> int:
    tiles = get_ipu_config().io_tiles
    return int(tiles.num_io_tiles) if tiles.place_ops_on_io_tiles else 0


def accumulation_of(options: ModelOptions) -> int:
    """Micro-batches of an update on each replica."""
    return (options.pipeline_accumulation if options.pipelined else options.accumulation) or 1


def reduction_of(options: ModelOptions) -> Reduction:
    """Reduction of their gradients."""
    return options.pipeline_reduction if options.pipelined else options.reduction


def accumulator_of(options: ModelOptions) -> Any:
    """Element type of the sums of gradients."""
    return options.pipeline_accumulator if options.pipelined else options.accumulator
