"""Greedy decoding with a cache of keys and values: ``while_loop`` and ``dynamic_update_slice``, until an end token."""

import jax
import jax.numpy as jnp

from frontends.jax.programs.program import Program


def program(scale=1):
    width, vocab, limit = 16 * scale, 23, 12 * scale
    keys = jax.random.split(jax.random.key(0), 7)
    embed, q, k, v, out = (
        jax.random.normal(key, (n, m)) * n**-0.5
        for key, n, m in zip(
            keys, (vocab, width, width, width, width), (width, width, width, width, vocab), strict=False
        )
    )

    def more(state):
        place, token, *_ = state
        return (place < limit) & (token != 0)

    def one(state):
        place, token, cache, text = state
        x = embed[token] * vocab**0.5
        row = jnp.stack([x @ k, x @ v])[:, None]
        cache = jax.lax.dynamic_update_slice(cache, row, (0, place, 0))
        scores = jnp.where(jnp.arange(limit) <= place, cache[0] @ (x @ q), -jnp.inf)
        y = x + jax.nn.softmax(scores * width**-0.5) @ cache[1]
        token = jnp.argmax(y @ out).astype(jnp.int32)
        return place + 1, token, cache, text.at[place].set(token)

    def step(token):
        start = jnp.int32(0), token, jnp.zeros((2, limit, width)), jnp.zeros(limit, jnp.int32)
        place, token, _, text = jax.lax.while_loop(more, one, start)
        return jnp.maximum(token, 1), (place, text)

    return Program(step, jnp.int32(5), ((),) * 3)
