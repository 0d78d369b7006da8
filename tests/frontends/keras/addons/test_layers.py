"""Layers and optimisers of the IPU's package, beside Keras' own and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from abele.errors import InvalidOptionError
from abele.frontends.keras import addons, ipu

X = np.random.default_rng(0).normal(size=(8, 5, 6)).astype(np.float32)
layers, optimizers = addons.keras.layers, addons.keras.optimizers


@pytest.mark.parametrize("name", ["LSTM", pytest.param("GRU", marks=pytest.mark.slow)])
def test_recurrent__time_first__is_keras_layer_turned(name: str) -> None:
    more = {"reset_after": False} if name == "GRU" else {}
    ours = getattr(layers, name)(3, time_major=True, return_sequences=True, available_memory_proportion_fwd=0.3)
    theirs = getattr(keras.layers, name)(3, return_sequences=True, **more)
    theirs.build(X.shape)
    ours.build(X.shape)
    ours.set_weights(theirs.get_weights())
    np.testing.assert_allclose(ours(X.swapaxes(0, 1)), np.asarray(theirs(X)).swapaxes(0, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "given",
    [
        {"kernel_regularizer": "l2"},
        {"recurrent_dropout": 0.5},
        {"go_backwards": True},
        {"unroll": True},
        {"use_bias": False},
    ],
    ids=str,
)
def test_recurrent__what_the_machine_lacks__is_a_value_error(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        layers.LSTM(3, **given)


def test_group_norm__neighbours__is_keras_and_strided__takes_every_nth() -> None:
    ours = layers.GroupNormalization(3, strided_channel_grouping=False, epsilon=1e-3)
    theirs = keras.layers.GroupNormalization(3, epsilon=1e-3)
    np.testing.assert_allclose(ours(X), theirs(X), rtol=1e-4, atol=1e-5)
    strided = np.asarray(layers.GroupNormalization(3)(X)).reshape(8, 5, 2, 3)
    np.testing.assert_allclose(strided.mean((1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(strided.var((1, 2)), 1, atol=1e-2)


@pytest.mark.slow
def test_instance_norm__rows__have_no_mean() -> None:
    single = np.asarray(layers.InstanceNormalization()(X))
    np.testing.assert_allclose(single.mean(1), 0, atol=1e-5)


@pytest.mark.parametrize(
    ("dimension", "factor"),
    [
        ("kernel_rows", 2),
        pytest.param("input_columns", 5, marks=pytest.mark.slow),
        pytest.param("input_rows_kernel_columns", 2, marks=pytest.mark.slow),
    ],
)
def test_serial_dense__parts__are_the_product(dimension: str, factor: int) -> None:
    ours = layers.SerialDense(4, factor, dimension, activation="relu")
    theirs = keras.layers.Dense(4, activation="relu")
    theirs.build(X.shape)
    ours.build(X.shape)
    ours.set_weights(theirs.get_weights())
    np.testing.assert_allclose(ours(X), theirs(X), rtol=1e-5, atol=1e-6)


def test_embedding__masks_and_factors__are_checked() -> None:
    with pytest.raises(ValueError, match="mask_zero"):
        layers.Embedding(8, 2, mask_zero=True)
    with pytest.raises(ValueError, match="does not divide into 3 parts"):
        layers.Embedding(8, 2, serialization_factor=3)
    assert layers.Embedding(8, 2, serialization_factor=4)(np.array([1, 2])).shape == (2, 2)


def net(optimiser: Any, steps: int = 1) -> Any:
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
    made.compile(optimiser, "mse", steps_per_execution=steps)
    return made


PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "adam": (
        lambda: optimizers.AdamIpuOptimizer(0.01, epsilon=1e-9),
        lambda: keras.optimizers.Adam(0.01, epsilon=1e-9),
    ),
    "lamb": (lambda: optimizers.LAMBIpuOptimizer(0.01), lambda: keras.optimizers.Lamb(0.01, epsilon=1e-6)),
    "sgd": (
        lambda: optimizers.SGDIpuOptimizer(0.1, 0.9, nesterov=True),
        lambda: keras.optimizers.SGD(0.1, 0.9, nesterov=True),
    ),
    "als": (
        lambda: ipu.optimizers.ALSOptimizer(
            keras.optimizers.SGD(0.1), initial_loss_scaling_factor=8, update_frequency=3
        ),
        lambda: keras.optimizers.SGD(0.1),
    ),
}


PLAIN = ("als",)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in PLAIN else pytest.mark.slow) for n in PAIRS])
def test_optimisers__in_float32__take_keras_steps(name: str, ipus: Any) -> None:
    ours, theirs = PAIRS[name]
    rows, target = X.reshape(40, 6), X.reshape(40, 6).sum(1, keepdims=True)
    wanted = net(theirs())
    wanted.fit(rows, target, batch_size=8, verbose=0, shuffle=False)
    with ipus():
        found = net(ours(), 5)
    found.fit(rows, target, batch_size=8, verbose=0, shuffle=False)
    for mine, other in zip(found.get_weights(), wanted.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    if name == "als":
        assert float(found.optimizer.loss_scaling_factor.numpy()) == 16


def test_optimisers__halves_of_state__are_kept_as_halves(ipus: Any) -> None:
    with ipus():
        made = net(optimizers.AdamIpuOptimizer(0.01, m_dtype="float16"), 5)
    made.fit(X.reshape(40, 6), np.ones((40, 1)), batch_size=8, verbose=0)
    kinds = [v.dtype for v in made.optimizer.variables if v.shape == (6, 4)]
    assert kinds == ["float16", "float32"]
    assert np.any(made.optimizer.variables[2].numpy())


@pytest.mark.parametrize(
    "given",
    [
        {"increase_factor": 1},
        {"update_frequency": 0},
        {"max_loss_scaling_factor": 0.5},
        {"lpf_alpha": 1},
        {"captured_grads_only": True},
    ],
    ids=str,
)
def test_als__numbers_out_of_range__are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given)) if "captured_grads_only" not in given else "not captured"):
        ipu.optimizers.ALSOptimizer(keras.optimizers.SGD(), **given)


def test_recurrent_layers__options__are_kept() -> None:
    layer = layers.LSTM(2, options={"availableMemoryProportion": "0.3"}, available_memory_proportion_fwd=0.2)
    again = layers.LSTM.from_config(layer.get_config())
    assert again.options == {"availableMemoryProportion": "0.3"}
    assert (again.options_bwd, again.available_memory_proportion_fwd) == ({}, 0.2)
    with pytest.raises(InvalidOptionError, match="dict"):
        layers.GRU(2, options_bwd="0.3")
