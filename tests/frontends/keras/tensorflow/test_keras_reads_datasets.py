"""Stock Keras fits datasets as it fits arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele.errors import AbeleError

X = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
Y = np.arange(50) % 3


def model(tf: Any) -> Any:
    tf.keras.utils.set_random_seed(1)
    made = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(3, activation="softmax")])
    made.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


def test_fit__dataset_of_batches__has_the_history_of_arrays(tf: Any) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    weights = {0: 1.0, 1: 2.0, 2: 0.5}
    ours = model(tf).fit(dataset, epochs=2, class_weight=weights, validation_data=dataset, verbose=0)
    arrays = model(tf).fit(X, Y, 16, 2, class_weight=weights, validation_data=(X, Y), shuffle=False, verbose=0)
    assert ours.history["loss"] == pytest.approx(arrays.history["loss"], rel=1e-6)
    assert ours.history["accuracy"] == arrays.history["accuracy"]


def test_fit__endless_and_unknown__needs_steps_or_ends(tf: Any) -> None:
    endless = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(10)
    made = model(tf)
    assert len(made.fit(endless, steps_per_epoch=2, epochs=2, verbose=0).history["loss"]) == 2
    inputs = tf.data.Dataset.from_tensor_slices(X).batch(20)
    assert made.predict(inputs, verbose=0).shape == (50, 3)
    assert made.predict(inputs, verbose=0) == pytest.approx(made.predict(X, verbose=0), abs=1e-6)


def test_fit__targets_beside_a_dataset__are_refused(tf: Any) -> None:
    with pytest.raises(AbeleError, match="y beside a dataset"):
        model(tf).fit(tf.data.Dataset.from_tensor_slices((X, Y)).batch(10), Y, verbose=0)
