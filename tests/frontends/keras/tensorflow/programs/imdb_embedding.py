"""Sentiments of IMDB: words embedded, an LSTM over them, in a dataset with callbacks, validation and half precision."""

import numpy as np
import tensorflow as tf
from tensorflow.keras.callbacks import Callback, EarlyStopping
from tensorflow.keras.datasets import imdb
from tensorflow.keras.layers import LSTM, Dense, Embedding, Input
from tensorflow.keras.models import Model
from tensorflow.keras.preprocessing import sequence
from tensorflow.python import ipu

MAX_WORDS, LENGTH, BATCH = 500, 12, 8


class Losses(Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(logs["loss"])


def dataset(texts, labels):
    padded = sequence.pad_sequences(texts, maxlen=LENGTH)
    ds = tf.data.Dataset.from_tensor_slices((padded, labels))
    ds = ds.map(lambda x, y: (x, tf.cast(y, tf.float32))).cache()
    return ds.batch(BATCH, drop_remainder=True)


(x_train, y_train), (x_test, y_test) = imdb.load_data(num_words=MAX_WORDS)
cfg = ipu.config.IPUConfig()
cfg.auto_select_ipus = 1
cfg.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()
with strategy.scope():
    tf.keras.mixed_precision.set_global_policy("float32")
    words = Input(shape=(LENGTH,), dtype=tf.int32, batch_size=BATCH)
    x = Embedding(MAX_WORDS, 8)(words)
    x = LSTM(8)(x)
    model = Model(words, Dense(1, activation="sigmoid")(x))
    model.compile(
        tf.keras.optimizers.Adam(lr=0.01, decay=1e-3),
        "binary_crossentropy",
        metrics=["accuracy"],
        steps_per_execution=4,
    )
    seen = Losses()
    history = model.fit(
        dataset(x_train[:64], y_train[:64]),
        validation_data=dataset(x_test[:32], y_test[:32]),
        epochs=2,
        callbacks=[seen, EarlyStopping(monitor="val_loss", patience=3)],
        verbose=0,
    )
losses = history.history["loss"]
assert np.isfinite(seen.seen).all()
