"""An LSTM encoder and decoder that reverses digits, with teacher forcing, as Keras' examples have it."""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers
from tensorflow.python import ipu

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--samples", type=int, default=64)
parser.add_argument("--units", type=int, default=16)
args = parser.parse_args()

SYMBOLS, LENGTH, BATCH = 12, 6, 8
START = SYMBOLS - 1
rng = np.random.default_rng(0)
digits = rng.integers(1, SYMBOLS - 1, (args.samples, LENGTH)).astype(np.int32)
answers = digits[:, ::-1]
questions = np.concatenate([np.full((args.samples, 1), START, np.int32), answers[:, :-1]], axis=1)

dataset = tf.data.Dataset.from_tensor_slices((digits, questions, answers))
dataset = dataset.map(lambda source, given, wanted: ((tf.one_hot(source, SYMBOLS), tf.one_hot(given, SYMBOLS)), wanted))
dataset = dataset.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()
with strategy.scope():
    tf.random.set_seed(1)
    encoder_inputs = keras.Input(shape=(LENGTH, SYMBOLS))
    _, state_h, state_c = layers.LSTM(args.units, return_state=True)(encoder_inputs)
    decoder_inputs = keras.Input(shape=(LENGTH, SYMBOLS))
    sequence, _, _ = layers.LSTM(args.units, return_sequences=True, return_state=True)(
        decoder_inputs, initial_state=[state_h, state_c]
    )
    outputs = layers.Dense(SYMBOLS, activation="softmax")(sequence)
    model = keras.Model([encoder_inputs, decoder_inputs], outputs)
    model.compile(
        optimizer=keras.optimizers.RMSprop(lr=0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=["sparse_categorical_accuracy"],
        steps_per_execution=2,
    )
    history = model.fit(dataset, epochs=args.epochs, verbose=0)
losses = history.history["loss"]
