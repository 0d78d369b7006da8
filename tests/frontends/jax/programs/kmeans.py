"""k-means until nothing moves any more: ``while_loop``, ``argmin`` and sums by number."""

import jax
import jax.numpy as jnp

from frontends.jax.programs.program import Program


def program(scale=1):
    count, groups = 64 * scale, 5
    centres = jax.random.normal(jax.random.key(0), (groups, 2)) * 3
    keys = jax.random.split(jax.random.key(1), 3)
    points = [centres[jnp.arange(count) % groups] + jax.random.normal(k, (count, 2)) for k in keys]

    def step(start, x):
        def nearest(c):
            return ((x[:, None] - c[None]) ** 2).sum(-1).argmin(1)

        def one(state):
            c, _, n = state
            number = nearest(c)
            total = jax.ops.segment_sum(x, number, groups)
            size = jax.ops.segment_sum(jnp.ones(count), number, groups)
            new = jnp.where(size[:, None] > 0, total / jnp.maximum(size, 1)[:, None], c)
            return new, jnp.abs(new - c).max(), n + 1

        state = jax.lax.while_loop(lambda s: (s[1] > 1e-4) & (s[2] < 50), one, (start, jnp.float32(1), jnp.int32(0)))
        return state[0], (nearest(state[0]), state[2])

    return Program(step, centres + 0.5, tuple((p,) for p in points), rtol=1e-4)
