"""Gradients of tapes beside those of JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from abele.errors import AbeleError

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
Y = np.array([0, 1, 1, 0, 1])


def test_gradient__of_functions_of_tensors__is_jaxs(tf: Any) -> None:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        y = tf.nn.gelu(x) * 2.0
        for _ in range(3):
            y = tf.sin(y) + x
        loss = tf.reduce_mean(tf.square(y))

    def same(x: Any) -> Any:
        y = jax.nn.gelu(x, approximate=False) * 2.0
        for _ in range(3):
            y = jnp.sin(y) + x
        return jnp.mean(jnp.square(y))

    np.testing.assert_allclose(tape.gradient(loss, x), jax.grad(same)(x), rtol=1e-5, atol=1e-7)


def test_gradient__of_one_function_called_often__counts_every_call(tf: Any) -> None:
    doubled = jax.jit(lambda v: v * 2.0)
    x = tf.constant(1.5)
    for _ in range(3):
        with tf.GradientTape() as tape:
            y = x
            for _ in range(5):
                y = doubled(y)
        assert tape.gradient(y, x) == 32.0


@pytest.mark.slow
@pytest.mark.parametrize("deep", [False, True], ids=["dense", "deep"])
def test_gradient__of_keras_layers_and_losses__trains_as_fit_does(deep: bool, tf: Any) -> None:
    def made() -> Any:
        tf.keras.utils.set_random_seed(2)
        hidden = [tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.LayerNormalization()] if deep else []
        return tf.keras.Sequential([tf.keras.Input((3,)), *hidden, tf.keras.layers.Dense(2, activation="softmax")])

    def rule() -> Any:
        return tf.keras.optimizers.Adam(0.05) if deep else tf.keras.optimizers.SGD(0.05)

    loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
    ours, losses = made(), []
    optimizer = rule()
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = loss_of(Y, ours(X, training=True))
        gradients = tape.gradient(loss, ours.trainable_variables)
        optimizer.apply_gradients(zip(gradients, ours.trainable_variables, strict=True))
        losses.append(float(loss))
    keras = made()
    keras.compile(rule(), loss_of)
    assert losses == pytest.approx(keras.fit(X, Y, epochs=3, verbose=0).history["loss"], rel=1e-5)


def test_gradient__while_a_function_is_traced__is_traced_too(tf: Any) -> None:
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x**3)
        return tape.gradient(loss, x)

    np.testing.assert_allclose(jax.jit(step)(X), 3 * X**2, rtol=1e-5)
    assert "mul" in str(jax.make_jaxpr(step)(X))


def test_gradient__of_gradients__is_that_of_second_order(tf: Any) -> None:
    x = tf.Variable(3.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = x * x * x
        first = inner.gradient(y, x)
    assert first == 27.0
    assert outer.gradient(first, x) == 18.0


def test_gradient__structures_and_unconnected__keep_their_form(tf: Any) -> None:
    a, b, count = tf.Variable(2.0), tf.Variable(3.0), tf.Variable(1, trainable=False)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(a)
        y = a * a
        with tape.stop_recording():
            unseen = b * b
    assert tape.gradient(y, {"a": a, "b": [b, count]}) == {"a": 4.0, "b": [None, None]}
    assert tape.gradient(y, b, unconnected_gradients=tf.UnconnectedGradients.ZERO) == 0.0
    assert tape.gradient(unseen, b) is None
    assert tape.gradient([y, y], a) == 8.0
    assert tape.gradient(y, a, output_gradients=[tf.constant(10.0)]) == 40.0


def test_gradient__asked_twice_or_of_nothing__is_refused(tf: Any) -> None:
    x = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = x * x
    tape.gradient(y, x)
    with pytest.raises(AbeleError, match="persistent") as error:
        tape.gradient(y, x)
    assert "persistent=True" in str(error.value)
    with pytest.raises(TypeError, match="name variables"), tf.GradientTape() as tape:
        tape.gradient(x * x, "x")


def test_jacobian_and_custom_gradient__are_those_of_the_function(tf: Any) -> None:
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = x * x
    assert tape.jacobian(y, x).tolist() == [[2.0, 0.0], [0.0, 4.0]]

    @tf.custom_gradient
    def clipped(x: Any) -> Any:
        return x * 2.0, lambda above: above * 100.0

    with tf.GradientTape() as tape:
        z = tf.reduce_sum(clipped(x))
    assert tape.gradient(z, x).tolist() == [100.0, 100.0]


def test_tape__an_error_inside__leaves_nothing_behind(tf: Any) -> None:
    with pytest.raises(ZeroDivisionError), tf.GradientTape():
        1 / 0  # noqa: B018
    assert not isinstance(jnp.ones(2) + 1, jax.core.Tracer)
    assert jax.jit(lambda v: v + 1)(1) == 2
