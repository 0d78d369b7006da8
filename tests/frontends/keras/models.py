"""Small models of every family, with data: what ``fit`` is compared on, beside Keras on JAX's CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import layers, ops

Data = tuple[Any, Any]


@dataclass(frozen=True)
class Case:
    """A model with its data.

    Attributes:
        make: Makes the model, not compiled.
        data: Makes inputs and targets.
        loss: The loss.
        optimiser: Makes the optimiser.
        metrics: Metrics.
        batch: Samples of a batch.
        policy: Policy of types; None for float32.
        digits: Digits that histories agree to.
    """

    make: Callable[[], Any]
    data: Callable[[], Data]
    loss: Any = "mse"
    optimiser: Callable[[], Any] = field(default=lambda: keras.optimizers.SGD(0.05, momentum=0.9))
    metrics: tuple[Any, ...] = ("mae",)
    batch: int = 4
    policy: str | None = None
    digits: int = 5


CASES: dict[str, Case] = {}
SAMPLES = 16


def case(**given: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Add a model, by the name of its function."""

    def add(make: Callable[[], Any]) -> Callable[[], Any]:
        CASES[make.__name__] = Case(make, **given)
        return make

    return add


# --- data -------------------------------------------------------------------------------------------------------------


def rows(*shape: int, out: int = 1) -> Callable[[], Data]:
    """Numbers of a shape, and a smooth function of them."""

    def make() -> Data:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(SAMPLES, *shape)).astype(np.float32)
        flat = x.reshape(SAMPLES, -1)
        weights = rng.normal(size=(flat.shape[1], out)).astype(np.float32) / flat.shape[1] ** 0.5
        return x, np.tanh(flat @ weights)

    return make


def classes(*shape: int, count: int = 4) -> Callable[[], Data]:
    """Numbers of a shape, and classes."""

    def make() -> Data:
        rng = np.random.default_rng(1)
        x = rng.normal(size=(SAMPLES, *shape)).astype(np.float32)
        return x, rng.integers(0, count, size=SAMPLES).astype(np.int32)

    return make


def tokens(length: int, vocabulary: int, count: int = 3) -> Callable[[], Data]:
    """Rows of tokens, and classes."""

    def make() -> Data:
        rng = np.random.default_rng(2)
        return (
            rng.integers(1, vocabulary, size=(SAMPLES, length)).astype(np.int32),
            rng.integers(0, count, size=SAMPLES).astype(np.int32),
        )

    return make


SPARSE = {"loss": "sparse_categorical_crossentropy", "metrics": ("accuracy",)}
adam = lambda: keras.optimizers.Adam(0.01)  # noqa: E731


# --- dense ------------------------------------------------------------------------------------------------------------


@case(data=rows(6))
def dense() -> Any:
    return keras.Sequential([keras.Input((6,)), layers.Dense(16, activation="tanh"), layers.Dense(1)])


@case(data=classes(6), optimiser=adam, **SPARSE)
def dense_softmax() -> Any:
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(16, activation="relu"), layers.Dense(4, activation="softmax")]
    )


@case(data=rows(6), optimiser=lambda: keras.optimizers.AdamW(0.01, weight_decay=0.01, global_clipnorm=1.0))
def batch_norm() -> Any:
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(8), layers.BatchNormalization(), layers.ReLU(), layers.Dense(1)]
    )


@case(data=rows(6), optimiser=lambda: keras.optimizers.RMSprop(0.01))
def dropout() -> Any:
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(16, activation="relu"), layers.Dropout(0.4, seed=3), layers.Dense(1)]
    )


@case(data=rows(6), optimiser=lambda: keras.optimizers.Lion(0.01))
def regularised() -> Any:
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, activation="elu", kernel_regularizer="l2", kernel_constraint="max_norm"),
            layers.LayerNormalization(),
            layers.Dense(1, activity_regularizer="l1"),
        ]
    )


@case(data=rows(6), optimiser=lambda: keras.optimizers.Nadam(0.01))
def subclass() -> Any:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.drop, self.last = (
                layers.Dense(8, activation="gelu"),
                layers.Dropout(0.2, seed=1),
                layers.Dense(1),
            )

        def call(self, x: Any, training: bool = False) -> Any:
            return self.last(self.drop(self.first(x), training=training) + 0.1)

    return Net()


def _wide_and_deep() -> Data:
    x, y = rows(6)()
    return {"wide": x[:, :3], "deep": x}, {"score": y, "flag": (y > 0).astype(np.float32)}


@case(
    data=_wide_and_deep,
    loss={"score": "mse", "flag": "binary_crossentropy"},
    metrics=(),
    optimiser=lambda: keras.optimizers.Ftrl(0.05),
)
def wide_and_deep() -> Any:
    wide, deep = keras.Input((3,), name="wide"), keras.Input((6,), name="deep")
    hidden = layers.Dense(8, activation="selu")(deep)
    both = layers.Concatenate()([wide, hidden])
    return keras.Model(
        {"wide": wide, "deep": deep},
        {"score": layers.Dense(1, name="score")(both), "flag": layers.Dense(1, "sigmoid", name="flag")(both)},
    )


def _pairs() -> Data:
    x, y = rows(6)()
    return (x[:, :6], x[::-1, :6].copy()), (y * y[::-1] > 0).astype(np.float32)


@case(data=_pairs, loss="binary_crossentropy", metrics=("accuracy",), optimiser=adam)
def siamese() -> Any:
    left, right = keras.Input((6,)), keras.Input((6,))
    tower = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(4)])
    gap = layers.Lambda(lambda pair: ops.abs(pair[0] - pair[1]), output_shape=(4,))([tower(left), tower(right)])
    return keras.Model([left, right], layers.Dense(1, activation="sigmoid")(gap))


@case(data=rows(8), optimiser=lambda: keras.optimizers.Adagrad(0.05))
def cross_network() -> Any:
    x = keras.Input((8,))
    crossed = x
    for _ in range(2):
        crossed = layers.Add()([layers.Multiply()([x, layers.Dense(8)(crossed)]), crossed])
    return keras.Model(x, layers.Dense(1)(crossed))


def _clicks() -> Data:
    rng = np.random.default_rng(3)
    numbers = rng.normal(size=(SAMPLES, 4)).astype(np.float32)
    ids = rng.integers(0, 10, size=(SAMPLES, 3)).astype(np.int32)
    return (numbers, ids), rng.integers(0, 2, size=(SAMPLES, 1)).astype(np.float32)


@case(data=_clicks, loss="binary_crossentropy", metrics=("AUC",), optimiser=adam)
def dlrm() -> Any:
    numbers, ids = keras.Input((4,)), keras.Input((3,), dtype="int32")
    bottom = layers.Dense(4, activation="relu")(numbers)
    rows_ = layers.Embedding(10, 4)(ids)
    every = layers.Concatenate(axis=1)([layers.Reshape((1, 4))(bottom), rows_])
    inner = layers.Flatten()(layers.Dot(axes=2)([every, every]))
    top = layers.Dense(8, activation="relu")(layers.Concatenate()([bottom, inner]))
    return keras.Model([numbers, ids], layers.Dense(1, activation="sigmoid")(top))


# --- convolutions -----------------------------------------------------------------------------------------------------


@case(data=classes(8, 8, 3), optimiser=adam, **SPARSE)
def cnn() -> Any:
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 3, activation="relu"),
            layers.Dropout(0.25, seed=7),
            layers.Flatten(),
            layers.Dense(4, activation="softmax"),
        ]
    )


@case(data=classes(8, 8, 3), **SPARSE)
def resnet() -> Any:
    x = inputs = keras.Input((8, 8, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", use_bias=False)(x)))
    for strides in (1, 2):
        way = layers.Conv2D(8, 3, strides=strides, padding="same", use_bias=False)(x)
        way = layers.ReLU()(layers.BatchNormalization()(way))
        way = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", use_bias=False)(way))
        short = x if strides == 1 else layers.Conv2D(8, 1, strides=2, use_bias=False)(x)
        x = layers.ReLU()(layers.Add()([way, short]))
    return keras.Model(inputs, layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


@case(data=classes(8, 8, 3), **SPARSE)
def mobilenet() -> Any:
    x = inputs = keras.Input((8, 8, 3))
    x = layers.ReLU(6.0)(layers.Conv2D(6, 3, strides=2, padding="same")(x))
    way = layers.ReLU(6.0)(layers.BatchNormalization()(layers.Conv2D(12, 1)(x)))
    way = layers.ReLU(6.0)(layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same")(way)))
    x = layers.Add()([x, layers.BatchNormalization()(layers.Conv2D(6, 1)(way))])
    return keras.Model(inputs, layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


@case(data=classes(8, 8, 4), **SPARSE)
def efficientnet() -> Any:
    x = inputs = keras.Input((8, 8, 4))
    way = layers.Activation("swish")(layers.BatchNormalization()(layers.Conv2D(8, 1, use_bias=False)(x)))
    way = layers.Activation("swish")(layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same")(way)))
    squeezed = layers.Reshape((1, 1, 8))(layers.GlobalAveragePooling2D()(way))
    squeezed = layers.Conv2D(8, 1, activation="sigmoid")(layers.Conv2D(2, 1, activation="swish")(squeezed))
    way = layers.BatchNormalization()(layers.Conv2D(4, 1)(layers.Multiply()([way, squeezed])))
    x = layers.Add()([x, way])
    return keras.Model(inputs, layers.Dense(4, activation="softmax")(layers.GlobalMaxPooling2D()(x)))


@case(data=classes(8, 8, 4), optimiser=adam, **SPARSE)
def convnext() -> Any:
    x = inputs = keras.Input((8, 8, 4))
    way = layers.LayerNormalization(epsilon=1e-6)(layers.DepthwiseConv2D(5, padding="same")(x))
    x = layers.Add()([x, layers.Dense(4)(layers.Dense(8, activation="gelu")(way))])
    return keras.Model(inputs, layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def _images() -> Data:
    x, _ = rows(8, 8, 2)()
    return x, np.tanh(x.sum(-1, keepdims=True))


@case(data=_images, optimiser=adam)
def unet() -> Any:
    x = inputs = keras.Input((8, 8, 2))
    top = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    low = layers.Conv2D(8, 3, padding="same", activation="relu")(layers.AveragePooling2D(2)(top))
    up = layers.Conv2DTranspose(4, 2, strides=2)(low)
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(layers.Concatenate()([top, up]))
    return keras.Model(inputs, layers.Conv2D(1, 1)(x))


@case(data=_images, optimiser=adam)
def autoencoder() -> Any:
    return keras.Sequential(
        [
            keras.Input((8, 8, 2)),
            layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            layers.ZeroPadding2D(1),
            layers.SeparableConv2D(4, 3, activation="relu"),
            layers.UpSampling2D(),
            layers.Conv2D(1, 3, padding="same"),
        ]
    )


@case(data=classes(8, 8, 4), optimiser=adam, **SPARSE)
def group_norm() -> Any:
    return keras.Sequential(
        [
            keras.Input((8, 8, 4)),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.GroupNormalization(2),
            layers.LeakyReLU(),
            layers.Conv2D(4, 3, dilation_rate=2, groups=2),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4, activation="softmax"),
        ]
    )


@case(data=classes(16, 3), optimiser=adam, **SPARSE)
def conv1d() -> Any:
    return keras.Sequential(
        [
            keras.Input((16, 3)),
            layers.Conv1D(8, 3, padding="causal", activation="relu"),
            layers.MaxPooling1D(2),
            layers.Conv1D(8, 3, strides=2, activation="tanh"),
            layers.GlobalMaxPooling1D(),
            layers.Dense(4, activation="softmax"),
        ]
    )


# --- sequences --------------------------------------------------------------------------------------------------------


@case(data=rows(5, 3), optimiser=adam)
def lstm() -> Any:
    return keras.Sequential([keras.Input((5, 3)), layers.LSTM(6), layers.Dense(1)])


@case(data=rows(5, 3), optimiser=adam)
def stacked_lstm() -> Any:
    return keras.Sequential(
        [keras.Input((5, 3)), layers.LSTM(5, return_sequences=True), layers.LSTM(4), layers.Dense(1)]
    )


@case(data=rows(5, 3), optimiser=lambda: keras.optimizers.Adadelta(0.5))
def gru() -> Any:
    return keras.Sequential([keras.Input((5, 3)), layers.GRU(6), layers.Dense(1)])


@case(data=tokens(6, 12), optimiser=adam, **SPARSE)
def bidirectional() -> Any:
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(12, 4),
            layers.Bidirectional(layers.LSTM(4)),
            layers.Dense(3, activation="softmax"),
        ]
    )


@case(data=tokens(6, 12), optimiser=adam, **SPARSE)
def simple_rnn() -> Any:
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(12, 4),
            layers.SimpleRNN(5),
            layers.Dense(3, activation="softmax"),
        ]
    )


@case(data=tokens(6, 12), optimiser=lambda: keras.optimizers.Adamax(0.01), **SPARSE)
def embedding() -> Any:
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(12, 8),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3, activation="softmax"),
        ]
    )


def _sentences() -> Data:
    rng = np.random.default_rng(4)
    source, target = (rng.integers(0, 2, size=(SAMPLES, 5, 6)).astype(np.float32) for _ in range(2))
    return (source, target), rng.integers(0, 6, size=(SAMPLES, 5)).astype(np.int32)


@case(data=_sentences, optimiser=adam, **SPARSE)
def encoder_decoder() -> Any:
    source, target = keras.Input((5, 6)), keras.Input((5, 6))
    _, h, c = layers.LSTM(6, return_state=True)(source)
    decoded = layers.LSTM(6, return_sequences=True)(target, initial_state=[h, c])
    return keras.Model([source, target], layers.Dense(6, activation="softmax")(decoded))


# --- attention --------------------------------------------------------------------------------------------------------


def _block(x: Any, width: int, heads: int) -> Any:
    attended = layers.MultiHeadAttention(heads, width // heads)(x, x)
    x = layers.LayerNormalization(epsilon=1e-6)(x + attended)
    return layers.LayerNormalization(epsilon=1e-6)(
        x + layers.Dense(width)(layers.Dense(2 * width, activation="relu")(x))
    )


@case(data=tokens(6, 12), optimiser=adam, **SPARSE)
def transformer() -> Any:
    ids = keras.Input((6,), dtype="int32")
    places = layers.Embedding(6, 8)(ops.arange(6))
    x = _block(layers.Embedding(12, 8)(ids) + places, 8, 2)
    x = layers.Dropout(0.1, seed=5)(layers.GlobalAveragePooling1D()(x))
    return keras.Model(ids, layers.Dense(3, activation="softmax")(x))


@case(data=classes(8, 8, 3), optimiser=lambda: keras.optimizers.AdamW(0.01), **SPARSE)
def vit() -> Any:
    image = keras.Input((8, 8, 3))
    patches = layers.Reshape((4, 8))(layers.Conv2D(8, 4, strides=4)(image))
    x = _block(patches, 8, 2)
    return keras.Model(image, layers.Dense(4, activation="softmax")(layers.Flatten()(x)))


@case(data=classes(4, 8), optimiser=adam, **SPARSE)
def mixer() -> Any:
    x = inputs = keras.Input((4, 8))
    turned = layers.Permute((2, 1))(layers.LayerNormalization()(x))
    x = x + layers.Permute((2, 1))(layers.Dense(4)(layers.Dense(8, activation="gelu")(turned)))
    x = x + layers.Dense(8)(layers.Dense(16, activation="gelu")(layers.LayerNormalization()(x)))
    return keras.Model(inputs, layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling1D()(x)))


def _graphs() -> Data:
    rng = np.random.default_rng(5)
    nodes = rng.normal(size=(SAMPLES, 5, 4)).astype(np.float32)
    edges = (rng.random((SAMPLES, 5, 5)) > 0.5).astype(np.float32) + np.eye(5, dtype=np.float32)
    return (nodes, np.minimum(edges, 1)), rng.integers(0, 3, size=(SAMPLES, 5)).astype(np.int32)


@case(data=_graphs, optimiser=adam, **SPARSE)
def gat() -> Any:
    class Attention(layers.Layer):
        def __init__(self, units: int) -> None:
            super().__init__()
            self.values, self.left, self.right = layers.Dense(units), layers.Dense(1), layers.Dense(1)

        def call(self, nodes: Any, edges: Any) -> Any:
            values = self.values(nodes)
            scores = ops.leaky_relu(self.left(values) + ops.swapaxes(self.right(values), 1, 2))
            return ops.matmul(ops.softmax(ops.where(edges > 0, scores, -1e9)), values)

        def compute_output_shape(self, nodes_shape: Any, edges_shape: Any) -> Any:
            return (*nodes_shape[:-1], self.values.units)

    nodes, edges = keras.Input((5, 4)), keras.Input((5, 5))
    x = layers.Activation("elu")(Attention(6)(nodes, edges=edges))
    return keras.Model([nodes, edges], layers.Dense(3, activation="softmax")(Attention(6)(x, edges=edges)))


# --- generative -------------------------------------------------------------------------------------------------------


def _itself() -> Data:
    x, _ = rows(6)()
    return x, x


@case(data=_itself, optimiser=adam)
def vae() -> Any:
    class Sampling(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.seed_generator = keras.random.SeedGenerator(11)

        def call(self, mean: Any, log: Any) -> Any:
            self.add_loss(-0.05 * ops.mean(1 + log - ops.square(mean) - ops.exp(log)))
            return mean + ops.exp(0.5 * log) * keras.random.normal(ops.shape(mean), seed=self.seed_generator)

        def compute_output_shape(self, mean_shape: Any, log_shape: Any) -> Any:
            return mean_shape

    x = keras.Input((6,))
    hidden = layers.Dense(8, activation="relu")(x)
    z = Sampling()(layers.Dense(2)(hidden), log=layers.Dense(2)(hidden))
    return keras.Model(x, layers.Dense(6)(layers.Dense(8, activation="relu")(z)))


@case(data=_itself, optimiser=adam, metrics=())
def gan() -> Any:
    class Game(keras.Model):
        """Generator and critic in one backward pass: the critic's gradient is turned round before the generator."""

        def __init__(self) -> None:
            super().__init__()
            self.generator = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(6)])
            self.critic = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(1)])
            self.seed_generator = keras.random.SeedGenerator(2)

        def call(self, x: Any) -> Any:
            made = self.generator(keras.random.normal(ops.shape(x), seed=self.seed_generator))
            turned = 2 * ops.stop_gradient(made) - made
            return ops.concatenate([self.critic(x), self.critic(turned)])

        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
        ) -> Any:
            real, fake = ops.split(y_pred, 2)
            return ops.mean(ops.softplus(-real)) + ops.mean(ops.softplus(fake))

    return Game()


# --- types ------------------------------------------------------------------------------------------------------------


@case(data=classes(6), optimiser=adam, policy="mixed_float16", digits=2, **SPARSE)
def mixed_precision() -> Any:
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(16, activation="relu"), layers.Dense(4, activation="softmax", dtype="float32")]
    )
