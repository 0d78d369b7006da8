"""State of models on the device beside Keras': options, stages, programs."""

from __future__ import annotations

from typing import Any

from abele.errors import InvalidOptionError, SessionError
from abele.frontends.keras import private
from abele.frontends.keras.model import assignment
from abele.frontends.keras.model.options import ModelOptions
from abele.frontends.keras.model.programs import Programs, accumulation_of
from abele.frontends.keras.model.stages import LayerStages

_STATE = "_abele_state"
_BY_KERAS = "keras.src."
"""Modules whose methods are Keras' own."""


class ModelOnDevice:
    """Options, stages and programs of one model.

    Attributes:
        options: Options as its methods set them.
        programs: Its compiled steps.
        assignment: Stages of its layers as the user gave them; None if not.
    """

    def __init__(self) -> None:
        self.options = ModelOptions()
        self.programs = Programs()
        self.assignment: Any = None
        self._code: int | None = None
        self._compiled: Any = None

    def drop(self) -> None:
        """Drop compiled programs: an option has changed."""
        self.programs.drop()

    def note_compiled(self, model: Any) -> None:
        """Drop programs if ``compile`` was called since they were made: it makes another tracker of the loss."""
        if self._compiled is not model._loss_tracker:
            self._compiled = model._loss_tracker
            self.drop()

    def stages(self, model: Any, batch: Any) -> LayerStages:
        """The stages of the model, for batches of a type.

        Raises:
            InvalidOptionError: Stages that do not fit, or a pipeline on fewer IPUs than it has.
        """
        layers = self.assignment
        if layers is None and (isinstance(model, private.Sequential) or assignment.is_functional(model)):
            layers = assignment.assignment_of(model)
        if layers is not None and any(one.pipeline_stage is not None for one in layers):
            count = assignment.check(layers, model)
        elif layers is None:
            layers, count = (), self._stages_of_code(model, batch)
        else:
            layers, count = (), 1
        return LayerStages.of(count, layers, self.options) if count > 1 else LayerStages()

    def _stages_of_code(self, model: Any, batch: Any) -> int:
        if self._code is None:
            x, _, _ = private.unpack(batch.tree)
            self._code = assignment.check_stages(assignment.stages_of_code(model, x) or {0}, model)
        return self._code

    def check_pipelined_training(self, stages: LayerStages) -> None:
        """Raise for a pipeline whose updates are made of one micro-batch.

        Raises:
            InvalidOptionError: Accumulation was not asked for.
        """
        if stages.count > 1 and self.options.pipeline_accumulation is None:
            raise InvalidOptionError(
                f"the model is a pipeline of {stages.count} stages, and gradients are not accumulated",
                because="a pipeline is filled and emptied for each update",
                remedy="model.set_pipelining_options(gradient_accumulation_steps_per_replica=...)",
            )

    def check_training(self, model: Any) -> None:
        """Raise for what ``fit`` cannot do.

        Raises:
            SessionError: Methods of Keras that the user overrides, or eager execution.
            InvalidOptionError: Optimisers that cannot accumulate, or that accumulate themselves.
        """
        self.note_compiled(model)
        self._check_overridden(model, ("train_step", "make_train_function"))
        _check_eager(model)
        rule, several = model.optimizer, accumulation_of(self.options) > 1
        if rule is None:
            raise InvalidOptionError("the model was compiled without an optimizer", remedy="compile(optimizer=...)")
        if several and _overrides(type(rule), "minimize"):
            raise InvalidOptionError(
                f"{type(rule).__name__} overrides minimize(), and gradients are accumulated",
                because="the device updates by apply() on what was accumulated",
                remedy="override update_step() or apply() in its place",
            )
        inner = getattr(rule, "inner_optimizer", rule)
        if getattr(inner, "gradient_accumulation_steps", None):
            raise InvalidOptionError(
                f"{type(inner).__name__} accumulates gradients itself: gradient_accumulation_steps="
                f"{inner.gradient_accumulation_steps}",
                remedy="model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=...)",
            )

    def check_forward(self, model: Any, what: str) -> None:
        """Raise for what ``evaluate`` and ``predict`` cannot do."""
        self.note_compiled(model)
        kind = "test" if what == "evaluate" else "predict"
        names = [f"make_{kind}_function"] + ([f"{kind}_step"] if self.options.pipelined else [])
        self._check_overridden(model, names)
        _check_eager(model)

    def _check_overridden(self, model: Any, names: Any) -> None:
        for name in names:
            if _overrides(type(model), name):
                raise SessionError(
                    f"{type(model).__name__} overrides {name}(), which does not run on the device",
                    because="steps are compiled as a whole: forward pass, loss, gradients and update",
                    remedy="override call(), compute_loss() or compute_metrics(), or use "
                    "IPUStrategy(enable_keras_extensions=False)",
                )


def _overrides(kind: type, name: str) -> bool:
    """True if a class of the user's has a method in place of Keras'."""
    owner = next((c for c in kind.__mro__ if name in vars(c)), None)
    if owner is None:
        return False
    return not owner.__module__.startswith(_BY_KERAS) and not vars(owner)[name].__module__.startswith("abele.")


def _check_eager(model: Any) -> None:
    if model.run_eagerly:
        raise SessionError("run_eagerly=True does not run on the device", remedy="compile(run_eagerly=False)")


def state_of(model: Any) -> ModelOnDevice:
    """The state of a model, made when first asked for."""
    found = model.__dict__.get(_STATE)
    if found is None:
        found = model.__dict__[_STATE] = ModelOnDevice()
    assert isinstance(model, private.Trainer)
    return found  # type: ignore[no-any-return]
