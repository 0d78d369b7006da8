"""A cell list: particles sorted into the cells of a grid, and neighbours counted cell by cell."""

import jax
import jax.numpy as jnp

from frontends.jax.programs.program import Program


def program(scale=1):
    count, side, slots = 64 * scale, 4, 16 * scale
    x = jax.random.uniform(jax.random.key(0), (count, 2))
    v = 0.05 * jax.random.normal(jax.random.key(1), (count, 2))

    def step(state):
        x, v = state
        cell = jnp.floor(x * side).astype(jnp.int32)
        number = cell[:, 0] * side + cell[:, 1]
        order = jnp.argsort(number)
        ordered = number[order]
        first = jnp.searchsorted(ordered, jnp.arange(side * side))
        place = jnp.arange(count) - first[ordered]
        table = jnp.full((side * side, slots), -1).at[ordered, place].set(order, mode="drop")
        others = x[jnp.maximum(table, 0)]
        near = ((others[:, :, None] - others[:, None]) ** 2).sum(-1) < 0.1**2
        real = table >= 0
        degree = (near & real[:, None] & real[:, :, None]).sum((1, 2))
        return ((x + v) % 1.0, v), (degree, real.sum(1))

    return Program(step, (x, v), ((),) * 3)
