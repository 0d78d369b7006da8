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


@pytest.mark.slow
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


@pytest.mark.slow
def test_keras_makes_datasets__of_series_and_folders__by_these_names(tf: Any, tmp_path: Any) -> None:
    series = np.arange(20.0)
    windows = tf.keras.preprocessing.timeseries_dataset_from_array(series, 2 * series, sequence_length=5, batch_size=4)
    x, y = next(iter(windows))
    assert x.numpy()[1].tolist() == [1, 2, 3, 4, 5]
    assert y.numpy().tolist() == [0, 2, 4, 6]
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    for name in "ab":
        (tmp_path / name).mkdir()
        for number in range(3):
            image.fromarray(np.full((6, 5, 3), 50 * number, np.uint8)).save(tmp_path / name / f"{number}.png")
    images = tf.keras.utils.image_dataset_from_directory(str(tmp_path), image_size=(4, 4), batch_size=4, shuffle=False)
    batch, labels = next(iter(images))
    assert batch.shape == (4, 4, 4, 3)
    assert labels.numpy().tolist() == [0, 0, 0, 1]
    assert batch.numpy()[:, 0, 0, 0].tolist() == [0, 50, 100, 0]


def test_layers_of_keras__adapted__read_datasets(tf: Any) -> None:
    normal = tf.keras.layers.Normalization()
    normal.adapt(tf.data.Dataset.from_tensor_slices(X).batch(20))
    assert np.asarray(normal.mean) == pytest.approx(X.mean(0, keepdims=True), abs=1e-5)


@pytest.mark.slow
def test_layers_of_keras__in_map__take_batches(tf: Any) -> None:
    augment = tf.keras.Sequential([tf.keras.layers.RandomFlip("horizontal"), tf.keras.layers.Rescaling(0.5)])
    images = tf.data.Dataset.from_tensor_slices(np.ones((6, 4, 4, 1), np.float32)).batch(4)
    augmented = images.map(lambda batch: augment(batch, training=True))
    assert augmented.element_spec == tf.TensorSpec((None, 4, 4, 1), tf.float32)
    assert [batch.mean() for batch in augmented.as_numpy_iterator()] == [0.5, 0.5]


def test_tensorboard__as_a_callback__warns_and_writes_nothing(tf: Any, tmp_path: Any) -> None:
    with pytest.warns(UserWarning, match="CSVLogger"):
        callback = tf.keras.callbacks.TensorBoard(tmp_path / "logs")
    callback.set_model(model(tf))
    callback.on_epoch_end(0, {"loss": 1.0})
    assert not (tmp_path / "logs").exists()
    with pytest.raises(NotImplementedError, match="TextVectorization"):
        tf.keras.layers.TextVectorization()
