"""Programs of older SDKs: their imports, calls and names of files."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from abele.errors import MissingPackageError, UnsupportedOpError
from abele.frontends.keras import ipu
from abele.frontends.keras.lookalike import RefusedNameError
from abele.frontends.keras.tensorflow.data.records import crc32c

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
MODULES = [
    "horovod.tensorflow",
    "keras.ipu.optimizers",
    "popdist.tensorflow",
    "pva",
    "tensorflow.core.protobuf.config_pb2",
    "tensorflow.keras.ipu.extensions",
    "tensorflow.python.client.device_lib",
    "tensorflow.python.ipu.dataset_benchmark",
    "tensorflow.python.ipu.distributed.popdist_strategy",
    "tensorflow.python.ipu.horovod.popdist_strategy",
    "tensorflow.python.ipu.ipu_compiler",
    "tensorflow.python.ipu.ops.normalization_ops",
    "tensorflow.python.ipu.ops.rand_ops",
    "tensorflow.python.ipu.optimizers.gradient_accumulation_optimizer",
    "tensorflow.python.ipu.scopes",
    "tensorflow.python.ipu.serving",
    "tensorflow.python.keras.engine.base_layer",
    "tensorflow.python.keras.optimizer_v2.adam",
    "tensorflow_addons.optimizers",
]


def test_modules__by_the_places_of_older_sdks__are_found(installed: Any) -> None:
    for name in MODULES:
        assert importlib.import_module(name) is not None
    assert keras.ipu is ipu
    with pytest.raises(MissingPackageError, match=r"(?s)tensorflow_datasets is not there.*from_tensor_slices"):
        importlib.import_module("tensorflow_datasets")


def test_functions__that_are_gone__say_what_to_call() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(RefusedNameError, match="set_gradient_accumulation_options"):
        ipu.gradient_accumulation_optimizer.GradientAccumulationOptimizerV2(None)
    with pytest.raises(UnsupportedOpError, match=r"IPUConfig\(\)"):
        ipu.utils.create_ipu_config()
    with pytest.raises(RefusedNameError, match="PipelineStage"):
        ipu.autoshard.automatic_sharding(2)
    with pytest.raises(RefusedNameError, match="add_metric"):
        model.layers[0].add_metric(1.0, name="a")
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(UnsupportedOpError, match="predict"):
        model.export_for_ipu_serving("folder")


def test_operations__of_older_modules__compute(tf: Any) -> None:
    statistics, images = ipu.ops.statistics_ops, ipu.ops.image_ops
    values = np.array([1.0, 2.0, 3.0, 9.0], np.float32)
    np.testing.assert_array_equal(statistics.histogram(values, [2.0, 4.0]), [1, 2, 1])
    np.testing.assert_array_equal(statistics.fixed_width_bins(values[[0, 3]], 4), [3, 5, 7])
    found = images.normalise_image(np.full((1, 2, 2, 3), 4, np.uint8), [1.0, 1.0, 1.0], [2.0, 2.0, 4.0], 0.5)
    np.testing.assert_array_equal(found[0, 0, 0], [2, 2, 4, 0])
    assert np.mean(np.asarray(ipu.ops.rand_ops.dropout(np.ones(400, np.float32), 0.5, seed=1)) == 0) == pytest.approx(
        0.5, abs=0.1
    )
    data = tf.data.Dataset.from_tensors(X).repeat()
    assert '"elements_processed": 3' in ipu.dataset_benchmark.dataset_benchmark(data, 2, 3, print_stats=False)


def test_sampled_losses__all_classes__are_softmax(tf: Any) -> None:
    table, labels = np.random.default_rng(1).normal(size=(10, 4)).astype(np.float32), np.arange(8)[:, None]
    everything = tf.nn.all_candidate_sampler(labels, 1, 10, True)
    found = tf.nn.sampled_softmax_loss(table, np.zeros(10, np.float32), labels, X, 10, 10, sampled_values=everything)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(labels[:, 0], X @ table.T)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert tf.nn.nce_loss(table, np.zeros(10, np.float32), labels, X, 3, 10).shape == (8,)
    drawn, true, sampled = tf.random.log_uniform_candidate_sampler(labels, 1, 5, True, 10)
    assert len(set(np.asarray(drawn).tolist())) == 5
    assert float(true[0, 0]) > float(true[7, 0])
    assert np.all(np.asarray(sampled) < 1)


def test_records__that_are_written__are_read(tf: Any, tmp_path: Path) -> None:
    assert [crc32c(text) for text in (b"", b"a", b"123456789", bytes(32))] == [0, 0xC1D04330, 0xE3069283, 0x8A9136AA]
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for number in range(3):
            writer.write(bytes([number] * number))
    found = list(tf.data.TFRecordDataset(str(tmp_path / "a.tfrecord")).as_numpy_iterator())
    assert found == [b"", b"\1", b"\2\2"]


def test_files__of_any_name__hold_weights_and_models(tf: Any, tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.Input(shape=(4)), tf.keras.layers.Dense(2, name="d")])
    other = tf.keras.models.clone_model(model)
    for name in ("w.h5", "checkpoint/w", "w.weights.h5"):
        (tmp_path / "checkpoint").mkdir(exist_ok=True)
        model.save_weights(str(tmp_path / name), save_format="tf")
        other.set_weights([np.zeros((4, 2)), np.zeros(2)])
        other.load_weights(str(tmp_path / name)).expect_partial()
        np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])
    model.save(str(tmp_path / "folder"))
    loaded = tf.keras.models.load_model(str(tmp_path / "folder"))
    np.testing.assert_array_equal(loaded(X), model(X))
    model.compile("sgd", "mse")
    keep = tf.keras.callbacks.ModelCheckpoint(str(tmp_path / "at_{epoch}.h5"), save_weights_only=True, period=1)
    model.fit(X, X[:, :2], callbacks=[keep], verbose=0)
    other.load_weights(str(tmp_path / "at_1.h5"))
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])


def test_layers__arguments_of_keras_2__change_nothing_or_set_weights(tf: Any) -> None:
    layers = tf.keras.layers
    layers.BatchNormalization(fused=True, virtual_batch_size=None)
    layers.LSTM(2, time_major=False)
    with pytest.raises(ValueError, match="time_major"):
        layers.LSTM(2, time_major=True)
    table = np.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(layers.Embedding(4, 2, weights=[table])(np.array([3])), table[3:])

    class Scaled(layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight("scale", shape=[shape[-1]], initializer="ones", use_resource=True)

        def call(self, x: Any) -> Any:
            return x * self.scale

    np.testing.assert_array_equal(Scaled(name="s")(X), X)


def test_train_step__of_keras_2__trains_stock_models(tf: Any) -> None:
    class Model(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    model = Model()
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1))
    history = model.fit(X, X[:, :1], batch_size=8, epochs=3, verbose=0)
    losses = history.history["loss"]
    assert losses[2] < losses[0]
    assert int(model.optimizer.iterations) == 3
