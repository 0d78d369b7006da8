"""A graph attention network: messages by gather, softmax over neighbours and sums by ``segment_sum``."""

import jax
import jax.numpy as jnp

from frontends.jax.programs.program import Program


def program(scale=1):
    nodes, edges, width = 24 * scale, 80 * scale, 8 * scale
    keys = jax.random.split(jax.random.key(0), 8)
    source, target = jax.random.randint(keys[0], (2, edges), 0, nodes)
    labels = jax.random.randint(keys[1], (nodes,), 0, 3)
    params = [
        {"w": jax.random.normal(k, (width, n)) * width**-0.5, "a": 0.3 * jax.random.normal(k, (2 * n,))}
        for k, n in zip(keys[2:4], (width, 3), strict=True)
    ]

    def attention(layer, x):
        h = x @ layer["w"]
        pairs = jnp.concatenate([h[source], h[target]], -1)
        scores = jax.nn.leaky_relu(pairs @ layer["a"], 0.2)
        highest = jax.ops.segment_max(scores, target, nodes)
        weights = jnp.exp(scores - jax.lax.stop_gradient(highest)[target])
        total = jax.ops.segment_sum(weights, target, nodes)
        return jax.ops.segment_sum((weights / total[target])[:, None] * h[source], target, nodes)

    def loss(params, x):
        h = jax.nn.elu(attention(params[0], x))
        log_p = jax.nn.log_softmax(attention(params[1], h))
        return -jnp.take_along_axis(log_p, labels[:, None], 1).mean()

    def step(params, x):
        value, grads = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads), value

    x = jax.random.normal(keys[4], (3, nodes, width))
    return Program(step, params, tuple((b,) for b in x), rtol=2e-4)
