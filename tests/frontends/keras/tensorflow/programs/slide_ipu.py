"""The IPU side of the slides: four lines more than the GPU's, otherwise the same program."""

import os

import tensorflow as tf
from tensorflow.keras.layers import *
from tensorflow.python import ipu

cfg = ipu.config.IPUConfig()
cfg.auto_select_ipus = 1
cfg.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategy().scope():
    (x_train, y_train), (x_test, y_test) = tf.keras.datasets.cifar10.load_data()
    num = int(os.environ.get("IMAGES", len(x_train)))
    x_train, y_train = x_train[:num], y_train[:num]
    x_train = x_train.astype("float32") / 255.0
    y_train = tf.keras.utils.to_categorical(y_train, 10)
    ds_train = tf.data.Dataset.from_tensor_slices((x_train, y_train)).batch(64, drop_remainder=True)

    model = tf.keras.Sequential(
        [
            Conv2D(32, (3, 3), padding="same", input_shape=x_train.shape[1:]),
            Activation("relu"),
            Conv2D(32, (3, 3)),
            Activation("relu"),
            MaxPooling2D(pool_size=(2, 2)),
            Dropout(0.25),
            Conv2D(64, (3, 3), padding="same"),
            Activation("relu"),
            Conv2D(32, (3, 3)),
            Activation("relu"),
            MaxPooling2D(pool_size=(2, 2)),
            Dropout(0.25),
            Flatten(),
            Dense(512),
            Activation("relu"),
            Dropout(0.5),
            Dense(10),
            Activation("softmax"),
        ]
    )
    model.compile(
        loss="categorical_crossentropy", optimizer=tf.optimizers.SGD(learning_rate=0.016), metrics=["accuracy"]
    )
    history = model.fit(ds_train, epochs=int(os.environ.get("EPOCHS", 40)), verbose=2)
    losses = history.history["loss"]
