"""``train_step(self, data)`` of Keras 2, which changes variables, where Keras 3 on JAX has ``train_step(state, data)``.

Such a step runs op by op, on a model that is no IPU model: those refuse it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras

_KINDS = {
    "train": ("trainable_variables", "non_trainable_variables", None, "metrics_variables"),
    "test": ("trainable_variables", "non_trainable_variables", "metrics_variables"),
    "predict": ("trainable_variables", "non_trainable_variables"),
}
"""Groups of variables of each step; None for the optimiser's."""


def let_steps_be_of_keras_2() -> None:
    """Let models of the user's own override steps as in Keras 2."""
    for kind in _KINDS:
        setattr(keras.Model, f"make_{kind}_function", _making(kind, getattr(keras.Model, f"make_{kind}_function")))


def _making(kind: str, own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def make(self: Any, force: bool = False) -> Any:
        step = getattr(self, f"{kind}_step")
        if list(inspect.signature(step).parameters) in (["data"], ["inputs"], ["batch"], ["batch_data"]):
            self.jit_compile = False
            vars(self)[f"{kind}_step"] = _newer(self, step, _KINDS[kind])
        return own(self, force)

    return make


def _newer(model: Any, step: Callable[..., Any], groups: tuple[str | None, ...]) -> Callable[..., Any]:
    """A step of Keras 3 by one that changes variables: it takes their values, and gives the new ones."""

    def call(state: Any, data: Any) -> Any:
        of = [model.optimizer.variables if name is None else getattr(model, name) for name in groups]
        for variables, values in zip(of, state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable._value = value
        tracker, seen = getattr(model, "_loss_tracker", None), None
        if tracker is not None:
            seen = float(tracker.count)
        result = step(data)
        if tracker is not None and seen == float(tracker.count) and isinstance(result, dict) and "loss" in result:
            tracker.reset_state()  # Keras 3 shows the tracker's loss, and Keras 2 the step's.
            tracker.update_state(result["loss"])
        return result, tuple([v._value for v in variables] for variables in of)

    return call
