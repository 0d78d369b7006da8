"""Names and arguments of Keras 2 that Keras 3 lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from abele.frontends.keras.tensorflow.keras_names import datasets
from abele.frontends.keras.tensorflow.keras_names.datasets import DatasetFileError

A = np.random.default_rng(0).uniform(0.1, 0.9, (3, 4)).astype(np.float32)


def test_optimisers__older_arguments__make_those_of_keras_3(tf: Any) -> None:
    made = tf.keras.optimizers.SGD(lr=0.5, momentum=0.9)
    assert type(made) is keras.optimizers.SGD
    assert isinstance(made, tf.keras.optimizers.SGD)
    assert float(made.learning_rate) == float(made.lr) == 0.5
    made.lr = 0.25
    assert tf.keras.backend.get_value(made.lr) == 0.25
    tf.keras.backend.set_value(made.lr, 0.125)
    assert float(made.learning_rate) == 0.125
    decayed = tf.optimizers.Adam(learning_rate=0.1, decay=0.5)
    assert float(decayed._get_current_learning_rate()) == pytest.approx(0.1)
    decayed.iterations.assign(2)
    assert float(decayed._get_current_learning_rate()) == pytest.approx(0.1 / 2)
    assert type(tf.keras.optimizers.legacy.RMSprop()) is keras.optimizers.RMSprop

    class Own(tf.keras.optimizers.SGD):
        def doubled(self) -> Any:
            return 2 * self.learning_rate

    assert float(Own(lr=2.0).doubled()) == 4.0
    assert isinstance(Own(), keras.optimizers.SGD)


def test_loss_scale_optimiser__older_arguments__scale(tf: Any) -> None:
    fixed = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1), dynamic=False, initial_scale=64)
    assert isinstance(fixed, keras.mixed_precision.LossScaleOptimizer)
    assert float(fixed.initial_scale) == 64.0
    policy = tf.keras.mixed_precision.experimental.Policy("mixed_float16")
    assert (policy.compute_dtype, policy.variable_dtype) == ("float16", "float32")


def test_losses__names_of_keras_2__are_there(tf: Any) -> None:
    assert tf.keras.losses.MSE([[1.0]], [[3.0]]).numpy().tolist() == [4.0]
    assert tf.keras.metrics.MSE is keras.losses.mean_squared_error
    loss = tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.AUTO)
    assert float(loss([[1.0], [1.0]], [[3.0], [1.0]])) == 2.0
    none = tf.losses.MeanSquaredError(reduction=tf.losses.Reduction.NONE)
    assert none([[1.0]], [[3.0]]).shape == (1,)
    metric = tf.keras.metrics.Mean()
    metric.update_state(3.0)
    metric.reset_states()
    assert float(metric.result()) == 0.0


BACKEND = {
    "mean": (lambda K: K.mean(A, axis=-1), A.mean(-1)),
    "mean of truth": (
        lambda K: K.mean(K.equal(K.argmax(A), K.constant([3, 3, 3], "int32"))),
        (A.argmax(-1) == 3).mean(),
    ),
    "sum": (lambda K: K.sum(K.square(A), axis=[0, 1]), (A**2).sum()),
    "clip": (lambda K: K.clip(A, 0.2, K.epsilon() + 0.5), A.clip(0.2, 0.5)),
    "concatenate": (lambda K: K.concatenate([A, A]), np.concatenate([A, A], -1)),
    "batch_flatten": (lambda K: K.batch_flatten(A.reshape(3, 2, 2)), A),
    "dot": (lambda K: K.dot(A, K.transpose(A)), A @ A.T),
    "batch_dot": (lambda K: K.batch_dot(A, A, axes=1), (A * A).sum(1, keepdims=True)),
    "permute_dimensions": (lambda K: K.permute_dimensions(A, (1, 0)), A.T),
    "switch": (lambda K: K.switch(A[:, 0] > 2, A, -A), -A),
    "repeat": (lambda K: K.repeat(A, 2)[:, 1], A),
    "binary_crossentropy": (lambda K: K.binary_crossentropy(A > 0.5, A), -np.log(np.where(A > 0.5, A, 1 - A))),
    "variable": (lambda K: K.update_add(K.variable(A), 1.0), A + 1),
    "int_shape": (lambda K: K.int_shape(A), (3, 4)),
    "zeros": (lambda K: K.zeros((2,)) + K.cast(True, "float32"), [1, 1]),
}


@pytest.mark.parametrize("case", BACKEND)
def test_backend__functions__compute(tf: Any, case: str) -> None:
    compute, wanted = BACKEND[case]
    np.testing.assert_allclose(np.asarray(compute(tf.keras.backend)), wanted, rtol=1e-4, atol=1e-6)


def test_backend__functions_of_tensorflow_1__are_refused(tf: Any) -> None:
    with pytest.raises(NotImplementedError, match="GradientTape"):
        tf.keras.backend.gradients(1, 2)


def test_preprocessing__of_text_and_sequences__is_keras(tf: Any) -> None:
    padded = tf.keras.preprocessing.sequence.pad_sequences([[1, 2, 3], [4]], maxlen=2)
    assert padded.tolist() == [[2, 3], [0, 4]]
    tokenizer = tf.keras.preprocessing.text.Tokenizer(num_words=10)
    tokenizer.fit_on_texts(["the cat", "the dog"])
    assert tokenizer.texts_to_sequences(["the dog"]) == [[1, 3]]
    images = tf.keras.preprocessing.image.ImageDataGenerator(rescale=0.5).flow(np.ones((4, 2, 2, 1)), batch_size=2)
    assert next(images).max() == 0.5


def test_datasets__files_that_are_there__are_read(tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str = "mnist.npz") -> Any:
        with np.load(tmp_path / path) as found:
            return (found["x_train"], found["y_train"]), (found["x_test"], found["y_test"])

    np.savez(tmp_path / "mnist.npz", x_train=A, y_train=A, x_test=A, y_test=A)
    assert datasets._loader("mnist", read)()[1][1].shape == (3, 4)


def test_datasets__without_file_and_network__say_which_file_and_where_to(
    tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: Any, **__: Any) -> Any:
        raise Exception("URL fetch failure")

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    with pytest.raises(FileNotFoundError, match="is not in") as error:
        datasets._loader("mnist", unreachable)()
    assert isinstance(error.value, DatasetFileError)
    assert str(tmp_path / "datasets") in str(error.value)
    assert "https://storage.googleapis.com" in str(error.value)
    assert f"{datasets.VARIABLE}=made-up" in str(error.value)


def test_datasets__made_up__have_the_shapes_of_the_real_ones(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(datasets.VARIABLE, datasets.MADE_UP)
    (x, y), (x_test, y_test) = tf.keras.datasets.mnist.load_data()
    assert (x.shape, y.shape, x_test.shape, y_test.shape) == ((60000, 28, 28), (60000,), (10000, 28, 28), (10000,))
    assert x.dtype == y.dtype == np.uint8
    assert (x == tf.keras.datasets.mnist.load_data()[0][0]).all()
    means = np.stack([x[y == label][:100].mean(0) for label in range(10)])
    nearest = ((x_test[:200, None] - means) ** 2).sum((2, 3)).argmin(1)
    assert (nearest == y_test[:200]).mean() > 0.95


@pytest.mark.slow
def test_datasets__made_up_texts__have_words_and_lengths_as_asked(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(datasets.VARIABLE, datasets.MADE_UP)
    (texts, labels), _ = tf.keras.datasets.imdb.load_data(num_words=100, maxlen=50)
    assert texts.shape == labels.shape == (25000,)
    assert max(map(max, texts)) < 100
    assert max(map(len, texts)) <= 50


def test_saving__a_model__keeps_tensorflows_module_out_of_it(tf: Any, tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)])
    model.compile(tf.keras.optimizers.SGD(lr=0.1), "mse")
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert (again.predict(A[:, :3], verbose=0) == model.predict(A[:, :3], verbose=0)).all()
    assert tf.keras.models.model_from_json(model.to_json()).output_shape == (None, 2)
