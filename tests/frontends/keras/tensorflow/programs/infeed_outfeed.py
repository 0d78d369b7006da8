"""A training loop of the program's own: an iterator feeds it, a queue takes what it gives."""

import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

NUM_ITERATIONS = 8

ipu_config = ipu.config.IPUConfig()
ipu_config.auto_select_ipus = 1
ipu_config.configure_ipu_system()


def create_model():
    return keras.Sequential(
        [
            keras.layers.Flatten(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def create_dataset():
    (x_train, y_train), (_, _) = keras.datasets.mnist.load_data()
    x_train = x_train / 255.0
    x_train = x_train[..., tf.newaxis]
    train_ds = tf.data.Dataset.from_tensor_slices((x_train[:512], y_train[:512])).shuffle(512)
    train_ds = train_ds.batch(32, drop_remainder=True)
    train_ds = train_ds.map(lambda d, label: (tf.cast(d, tf.float32), tf.cast(label, tf.int32)))
    return train_ds.repeat()


outfeed_queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


@tf.function(jit_compile=True)
def training_loop(iterator, model, optimizer, num_iterations):
    for _ in tf.range(num_iterations):
        features, labels = next(iterator)
        with tf.GradientTape() as tape:
            predictions = model(features, training=True)
            prediction_loss = keras.losses.sparse_categorical_crossentropy(labels, predictions)
            loss = tf.reduce_mean(prediction_loss)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))
        outfeed_queue.enqueue(loss)


strategy = ipu.ipu_strategy.IPUStrategy()
with strategy.scope():
    model = create_model()
    optimizer = keras.optimizers.SGD(0.1)
    iterator = iter(create_dataset())
    strategy.run(training_loop, args=[iterator, model, optimizer, NUM_ITERATIONS])
    losses = [float(loss) for loss in outfeed_queue.dequeue()]
    print("losses", losses)
