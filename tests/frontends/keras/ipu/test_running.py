"""Functions as programs: queues, loops, variables, and operations of the IPU's modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from abele.errors import UnsupportedOpError
from abele.frontends.keras import ipu
from abele.frontends.keras.ipu.ipu_strategy import IPUStrategy

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


class Numbers:
    """A dataset of rows."""

    element_spec = None

    def cardinality(self) -> int:
        return len(X)

    def __iter__(self) -> Iterator[Any]:
        return iter(X)


def function(body: Callable[..., Any]) -> Any:
    """A function as ``tf.function`` makes them."""
    body.python_function = body  # type: ignore[attr-defined]
    return body


def test_run__function__gives_what_jax_does() -> None:
    result = IPUStrategy().run(function(lambda x, *, scale: {"y": jnp.tanh(x) * scale}), [X], {"scale": 2.0})
    np.testing.assert_allclose(result["y"], np.tanh(X) * 2, rtol=1e-6)


def test_run__loop_over_an_infeed__sends_each_step_to_the_outfeed() -> None:
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(Numbers()), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(total: Any, row: Any) -> Any:
        outfeed.enqueue({"sum": row.sum()})
        return total + row

    total = IPUStrategy().run(function(lambda t: ipu.loops.repeat(4, body, [t], infeed)), [np.zeros(4, np.float32)])
    np.testing.assert_allclose(total, X[:4].sum(0), rtol=1e-5)
    np.testing.assert_allclose(outfeed.dequeue()["sum"], X[:4].sum(1), rtol=1e-5)
    again = IPUStrategy().run(function(lambda t: ipu.loops.repeat(2, body, [t], infeed)), [np.zeros(4, np.float32)])
    np.testing.assert_allclose(again, X[4:].sum(0), rtol=1e-5)


def test_run__outfeed_of_the_last__keeps_one() -> None:
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST)

    def steps(x: Any) -> Any:
        for n in range(3):
            outfeed.enqueue(x * n)

    IPUStrategy().run(function(steps), [np.ones(2, np.float32)])
    np.testing.assert_array_equal(outfeed.dequeue(), [2, 2])


def test_run__two_places_that_enqueue__are_refused() -> None:
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def twice(x: Any) -> None:
        outfeed.enqueue(x)
        outfeed.enqueue(x)

    with pytest.raises(ValueError, match="two places"):
        IPUStrategy().run(function(twice), [np.ones(2, np.float32)])


def test_run__numbers_of_python__are_constants() -> None:
    assert IPUStrategy().run(function(lambda x, times: sum(x for _ in range(times))), [np.float32(2), 3]) == 6


def test_run__variables_that_it_makes__are_made_first() -> None:
    from abele.keras import tensorflow as tf

    y = X.sum(1, keepdims=True)
    model, optimizer = keras.Sequential([keras.layers.Dense(1)]), keras.optimizers.Adam(0.1)
    batches = iter(tf.data.Dataset.from_tensor_slices((X, y)).batch(3).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function(jit_compile=True)
    def train(batches: Any, model: Any, optimizer: Any, steps: int) -> None:
        for _ in tf.range(steps):
            x, wanted = next(batches)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x) - wanted))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            outfeed.enqueue(loss)

    IPUStrategy().run(train, [batches, model, optimizer, 2])
    keras.utils.set_random_seed(1)
    stock = keras.Sequential([keras.layers.Dense(1)])
    stock.compile(keras.optimizers.Adam(0.1), "mse")
    losses = [stock.train_on_batch(X[:3], y[:3]), stock.train_on_batch(X[3:], y[3:])]
    np.testing.assert_allclose(outfeed.dequeue(), losses, rtol=1e-5)
    np.testing.assert_allclose(model.get_weights()[0], stock.get_weights()[0], rtol=1e-5)


def test_run__variables__are_read_and_assigned() -> None:
    count = keras.Variable(np.zeros(4, np.float32))

    def step(x: Any) -> Any:
        count.assign_add(x.sum(0))
        return count + 0.0

    for times in (1, 2):
        result = IPUStrategy().run(function(step), [X])
        np.testing.assert_allclose(result, X.sum(0) * times, rtol=1e-5)
    np.testing.assert_allclose(count.numpy(), X.sum(0) * 2, rtol=1e-5)


OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gelu": (ipu.nn_ops.gelu, lambda x: jax.nn.gelu(x)),
    "swish": (ipu.nn_ops.swish, jax.nn.silu),
    "softmax": (ipu.nn_ops.softmax, jax.nn.softmax),
    "look_up": (
        lambda x: ipu.embedding_ops.embedding_lookup(x, [2, 0], serialization_factor=3),
        lambda x: x[jnp.array([2, 0])],
    ),
    "columns": (lambda x: ipu.math_ops.serialized_matmul(x, x.T, 3, "a_columns"), lambda x: x @ x.T),
    "summed": (lambda x: ipu.math_ops.serialized_matmul(x, x.T, 2, "a_rows_b_columns"), lambda x: x @ x.T),
    "rows": (lambda x: ipu.math_ops.serialized_matmul(x, x, 2, "b_rows", transpose_b=True), lambda x: x @ x.T),
    "segments": (
        lambda x: ipu.math_ops.segment_sum(x, [0, 0, 1, 1, 1, 2], 3),
        lambda x: jax.ops.segment_sum(x, jnp.array([0, 0, 1, 1, 1, 2]), 3),
    ),
    "sum": (ipu.cross_replica_ops.cross_replica_sum, lambda x: x),
    "gather": (lambda x: ipu.all_to_all_op.all_gather(x, 1), lambda x: x[None]),
    "shards": (lambda x: ipu.within_replica_ops.all_gather([x, x])[1], lambda x: jnp.concatenate([x, x])),
    "shares": (lambda x: ipu.within_replica_ops.reduce_scatter([x, x])[0], lambda x: 2 * x.ravel()[:12]),
    "outlined": (ipu.functional_ops.outlined_function(lambda x: x + 1), lambda x: x + 1),
}


@pytest.mark.parametrize("name", OPS)
def test_operations__eagerly__are_what_they_say(name: str) -> None:
    ours, wanted = OPS[name]
    np.testing.assert_allclose(ours(jnp.asarray(X)), wanted(jnp.asarray(X)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ipu.custom_ops.precompiled_user_op([X], "lib.so"),
        lambda: ipu.embedding_ops.create_host_embedding("table", (8, 4), np.float32),
        lambda: ipu.pipelining_ops.pipeline([], 2),
        lambda: ipu.internal_ops.fifo(X, 2),
        lambda: ipu.layers.EffectiveTransformer(8),
    ],
)
def test_operations__that_have_no_lowering__say_what_to_use(call: Callable[[], Any]) -> None:
    with pytest.raises(UnsupportedOpError) as error:
        call()
    assert error.value.remedy


def test_operations__over_replicas__see_the_others(ipus: Any) -> None:
    class Net(keras.Model):
        def call(self, x: Any) -> Any:
            rank = ipu.replication_ops.replication_index()
            total = ipu.cross_replica_ops.cross_replica_mean(x)
            every = ipu.all_to_all_op.all_gather(x, 2).sum(0)
            return jnp.concatenate([total, every, x * 0 + rank], axis=-1)

    with ipus(2):
        model = Net()
    model.compile(steps_per_execution=1)
    found = model.predict(X[:4], batch_size=2, verbose=0)
    mean = (X[:2] + X[2:4]) / 2
    np.testing.assert_allclose(found[:2, :4], mean, rtol=1e-5)
    np.testing.assert_allclose(found[2:, 4:8], 2 * mean, rtol=1e-5)
    np.testing.assert_array_equal(found[:, 8], [0, 0, 1, 1])
