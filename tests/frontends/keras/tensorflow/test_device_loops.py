"""Loops over tensors in functions under ``tf.function``."""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np
import pytest

from abele.errors import UnsupportedOpError
from abele.frontends.keras import ipu
from abele.frontends.keras.ipu import running
from abele.frontends.keras.tensorflow.autograph import with_device_loops
from abele.frontends.keras.tensorflow.data.dataset import Dataset

FACTOR = 3.0
X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)


def primitives(tf: Any, function: Any, *args: Any) -> list[str]:
    """Names of the primitives of a function's trace, as a program has it."""
    running._running.append(running.Running())
    try:
        with running.Assignments():
            return [eqn.primitive.name for eqn in jax.make_jaxpr(function.device_function)(*args).eqns]
    finally:
        running._running.pop()


def test_loop__long__is_one_of_the_device(tf: Any) -> None:
    tensor, weight = tf.ones([4]), keras.Variable(np.zeros(4, np.float32))
    outfeed, rows = ipu.ipu_outfeed_queue.IPUOutfeedQueue(), iter(Dataset.from_tensor_slices(X))
    reads: list[int] = []

    @tf.function(jit_compile=True)
    def trained(iterator: Any, count: int) -> Any:
        total = 0.0
        for number in tf.range(count):
            reads.append(1)
            row = next(iterator)
            weight.assign_add(row * tensor)
            total += tf.reduce_sum(row) * tf.cast(number, tf.float32) * FACTOR
            outfeed.enqueue({"sum": tf.reduce_sum(row)})
        return total, row

    strategy = ipu.ipu_strategy.IPUStrategy()
    total, last = strategy.run(trained, args=[rows, 12])
    assert len(reads) < 12
    np.testing.assert_allclose(weight.numpy(), X[:12].sum(0), rtol=1e-5)
    np.testing.assert_allclose(total, (X[:12].sum(1) * np.arange(12)).sum() * 3, rtol=1e-4)
    np.testing.assert_allclose(last, X[11])
    np.testing.assert_allclose(outfeed.dequeue()["sum"].numpy(), X[:12].sum(1), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(next(rows), X[12])


def test_loop__what_a_device_loop_cannot_be__is_unrolled(tf: Any) -> None:
    @tf.function
    def grows(x: Any) -> Any:
        for _ in tf.range(10):
            x = tf.concat([x, x[:1]], 0)
        return x

    @tf.function
    def leaves(x: Any) -> Any:
        for number in tf.range(10):
            x += number
            if x.ndim == 0:
                break
        return x

    @tf.function
    def short(x: Any) -> Any:
        for _ in tf.range(3):
            x = x * 2
        return x

    @tf.function
    def long(x: Any) -> Any:
        y = None
        for _ in tf.range(10):
            for _ in tf.range(10):
                x = x * 2
            y = x
        return y

    assert "scan" not in primitives(tf, grows, X[0])
    assert primitives(tf, leaves, X[0].astype(int)).count("add") == 10
    assert primitives(tf, short, X[0]).count("mul") == 3
    assert "scan" in primitives(tf, long, X[0])
    assert long(tf.ones([2])).shape == (2,)


def test_loop__tensors_kept_in_a_list__runs_unrolled(tf: Any) -> None:
    @tf.function
    def listed(x: Any) -> Any:
        kept = []
        for number in tf.range(9):
            kept.append(x * tf.cast(number, tf.float32))
        return tf.stack(kept)

    found = ipu.ipu_strategy.IPUStrategy().run(listed, args=[X[0]])
    np.testing.assert_allclose(found, X[0] * np.arange(9, dtype=np.float32)[:, None], rtol=1e-6)


def test_loop__random_numbers__differ_from_trip_to_trip(tf: Any) -> None:
    @tf.function
    def drawn(x: Any) -> Any:
        least = greatest = tf.zeros([])
        for _ in tf.range(30):
            number = tf.random.uniform([])
            least, greatest = tf.minimum(least, number - 1), tf.maximum(greatest, number)
        return greatest - least + tf.reduce_sum(x) * 0

    assert "scan" in primitives(tf, drawn, X[0])


def test_functions__without_loops_or_source__stay(tf: Any) -> None:
    def plain(x: Any) -> Any:
        return x

    made = eval("lambda x: [y for y in x]")
    assert with_device_loops(plain) is plain
    assert with_device_loops(made) is made
    assert with_device_loops(len) is len


def test_condition__of_a_tensor__names_the_line(tf: Any) -> None:
    @tf.function
    def asks(x: Any) -> Any:
        if tf.reduce_sum(x) > 0:
            return x
        return -x

    with pytest.raises(
        UnsupportedOpError, match=r"(?s)asks for the value of a tensor.*test_device_loops\.py.*tf\.cond"
    ):
        ipu.ipu_strategy.IPUStrategy().run(asks, args=[X[0]])


def test_model__made_in_the_first_call__is_updated(tf: Any) -> None:
    model, rule = keras.Sequential([keras.layers.Dense(1)]), keras.optimizers.SGD(0.1)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        rule.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    strategy = ipu.ipu_strategy.IPUStrategy()
    first = strategy.run(step, args=[X, X[:, :1]])
    assert rule.iterations.numpy() == 1
    assert strategy.run(step, args=[X, X[:, :1]]) < first
