"""CIFAR-10 in a pipeline over two IPUs, by scopes of stages."""

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers
from tensorflow.python import ipu

BATCH, STEPS, ACCUMULATION = 4, 16, 8


def make_divisible(number, divisor):
    return number - number % divisor


def load_data():
    (x_train, y_train), _ = keras.datasets.cifar10.load_data()
    x_train, y_train = x_train[:130], y_train[:130]
    count = make_divisible(len(x_train), BATCH * STEPS)
    x_train, y_train = x_train[:count], y_train[:count]
    ds = tf.data.Dataset.from_tensor_slices((x_train.astype("float32") / 255.0, y_train.astype("int32")))
    return ds.batch(BATCH, drop_remainder=True)


def model_fn():
    inputs = keras.Input(shape=(32, 32, 3))
    with keras.ipu.PipelineStage(0):
        x = layers.Conv2D(8, (3, 3), strides=2, padding="same", activation="relu")(inputs)
        x = layers.MaxPooling2D(pool_size=(2, 2))(x)
    with keras.ipu.PipelineStage(1):
        x = layers.Flatten()(x)
        x = layers.Dense(16, activation="relu")(x)
        x = layers.Dense(10)(x)
    return keras.Model(inputs, x)


config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()
with strategy.scope():
    model = model_fn()
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=ACCUMULATION,
        gradient_accumulation_reduction_method="mean",
        pipeline_schedule=ipu.ops.pipelining_ops.PipelineSchedule.Grouped,
    )
    model.print_pipeline_stage_assignment_summary()
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.05),
        metrics=["accuracy"],
        steps_per_execution=STEPS,
    )
    history = model.fit(load_data(), epochs=2, verbose=2)
losses = history.history["loss"]
