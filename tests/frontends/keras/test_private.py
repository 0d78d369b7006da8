"""The private names of Keras that the front end uses are there, and take what it gives them."""

from __future__ import annotations

import inspect

import keras
import numpy as np
import pytest

from abele.frontends.keras import private


@pytest.mark.parametrize("name", private.__all__)
def test_private__name__is_there(name: str) -> None:
    assert getattr(private, name) is not None


@pytest.mark.parametrize(
    ("owner", "name", "arguments"),
    [
        (private.Trainer, "_symbolic_build", ["data_batch"]),
        (private.Trainer, "_should_eval", ["epoch", "validation_freq"]),
        (private.Trainer, "_flatten_metrics_in_order", ["logs"]),
        (private.Trainer, "_assert_compile_called", ["method_name"]),
        (keras.Model, "_update_metrics_variables", ["metrics_variables", "unscaled_loss", "x", "y", "y_pred"]),
        (keras.Model, "compute_loss_and_updates", ["trainable_variables", "metrics_variables", "optimizer_variables"]),
        (keras.Model, "jax_state_sync", []),
        (private.BatchNormalization, "_moments", ["inputs", "mask"]),
        (private.Functional, "_run_through_graph", ["inputs"]),
        (private.Functional, "_get_operation_for_node", ["node"]),
        (keras.optimizers.Optimizer, "stateless_apply", ["optimizer_variables", "grads", "trainable_variables"]),
    ],
)
def test_private__method__takes_what_it_is_given(owner: type, name: str, arguments: list[str]) -> None:
    assert set(arguments) <= set(inspect.signature(getattr(owner, name)).parameters)


def test_private__array_of_a_variable__is_where_it_was() -> None:
    assert vars(keras.Variable(np.ones(2)))["_value"].shape == (2,)
    assert not isinstance(vars(private.Trainer).get("_loss_tracker"), property)
