"""MNIST by ``fit``, ``evaluate`` and ``predict`` in a strategy's scope."""

import argparse

import numpy as np
import tensorflow as tf
import tensorflow.keras as keras
from tensorflow.keras.datasets import mnist
from tensorflow.keras.layers import Dense, Dropout, Flatten
from tensorflow.keras.models import Model
from tensorflow.python import ipu

if tf.__version__[0] != "2":
    raise ImportError("TensorFlow 2 is required for this example")

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=60000)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--steps-per-execution", type=int, default=8)
args = parser.parse_args()

batch_size, num_classes = 16, 10


def load_data():
    (x_train, y_train), (x_test, y_test) = mnist.load_data()
    x_train, y_train = x_train[: args.samples], y_train[: args.samples]
    x_test, y_test = x_test[: args.samples // 2], y_test[: args.samples // 2]
    x_train, x_test = x_train.astype("float32") / 255, x_test.astype("float32") / 255
    x_train, x_test = np.expand_dims(x_train, -1), np.expand_dims(x_test, -1)
    y_train = keras.utils.to_categorical(y_train, num_classes)
    y_test = keras.utils.to_categorical(y_test, num_classes)
    return (x_train, y_train), (x_test, y_test)


def model_fn():
    input_layer = keras.Input(shape=(28, 28, 1))
    x = Flatten()(input_layer)
    x = Dense(32, activation="relu")(x)
    x = Dropout(0.0)(x)
    x = Dense(num_classes, activation="softmax")(x)
    return input_layer, x


(x_train, y_train), (x_test, y_test) = load_data()
ipu_config = ipu.config.IPUConfig()
ipu_config.auto_select_ipus = 1
ipu_config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()
with strategy.scope():
    model = Model(*model_fn())
    model.compile(
        loss="categorical_crossentropy",
        optimizer=tf.keras.optimizers.SGD(lr=0.05, momentum=0.9),
        metrics=["accuracy"],
        steps_per_execution=args.steps_per_execution,
    )
    print("\nTraining")
    history = model.fit(x_train, y_train, epochs=args.epochs, batch_size=batch_size, verbose=0)
    print("\nEvaluation")
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=batch_size, verbose=0)
    predicted = model.predict(x_test, batch_size=batch_size, verbose=0)
print("loss", loss, "accuracy", accuracy)
losses = history.history["loss"]
